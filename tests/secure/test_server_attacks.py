"""Plays a curious server that tries to recover one client's update from everything that it sees.

The public keys are those of the clients: a server that replaces them, or invents clients, is outside of what the
protocol protects against. Where it is easy, a control shows that the attack works without the defence.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from fedlatest.algorithms import fedlaavg
from fedlatest.errors import ProtocolError
from fedlatest.flower import ClientResult, ClientTask, SecureAggregation, client_app, to_record
from fedlatest.flower.message_records import PROTOCOL, VECTOR, metrics_of
from fedlatest.ledger import client as ledger_client
from fedlatest.ledger.hashing import digest_of
from fedlatest.secure import KeyPair, MaskedUpload, Participant, UnmaskRequest, decryptor, session, shamir
from fedlatest.secure.agreement import SealedAnswer, open_answer
from fedlatest.secure.decryptor import AnsweredSessions
from fedlatest.secure.masking import pair_seed, sign_of
from fedlatest.secure.primitives import add_masks, commit
from fedlatest.secure.session import decode_bytes
from tests.flower.small_job import INITIAL, SmallJob, Weights, lose, towards
from tests.ledger.job import Job
from tests.secure.cohort import SCOPE, Cohort, request_for

SECRET_TEXT = "patient 4711"
SIZE = 8
Numbers = npt.NDArray[np.int64]


# A whole job


class Observed:
    """A job, and everything that its server receives, stores and logs."""

    def __init__(self, folder: Path, *, secure: bool, **options: Any) -> None:
        self.messages: list[Message] = []
        self.updates: list[npt.NDArray[np.int32]] = []  # all updates that the clients computed
        settings = SecureAggregation(3, 4) if secure else None
        self.job = SmallJob(folder, clients="", cohort_size=4, secure=settings, **options)
        self.job.ledger.close()
        for number, name in enumerate("abcdef"):
            self.job.add(name, client_app(lambda *args, number=number: self._train(number, *args)))
        self.job.add("broken", client_app(_fail))
        self.job.reopen()

        def record(node: int, message: Message) -> Message:
            self.messages.append(message)
            return message

        self.job.grid.on_reply = record
        for _ in range(4):
            self.job.run_round()
            self._read_stores()
        self.total = self.job.ledger.total.copy()
        assert self.job.audit().holds
        self.job.ledger.close()
        files = [path for path in (folder / "job").rglob("*") if path.is_file()]
        self.stored = b"\n".join(path.read_bytes() for path in files)

    def _train(self, number: int, weights: Weights, task: ClientTask) -> ClientResult:
        draw = np.random.default_rng(100 * number + task.round)
        moved = {"w": weights["w"] + draw.normal(size=3).astype(np.float32)}
        return ClientResult(1000 + number, {"train_loss": 0.123 + number}, moved)

    def _read_stores(self) -> None:
        for name in "abcdef":
            store = self.job.store(name)
            state = store.load(self.job.ledger.job)
            for stored in state.updates if state else ():
                update = store.read_update(self.job.ledger.job, stored)
                assert update is not None
                if not any((update == known).all() for known in self.updates):
                    self.updates.append(update)

    def headers(self) -> list[dict[str, Any]]:
        found = [str(each.content[PROTOCOL]["header"]) for each in self.messages if not each.has_error()]
        return [json.loads(header) for header in found]

    def uploads(self) -> list[npt.NDArray[Any]]:
        contents: list[Any] = [each.content for each in self.messages if not each.has_error()]
        return [content[VECTOR][VECTOR].numpy() for content in contents if VECTOR in content]

    def seen(self) -> bytes:
        """Return all that the server has seen as one text."""
        parts = [self.stored]
        for message in self.messages:
            if message.has_error():
                parts.append(str(message.error.reason).encode())
                continue
            parts += [str(value).encode() for value in message.content[PROTOCOL].values()]
            parts += [upload.tobytes() for upload in self.uploads()]
        return b"\n".join(parts)


def _fail(weights: Weights, task: ClientTask) -> ClientResult:
    raise ValueError(SECRET_TEXT)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return Observed(tmp_path_factory.mktemp("plain"), secure=False)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return Observed(tmp_path_factory.mktemp("secure"), secure=True)


def _recovered(observed: Observed) -> int:
    """Return how many updates appear in what the server sees, or in differences of uploads and sums."""
    numbers = [upload[:3].astype(np.int64) for upload in observed.uploads()]
    numbers += [observed.total, *(observed.total - each for each in numbers)]
    numbers += [first - second for first in numbers for second in numbers]
    known = {tuple(each.tolist()) for each in numbers}
    texts = observed.seen()
    return sum(tuple(update.tolist()) in known or update.tobytes() in texts for update in observed.updates)


def test_updates_in_what_the_server_sees(plain: Observed, secure: Observed) -> None:
    """Control: without masks, the uploads are the updates."""
    assert _recovered(plain) > 3
    assert len(secure.uploads()) >= 12
    assert _recovered(secure) == 0


def test_guesses_with_the_digest(plain: Observed, secure: Observed) -> None:
    """A server that can guess an update compares the digest. Control: without a salt, that confirms it."""
    for observed, expected in ((plain, True), (secure, False)):
        sent = {header["value"] for header in observed.headers()} | {
            header["checksum"] for header in observed.headers()
        }
        guesses = {digest_of(update) for update in observed.updates}
        assert bool(sent & guesses) == expected
        assert len(guesses) >= 12


def test_weights_and_metrics(plain: Observed, secure: Observed, tmp_path: Path) -> None:
    """Weights are public, unless the job does not use them."""
    unweighted = Observed(tmp_path, secure=True, algorithm=fedlaavg(weighting="none", empty_round="hold"))
    for observed, weights in ((plain, {1000.0, 1001.0}), (secure, {1000.0, 1001.0}), (unweighted, {1.0})):
        assert {header["weight"] for header in observed.headers()} - {0.0} >= weights
        assert any(header["metrics"] for header in observed.headers()) == (observed is plain)
    assert {header["weight"] for header in unweighted.headers()} == {0.0, 1.0}
    assert {client.weight for client in unweighted.job.ledger.clients() if client.has_contributed} == {1.0}


def test_texts_of_errors(plain: Observed, secure: Observed) -> None:
    """The training of one client raises an exception with a text from its data."""
    assert SECRET_TEXT.encode() in plain.seen()
    assert SECRET_TEXT.encode() not in secure.seen()
    assert b"training failed (ValueError)" in secure.seen()


def test_masked_uploads_look_random(secure: Observed) -> None:
    """All bits of masked uploads are 1 in half of the cases, within 5 standard deviations."""
    bits = np.unpackbits(np.concatenate([upload.view(np.uint8) for upload in secure.uploads()]))
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)


def test_two_worlds_with_the_same_sum() -> None:
    """Two clients swap their updates: sums, and the names and lengths of all fields, are the same."""
    views = []
    for swapped in (False, True):
        cohort = Cohort(4, min_cohort=3)
        if swapped:
            cohort.updates["c0"], cohort.updates["c1"] = cohort.updates["c1"], cohort.updates["c0"]
        uploads = cohort.collect(["c0", "c1", "c3"])
        total = cohort.unmask()
        lengths = [
            (name, len(upload.numbers), [len(str(value)) for value in json.loads(upload.payload).values()])
            for name, upload in uploads.items()
        ]
        views.append((total.tolist(), lengths))
    assert views[0] == views[1]


# Decryptors that are asked for different clients


def _subtract(numbers: npt.NDArray[np.uint64], masks: list[tuple[bytes, int]]) -> Numbers:
    result = numbers.copy()
    add_masks(result, [(seed, -sign) for seed, sign in masks])
    return result.view(np.int64)


def _contents(answers: dict[int, SealedAnswer], requests: dict[int, UnmaskRequest], threshold: int) -> dict[int, bytes]:
    """Return the answers that the server can open, each with the statement of its own request."""
    found = {}
    for index, request in requests.items():
        content = open_answer(answers, index, request.statement, threshold=threshold)
        if content is not None:
            found[index] = content
    return found


def _answer_all(cohort: Cohort, requests: dict[int, UnmaskRequest]) -> dict[int, SealedAnswer]:
    number = len(cohort.session.decryptors)
    return {
        index: SealedAnswer.decode(cohort.answer(f"d{index}", request), number) for index, request in requests.items()
    }


def _split_attack() -> tuple[Cohort, dict[str, MaskedUpload], dict[int, UnmaskRequest]]:
    """Ask each of 10 decryptors for the target c0 and two others, so that 7 or more leave out each other client."""
    cohort = Cohort(10, num_decryptors=10, min_cohort=3)
    names = [f"c{number}" for number in range(10)]
    uploads = {name: cohort.upload(name) for name in names}
    chosen = [("c0", names[1 + 2 * index % 9], names[1 + (2 * index + 1) % 9]) for index in range(10)]
    requests = {index: request_for(cohort.session, uploads, each, index) for index, each in enumerate(chosen)}
    return cohort, uploads, requests


def _seeds_of_target(
    cohort: Cohort, requests: dict[int, UnmaskRequest], contents: dict[int, bytes]
) -> dict[int, bytes]:
    """Return the seeds of c0 that can be reconstructed: 0 is its own, 1 + k that with its k-th neighbour."""
    target = cohort.session.positions["c0"]
    shares: dict[int, dict[int, bytes]] = {}
    for index, content in contents.items():
        request = requests[index]
        place = request.included.index(target)
        revealed = decode_bytes(json.loads(content)["shares"][place])
        which = decryptor.revealed_positions(cohort.session, target, frozenset(request.included))
        for number, seed in enumerate(which):
            shares.setdefault(seed, {})[index] = revealed[17 * number : 17 * number + 17]
    threshold = cohort.session.threshold
    return {
        seed: shamir.combine(dict(sorted(each.items())[:threshold]))
        for seed, each in shares.items()
        if len(each) >= threshold
    }


def _unmasked_target(cohort: Cohort, uploads: dict[str, MaskedUpload], seeds: dict[int, bytes]) -> Numbers:
    target = cohort.session.positions["c0"]
    others = cohort.session.neighbours(target)
    signs = {0: 1, **{1 + k: sign_of(target, other) for k, other in enumerate(others)}}
    return _subtract(uploads["c0"].numbers, [(seed, signs[which]) for which, seed in seeds.items()])


def test_another_request_for_each_decryptor() -> None:
    """Each honest decryptor answers one request, but no answer can be opened, because no two requests are the same."""
    cohort, _, requests = _split_attack()
    assert _contents(_answer_all(cohort, requests), requests, cohort.session.threshold) == {}


def test_another_request_for_each_decryptor_without_agreement() -> None:
    """Control: if the answers were not sealed, all masks of the target could be removed."""
    cohort, uploads, requests = _split_attack()
    contents = {}
    for index, request in requests.items():
        shares = [decryptor._shares(request, k, f"d{index}", cohort.keys[f"d{index}"]) for k in range(3)]
        contents[index] = json.dumps({"shares": [session.encode_bytes(each) for each in shares]}).encode()
    seeds = _seeds_of_target(cohort, requests, contents)
    assert len(seeds) == 10
    assert _unmasked_target(cohort, uploads, seeds).tolist() == cohort.updates["c0"].tolist()


@pytest.mark.parametrize("num_other", [1, 2, 3, 5])
def test_two_requests_for_two_groups_of_decryptors(num_other: int) -> None:
    """Of 10 decryptors, some are asked for all clients and the others for all but one: one sum can be opened."""
    cohort = Cohort(5, num_decryptors=10, min_cohort=3)
    names = [f"c{number}" for number in range(5)]
    uploads = {name: cohort.upload(name) for name in names}
    requests = {index: request_for(cohort.session, uploads, names[index < num_other :], index) for index in range(10)}
    opened = _contents(_answer_all(cohort, requests), requests, cohort.session.threshold)
    assert {index < num_other for index in opened} <= {False}
    assert len(opened) == (10 - num_other if 10 - num_other >= 7 else 0)


def test_two_requests_to_the_same_decryptors() -> None:
    """Differencing: the sum of all, and the sum without one. Control: without the record, it gives the update."""
    cohort = Cohort(4, min_cohort=3)
    names = ["c0", "c1", "c2", "c3"]
    uploads = {name: cohort.upload(name) for name in names}
    answered = AnsweredSessions().add(request_for(cohort.session, uploads, names, 0))
    with pytest.raises(ProtocolError, match="another request for session 1"):
        answered.add(request_for(cohort.session, uploads, names[1:], 0))
    sums = []
    for chosen in (names, names[1:]):
        server = Cohort(4, min_cohort=3, keys=cohort.keys)
        for name in chosen:
            server.collector.add(name, *uploads[name])
        sums.append(server.unmask())
    assert (sums[0] - sums[1]).tolist() == cohort.updates["c0"].tolist()


def test_a_client_that_is_said_to_have_dropped_out() -> None:
    """The server learns all masks that the client shares with others, but not the client's own."""
    cohort = Cohort(4, min_cohort=3)
    names = ["c0", "c1", "c2", "c3"]
    uploads = {name: cohort.upload(name) for name in names}
    for name in names[1:]:
        cohort.collector.add(name, *uploads[name])
    assert cohort.unmask().tolist() == cohort.total(names[1:]).tolist()
    target = cohort.session.positions["c0"]
    pairs = {
        1 + k: pair_seed(cohort.session.hash, cohort.keys["c0"], "c0", cohort.session.roster[other])
        for k, other in enumerate(cohort.session.neighbours(target))
    }
    assert (_unmasked_target(cohort, uploads, pairs) != cohort.updates["c0"]).all()
    assert not any(position == target for position, _ in cohort.collector._shares)


