"""What an algorithm is: a frozen bundle of pure functions, and the few facts they are handed.

Axes: [N, ...] all clients, [K, ...] the slots of a cohort. `Params` is any tree of arrays; a contribution is a dict of
named parts, each a tree like `Params`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Params = Any
Contribution = Mapping[str, Params]


class ModelOnly(NamedTuple):
    """Server state of the algorithms that keep nothing but the model."""

    params: Params


class RoundFacts(NamedTuple):
    """What the server knows in a round; `last_round` is -1 for a client that never took part."""

    round: jax.Array
    seed: jax.Array
    num_clients: int
    cohort_size: int
    ids: jax.Array  # [N] stable client ids: random draws hang on these, not on positions
    last_round: jax.Array  # [N] R_i in the paper
    numbers: Mapping[str, Any]  # the algorithm's own
    total_weight: Any  # of all clients: N in a simulation, where weights are 1 on average; the samples in a deployment


class ClientFacts(NamedTuple):
    """What one client knows in a round; `weight` is w_i N, which is 1 on average (in a deployment: its samples)."""

    round: jax.Array
    id: jax.Array
    weight: jax.Array
    num_steps: int
    numbers: Mapping[str, Any]  # the algorithm's own
    seed: Any = 0
    step: Any = 0  # which of the local steps it is at


class Cohort(NamedTuple):
    """Who takes part: K distinct positions in range(N), of which those with a true mask are real."""

    clients: jax.Array  # [K]
    mask: jax.Array  # [K]


class Sums(NamedTuple):
    """All that the server learns of the uploads of a round."""

    fresh: Contribution  # parts not remembered: sum over the cohort
    delta: Contribution  # remembered parts: sum of new - old over the cohort
    total: Contribution  # remembered parts: sum of everybody's latest, this round's included
    num: jax.Array  # how many took part
    weight: jax.Array  # sum of their weights


Select = Callable[[Any, jax.Array, RoundFacts], Cohort]
Direction = Callable[[Params, Params, Params, Contribution, ClientFacts], Params]
Contribute = Callable[[Params, Params, Contribution, ClientFacts], Contribution]


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm, for the simulator and for a deployment alike.

    Parts of a contribution that are named in `remembers` stay in the total while the client is away; the runtime keeps
    them, forms the differences and hands `merge` the sums.
    """

    name: str
    init: Callable[[Params, int], Any]
    """(params, num_clients) -> server state: a NamedTuple of arrays with the model as `params`."""
    select: Select
    """(server, available [N], facts) -> cohort."""
    direction: Direction
    """(gradient, local params, broadcast params, own memory, facts) -> what a local step descends along."""
    contribute: Contribute
    """(broadcast params, local params, own memory, facts) -> the client's new contribution."""
    merge: Callable[[Any, Sums, RoundFacts], Any]
    """(server, sums, facts) -> server state."""
    remembers: tuple[str, ...] = ()
    num_local_steps: int | None = None
    """The number of local steps where the algorithm fixes it."""
    oldest_first: bool = False
    """Whether it takes those absent longest, for which Lemma 1 bounds the staleness."""
    pooled: bool = False
    """Train one client that holds everybody's data: the ideal line, not a federation."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was made with, for the record."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Those of the settings that its functions find in the facts: two algorithms that differ in nothing else share one
    compiled program."""


def keep_model(params: Params, num_clients: int) -> ModelOnly:
    """`init` of the algorithms whose server keeps nothing but the model."""
    del num_clients
    return ModelOnly(params)


def add(left: Params, right: Params, scale: jax.Array | float = 1.0) -> Params:
    """left + scale * right, leaf by leaf."""
    return jax.tree.map(lambda x, y: (x + scale * y).astype(x.dtype), left, right)


def subtract(left: Params, right: Params) -> Params:
    """left - right, leaf by leaf."""
    return jax.tree.map(lambda x, y: x - y, left, right)


def scale(tree: Params, factor: jax.Array | float) -> Params:
    """factor * tree, leaf by leaf."""
    return jax.tree.map(lambda x: factor * x, tree)


def zeros_like(tree: Params) -> Params:
    """A tree of zeros."""
    return jax.tree.map(jnp.zeros_like, tree)
