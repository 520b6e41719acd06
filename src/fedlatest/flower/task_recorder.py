"""Records when clients were asked to train and what came of it, until the round is closed."""

import math
from collections.abc import Collection, Iterable

from fedlatest.ledger.durations import RoundTasks, Selection, Task


class TaskRecorder:
    """The tasks of the open round, and those of earlier rounds whose replies may still arrive.

    A client has one task at a time: it is not asked again while its reply is awaited. All times are the ledger's
    uptime.

    Args:
        cohort_size: Number of clients asked to train in a round.
        deadline: Seconds after which a round is closed.
    """

    def __init__(self, *, cohort_size: int, deadline: float) -> None:
        self._cohort_size, self._deadline = cohort_size, deadline
        self._began = 0.0
        self._selections: list[Selection] = []
        self._open: dict[str, Task] = {}  # by client
        self._ended: list[Task] = []

    def begin(self, now: float) -> None:
        """Record that a round begins; who could be asked in one that was not closed is forgotten."""
        self._began, self._selections = now, []

    def select(self, candidates: Iterable[str], *, room: int, now: float) -> None:
        """Record among which clients the algorithm selects up to `room`."""
        self._selections.append(Selection(now, room, set(candidates)))

    def ask(self, clients: Iterable[str], *, round: int, now: float) -> None:
        """Record that clients are asked to train."""
        self._open.update({client: Task(round, client, now) for client in clients})

    def report(self, client: str, training_seconds: float | None) -> None:
        """Record how long a client says that it has trained."""
        if client in self._open and training_seconds is not None:
            self._open[client] = self._open[client]._replace(training_seconds=training_seconds)

    def answer(self, client: str, outcome: str, *, round: int, now: float) -> None:
        """Record the reply to a request of a round, and what the ledger decided on it."""
        task = self._open.get(client)
        if task is not None and task.round == round:
            del self._open[client]
            self._ended.append(task._replace(answered=now, outcome=outcome))

    def of_round(self, round: int, counted: Collection[str]) -> RoundTasks:
        """Return the tasks to write with a round; call `clear` once they are written.

        Args:
            round: The round that is being closed.
            counted: Clients whose masked uploads count, because their sum was unmasked.
        """
        ended = [
            task._replace(outcome="accepted") if task.outcome == "collected" and task.client in counted else task
            for task in self._ended
        ]
        missed = [
            task._replace(training_seconds=math.nan) for task in self._open.values() if task.round == round
        ]  # unless they answer later
        return RoundTasks(self._began, self._cohort_size, self._deadline, self._selections, [*ended, *missed])

    def clear(self) -> None:
        """Forget what is written: all but the tasks whose replies may still arrive."""
        self._selections, self._ended = [], []