def test_fewer_uploads_than_the_minimum() -> None:
    cohort = Cohort(4, min_cohort=3)
    uploads = {name: cohort.upload(name) for name in ("c0", "c1", "c2")}
    with pytest.raises(ProtocolError, match="2 uploads are too few to unmask: the minimum is 3"):
        cohort.answer("d0", request_for(cohort.session, uploads, ["c0", "c1"], 0))
    weaker = replace(cohort.session, min_cohort=2)
    with pytest.raises(ProtocolError, match="the session allows 2 uploads; the job's minimum is 3"):
        cohort.answer("d0", request_for(weaker, uploads, ["c0", "c1"], 0))


def test_clients_that_have_not_uploaded_are_named_as_included() -> None:
    """To reach the minimum, the server invents encrypted shares: the masks with these clients stay in the upload."""
    cohort = Cohort(3, min_cohort=3)
    upload = cohort.upload("c0")
    forged = {name: upload if name == "c0" else cohort.upload("c0") for name in ("c0", "c1", "c2")}
    requests = {index: request_for(cohort.session, forged, forged, index) for index in range(4)}
    contents = _contents(_answer_all(cohort, requests), requests, 3)
    seeds = _seeds_of_target(cohort, requests, contents)
    assert set(seeds) == {0}
    assert (_unmasked_target(cohort, {"c0": upload}, seeds) != cohort.updates["c0"]).all()


