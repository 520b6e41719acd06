"""FedLaAvg on Flower, where every contribution counts exactly once (extra: fedlatest[flower])."""

from fedlatest.errors import DeclinedError, MissingExtraError

try:
    import flwr  # noqa: F401
except ImportError:
    raise MissingExtraError("the deployment needs an extra: pip install 'fedlatest[flower]'") from None

from fedlatest.flower.client import Assignment, Fitted, client_app, latest_mod
from fedlatest.flower.eligibility import all_of, by_command, by_hours
from fedlatest.flower.local_grid import LocalGrid
from fedlatest.flower.records import from_record, to_record
from fedlatest.flower.rounds import Pace
from fedlatest.flower.strategy import FedLaAvg

__all__ = [
    "Assignment",
    "DeclinedError",
    "FedLaAvg",
    "Fitted",
    "LocalGrid",
    "Pace",
    "all_of",
    "by_command",
    "by_hours",
    "client_app",
    "from_record",
    "latest_mod",
    "to_record",
]
