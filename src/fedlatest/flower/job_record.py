"""Records a deployed job in a run folder, so that `report`, `plot` and `load_model` read it like a simulation."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import Algorithm
from fedlatest.errors import RunFolderError
from fedlatest.flower.round_outcome import RoundOutcome
from fedlatest.ledger import Ledger
from fedlatest.ledger.client_table import read_attendance
from fedlatest.runs import Row, RunFolder
from fedlatest.runs.clients import assumption_of_table, clients_of_table, pack_table
from fedlatest.runs.run_folder import package_versions

log = logging.getLogger("flwr")


class JobRecord:
    """The run folder of a job.

    The ledger is authoritative: rows of metrics.csv after the ledger's round, which was rolled back, are removed.

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
        valid = [row for row in self._recorded_rows() if row.round <= ledger.round]
        self.folder.rewrite(self._manifest(), valid)
        self._seconds_before = max([row.seconds for row in valid], default=0.0)
        self._started = time.monotonic()

    @property
    def evaluated(self) -> bool:
        """Whether the ledger's round has been evaluated."""
        return any(row.round == self.ledger.round for row in self.folder.metrics().rows)

    def add(self, outcome: RoundOutcome | None, test: Mapping[str, float], train: Mapping[str, float]) -> Row:
        """Append an evaluation to metrics.csv.

        Args:
            outcome: The outcome of the round before the evaluation; None before the first round.
            test: Metrics on test data, by the names that the app uses; a missing one is recorded as NaN.
            train: Metrics on training data.

        Returns:
            The row that was appended.
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
        self.folder.record([row])
        return row

    def finish(self, model: Mapping[str, npt.NDArray[Any]]) -> None:
        """Save the final model, the clients' availability and the cohorts, and mark the run as finished."""
        available, took_part, _ = read_attendance(self.ledger.database)  # [rounds, clients]
        if available.size:
            self.folder.describe(clients_of_table(available))
        facts = {"seconds": round(self._seconds(), 3), "availability": self._availability_facts(available)}
        params = {name: np.asarray(array)[None] for name, array in model.items()}  # the one seed comes first
        self.folder.save_results(
            params, pack_table(took_part), {**self._manifest(), **facts}, about_model={"job": self.ledger.job}
        )

    def _availability_facts(self, available: npt.NDArray[np.bool_]) -> dict[str, Any]:
        rows = self.folder.metrics().rows
        return {
            **assumption_of_table(available),
            "staleness_bound": None,
            "largest_staleness": max([row.max_staleness or 0 for row in rows], default=0),
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

    def _recorded_rows(self) -> Sequence[Row]:
        """Return the rows of metrics.csv; a damaged file is treated as empty, since the ledger is authoritative."""
        try:
            return self.folder.metrics().rows if (self.folder / "metrics.csv").is_file() else []
        except RunFolderError as error:
            log.warning("fedlatest: %s; its rows are lost", error)
            return []


def _first(metrics: Mapping[str, float], names: tuple[str, ...]) -> float:
    return next((float(metrics[name]) for name in names if name in metrics), math.nan)
