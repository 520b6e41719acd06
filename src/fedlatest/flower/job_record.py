"""Records a deployed job in a run folder, so that `report`, `plot` and `load_model` read it like a simulation.

The ledger is authoritative; the run folder shows what is in it. Files cannot refuse the writes of an old server, as the
ledger does. Therefore files are written only inside a transaction of the ledger (`Ledger.batch`): it begins with the
check that this server still owns the ledger, and no other server can become the owner until it ends. A server that was
paused and replaced meanwhile gets a LedgerError and writes nothing.
"""

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import Algorithm
from fedlatest.errors import RunFolderError
from fedlatest.flower.round_outcome import RoundOutcome
from fedlatest.ledger import Ledger
from fedlatest.ledger.client_table import read_attendance
from fedlatest.ledger.evaluations import read_evaluations, write_evaluation
from fedlatest.runs import Row, RunFolder
from fedlatest.runs.clients import assumption_of_table, clients_of_table, pack_table
from fedlatest.runs.run_folder import package_versions

log = logging.getLogger("flwr")


class JobRecord:
    """The run folder of a job, written anew from the ledger when a server starts.

    Args:
        folder: The run folder; created if it does not exist.
        ledger: The job's ledger.
        algorithm: The job's algorithm.
        rounds: Number of rounds that the job is to have.
        config: Further entries of the manifest's `config`.
    """

    def __init__(self, folder: Path, ledger: Ledger, algorithm: Algorithm, *, rounds: int, config: Mapping[str, Any]):
        self.folder, self.ledger, self.rounds = RunFolder(folder), ledger, rounds
        self._config = {
            "rounds": rounds,
            "algorithm": {"name": algorithm.name, "title": algorithm.title, **algorithm.settings},
            "deployment": {**ledger.config.as_dict(), "job": ledger.job, "layout": ledger.layout.hash},
            **config,
        }
        with ledger.batch():
            self._rows = [Row(**metrics) for metrics in read_evaluations(ledger.database)] or self._adopt_rows()
            self.folder.rewrite(self._manifest(), self._rows)
        self._metrics_state = self._read_metrics_state()
        self._seconds_before = max([row.seconds for row in self._rows], default=0.0)
        self._started = time.monotonic()

    @property
    def evaluated(self) -> bool:
        """Whether the ledger's round has been evaluated."""
        return any(row.round == self.ledger.round for row in self._rows)

    def add(self, outcome: RoundOutcome | None, test: Mapping[str, float], train: Mapping[str, float]) -> Row:
        """Record an evaluation in the ledger and in metrics.csv.

        Args:
            outcome: The outcome of the round before the evaluation; None before the first round.
            test: Metrics on test data, by the names that the app uses; a missing one is recorded as NaN.
            train: Metrics on training data.

        Returns:
            The row that was recorded.

        Raises:
            LedgerError: Another server has taken over the job; no file has changed.
        """
        members, round = self.ledger.clients(), self.ledger.round
        staleness = [round - 1 - member.last_round for member in members]
        row = Row(
            self.ledger.config.seed,
            round,
            self._seconds(),
            train_loss=_first(train, ("train_loss", "loss")),
            train_accuracy=_first(train, ("train_accuracy", "accuracy", "acc")),
            test_loss=_first(test, ("test_loss", "loss", "eval_loss")),
            test_accuracy=_first(test, ("test_accuracy", "accuracy", "acc", "eval_acc")),
        )
        if outcome is not None and members:
            row = row._replace(
                num_available=outcome.num_available,
                cohort_size=len(outcome.accepted),
                mean_staleness=float(np.mean(staleness)),
                max_staleness=max(staleness),
            )
        with self.ledger.batch():
            write_evaluation(self.ledger.database, round, row._asdict())
            self._repair_metrics()
            self.folder.record([row])
        self._rows.append(row)
        self._metrics_state = self._read_metrics_state()
        return row

    def finish(self, model: Mapping[str, npt.NDArray[Any]]) -> None:
        """Save the final model, the clients' availability and the cohorts, and mark the run as finished.

        Raises:
            LedgerError: Another server has taken over the job; no file has changed.
        """
        available, took_part = read_attendance(self.ledger.database)  # [rounds, clients]
        clients, cohorts = clients_of_table(available) if available.size else None, pack_table(took_part)
        facts = {"seconds": round(self._seconds(), 3), "availability": self._availability_facts(available)}
        params = {name: np.asarray(array)[None] for name, array in model.items()}  # the one seed comes first
        with self.ledger.batch():
            self._repair_metrics()
            if clients is not None:
                self.folder.describe(clients)
            self.folder.save_results(
                params, cohorts, {**self._manifest(), **facts}, about_model={"job": self.ledger.job}
            )

    def _availability_facts(self, available: npt.NDArray[np.bool_]) -> dict[str, Any]:
        return {
            **assumption_of_table(available),
            "staleness_bound": None,
            "largest_staleness": max([row.max_staleness or 0 for row in self._rows], default=0),
        }

    def _seconds(self) -> float:
        """Return the duration of the job so far, summed over its server runs."""
        return self._seconds_before + time.monotonic() - self._started

    def _manifest(self) -> dict[str, Any]:
        return {
            "config": {**self._config, "num_clients": len(self.ledger.clients())},
            "seeds": [self.ledger.config.seed],
            "data": {"name": "deployment"},
            "versions": package_versions("flwr", "jax", "numpy"),
        }

    def _repair_metrics(self) -> None:
        """Write metrics.csv anew if it is not as this server has left it: other programs do not respect the ledger."""
        if self._read_metrics_state() != self._metrics_state:
            self.folder.rewrite_metrics(self._rows)

    def _read_metrics_state(self) -> tuple[int, ...]:
        """Return what changes when metrics.csv changes."""
        try:
            about = (self.folder / "metrics.csv").stat()
        except FileNotFoundError:
            return ()
        return about.st_ino, about.st_size, about.st_mtime_ns

    def _adopt_rows(self) -> list[Row]:
        """Write the rows of metrics.csv to a ledger that has none: earlier versions recorded them only there.

        Rows of another job, and of rounds that were rolled back, are left out; a damaged file is treated as empty.
        """
        try:
            manifest = self.folder.manifest if self.folder.exists else {"config": {}}
            is_same = manifest["config"].get("deployment", {}).get("job") == self.ledger.job
            rows = [row for row in self.folder.metrics().rows if row.round <= self.ledger.round] if is_same else []
        except RunFolderError as error:
            log.warning("fedlatest: %s; its rows are lost", error)
            return []
        for row in rows:
            write_evaluation(self.ledger.database, row.round, row._asdict())
        return rows


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float:
    return next((float(metrics[name]) for name in names if name in metrics), math.nan)
