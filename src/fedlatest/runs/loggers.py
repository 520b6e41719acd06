"""Loggers: objects that receive the evaluations of a run while it goes on, such as TensorBoard, MLflow and W&B."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from fedlatest.errors import ConfigError, MissingExtraError
from fedlatest.runs.metrics import Row

Status = Literal["finished", "diverged", "stopped"]
LOGGERS = ("tensorboard", "mlflow", "wandb")  # names of the loggers below


class RunLogger(Protocol):
    """Receives the evaluations of one run. A run has its own logger; `start` is called once, and so is `finish`."""

    def start(self, folder: Path, manifest: Mapping[str, Any], *, first_round: int) -> None:
        """Begin to log.

        Args:
            folder: The run folder; a logger that writes files puts them into a subfolder of its own name.
            manifest: The content of manifest.json: `config`, `seeds`, `data` and more.
            first_round: 0, or the first round of a resumed run; what was logged from this round on is logged again.
        """

    def log(self, rows: Sequence[Row]) -> None:
        """Log an evaluation: one row per seed."""

    def finish(self, status: Status) -> None:
        """End the log; `stopped` if the run was interrupted and may be resumed."""


LoggerChoice = str | Callable[[], RunLogger]


def make_logger(choice: LoggerChoice) -> RunLogger:
    """Return a new logger, given one of the names in LOGGERS or a function that makes one.

    Raises:
        ConfigError: If there is no logger of this name.
        MissingExtraError: If its package is not installed.
    """
    if not isinstance(choice, str):
        return choice()
    if choice not in LOGGERS:
        raise ConfigError(f"log {choice}: choose {', '.join(LOGGERS)}")
    try:
        if choice == "tensorboard":
            from fedlatest.runs.tensorboard import Tensorboard

            return Tensorboard()
        if choice == "mlflow":
            from fedlatest.runs.mlflow_logger import MlflowLogger

            return MlflowLogger()
        from fedlatest.runs.wandb_logger import WandbLogger

        return WandbLogger()
    except ImportError as error:
        title = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "Weights & Biases"}[choice]
        raise MissingExtraError(f"{title} logging", choice) from error


class LoggerGroup:
    """The loggers of one run. One that fails while the run goes on is dropped with a warning; the run continues."""

    def __init__(self, loggers: Sequence[RunLogger] = ()) -> None:
        self._waiting, self._active = list(loggers), list[RunLogger]()

    def start(self, folder: Path, manifest: Mapping[str, Any], *, first_round: int) -> None:
        """Start all loggers; an error ends the run, since nothing is lost yet."""
        for logger in self._waiting:
            logger.start(folder, manifest, first_round=first_round)
            self._active.append(logger)
        self._waiting = []

    def log(self, rows: Sequence[Row]) -> None:
        """Log an evaluation."""
        for logger in list(self._active):
            self._attempt(logger, partial(logger.log, rows))

    def finish(self, status: Status) -> None:
        """End the logs that were started."""
        for logger in list(self._active):
            self._attempt(logger, partial(logger.finish, status))
        self._active = []

    def _attempt(self, logger: RunLogger, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # a full disk or a lost connection of the logger must not end days of training
            self._active.remove(logger)
            warnings.warn(
                f"{type(logger).__name__} failed and logs no more of this run; its metrics.csv is complete "
                f"({type(error).__name__}: {error})",
                stacklevel=2,
            )


def logged_values(row: Row) -> dict[str, float]:
    """Return the numbers of a row by column, without seed, round and empty cells."""
    return {name: value for name, value in row._asdict().items() if name not in ("seed", "round") and value is not None}


def flat_config(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values as (dotted key, value) pairs.

    >>> dict(flat_config({"rounds": 5, "algorithm": {"name": "fedavg"}}))
    {'rounds': 5, 'algorithm.name': 'fedavg'}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_config(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