def test_a_repeated_upload() -> None:
    """A client uploads twice in a session, with different updates after its disk was restored.

    The decryptors reveal the own seed of one of them only: with 2 answers for each, neither can be reconstructed. Both
    seeds together would give the difference of the two updates.
    """
    cohort = Cohort(3, min_cohort=3)
    uploads = {name: cohort.upload(name) for name in ("c1", "c2")}
    first = cohort.upload("c0")
    before, cohort.updates["c0"] = cohort.updates["c0"], np.array([7, 8, 9], np.int64)
    second = cohort.upload("c0")
    versions = [{**uploads, "c0": first}, {**uploads, "c0": second}]
    requests = {index: request_for(cohort.session, versions[index % 2], versions[0], index) for index in range(4)}
    contents = _contents(_answer_all(cohort, requests), requests, 3)
    target = cohort.session.positions["c0"]
    for version in range(2):
        shares = {k: each for k, each in contents.items() if k % 2 == version}
        assert len(shares) == 2 < cohort.session.threshold
        pieces = {
            k: decode_bytes(json.loads(each)["shares"][requests[k].included.index(target)])[:17]
            for k, each in shares.items()
        }
        assert _is_not_the_seed(versions[version]["c0"], pieces)
    own = [_own_seed(cohort, version["c0"]) for version in versions]
    without = [_subtract(version["c0"].numbers, [(seed, 1)]) for version, seed in zip(versions, own, strict=True)]
    assert (without[1] - without[0]).tolist() == (cohort.updates["c0"] - before).tolist()


