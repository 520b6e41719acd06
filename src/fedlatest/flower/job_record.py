"""A job as a run folder, so that `fedlatest report`, `plot` and `load_model` read a deployment like a simulation."""

import logging
import math
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import Algorithm
from fedlatest.errors import RunFolderError
from fedlatest.files import write_json
from fedlatest.flower.recorded_availability import attendance_table
from fedlatest.flower.round_outcome import RoundOutcome
from fedlatest.ledger import Ledger
from fedlatest.runs import ClientRecord, Row, RunFolder
from fedlatest.runs.array_files import save_arrays
from fedlatest.runs.clients import MOST_COLUMNS, MOST_ROWS, edges, pack, save_clients
from fedlatest.runs.clients import save as save_participation
from fedlatest.runs.metrics import read_metrics, write_metrics
from fedlatest.runs.run_folder import MANIFEST, SCHEMA
from fedlatest.version import __version__

log = logging.getLogger("flwr")


class JobRecord:
    """The run folder of a job; what the ledger does not know (a round that was rolled back) is cut off."""

    def __init__(self, folder: Path, ledger: Ledger, algorithm: Algorithm, *, rounds: int, config: Mapping[str, Any]):
        self.folder, self.ledger, self.rounds = RunFolder(folder), ledger, rounds
        self._config = {
            "rounds": rounds,
            "algorithm": {"name": algorithm.name, **algorithm.settings},
            "deployment": {**ledger.config.as_dict(), "job": ledger.job, "layout": ledger.layout.hash},
            **config,
        }
        folder.mkdir(parents=True, exist_ok=True)
        metrics = folder / "metrics.csv"
        known = [row for row in _rows(metrics) if row.round <= ledger.round]
        write_metrics(metrics, known)
        self._before = max([row.seconds for row in known], default=0.0)
        self._began = time.monotonic()
        self._write("running", {})

    @property
    def evaluated(self) -> bool:
        """Whether the ledger's round has been evaluated."""
        return any(row.round == self.ledger.round for row in self.folder.metrics().rows)

    def add(self, tally: RoundOutcome | None, test: Mapping[str, float], train: Mapping[str, float]) -> Row:
        """Note an evaluation after a round; what was not measured is not a number."""
        members, round = self.ledger.members(), self.ledger.round
        staleness = [round - 1 - member.last_round for member in members]
        row = Row(
            self.ledger.config.seed,
            round,
            self._before + time.monotonic() - self._began,
            train_loss=_first(train, ("train_loss", "loss")),
            train_accuracy=_first(train, ("train_accuracy", "accuracy", "acc")),
            test_loss=_first(test, ("test_loss", "loss", "eval_loss")),
            test_accuracy=_first(test, ("test_accuracy", "accuracy", "acc", "eval_acc")),
        )
        if tally is not None and members:
            row = row._replace(
                num_available=len(self._attendance(round - 1)),
                cohort_size=len(tally.accepted),
                mean_staleness=float(np.mean(staleness)),
                max_staleness=max(staleness),
            )
        self.folder.record([row])
        return row

    def finish(self, model: Mapping[str, npt.NDArray[Any]]) -> None:
        """Export the model, and say who took part and who was there."""
        exported = {name: np.asarray(array)[None] for name, array in model.items()}
        save_arrays(self.folder / "model.safetensors", exported, {"job": self.ledger.job})
        here = attendance_table(self.ledger.database)
        took_part = attendance_table(self.ledger.database, took_part=True)
        numbers = np.broadcast_to(np.arange(took_part.shape[1]), took_part.shape)
        save_participation(self.folder / "participation.npz", pack(numbers[None], took_part[None], took_part.shape[1]))
        if here.size:  # where nobody ever came there is nothing to draw
            save_clients(self.folder / "clients.npz", _clients(here))
        seconds = round(self._before + time.monotonic() - self._began, 3)
        self._write("finished", {"seconds": seconds, "availability": self._availability(here)})

    def _availability(self, here: npt.NDArray[np.bool_]) -> dict[str, Any]:
        rows = self.folder.metrics().rows
        never = np.flatnonzero(~here.any(axis=0))
        return {
            "smallest_e": None if never.size else _smallest_e(here),
            "assumption_holds": never.size == 0,
            "num_never_available": int(never.size),
            "never_available": never[:10].tolist(),
            "staleness_bound": None,
            "largest_staleness": max([row.max_staleness or 0 for row in rows], default=0),
        }

    def _attendance(self, round: int) -> list[Any]:
        return self.ledger.database.rows("SELECT number FROM attendance WHERE round = ?", round)

    def _write(self, status: str, facts: Mapping[str, Any]) -> None:
        config = {**self._config, "num_clients": len(self.ledger.members())}
        names = ("flwr", "jax", "numpy")
        write_json(
            self.folder / MANIFEST,
            {
                "schema": SCHEMA,
                "status": status,
                "config": config,
                "seeds": [self.ledger.config.seed],
                "data": {"name": "deployment"},
                "versions": {
                    "python": platform.python_version(),
                    "fedlatest": __version__,
                    **{name: version(name) for name in names},
                },
                **facts,
            },
        )


def _clients(here: npt.NDArray[np.bool_]) -> ClientRecord:
    num_clients = here.shape[1]
    rows, columns = edges(num_clients, MOST_ROWS), edges(len(here), MOST_COLUMNS)
    shares = np.array(
        [[here[first:last, top:bottom].mean() for first, last in pairwise(columns)] for top, bottom in pairwise(rows)]
    )
    nothing = np.zeros(num_clients, np.int32)
    picture = np.round(255 * shares).astype(np.uint8).reshape(len(rows) - 1, len(columns) - 1)
    order = np.arange(num_clients, dtype=np.int32)
    return ClientRecord(nothing, nothing.astype(np.int64), order, rows, columns, picture)


def _smallest_e(here: npt.NDArray[np.bool_]) -> int:
    """The longest that any client was away, in rounds, and one more."""
    longest = 0
    for column in here.T:
        edges_ = np.flatnonzero(np.concatenate([[True], column, [True]]))
        longest = max(longest, int(np.diff(edges_).max()) - 1)
    return longest + 1


def _rows(path: Path) -> Sequence[Row]:
    """What was measured so far; the ledger is the truth, so that a damaged file costs its rows and no more."""
    try:
        return read_metrics(path).rows if path.is_file() else []
    except RunFolderError as error:
        log.warning("fedlatest: %s; its rows are lost", error)
        return []


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float:
    return next((float(metrics[name]) for name in names if name in metrics), math.nan)
