"""FedLaAvg on Flower, where every contribution counts exactly once (extra: fedlatest[flower])."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlatest.errors import DeclinedError, MissingExtraError

try:
    import flwr  # noqa: F401
except ImportError:
    raise MissingExtraError("the deployment needs an extra: pip install 'fedlatest[flower]'") from None

from fedlatest.flower.client import Assignment, Fitted, client_app, latest_mod
from fedlatest.flower.eligibility import all_of, by_command, by_hours
from fedlatest.flower.message_records import from_record, to_record

if TYPE_CHECKING:
    from fedlatest.flower.local_grid import LocalGrid
    from fedlatest.flower.round_loop import Pace
    from fedlatest.flower.strategy import FedLaAvg

_AT_THE_SERVER = {"LocalGrid": "local_grid", "Pace": "round_loop", "FedLaAvg": "strategy"}  # these need JAX


def __getattr__(name: str) -> Any:
    if name in _AT_THE_SERVER:
        return getattr(import_module(f"fedlatest.flower.{_AT_THE_SERVER[name]}"), name)
    raise AttributeError(f"module 'fedlatest.flower' has no attribute {name!r}")


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
