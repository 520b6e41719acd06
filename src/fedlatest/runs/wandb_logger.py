"""Logging to Weights & Biases (extra: fedlatest[wandb]), offline unless WANDB_MODE says otherwise."""

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlatest.files import write_text
from fedlatest.runs.loggers import Status, flat_config, logged_values
from fedlatest.runs.metrics import Row

PROJECT = "fedlatest"  # unless WANDB_PROJECT is set
IDENTIFIER = "id.txt"


class WandbLogger:
    """Logs every column of the metrics and the configuration, as one W&B run per seed in the folder `wandb`.

    By default nothing is sent: `wandb sync` uploads the folder later. With WANDB_MODE=online, W&B uploads at once. The
    identifiers of the W&B runs begin with the text in `wandb/id.txt`, so that a resumed run continues them.
    """

    def __init__(self) -> None:
        import wandb

        self._wandb, self._runs = wandb, dict[int, Any]()

    def start(self, folder: Path, manifest: Mapping[str, Any], *, first_round: int) -> None:
        """Open one W&B run per seed, or continue those of an interrupted run."""
        own = folder / "wandb"
        own.mkdir(exist_ok=True)
        record = own / IDENTIFIER
        if not (first_round and record.is_file()):
            write_text(record, secrets.token_hex(4) + "\n")
        identifier = record.read_text(encoding="utf-8").strip()
        settings = self._wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True)
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        for seed in manifest["seeds"]:
            self._runs[seed] = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=f"{folder.name}-seed-{seed}",
                group=folder.name,
                id=f"{identifier}-{seed}",
                dir=str(folder),
                mode=mode,
                config={"seed": seed, **dict(flat_config(manifest["config"]))},
                resume="allow",
                reinit="create_new",  # several runs of one process at the same time
                settings=settings,
            )

    def log(self, rows: Sequence[Row]) -> None:
        """Log an evaluation."""
        for row in rows:
            self._runs[row.seed].log(logged_values(row), step=row.round)

    def finish(self, status: Status) -> None:
        """Flush and close the runs; a run that did not finish has exit code 1."""
        for run in self._runs.values():
            run.finish(exit_code=0 if status == "finished" else 1)
