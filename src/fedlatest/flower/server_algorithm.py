"""An algorithm at the wheel of a deployment: the same object as in a simulation, on one flat vector.

Who is asked (`select`) and how the model moves (`merge`) are the algorithm's; whose value is in which sum is the
ledger's. What a client sends is the algorithm's `contribute` too, in plain NumPy (`contribution.py`); that both agree
is checked when a job begins.
"""

from collections.abc import Collection
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import Algorithm
from fedlatest.algorithms.base import ClientFacts, RoundFacts, Sums
from fedlatest.errors import ConfigError, DivergedError
from fedlatest.ledger.database import ClientRow
from fedlatest.ledger.fixed_point import from_fixed_point
from fedlatest.ledger.job_config import Arrays, JobConfig, Layout, Memory
from fedlatest.ledger.ledger import Ledger
from fedlatest.trees import named_leaves

PART = "update"
FIXED = "fixed "  # what the names of arrays begin with that are not trained
COARSE, FINE = 2.0**-16, 2.0**-24  # units of an update times samples, and of an update


def job_config(
    algorithm: Algorithm,
    *,
    memory: str | None = None,
    unit: float | None = None,
    clip_norm: float | None = None,
    seed: int = 0,
) -> JobConfig:
    """The config of a job that an algorithm is to steer; complains about one that cannot be deployed.

    >>> from fedlatest import fedlaavg
    >>> job_config(fedlaavg(weighting="update", empty_round="hold")).memory
    'client'
    """
    _check_deployable(algorithm)
    remembers = PART in algorithm.remembers
    if memory is not None and remembers == (memory == "none"):
        says = "remembers updates; choose client or server" if remembers else "remembers nothing; leave it out"
        raise ConfigError(f"memory={memory!r}: {algorithm.name} {says}")
    return JobConfig(
        algorithm.name,
        dict(algorithm.settings),
        memory=cast(Memory, memory or ("client" if remembers else "none")),  # JobConfig checks it
        unit=unit if unit is not None else (COARSE if _weighs(algorithm) else FINE),
        clip_norm=clip_norm,
        seed=seed,
        weighs=_weighs(algorithm),
    )


def first_arrays(algorithm: Algorithm, layout: Layout, model: Arrays) -> dict[str, npt.NDArray[Any]]:
    """What the server keeps before the first round."""
    fixed = {f"{FIXED}{name}": array for name, array in layout.untrained(model).items()}
    return {**_as_arrays(algorithm.init(jnp.asarray(layout.flatten(model)), 0)), **fixed}


def model_of(ledger: Ledger, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The model among the server's arrays, in its own shapes and types."""
    return ledger.layout.unflatten(arrays["params"], _fixed(arrays, drop=True))


def choose(
    algorithm: Algorithm, ledger: Ledger, arrays: Arrays, here: Collection[str], *, cohort_size: int
) -> list[str]:
    """The clients that the algorithm takes of those here that are not resting, first choice first."""
    members = ledger.clients()
    available = np.array([member.id in here and member.backoff_until <= ledger.round for member in members], bool)
    size = min(cohort_size, len(members))
    if size < 1 or not available.any():
        return []
    facts = _facts(algorithm, ledger, members, cohort_size=size)
    clients, mask = algorithm.select(_as_server(algorithm, arrays), jnp.asarray(available), facts)
    return [members[position].id for position in np.asarray(clients)[np.asarray(mask)]]


def merge(algorithm: Algorithm, ledger: Ledger, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The server's arrays after the round that is open."""
    sums, unit = ledger.sums(), ledger.config.unit
    if sums.num_clients == 0:
        return dict(arrays)
    total, delta = from_fixed_point(sums.total, unit), from_fixed_point(sums.delta, unit)
    remembers = PART in algorithm.remembers
    summed = Sums(
        fresh={} if remembers else {PART: delta},
        delta={PART: delta} if remembers else {},
        total={PART: total} if remembers else {},
        num=jnp.int32(sums.num),
        weight=jnp.float32(sums.weight),
    )
    facts = _facts(algorithm, ledger, ledger.clients(), cohort_size=1)
    facts = facts._replace(num_clients=sums.num_clients, total_weight=sums.total_weight or 1.0)
    after = _as_arrays(algorithm.merge(_as_server(algorithm, arrays), summed, facts))
    if not all(np.isfinite(array).all() for array in after.values()):
        raise DivergedError(f"the model is not finite after round {ledger.round}: the round is not kept")
    return {**after, **_fixed(arrays)}


def _facts(algorithm: Algorithm, ledger: Ledger, members: list[ClientRow], *, cohort_size: int) -> RoundFacts:
    return RoundFacts(
        round=jnp.int32(ledger.round),
        seed=jnp.uint32(ledger.config.seed),
        num_clients=len(members),
        cohort_size=cohort_size,
        ids=jnp.asarray([member.number for member in members], jnp.int32),
        last_round=jnp.asarray([member.last_round for member in members], jnp.int32),
        numbers=algorithm.numbers,
        total_weight=1.0,  # of no account for a selection
    )


def _check_deployable(algorithm: Algorithm) -> None:
    """A deployment trains with a function of the user's: nothing may hang on a hook in its steps or on a fixed N.

    A client sends its update, or its update times its samples, and needs neither the algorithm nor JAX for that.
    """
    one, facts = np.float32(1), _someone(algorithm)
    unhooked = float(algorithm.direction(one, one * 7, one * 9, {PART: one * 2}, facts)) == 1.0
    sizes = [[leaf.shape for leaf in jax.tree.leaves(algorithm.init(jnp.zeros(1), n))] for n in (3, 5)]
    sent = {name: float(part) for name, part in algorithm.contribute(one * 3, one * 10, {}, facts).items()}
    plain = unhooked and sent in ({PART: 7.0}, {PART: 35.0})
    if algorithm.pooled or algorithm.num_local_steps or not plain or sizes[0] != sizes[1]:
        raise ConfigError(
            f"algorithm={algorithm.name} {dict(algorithm.settings)}: cannot be deployed, as it reaches into local "
            "training or needs to know all clients beforehand; fedlaavg, fedavg and fedadam can, with "
            'weighting="update" or "none"'
        )


def _weighs(algorithm: Algorithm) -> bool:
    """Whether clients send their updates times their samples."""
    one = np.float32(1)
    return float(algorithm.contribute(one * 3, one * 10, {}, _someone(algorithm))[PART]) == 35.0


def _someone(algorithm: Algorithm) -> ClientFacts:
    """A client with five samples."""
    return ClientFacts(jnp.int32(3), jnp.int32(2), jnp.float32(5), 4, algorithm.numbers)


def _as_server(algorithm: Algorithm, arrays: Arrays) -> Any:
    params = jnp.asarray(arrays["params"])
    like = jax.eval_shape(lambda: algorithm.init(params, 0))
    leaves = [jnp.asarray(arrays[name]) for name in named_leaves(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _fixed(arrays: Arrays, *, drop: bool = False) -> dict[str, npt.NDArray[Any]]:
    """The model's arrays that are not trained, by their names here or in the model."""
    found = {name: array for name, array in arrays.items() if name.startswith(FIXED)}
    return {name.removeprefix(FIXED): array for name, array in found.items()} if drop else found


def _as_arrays(server: Any) -> dict[str, npt.NDArray[Any]]:
    return {name: np.asarray(leaf) for name, leaf in named_leaves(server).items()}
