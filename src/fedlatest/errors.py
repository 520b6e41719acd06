"""The exceptions that fedlatest raises for a user's mistake, all under one root."""


class FedlatestError(Exception):
    """Root of every error that fedlatest raises on purpose; its text says what is wrong and what to do."""


class ConfigError(FedlatestError, ValueError):
    """A setting is unknown, of the wrong type or outside its range."""


class DataError(FedlatestError, ValueError):
    """Data is missing, damaged or not what its format promises."""


class RunFolderError(FedlatestError):
    """A run folder is in the way, belongs to another configuration, or cannot be written."""


class DivergedError(FedlatestError, ArithmeticError):
    """A client's contribution stopped being finite; the message names seed, round and client."""


class MissingExtraError(FedlatestError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""


class ProtocolError(FedlatestError):
    """A message between server and client is not what the protocol allows; it was refused and changed nothing."""


class LedgerError(FedlatestError):
    """A job's ledger cannot be opened, belongs to another configuration, or was taken over by another server."""


class DeclinedError(FedlatestError):
    """A client may not work now; raise it from a training function to decline a round."""


class DeploymentError(FedlatestError, RuntimeError):
    """A process of a deployment failed or did not come up; the message names the log to read."""
