"""The tasks of a job: who was asked to train when, when the reply was processed, and what came of it.

The server writes them with the transaction of a round, in the table `tasks`, whose columns are:

    round, began, cohort_size, deadline    of the round; `began` is a time
    selections                             who could be asked at each moment at which clients were asked
    tasks                                  the tasks that ended in the round, or were asked in it and are not answered

Times are seconds of uptime of the ledger: they do not depend on the wall clock. In the blobs they are whole
milliseconds before the end of the round. A task that is answered in a later round than it was asked in appears twice:
as "missed" in the round in which it was asked, and with its reply in the later one. `read_tasks` returns the latter.

Training seconds are measured by the client, and the server cannot check them; they are at most the time between the
request and the reply.
"""

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.ledger.bitmaps import relative_candidates
from fedlatest.ledger.database import Database

OUTCOMES = ("accepted", "late", "declined", "failed", "refused", "left", "collected", "missed")
"""What became of a task: "accepted", the upload counts in the round of the request; "late", it counts in a later one;
"declined", "failed" and "left", as the client replied; "refused", the reply violates the protocol; "collected", a
masked upload whose sum was not unmasked; "missed", no reply before the round ended, nor later."""
UNKNOWN = 2**32 - 1  # milliseconds
_TASK = np.dtype(
    [("client", "<u4"), ("rounds_ago", "<u4"), ("asked", "<u4"), ("answered", "<u4"), ("training", "<u4"),
     ("outcome", "u1")]
)  # fmt: skip
_SELECTION = np.dtype([("time", "<u4"), ("room", "<u4")])


class Task(NamedTuple):
    """A request to train, as the server records it."""

    round: int  # in which the client was asked
    client: str
    asked: float
    answered: float = math.nan  # when the reply was processed; NaN if there was none
    training_seconds: float = math.nan  # as the client measured; NaN if not known
    outcome: str = "missed"  # one of `OUTCOMES`


class Selection(NamedTuple):
    """A moment at which the algorithm selected clients."""

    time: float
    room: int  # the largest number of clients that it could select
    candidates: Collection[str]  # the clients among which it selected


class RoundTasks(NamedTuple):
    """The tasks of a round, as the server passes them to `Ledger.close_round`."""

    began: float
    cohort_size: int
    deadline: float
    selections: Sequence[Selection] = ()
    tasks: Sequence[Task] = ()


