"""Bytes that an algorithm sends and keeps, for a model of Q = 10 numbers of 4 bytes and N = 100 clients."""

import jax
import jax.numpy as jnp
import pytest

from fedlatest.algorithms import ALGORITHMS, fedau, fedavg, fedawe, fedlaavg, scaffold
from fedlatest.algorithms.base import Algorithm
from fedlatest.simulation.costs import Costs, measure_costs

Q = 40  # bytes of the model


@pytest.mark.parametrize(
    ("algorithm", "costs"),
    [
        (fedavg(), Costs(down=Q, up=Q, client=0, server=Q)),
        (fedlaavg(), Costs(down=Q, up=Q, client=Q, server=2 * Q)),  # the model and the sum of updates
        (scaffold(), Costs(down=2 * Q, up=2 * Q, client=Q, server=3 * Q)),  # model, control, sum of controls
        (fedau(), Costs(down=Q, up=Q, client=8, server=Q)),  # a client keeps a mean and a count
        (fedawe(), Costs(down=Q, up=Q, client=Q, server=Q)),  # it receives the model after the merge only
    ],
)
def test_costs_by_hand(algorithm: Algorithm, costs: Costs) -> None:
    assert measure_costs(algorithm, jnp.zeros(10), num_clients=100) == costs


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_costs(name: str) -> None:
    """Shapes suffice, and every method sends at least the model in both directions."""
    shapes = jax.ShapeDtypeStruct((10,), jnp.float32)
    costs = measure_costs(ALGORITHMS[name](), shapes, num_clients=100, has_rates=True)
    assert min(costs.down, costs.up, costs.server) >= Q
