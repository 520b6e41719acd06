"""Random histories of secure jobs: sessions with dropouts, lying decryptors and clients, crashes and lost data.

The record knows which uploads a session has collected. When the sum is unmasked, all of them must count and nothing
else; when it cannot be unmasked, none. All answers of honest decryptors are recorded too.
"""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedlatest.errors import LedgerError, ProtocolError
from fedlatest.ledger import Instruction, Verdict
from fedlatest.ledger.cohort_choice import choose_cohort, choose_decryptors
from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.messages import Epoch, Reply, decode_instruction, decode_reply, encode
from fedlatest.ledger.secure_rounds import SecureRounds, SessionEnd
from fedlatest.ledger.secure_settings import MIN_DECRYPTORS, SecureAggregation
from fedlatest.secure import KeyPair, UnmaskRequest
from tests.ledger.faults import CrashError
from tests.ledger.history_actions import ROUNDS_TO_RECOVER, History, _position
from tests.ledger.history_state import LAYOUT, SIZE, RecordedUpdate

# The key agreement is a function of its arguments, and it takes most of the time of a history.
agree = lru_cache(maxsize=10_000)(KeyPair.agree)
STRANGER_KEY = KeyPair.from_private(bytes(range(32))).public.hex()
NUM_DECRYPTORS = 3  # of the configuration; the histories choose the decryptors themselves


class SecureInstruction(NamedTuple):
    """An encoded instruction on the network."""

    header: str
    payload: bytes


class SecureReply(NamedTuple):
    """An encoded reply on the network, and what the record knows about it."""

    header: str
    upload: Any
    payload: bytes
    kind: str  # of the instruction
    recorded: RecordedUpdate | None  # the update that the upload stands for; None for other replies
    base: FixedPoint  # the update that was subtracted from it