def _own_seed(cohort: Cohort, upload: MaskedUpload) -> bytes:
    """Return a client's own seed, which the server cannot know, with the private keys of all decryptors."""
    request = [request_for(cohort.session, {"c0": upload}, ["c0"], index) for index in range(3)]
    pieces = {k: decryptor._shares(each, 0, f"d{k}", cohort.keys[f"d{k}"])[:17] for k, each in enumerate(request)}
    return shamir.combine(pieces)


def _is_not_the_seed(upload: MaskedUpload, pieces: dict[int, bytes]) -> bool:
    """Return whether too few shares do not give the seed that the client has committed to."""
    committed = decode_bytes(json.loads(upload.payload)["seeds"])[:16]
    try:
        return commit("seed", shamir.combine(pieces)) != committed
    except ProtocolError:
        return True


def test_too_few_decryptors_work_with_the_server() -> None:
    """Two of four decryptors give the server their keys: two shares do not give the seed, three do."""
    cohort = Cohort(3, min_cohort=2)
    upload = cohort.upload("c0")
    requests = [request_for(cohort.session, {"c0": upload}, ["c0"], index) for index in range(4)]
    pieces = {k: decryptor._shares(each, 0, f"d{k}", cohort.keys[f"d{k}"])[:17] for k, each in enumerate(requests)}
    assert _is_not_the_seed(upload, {k: pieces[k] for k in (0, 1)})
    assert not _is_not_the_seed(upload, {k: pieces[k] for k in (0, 1, 2)})


