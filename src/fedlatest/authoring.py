"""What the author of an algorithm needs: the types of the interface, selections, weights and arithmetic on trees.

    from fedlatest.authoring import Algorithm, ModelOnly, Sums, UpdateUpload, add, keep_model, uniform

The names in `__all__` are public: they change only with a line in the changelog. docs/algorithms.md describes the
interface, and CONTRIBUTING.md contains a complete algorithm.
"""

from fedlatest.algorithms.base import (
    NEVER,
    Algorithm,
    ClientFacts,
    ClientState,
    Cohort,
    Contribution,
    Direction,
    ModelOnly,
    RoundFacts,
    Sums,
    UpdateUpload,
    add,
    broadcast_model,
    keep_model,
    scale,
    subtract,
    where,
    zeros_like,
)
from fedlatest.algorithms.fedavg import select_uniformly
from fedlatest.algorithms.selection import age_weighted, lowest_first, oldest_first, uniform
from fedlatest.algorithms.server_optimizer import check_positive, make_server_step, server_numbers, server_settings
from fedlatest.algorithms.weighting import Weighting, refuse_update_weighting, weighted_direction

__all__ = [
    "NEVER",
    "Algorithm",
    "ClientFacts",
    "ClientState",
    "Cohort",
    "Contribution",
    "Direction",
    "ModelOnly",
    "RoundFacts",
    "Sums",
    "UpdateUpload",
    "Weighting",
    "add",
    "age_weighted",
    "broadcast_model",
    "check_positive",
    "keep_model",
    "lowest_first",
    "make_server_step",
    "oldest_first",
    "refuse_update_weighting",
    "scale",
    "select_uniformly",
    "server_numbers",
    "server_settings",
    "subtract",
    "uniform",
    "weighted_direction",
    "where",
    "zeros_like",
]