class SecureHistory(History):
    """The actions of `History` for secure jobs; `open_session`, `request_shares` and `end_session` replace `issue`.

    Args:
        memory: "client" or "none".
        num_clients: number of clients.
        min_cohort: the smallest cohort.
        options: see `HistoryState`.
    """

    def __init__(self, *, memory: str, num_clients: int, min_cohort: int, **options: Any) -> None:
        settings = SecureAggregation(min_cohort=min_cohort, num_decryptors=NUM_DECRYPTORS)
        self.min_cohort = min_cohort
        self.sent: list[SecureInstruction] = []  # in transit to clients
        self.received: list[SecureReply] = []  # in transit to the server
        self.old_payloads: list[bytes] = [b"", b"{}"]  # of earlier replies
        self.collected: dict[str, SecureReply] = {}  # uploads in the open session
        self.requested: set[str] = set()  # the clients that the server asked the decryptors for
        self.answers: dict[Any, set[bytes]] = {}  # statements of the requests that a decryptor has answered
        self.outdated: set[SecureInstruction] = set()  # sent before a restore of the ledger
        self.num_asked = 0  # in the open session
        self.goodbyes: set[str] = set()  # clients whose last upload was a goodbye
        self._session: Any = None
        super().__init__(memory=memory, num_clients=num_clients, secure=settings, **options)

    @property
    def secure(self) -> SecureRounds:
        assert self.ledger.secure is not None
        return self.ledger.secure

    # Invariants

    def check(self) -> None:
        """Check sum, tickets and weight in the file against the record, and that clients store what is in the sum."""
        keeps_sum = self.config.memory == "client"
        counted = [recorded.update.astype(np.int64) for recorded in self.in_sum.values()] if keeps_sum else []
        expected = sum(counted, np.zeros(SIZE, np.int64)).tolist()
        assert self.ledger.total.tolist() == expected, "the sum differs from the updates that counted"
        assert self.ledger.database.get_arrays("sum")["total"].tolist() == expected
        tickets = {client.id: client.applied for client in self.ledger.clients() if client.applied is not None}
        expected_tickets = {client: recorded.ticket for client, recorded in self.in_sum.items()}
        assert tickets == expected_tickets, "other tickets are in the sum than those that counted"
        [(round, epoch)] = self.connection.execute("SELECT round, epoch FROM state").fetchall()
        assert (round, epoch) == (self.ledger.round, self.ledger.epoch.number)
        assert self.ledger.arrays()["x"].tolist() == [round] * SIZE, "the model is of another round than the ledger"
        if keeps_sum:
            for client, recorded in self.in_sum.items():
                assert self._stores(client, recorded) or recorded.incarnation != self._incarnation(client)
        self._check_weights()
        self._forget_ended_session()
        if self.secure.session is not None:
            assert set(self.secure.session.replies) == set(self.collected)

    def _stores(self, client: str, recorded: RecordedUpdate) -> bool:
        state = self._store(client).load(self.job)
        found = {stored.ticket: stored for stored in state.updates} if state else {}
        stored = found.get(recorded.ticket)
        return stored is not None and stored.digest == digest_of(recorded.update, stored.salt)

    # Sessions

    def do_open_session(self, which: int, how: int) -> None:
        """Open a session with some clients, and with other or the same ones as decryptors."""
        clients, draw = [client.id for client in self._honest_clients()], random.Random(64 * which + how)
        cohort, decryptors = (
            draw.sample(clients, draw.randint(min(len(clients), least), len(clients)))
            for least in (self.min_cohort - draw.randint(0, 1), MIN_DECRYPTORS - (which == 0))
        )
        self._open_session(cohort, decryptors)

    def _open_session(self, cohort: list[str], decryptors: list[str], *, leaving: list[str] | None = None) -> None:
        def open_session() -> dict[str, Instruction]:
            try:
                return self.secure.open(cohort, decryptors=decryptors, leaving=leaving or [])
            except ProtocolError:
                assert self.secure.session is None
                self.statistics["session: not opened"] += 1
                return {}

        instructions = self._run_server(open_session) or {}
        self.collected, self.requested, self._session = {}, set(), self.secure.session
        self.num_asked = len(instructions)
        self.statistics["session: opened"] += bool(instructions)
        self._send(instructions)

    def do_request_shares(self, *_: int) -> None:
        """Stop collecting and ask the decryptors for their shares; end the session if there are too few uploads."""
        self._forget_ended_session()
        if self.secure.session is None:
            return
        try:
            instructions = self.secure.requests()
        except ProtocolError:
            staying = [client for client, sent in self.collected.items() if decode_reply(sent.header).kind == "upload"]
            assert len(staying) < self.min_cohort
            self.statistics["session: too few uploads"] += 1
            self.do_end_session()
            return
        self.requested = {
            request.session.roster[position].id
            for request in (UnmaskRequest.decode(each.payload) for each in instructions.values())
            for position in request.included
        }
        self._send(instructions)

    def do_end_session(self, *_: int) -> None:
        """End the session: all of its uploads count, or none."""
        self._forget_ended_session()
        if self.secure.session is None:
            return
        before, collected = self.ledger.sums().delta.copy(), self.collected
        end: SessionEnd | None = self._run_server(self.secure.end)
        self.collected = {}
        if end is None:  # the server crashed
            return
        change = self.ledger.sums().delta - before
        assert set(end.replies) in (set(), set(collected)), "a session counts partly"
        if not end.replies:
            assert end.why
            assert not change.any(), "a session that failed changed the sum"
            self.statistics[f"session: {end.why[:30]}"] += 1
            return
        assert set(end.replies) == self.requested, "other clients count than the decryptors were asked for"
        uploads = {client: sent.recorded for client, sent in collected.items()}
        expected = sum(
            (sent.recorded.update.astype(np.int64) - sent.base for sent in collected.values() if sent.recorded),
            np.zeros(SIZE, np.int64),
        )
        assert change.tolist() == expected.tolist(), "the unmasked sum is not that of the uploads"
        for client, reply in end.replies.items():
            assert client not in self.accepted, "two uploads of one client count in a round"
            self.accepted[client] = None if reply.kind == "goodbye" else uploads[client]
        self.statistics["session: unmasked"] += 1
        self.statistics["session: unmasked with dropouts"] += len(collected) < self.num_asked

    def do_advance(self, which: int, how: int) -> None:
        """Do the next step of a session: open it, let clients upload, ask decryptors, let them answer, end it."""
        self._forget_ended_session()
        if self.secure.session is None:
            self.do_open_session(which, how)
        elif self.sent:
            self.do_deliver_all(1, how // 8)
        elif self.received:
            self.do_deliver_all(0, how // 8)
        elif not self.requested:
            self.do_request_shares()
        else:
            self.do_end_session()

    def do_whole_session(self, which: int, how: int) -> None:
        """Run a session, of which one client or decryptor may drop out; copies of its messages may stay in transit."""
        copies = (list(self.sent), list(self.received))
        clients = [client.id for client in self._honest_clients()]
        cohort = [client for bit, client in enumerate(clients) if which >> bit & 1]
        self.sent = []
        self._run_session(
            cohort if len(cohort) >= self.min_cohort else clients, clients, keep=bool(how & 1), drops=how & 12
        )
        self.sent, self.received = copies[0] + self.sent, copies[1] + self.received
        if how & 2:
            self.do_close_round(0, 0)

    def do_whole_round(self, *_: int) -> None:
        """Run a session with all clients, and close the round."""
        self.do_whole_session(63, 2)

    def do_spoiled_session(self, which: int, how: int) -> None:
        """Run a session in which a client uses other masks than it shares, and close the round."""
        clients = [client.id for client in self._honest_clients()]
        self.sent, self.received = [], []
        self._run_session(clients, clients, spoiler=self._client(which))
        if how & 1:
            self.do_close_round(0, 0)

    def _run_session(
        self,
        cohort: list[str],
        decryptors: list[str],
        *,
        leaving: list[str] | None = None,
        keep: bool = False,
        drops: int = 0,
        spoiler: str = "",
    ) -> None:
        self._open_session(cohort, decryptors, leaving=leaving)
        for step, drop in ((self.do_request_shares, drops & 4), (self.do_end_session, drops & 8)):
            sent, self.sent = self.sent[1 if drop else 0 :], []
            received: list[SecureReply] = []
            for instruction in sent:
                self.sent, self.received = [instruction], []
                self._deliver_instruction(0, keep_copy=False)
                received += self.received
            received = [_with_wrong_masks(reply) if _is_upload_of(spoiler, reply) else reply for reply in received]
            for reply in received:
                self._deliver(reply)
            step()
            if keep:
                self.sent, self.received = self.sent, received

    def _forget_ended_session(self) -> None:
        if self.secure.session is not self._session:
            self.collected, self.requested, self._session = {}, set(), self.secure.session

    # The network

    def _send(self, instructions: Mapping[str, Instruction]) -> None:
        self.sent += [SecureInstruction(encode(each), each.payload) for each in instructions.values()]

    def do_send_hello(self, which: int, _: int = 0) -> None:
        """Send a hello to a client."""
        client = self._client(which)
        self._send({client: self.ledger.instruction(client, "hello")})

    def do_exchange_hello(self, which: int, how: int) -> None:
        """Send a hello to a client and deliver its reply at once; a copy of the reply may stay in transit."""
        self.do_send_hello(which)
        before = len(self.received)
        self._deliver_instruction(len(self.sent) - 1, keep_copy=False)
        for sent in self.received[before:]:
            self._deliver(sent)
        if not how & 2:
            del self.received[before:]

    def do_issue(self, which: int, how: int) -> None:
        """Send an instruction without a session, as a server that wants uploads without masks."""
        clients = [client.id for bit, client in enumerate(self._honest_clients()) if which >> bit & 1]
        self._send(self._run_server(lambda: self.ledger.issue(clients, "rebase" if how % 4 == 0 else "train")) or {})

    def do_deliver_instruction(self, which: int, how: int) -> None:
        """Deliver an instruction to its client; a copy may stay in transit."""
        if self.sent:
            self._deliver_instruction(_position(which, self.sent), keep_copy=how % 4 == 0, how=how // 2)

    def do_deliver_all(self, which: int, how: int) -> None:
        """Deliver all instructions in transit except one, or all replies."""
        if which % 2 and self.sent:
            for _ in range(len(self.sent) - (how % 4 == 1)):
                self._deliver_instruction(how % len(self.sent), keep_copy=False)
        else:
            received, self.received = self.received, []
            for sent in received[how % 4 == 1 :]:
                self._deliver(sent)

    def do_deliver_reply(self, which: int, how: int) -> None:
        """Deliver a reply to the server; a copy may stay in transit."""
        if self.received:
            position = _position(which, self.received)
            self._deliver(self.received[position] if how % 4 == 0 else self.received.pop(position))

    def do_lose_instruction(self, which: int, _: int = 0) -> None:
        """Lose an instruction in transit: a client that drops out before its upload, or a decryptor that vanishes."""
        if self.sent:
            self.sent.pop(which % len(self.sent))
            self.statistics["instruction lost"] += 1

    def do_lose_reply(self, which: int, _: int = 0) -> None:
        """Lose a reply in transit: a client that drops out after its training."""
        if self.received:
            self.received.pop(which % len(self.received))
            self.statistics["reply lost"] += 1

    def do_change_reply(self, which: int, how: int) -> None:
        """Change a masked upload, the encrypted shares of a client, or the shares of a decryptor in transit."""
        while self.sent and not any(sent.payload for sent in self.received):
            self._deliver_instruction(0, keep_copy=False)
        changeable = [index for index, sent in enumerate(self.received) if sent.payload]
        if not changeable:
            return
        index = changeable[_position(which, changeable)]
        sent = self.received[index]
        if sent.upload is not None and how % 4 == 0:
            self.received[index] = _with_wrong_masks(sent)
            self.statistics["changed: masks"] += 1
        elif how % 4 == 1:  # replayed from another session, or of another client
            payload = self.old_payloads[how // 4 * 7919 % len(self.old_payloads)]
            self.received[index] = sent._replace(payload=payload)
            self.statistics["changed: foreign payload"] += 1
        else:
            self.received[index] = sent._replace(payload=_damage(sent.payload, how // 4))
            self.statistics[f"changed: payload of {sent.kind}"] += 1

    def do_change_request(self, which: int, how: int) -> None:
        """Send a decryptor a request for other clients than the server's."""
        for _ in range(6):
            if not any(b'"included"' in each.payload for each in self.sent):
                self.do_advance(which, 0)
        requests = [each for each in self.sent if b'"included": [' in each.payload and b"[]" not in each.payload]
        if not requests:
            return
        instruction = requests[_position(which, requests)]
        request = UnmaskRequest.decode(instruction.payload)
        without = how % len(request.included)
        kept = [index for index in range(len(request.included)) if index != without]
        changed = replace(
            request,
            included=tuple(request.included[index] for index in kept),
            sealed=tuple(request.sealed[index] for index in kept),
        )
        self.sent.append(SecureInstruction(instruction.header, changed.encode()))
        self.statistics["request changed"] += 1

    # The clients

    def do_lose_keys(self, which: int, _: int = 0) -> None:
        """Delete the file with a client's keys and its record of answered sessions."""
        self.devices[self._client(which)].storage.files.pop(f"secure-{self.job}.json", None)
        self.statistics["keys lost"] += 1

    def _deliver_instruction(self, position: int, *, keep_copy: bool, how: int = 0) -> None:
        sent = self.sent[position] if keep_copy else self.sent.pop(position)
        self.statistics["instruction delivered twice"] += keep_copy
        instruction = decode_instruction(sent.header, sent.payload)
        device, store = self.devices[instruction.client], self._store(instruction.client)
        files = dict(device.storage.files)
        reply = None
        try:
            reply = self.client_handler(store, instruction, train=lambda: self._train(how), weight=1.0)
        except CrashError:
            self.statistics["client crashed"] += 1
        finally:
            self._record_stored(instruction.client)
            if sent in self.outdated and device.storage.files != files:
                device.restores += 1
        if reply is None:
            return
        assert not reply.metrics, "a client sent its metrics"
        if reply.kind == "goodbye":
            self.goodbyes.add(reply.client)
        elif reply.kind in ("upload", "declined"):
            self.goodbyes.discard(reply.client)
        recorded, base = None, np.zeros(SIZE, np.int32)
        if reply.kind in ("upload", "goodbye"):
            assert instruction.payload, "a client uploaded without a session"
            assert reply.upload is not None
            assert reply.ticket is not None
            update, weight = self.updates[reply.update_digest], self.weight_of[reply.update_digest]
            recorded = RecordedUpdate(reply.ticket, update, weight, self._incarnation(instruction.client))
            if reply.base is not None:
                base = self.updates[instruction.applied_digest]
        if reply.kind == "unmasked":
            self._record_answer(instruction)
        self.old_payloads.append(reply.payload)
        self.received.append(SecureReply(encode(reply), reply.upload, reply.payload, instruction.kind, recorded, base))
        self.statistics[f"sent: {reply.kind}"] += 1

    def _record_stored(self, client: str) -> None:
        """Record the update that a client has just stored, which may have happened before a crash."""
        state = self._store(client).load(self.job, verify=False)
        for stored in state.updates if state else ():
            if stored.digest not in self.updates:
                candidates = [(np.zeros(SIZE, np.int32), 0.0)]
                if self.num_updates:
                    candidates.append((self._last_update, 1.0 + self.num_updates))
                [found] = [each for each in candidates if digest_of(each[0], stored.salt) == stored.digest]
                assert stored.weight == found[1]
                self.updates[stored.digest], self.weight_of[stored.digest] = found

    def _record_answer(self, instruction: Instruction) -> None:
        """Check that a decryptor never answers two requests of a session, unless its disk was replaced."""
        request = UnmaskRequest.decode(instruction.payload)
        client = instruction.client
        keys = self.devices[client].storage.files[f"secure-{self.job}.json"][:80]
        owner = (client, keys, self.devices[client].restores)
        statements = self.answers.setdefault((*owner, request.session.number, request.session.nonce), set())
        statements.add(request.statement)
        assert len(statements) == 1, "a decryptor revealed shares for two different requests of a session"
        assert len(request.included) >= self.min_cohort

    # The server

    def _deliver(self, sent: SecureReply) -> None:
        reply = decode_reply(sent.header, sent.upload, sent.payload)
        handle: Callable[[Reply], Verdict] = {
            "hello": self.ledger.handle_hello,
            "unmask": self.ledger.handle_shares,
        }.get(sent.kind, self.ledger.handle_reply)
        changes, delta = self.connection.total_changes, self.ledger.sums().delta.copy()
        verdict: Verdict | None = self._run_server(lambda: handle(reply))
        if verdict is None:
            return
        assert delta.tolist() == self.ledger.sums().delta.tolist(), "a single reply changed the sum"
        if verdict.outcome == "refused" and "it is ignored until" not in verdict.why:
            assert changes == self.connection.total_changes, "a refused reply changed the file"
        self.statistics[f"{sent.kind}: {verdict.outcome}"] += 1
        if sent.kind != "unmask":
            self.inconsistent.discard(reply.client)
        if verdict.outcome in ("lost", "restored"):
            assert self.data_was_lost, f"an inconsistency was reported without a cause: {verdict}"
            self.num_reports += 1
            self.inconsistent.add(reply.client)
        if verdict.outcome == "collected":
            self._forget_ended_session()
            assert reply.client not in {*self.collected, *self.accepted}, "two uploads of one client were collected"
            self.collected[reply.client] = sent

    def do_close_round(self, which: int, how: int) -> None:
        """Close the round; an open session ends without its uploads."""
        super().do_close_round(which, how)
        self._forget_ended_session()

    def do_expire(self, which: int, how: int) -> None:
        """Remove clients without recent contact, if neither a round nor a session is open."""
        self._forget_ended_session()
        if self.secure.session is None:
            super().do_expire(which, how)

    def do_second_server(self, *_: int) -> None:
        """Open the ledger with a second server; the first one can neither finish its session nor open one."""
        first = self.secure
        super().do_second_server()
        if first.session is not None:
            with pytest.raises((LedgerError, ProtocolError)):
                _finish(first)
        with pytest.raises((LedgerError, ProtocolError)):
            first.open([client.id for client in self._honest_clients()], decryptors=[*self.devices])

    def do_restore(self, which: int, _: int = 0) -> None:
        """Restore the ledger from a backup."""
        super().do_restore(which)
        self.outdated.update(self.sent)

    def do_hostile_hello(self, which: int, how: int) -> None:
        """Send the hello of a stranger with a key that claims sessions, tickets or epochs that do not exist."""
        ledger = self.ledger
        epoch = Epoch(ledger.epoch.number + which % 3, "bad" if which % 3 else ledger.epoch.token)
        identity = (ledger.job, epoch, self.config.hash, LAYOUT.hash, f"stranger{how % 4}")
        keys = ("", "00" * 32, STRANGER_KEY, STRANGER_KEY)
        hello = Reply(
            "hello",
            *identity,
            round=ledger.round,
            highest_ticket=[0, 9, 2**62 - 1][how % 3],
            highest_session=[0, 1000, 2**62 - 1][which // 3 % 3],
            public_key=keys[how // 4 % 4],
        )
        verdict = self._run_server(lambda: ledger.handle_hello(hello))
        if how // 4 % 4 < 2 and verdict is not None:
            assert verdict.outcome == "refused"

    # The end

    def recover(self) -> None:
        """Stop all faults: after a few rounds every client's newest update is in the sum, and losses were reported."""
        self.sent, self.received = [], []
        self.connection.trigger.disarm()
        for device in self.devices.values():
            device.storage.trigger.disarm()
        self.do_close_round(0, 0)
        self.check()
        without_base = self.clients_without_base()
        num_reports = self.num_reports
        self.check_progress()
        if self.limits.max_loss_backoff > ROUNDS_TO_RECOVER:
            return
        unmasked = self.statistics["session: unmasked"]
        for _ in range(ROUNDS_TO_RECOVER):
            self._faultless_round()
            self.check()
            if self._has_recovered() and self.statistics["session: unmasked"] > unmasked:
                break
        assert not without_base or self.num_reports > num_reports, "an update was lost and the loss was not reported"
        staying = {client for client in self.devices if not self._is_leaving(client)}
        if len(staying) < max(self.min_cohort, MIN_DECRYPTORS):
            assert len(staying) >= self.min_cohort or self.statistics["session: unmasked"] == unmasked
            self.statistics["recovery: too few clients stay"] += 1
            return
        assert self.statistics["session: unmasked"] > unmasked, "no session succeeds without faults"
        assert self._has_recovered(), "a client is missing, or its newest update is not in the sum"

    def _may_progress(self) -> bool:
        """Return whether enough clients stay, and can be decryptors."""
        staying = [client for client in self.devices if not self._is_leaving(client)]
        return len(staying) >= max(self.min_cohort, MIN_DECRYPTORS)

    def _chosen_round(self, available: list[str]) -> None:
        """Run a round with the clients and decryptors that a server chooses."""
        leaving = [client for client in available if client in self.goodbyes]
        staying = [client for client in available if client not in leaving]
        size = max(self.min_cohort, len(staying) - 1)
        cohort = choose_cohort(self.ledger, staying, size=size, select=self._oldest_first)
        decryptors = choose_decryptors(self.ledger, available, number=NUM_DECRYPTORS, busy=[])
        self.sent, self.received = [], []
        self._run_session(cohort, decryptors, leaving=leaving)
        self._close_round_without([client for client in cohort if client not in self.accepted])

    def _has_recovered(self) -> bool:
        staying = {client for client in self.devices if not self._is_leaving(client)}
        if not {client.id for client in self._honest_clients()} == set(self.in_sum) == staying:
            return False
        newest = sum((self._newest_update(client) for client in staying), np.zeros(SIZE, np.int64))
        return self.config.memory != "client" or self.ledger.total.tolist() == newest.tolist()

    def _faultless_round(self) -> None:
        self.time += 1.0
        for client in range(len(self.devices)):
            self.do_exchange_hello(client, 0)
        known = [client.id for client in self._honest_clients()]
        asked = [client for client in known if client not in self.inconsistent]
        self._run_session(asked, known)
        self.sent, self.received = [], []
        self.do_close_round(0, 0)


def _finish(secure: SecureRounds) -> None:
    """Request the shares of the open session, end it and close the round, as a server does."""
    secure.requests()
    secure.end()
    secure._ledger.close_round({})


def _with_wrong_masks(sent: SecureReply) -> SecureReply:
    """Return an upload whose client used other masks than it shared."""
    upload = sent.upload + np.uint64(2**62)
    header = encode(replace(decode_reply(sent.header), checksum=checksum_of(upload.view("<i4"))))
    return sent._replace(upload=upload, header=header)


def _is_upload_of(client: str, sent: SecureReply) -> bool:
    return sent.upload is not None and decode_reply(sent.header).client == client


def _damage(payload: bytes, how: int) -> bytes:
    """Change one of the encoded byte strings in a payload, or the payload itself."""
    fields = json.loads(payload or b"{}")
    if not fields:
        return b"damaged"
    names = sorted(fields)
    name = names[how % len(names)]
    if how % 5 == 4:
        del fields[name]
    elif isinstance(fields[name], list):
        position = how % len(fields[name])
        fields[name][position] = _flipped(fields[name][position])
    else:
        fields[name] = _flipped(fields[name])
    return json.dumps(fields).encode()


def _flipped(text: str) -> str:
    return ("B" if text[:1] == "A" else "A") + text[1:]