# Different descriptions of a session


@pytest.mark.parametrize("what", ["roster", "decryptors", "min_cohort", "nonce", "number"])
def test_another_session_for_the_decryptors_than_for_the_clients(what: str) -> None:
    """The decryptors agree on what they are asked, but they cannot decrypt the shares of the clients."""
    cohort = Cohort(4, min_cohort=2)
    names = ["c0", "c1", "c2"]
    uploads = {name: cohort.upload(name) for name in names}
    shown = cohort.session
    changed = {
        "roster": replace(shown, roster=tuple(each for each in shown.roster if each.id != "c3")),
        "decryptors": replace(shown, decryptors=shown.decryptors[:3], threshold=3),
        "min_cohort": replace(shown, min_cohort=3),
        "nonce": session.make_session(shown.roster, shown.decryptors, scope=SCOPE, number=1, nonce="ee", min_cohort=2),
        "number": replace(shown, number=2),
    }[what]
    requests = {}
    for index in range(len(changed.decryptors)):
        sealed = {shown.positions[name]: request_for(shown, uploads, [name], index).sealed[0] for name in names}
        by_position = sorted((changed.positions[name], sealed[shown.positions[name]]) for name in names)
        requests[index] = UnmaskRequest(changed, tuple(k for k, _ in by_position), tuple(s for _, s in by_position))
    answers = {
        index: SealedAnswer.decode(cohort.answer(f"d{index}", request), len(changed.decryptors))
        for index, request in requests.items()
    }
    contents = _contents(answers, requests, changed.threshold)
    assert len(contents) == len(changed.decryptors)
    assert {share for content in contents.values() for share in json.loads(content)["shares"]} == {""}