class Tasks(NamedTuple):
    """The tasks of a job in the order in which clients were asked, as arrays with one entry per task."""

    round: npt.NDArray[np.int64]
    """The round in which the client was asked."""
    client: npt.NDArray[np.int64]
    """The client's number."""
    asked: npt.NDArray[np.float64]
    """When it was asked, in seconds of uptime."""
    answered: npt.NDArray[np.float64]
    """When its reply was processed; NaN if there was none."""
    training_seconds: npt.NDArray[np.float64]
    """How long it trained, as it has measured; NaN if not known."""
    outcome: npt.NDArray[np.uint8]
    """Position in `OUTCOMES`."""

    def have(self, *outcomes: str) -> npt.NDArray[np.bool_]:
        """Return which tasks have one of some outcomes."""
        return np.isin(self.outcome, [OUTCOMES.index(outcome) for outcome in outcomes])

    def by_client(self, num_clients: int, chosen: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
        """Return for each client the positions of some of its tasks, in their order."""
        positions = np.flatnonzero(chosen)
        order = positions[np.argsort(self.client[positions], kind="stable")]
        return np.split(order, np.searchsorted(self.client[order], np.arange(1, num_clients)))

    def where(self, chosen: npt.NDArray[np.bool_]) -> "Tasks":
        """Return some of the tasks."""
        columns: list[Any] = [column[chosen] for column in self]
        return Tasks(*columns)


class RecordedRound(NamedTuple):
    """A closed round: its times, its settings, and who could be asked when."""

    round: int
    began: float
    closed: float
    cohort_size: int
    deadline: float
    times: npt.NDArray[np.float64]  # [selections] when clients were asked
    rooms: npt.NDArray[np.int64]  # [selections] how many clients could be asked
    candidates: npt.NDArray[np.bool_]  # [selections, clients] among which clients


def write_tasks(
    database: Database, found: RoundTasks, *, round: int, closed: float, number_of: Callable[[str], int | None],
    bits: Callable[[Collection[str]], bytes], available: bytes,
) -> None:  # fmt: skip
    """Write the tasks of a round, inside its transaction.

    Args:
        database: the ledger's file.
        found: the tasks.
        round: the round that is being closed.
        closed: the time at which it is closed.
        number_of: returns the number of a client, or None if it is not known.
        bits: returns a set of clients as bits, by their numbers.
        available: the available clients of the round, as bits.
    """
    rows = [(number_of(task.client), task) for task in found.tasks]
    tasks = np.array(
        [
            (
                number, round - task.round, _before(closed, task.asked), _before(closed, task.answered),
                _training(task), OUTCOMES.index(task.outcome),
            )
            for number, task in rows if number is not None
        ],
        _TASK,
    )  # fmt: skip
    moments = [(_before(closed, selection.time), selection.room) for selection in found.selections]
    selections = np.array(moments, _SELECTION).tobytes()
    candidates = [bits(selection.candidates) for selection in found.selections]
    values = (round, found.began, found.cohort_size, found.deadline)
    content = len(found.selections).to_bytes(4, "little") + selections + b"".join(candidates)
    content = relative_candidates(content, available)
    database.execute(
        "INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?)", *values, zlib.compress(content), zlib.compress(_columns(tasks))
    )


def read_tasks(database: Database) -> Tasks:
    """Return the tasks of all closed rounds; none if an earlier version of fedlatest has run the job."""
    rows = _rows(database, "tasks.round, rounds.uptime, tasks.tasks")
    parts = [(round, closed, _from_columns(zlib.decompress(content))) for round, closed, content in rows]
    found = np.concatenate([part for _, _, part in parts]) if parts else np.zeros(0, _TASK)
    lengths = [len(part) for _, _, part in parts]
    ended = np.repeat(np.array([round for round, _, _ in parts], np.int64), lengths)
    closed = np.repeat(np.array([closed for _, closed, _ in parts], np.float64), lengths)
    asked_in = ended - found["rounds_ago"]
    client = found["client"].astype(np.int64)
    # The last record of a task is the valid one; lexsort is stable.
    order = np.lexsort((client, asked_in))
    same = (np.diff(asked_in[order]) == 0) & (np.diff(client[order]) == 0)
    valid = order[np.append(~same, True)] if len(order) else order
    asked = closed - _seconds(found["asked"])
    valid = valid[np.lexsort((client[valid], asked[valid], asked_in[valid]))]
    return Tasks(
        asked_in[valid],
        client[valid],
        asked[valid],
        (closed - _seconds(found["answered"]))[valid],
        _seconds(found["training"])[valid],
        found["outcome"][valid],
    )


def read_task_rounds(database: Database) -> list[RecordedRound]:
    """Return the closed rounds whose tasks are recorded."""
    [(num_clients,)] = database.rows("SELECT COUNT(*) FROM clients")
    columns = "tasks.round, tasks.began, rounds.uptime, tasks.cohort_size, tasks.deadline, selections, available"
    return [_recorded_round(row, num_clients) for row in _rows(database, columns)]


def _recorded_round(row: Sequence[Any], num_clients: int) -> RecordedRound:
    round, began, closed, cohort_size, deadline, compressed, available = row
    content = relative_candidates(zlib.decompress(compressed), zlib.decompress(available))
    number = int.from_bytes(content[:4], "little")
    start = 4 + number * _SELECTION.itemsize
    moments = np.frombuffer(content[4:start], _SELECTION)
    packed = np.frombuffer(content[start:], np.uint8).reshape(number, (len(content) - start) // max(number, 1))
    found = np.unpackbits(packed, axis=1)[:, :num_clients]
    flags = np.zeros((number, num_clients), bool)  # of clients that joined later, too
    flags[:, : found.shape[1]] = found
    times, rooms = closed - _seconds(moments["time"]), moments["room"].astype(np.int64)
    return RecordedRound(round, began, closed, cohort_size, deadline, times, rooms, flags)


def _rows(database: Database, columns: str) -> list[Any]:
    return database.rows(f"SELECT {columns} FROM tasks JOIN rounds ON rounds.round = tasks.round ORDER BY tasks.round")


def _before(closed: float, time: float) -> int:
    """Return how many milliseconds before the end of the round a moment was."""
    return UNKNOWN if math.isnan(time) else min(max(0, round((closed - time) * 1000)), UNKNOWN - 1)


def _training(task: Task) -> int:
    """Return the milliseconds of training, at most as many as have passed between the request and the reply."""
    if math.isnan(task.training_seconds) or math.isnan(task.answered):
        return UNKNOWN
    seconds = max(0.0, min(task.training_seconds, task.answered - task.asked))
    return min(round(seconds * 1000), UNKNOWN - 1)


def _seconds(milliseconds: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
    return np.where(milliseconds == UNKNOWN, np.nan, milliseconds / 1000.0)


def _columns(tasks: npt.NDArray[Any]) -> bytes:
    """Return the columns one after the other, which zlib compresses better than rows."""
    return b"".join(np.ascontiguousarray(tasks[name]).tobytes() for name in _names())


def _from_columns(content: bytes) -> npt.NDArray[Any]:
    length, start = len(content) // _TASK.itemsize, 0
    tasks = np.zeros(length, _TASK)
    fields: Mapping[str, Any] = _TASK.fields or {}
    for name in _names():
        dtype: np.dtype[Any] = fields[name][0]
        tasks[name] = np.frombuffer(content, dtype, length, start)
        start += length * dtype.itemsize
    return tasks


def _names() -> tuple[str, ...]:
    return _TASK.names or ()
