"""Deployment on Flower: the server's strategy, the clients' mod and the round loop. Needs the extra fedlatest[flower].

May import `algorithms`, `availability`, `runs`, `privacy` and `ledger`. The client side imports neither JAX nor
`algorithms`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlatest.errors import DeclinedError, MissingExtraError

try:
    import flwr  # noqa: F401
except ImportError:
    raise MissingExtraError("the deployment", "flower") from None

from fedlatest.flower.client import ClientResult, ClientTask, client_app, latest_mod
from fedlatest.flower.eligibility import all_of, by_command, by_hours
from fedlatest.flower.message_records import from_record, to_record
from fedlatest.ledger import Limits, SecureAggregation

if TYPE_CHECKING:
    from fedlatest.flower.local_grid import LocalGrid
    from fedlatest.flower.round_loop import Timeouts
    from fedlatest.flower.strategy import FedLaAvg
    from fedlatest.privacy import Privacy

# Imported on first use: most of them import JAX, which a client does not need.
_LAZY = {
    "LocalGrid": "flower.local_grid",
    "Timeouts": "flower.round_loop",
    "FedLaAvg": "flower.strategy",
    "Privacy": "privacy",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"fedlatest.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'fedlatest.flower' has no attribute {name!r}")


__all__ = [
    "ClientResult",
    "ClientTask",
    "DeclinedError",
    "FedLaAvg",
    "Limits",
    "LocalGrid",
    "Privacy",
    "SecureAggregation",
    "Timeouts",
    "all_of",
    "by_command",
    "by_hours",
    "client_app",
    "from_record",
    "latest_mod",
    "to_record",
]
