"""Logging to MLflow (extra: fedlatest[mlflow])."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlatest.files import write_text
from fedlatest.runs.loggers import Status, flat_config, logged_values
from fedlatest.runs.metrics import Row

EXPERIMENT = "fedlatest"  # unless MLFLOW_EXPERIMENT_NAME is set
LONGEST_VALUE = 500  # characters of a parameter; older servers accept no more
MOST_PARAMS = 100  # in one request
STATUS = {"finished": "FINISHED", "diverged": "FAILED", "stopped": "KILLED"}


class MlflowLogger:
    """Logs every column of the metrics and the configuration, as one MLflow run per seed.

    The server or file is the one of MLFLOW_TRACKING_URI, as MLflow itself reads it. The identifiers of the MLflow runs
    are kept in `mlflow/runs.json` of the run folder, so that a resumed run continues them.
    """

    def __init__(self) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        self._runs = dict[int, str]()  # seed -> identifier

    def start(self, folder: Path, manifest: Mapping[str, Any], *, first_round: int) -> None:
        """Create one MLflow run per seed, or continue those of an interrupted run."""
        record = folder / "mlflow/runs.json"
        known = json.loads(record.read_text(encoding="utf-8")) if first_round and record.is_file() else {}
        experiment = self._experiment()
        for seed in manifest["seeds"]:
            continued = self._continued(known.get(str(seed)))
            self._runs[seed] = continued or self._new_run(experiment, folder, manifest, seed)
        record.parent.mkdir(exist_ok=True)
        write_text(record, json.dumps(self._runs) + "\n")

    def log(self, rows: Sequence[Row]) -> None:
        """Log an evaluation."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        for row in rows:
            metrics = [Metric(name, value, now, row.round) for name, value in logged_values(row).items()]
            self._client.log_batch(self._runs[row.seed], metrics=metrics)

    def finish(self, status: Status) -> None:
        """Mark the MLflow runs as ended."""
        for run in self._runs.values():
            self._client.set_terminated(run, STATUS[status])

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))

    def _continued(self, run: str | None) -> str | None:
        """Return an interrupted MLflow run, marked as running again; None if the server does not have it."""
        from mlflow.exceptions import MlflowException

        if run is None:
            return None
        try:
            self._client.update_run(run, status="RUNNING")
        except MlflowException:
            return None
        return run

    def _new_run(self, experiment: str, folder: Path, manifest: Mapping[str, Any], seed: int) -> str:
        from mlflow.entities import Param

        tags = {"fedlatest.folder": str(folder), "fedlatest.seed": str(seed)}
        run = self._client.create_run(experiment, run_name=f"{folder.name}-seed-{seed}", tags=tags).info.run_id
        params = [Param(key, str(value)[:LONGEST_VALUE]) for key, value in flat_config(manifest["config"])]
        for start in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(run, params=params[start : start + MOST_PARAMS])
        return str(run)
