"""How often the model was sent to a client, how often an update was sent back, and how often it was used.

Counted in runs with virtual time, where an update can be too late or a client can fail.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import Cohort
from fedlatest.simulation.clock import Finish
from fedlatest.simulation.flight import Flight


class Traffic(NamedTuple):
    """Counts since the start of a run."""

    downloads: jax.Array  # clients that were asked
    uploads: jax.Array  # updates that clients sent, also those that arrived after the end of their round
    merged: jax.Array  # updates that were used


def no_traffic() -> Traffic:
    """Return the counts before the first round."""
    return Traffic(jnp.int32(0), jnp.int32(0), jnp.int32(0))


def add_traffic(before: Traffic | None, new: Traffic | None) -> Traffic | None:
    """Return the counts after a round; None without virtual time."""
    return None if before is None or new is None else Traffic(*(a + b for a, b in zip(before, new, strict=True)))


def round_traffic(cohort: Cohort, finish: Finish, answered: Cohort) -> Traffic:
    """Return the counts of a synchronous round: clients that fail send nothing, the others send their update."""
    return Traffic(_number(cohort.mask), _number(cohort.mask & ~finish.fails), _number(answered.mask))


def step_traffic(before: Flight, after: Flight, num_arrivals: jax.Array, *, buffer: int) -> Traffic:
    """Return the counts of an asynchronous server step; updates are not used if too few have arrived."""
    merged = jnp.where(num_arrivals == buffer, num_arrivals, 0)
    return Traffic(after.starts - before.starts, num_arrivals, merged)


def _number(mask: jax.Array) -> jax.Array:
    return jnp.sum(mask, dtype=jnp.int32)
