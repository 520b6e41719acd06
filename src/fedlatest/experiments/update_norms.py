"""The norms of clients' updates in the first round, to choose a clip norm."""

from dataclasses import replace

import jax
import numpy as np

from fedlatest.algorithms import fedlaavg
from fedlatest.availability import always
from fedlatest.models.shapes import parameter_shapes
from fedlatest.simulation import Engine, ExperimentSpec

MOST_CLIENTS = 100


def median_update_norm(spec: ExperimentSpec) -> float:
    """Return the median norm of the updates of up to 100 clients in the first round of an experiment."""
    num_clients = spec.federation.num_clients
    first = replace(
        spec,
        algorithm=fedlaavg(weighting="none"),
        availability=always(num_clients),
        cohort_size=min(num_clients, MOST_CLIENTS),
        rounds=1,
        rates=None,
        seeds=(0,),
        client_rows="seen",
        privacy=None,
    )
    engine = Engine([first])
    [state], _ = engine.advance(engine.start(), 1)
    leaves = jax.device_get(jax.tree.leaves(state.clients.remembered))  # each [1, rows, ...]
    norms = np.sqrt(sum(np.sum(np.square(leaf[0].reshape(leaf.shape[1], -1)), axis=1) for leaf in leaves))
    return float(np.median(norms[norms > 0]))


def num_parameters(spec: ExperimentSpec) -> int:
    """Return the number of parameters of the model."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(parameter_shapes(spec.model.init)))
