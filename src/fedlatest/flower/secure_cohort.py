"""The cohort of a round in a secure job: opens a session, waits for the masked uploads, and has their sum unmasked."""

from typing import TYPE_CHECKING

from flwr.app import ArrayRecord

from fedlatest.errors import ProtocolError
from fedlatest.ledger.cohort_choice import choose_decryptors
from fedlatest.ledger.secure_rounds import SecureRounds, SessionEnd
from fedlatest.ledger.secure_settings import MIN_DECRYPTORS

if TYPE_CHECKING:
    from fedlatest.flower.round_loop import RoundLoop
    from fedlatest.ledger.secure_session import SecureSession

LAST_ASK = 0.75  # share of the deadline after which no client is asked: it could not reply in time


class SecureCohort:
    """Runs the secure sessions of a round.

    All clients of a session are asked at the same time, because each of them shares masks with the others. If a session
    fails and there is time left, another one is opened with clients that were not asked yet.

    Args:
        loop: The round loop.
    """

    def __init__(self, loop: "RoundLoop") -> None:
        self._loop = loop
        self._reported = -1  # the last round in which a session that could not be opened was reported

    def count_answer(self, client: str, *, answered: bool) -> None:
        """Record whether a client answered as a decryptor; if not, it rests for some rounds, unless it is needed."""
        if answered:
            self._secure.silent_decryptors.clear([client])
        else:
            self._secure.silent_decryptors.add([client], self._loop.ledger.round)

    def run(self, model: ArrayRecord, began: float) -> None:
        """Collect and unmask the uploads of the open round; the outcome of the round lists what counts.

        Args:
            model: The model to train.
            began: The time at which the round began.
        """
        loop, deadline = self._loop, self._loop.timeouts.deadline
        while True:
            loop.poll_nodes()
            secure = self._secure
            if secure.session is None and loop.clock() - began < LAST_ASK * deadline:
                with loop.measuring_own_time():
                    self._open(model)
            is_late = loop.clock() - began >= deadline
            if secure.session is not None and (is_late or not self._awaits_uploads(secure.session)):
                self._unmask()
                if loop.outcome.accepted:
                    return
            if is_late:
                return
            loop.sleep(loop.timeouts.poll)

    @property
    def _secure(self) -> SecureRounds:
        assert self._loop.ledger.secure is not None
        return self._loop.ledger.secure

    def _awaits_uploads(self, session: "SecureSession") -> bool:
        """Whether the session stays open: for any upload until it can be unmasked, then for those soon expected."""
        awaited = self._loop.messages.awaited(self._loop.ledger.round)
        if session.num_uploads < session.min_cohort:
            return session.num_uploads + len(awaited) >= session.min_cohort
        return any(map(self._loop.waits_for, awaited))

    def _open(self, model: ArrayRecord) -> None:
        """Open a session if enough clients are available."""
        loop, settings = self._loop, self._loop.ledger.config.secure
        assert settings is not None
        available = loop.available_clients()
        idle = available - loop.messages.busy() - loop.outcome.not_to_ask
        selected, selections = loop.choose_cohort(idle, loop.cohort_size)
        number, busy = settings["num_decryptors"], loop.messages.busy()
        decryptors = choose_decryptors(loop.ledger, available, number=number, busy=busy)
        if len(selected) < settings["min_cohort"] or len(decryptors) < MIN_DECRYPTORS:
            return
        try:
            instructions = self._secure.open(selected, decryptors=decryptors)
        except ProtocolError as error:  # such as too few clients with keys
            if self._reported != loop.ledger.round:
                self._reported = loop.ledger.round
                loop.events.write("session_failed", round=loop.ledger.round, why=str(error))
            return
        loop.record_selections(selections)
        loop.send("train", instructions, model)
        loop.outcome.asked += instructions
        names = [loop.display_name(client) for client in instructions]
        loop.events.write("asked", round=loop.ledger.round, clients=names, session=self._session_number())

    def _session_number(self) -> int:
        session = self._secure.session
        return 0 if session is None else session.number

    def _unmask(self) -> None:
        """Have the sum of the open session unmasked, and record what counts."""
        loop, began = self._loop, self._loop.clock()
        number = self._session_number()
        try:
            requests = self._secure.requests()
        except ProtocolError as error:
            self._finish(number, self._secure.end()._replace(why=str(error)))
            return
        online = loop.messages.available()
        loop.send("unmask", {client: request for client, request in requests.items() if client in online})
        while True:
            session = self._secure.session
            if session is None or session.is_complete or loop.clock() - began >= loop.timeouts.deadline:
                break
            if not loop.messages.awaited(loop.ledger.round, ("unmask",)):
                break
            loop.sleep(loop.timeouts.poll)
            loop.poll_nodes()
        for message in loop.messages.awaited(loop.ledger.round, ("unmask",)):
            if session is not None and not session.is_complete:
                self.count_answer(message.client, answered=False)
        loop.messages.drop("unmask")
        if session is not None:
            for client in session.unreliable_decryptors:
                self.count_answer(client, answered=False)
                name = loop.display_name(client)
                loop.events.write("refused", round=loop.ledger.round, client=name, why="its shares are not valid")
            with loop.measuring_own_time():
                self._finish(number, self._secure.end())

    def _finish(self, number: int, end: SessionEnd) -> None:
        loop = self._loop
        outcome = loop.outcome
        for client, reply in end.replies.items():
            outcome.accepted.append(client)
            if reply.trained and reply.metrics and loop.shares_metrics:
                outcome.measurements.append((reply.weight, reply.metrics))
        if end.why:
            names = [loop.display_name(client) for client in end.at_fault]
            loop.events.write(
                "session_failed", round=loop.ledger.round, session=number, why=end.why, at_fault=names
            )  # fmt: skip
