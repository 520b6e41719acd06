"""Exceptions raised by fedlatest. All of them derive from `FedlatestError`."""


class FedlatestError(Exception):
    """Base class of all errors that fedlatest raises on purpose; the message says what is wrong and what to do."""


class ConfigError(FedlatestError, ValueError):
    """A setting is unknown, has the wrong type or is out of range."""


class DataError(FedlatestError, ValueError):
    """Data is missing, damaged or does not follow its format."""


class RunFolderError(FedlatestError):
    """A run folder cannot be written, is in use, or belongs to another configuration."""


class RunFolderInUseError(RunFolderError):
    """Another process writes to the run folder; it may be retried when that process has ended."""


class ClusterError(FedlatestError, RuntimeError):
    """A Dask cluster cannot be reached, or its workers cannot run experiments; the message says what to do."""


class DivergedError(FedlatestError, ArithmeticError):
    """An update or the model is no longer finite; the message says where."""


class ProcessError(FedlatestError, RuntimeError):
    """A process that takes part in a simulation has ended or cannot be reached."""


class MissingExtraError(FedlatestError, ImportError):
    """An optional dependency is not installed; the message says how to install the extra.

    Args:
        what: What needs it, at the start of a sentence.
        extra: A name of `[project.optional-dependencies]` in pyproject.toml.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)

    def __str__(self) -> str:
        what, extra = self.args
        return f"{what} needs packages that are not installed; in your copy of fedlatest, run: pip install '.[{extra}]'"


class ProtocolError(FedlatestError):
    """A message between server and client violates the protocol; it was rejected and changed nothing."""


class LedgerError(FedlatestError):
    """A ledger or a client's state folder cannot be read or written, or the ledger belongs to another job or server."""


class BudgetError(FedlatestError):
    """A round would exceed the privacy budget of a job; it was not started."""


class DeclinedError(FedlatestError):
    """A client cannot train now. Raise it from a training function to decline a round."""


class DeploymentError(FedlatestError, RuntimeError):
    """A process of a deployment failed or did not start; the message names the log file to read."""