@pytest.mark.parametrize("is_bound", [True, False])
def test_forged_neighbours(is_bound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server shows a client neighbours with its own keys, and the true roster to the decryptors.

    Control: if the encrypted shares were not bound to the neighbours, the decryptors would reveal the client's own
    seed, and the server would know all other masks.
    """
    if not is_bound:
        monkeypatch.setattr(session, "_context", lambda session_hash, *_: session_hash)
    cohort, forged = Cohort(3, min_cohort=3), KeyPair.generate()
    view = cohort.session.view_of("c0")
    others = {position: Participant(each.id, forged.public) for position, each in view.neighbours.items()}
    uploads = {name: cohort.upload(name) for name in ("c1", "c2")}
    uploads["c0"] = cohort.upload("c0", view=replace(view, neighbours=others))
    requests = {index: request_for(cohort.session, uploads, uploads, index) for index in range(4)}
    contents = _contents(_answer_all(cohort, requests), requests, 3)
    target = cohort.session.positions["c0"]
    revealed = {json.loads(contents[k])["shares"][requests[k].included.index(target)] for k in contents}
    assert (revealed == {""}) == is_bound
    if not is_bound:
        seeds = _seeds_of_target(cohort, requests, contents)
        known = {
            1 + k: pair_seed(cohort.session.hash, forged, each.id, cohort.participant("c0"))
            for k, each in enumerate(others.values())
        }
        assert _unmasked_target(cohort, uploads, {**seeds, **known}).tolist() == cohort.updates["c0"].tolist()


# Through the ledger


def secure_ledger(*clients: str, min_cohort: int = 3) -> Job:
    return Job(*clients, secure=SecureAggregation(min_cohort, 3).as_dict())


def run_session(job: Job, updates: dict[str, list[int]], *, decryptors: str = "abc") -> dict[str, Any]:
    """Run a session up to the requests, and return the instructions to train."""
    assert job.ledger.secure is not None
    instructions = job.ledger.secure.open(list(updates), decryptors=list(decryptors))
    for client, update in updates.items():
        assert job.ledger.handle_reply(job.reply(instructions[client], *update)).outcome == "collected"
    return instructions


def unmask(job: Job) -> Any:
    assert job.ledger.secure is not None
    for request in job.ledger.secure.requests().values():
        job.ledger.handle_shares(job.reply(request))
    end = job.ledger.secure.end()
    assert not end.why
    return end


@pytest.mark.parametrize("is_checked", [True, False])
def test_an_update_in_two_sessions(is_checked: bool) -> None:
    """The server sends the tickets of a session again, with a session that one more client takes part in.

    Control: if clients masked an update for a second session, the difference of the two sums would be one update.
    """
    job = secure_ledger("a", "b", "c", "d")
    assert job.ledger.secure is not None
    first = run_session(job, {"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    total = unmask(job) and job.ledger.sums().delta.copy()
    job.ledger._accepted.clear()  # the server forgets that it has used the tickets
    opened = job.ledger.secure.open(["a", "b", "c", "d"], decryptors=["a", "b", "c"])
    replayed = {name: replace(first[name], payload=opened[name].payload) for name in "abc"}
    if is_checked:
        for name, instruction in replayed.items():
            reply = job.reply(instruction, 9, 9)
            assert (reply.kind, reply.why) == ("failed", "the update under this ticket was masked for another session")
            assert reply.client == name
        return
    with mock.patch.object(ledger_client, "_check_same_session"):
        replies = [job.reply(each, 9, 9) for each in [*replayed.values(), opened["d"]]]
    for reply in replies:
        job.ledger.secure.collect(reply)
    for request in job.ledger.secure.requests().values():
        job.ledger.handle_shares(job.reply(request))
    assert job.ledger.secure.session is not None
    assert (job.ledger.secure.session.unmask() - total).tolist() == [9, 9]  # the update of d


def test_all_but_one_client_leave() -> None:
    """They send no goodbye that could be unmasked: the new sum would be the update of the one that stays."""
    job = secure_ledger("a", "b", "c")
    assert job.ledger.secure is not None
    run_session(job, {"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    unmask(job)
    job.close_round()
    for name in "ab":
        assert job.store(name).leave(job.ledger.job)
    instructions = job.ledger.secure.open(["a", "b", "c"], decryptors=["a", "b", "c"])
    replies = [job.reply(instructions[name], 0, 0) for name in "ab"]
    assert [(reply.kind, reply.upload, reply.payload) for reply in replies] == [("goodbye", None, b"")] * 2
    assert [job.ledger.handle_reply(reply).outcome for reply in replies] == ["left", "left"]
    assert job.ledger.handle_reply(job.reply(instructions["c"], 70, 80)).outcome == "collected"
    with pytest.raises(ProtocolError, match="1 uploads are too few to unmask: the minimum is 3"):
        job.ledger.secure.requests()
    job.close_round()
    assert (job.total, job.ledger.epoch.number) == ([0, 0], 2)
    assert [client.id for client in job.ledger.clients()] == ["c"]


def test_other_settings_with_the_same_hash() -> None:
    """The client compares the settings with their hash, which it has stored when it joined."""
    job = secure_ledger("a", "b", "c")
    assert job.ledger.secure is not None
    instruction = job.ledger.secure.open(["a", "b", "c"], decryptors=["a", "b", "c"])["a"]
    weaker = {**instruction.settings, "secure": {**instruction.settings["secure"], "min_cohort": 2}}
    reply = job.reply(replace(instruction, settings=weaker), 1, 2)
    assert (reply.kind, reply.why) == ("failed", "the settings in the instruction are not those of the job")
    shares = {**instruction.settings, "secure": {**instruction.settings["secure"], "share_metrics": True}}
    assert job.reply(replace(instruction, settings=shares), 1, 2, metrics={"loss": 1.0}).kind == "failed"
    plain = {name: value for name, value in instruction.settings.items() if name != "secure"}
    reply = job.reply(replace(instruction, settings=plain), 1, 2)
    assert reply.kind == "failed"
    assert reply.upload is None


def test_an_old_session_and_a_session_of_another_epoch() -> None:
    job = secure_ledger("a", "b", "c")
    assert job.ledger.secure is not None
    run_session(job, {"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    requests = job.ledger.secure.requests()
    job.ledger.resync()
    opened = job.ledger.secure.open(["a", "b", "c"], decryptors=["a", "b", "c"])
    old = replace(requests["a"], epoch=job.ledger.epoch)
    assert job.reply(old).why == "the session belongs to another job or epoch"
    job.reply(opened["a"], 1, 2)
    assert job.reply(requests["a"]).kind == "ahead"


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_messages_that_do_not_belong_to_the_job(kind: str, tmp_path: Path) -> None:
    """The server sends Flower's own messages, to which a client app replies with its model or its metrics.

    A client that is in a secure job does not train then, and one with `min-cohort` does not evaluate either. Control: a
    client without both answers.
    """
    job = SmallJob(tmp_path, clients="", cohort_size=3, secure=SecureAggregation(3, 3))

    def evaluate(weights: Weights, task: ClientTask) -> ClientResult:
        return ClientResult(1234, {"accuracy": 0.75})

    app = client_app(towards(1.0), evaluate=evaluate)
    for name, config in (("a", {}), ("b", {}), ("c", {"min-cohort": 3}), ("stranger", {})):
        job.add(name, app, node_config=config)
    job.run_round("abc")
    job.online("abcstranger")
    replies = {}
    for name, node in job.nodes.items():
        content = RecordDict({"arrays": to_record(INITIAL), "config": ConfigRecord({"server-round": 1})})
        [replies[name]] = job.grid.send_and_receive([Message(content, node, kind)])
    assert "stranger" not in [client.id for client in job.ledger.clients()]
    if kind == "train":
        assert [name for name, reply in replies.items() if reply.has_content()] == ["stranger"]
        assert "does not answer without masks" in str(replies["a"].error.reason)
    else:
        found = {name: metrics_of(reply)["num-examples"] for name, reply in replies.items()}
        assert found == {"a": 1234, "b": 1234, "c": 0, "stranger": 1234}


def test_a_lost_upload_is_not_unmasked_later(tmp_path: Path) -> None:
    """A client whose upload is delayed until its session has ended: no later request of the server includes it."""
    job = SmallJob(tmp_path, clients="abcde", cohort_size=5, secure=SecureAggregation(3, 4))
    requests: list[UnmaskRequest] = []
    push = job.grid.push_messages

    def record(messages: Any) -> Any:
        messages = list(messages)
        for message in messages:
            record: Any = message.content.get(PROTOCOL)
            if record is not None and b'"included"' in record.get("payload", b""):
                requests.append(UnmaskRequest.decode(record["payload"]))
        return push(messages)

    job.grid.push_messages = record  # type: ignore[method-assign]
    job.change_next_upload(lose, of="a")
    for _ in range(3):
        job.run_round()
    numbers = [request.session.number for request in requests]
    included = [{request.session.roster[position].id for position in request.included} for request in requests]
    assert len(set(numbers)) >= 2
    assert included[0] == {"b", "c", "d", "e"}
    for number in set(numbers):  # one set of clients per session
        assert len({frozenset(each) for each, of in zip(included, numbers, strict=True) if of == number}) == 1
