"""Runs an `Algorithm` on the server of a deployment: the same object as in a simulation, on one flat vector.

The algorithm decides which clients are asked (`select`) and how the model moves (`merge`); the ledger knows whose
update is in which sum. What a client uploads is declared by the algorithm (`UpdateUpload`) and computed by the ledger's
client in plain NumPy.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.algorithms import Algorithm
from fedlatest.algorithms.base import Cohort, RoundFacts, Sums, UpdateUpload
from fedlatest.errors import ConfigError, DivergedError
from fedlatest.flower.private_sums import add_noise, privacy_settings
from fedlatest.ledger import ClientRow
from fedlatest.ledger.job_config import Arrays, JobConfig, Layout, Memory
from fedlatest.ledger.ledger import Ledger
from fedlatest.ledger.secure_settings import SecureAggregation
from fedlatest.privacy import Privacy
from fedlatest.trees import named_leaves

PART = "update"
FIXED = "fixed "  # prefix of the names of arrays that are not trained
WEIGHTED_UNIT, PLAIN_UNIT = 2.0**-16, 2.0**-24  # of an update times samples, and of an update


def job_config(
    algorithm: Algorithm,
    *,
    memory: str | None = None,
    unit: float | None = None,
    clip_norm: float | None = None,
    seed: int = 0,
    secure: SecureAggregation | None = None,
    privacy: Privacy | None = None,
    share_metrics: bool = False,
) -> JobConfig:
    """Return the configuration of a job that runs an algorithm.

    Args:
        algorithm: One without `obstacles_to_deployment`.
        memory: Where remembered updates are stored: "client" (default) or "server".
        unit: The grid that updates are rounded to.
        clip_norm: The largest norm of an update.
        seed: The seed of the job.
        secure: How uploads are masked; None if they are not.
        privacy: The guarantee of differential privacy, if the job has one. It sets the largest norm of an update.
        share_metrics: Whether clients of a private job send the metrics of their training.

    Raises:
        ConfigError: If the algorithm cannot be deployed or a value is out of range.

    >>> from fedlatest import fedlaavg
    >>> job_config(fedlaavg(weighting="update", empty_round="hold")).memory
    'client'
    """
    upload = _declared_upload(algorithm)
    if memory is not None and upload.remembered == (memory == "none"):
        hint = "remembers updates; choose client or server" if upload.remembered else "remembers nothing; leave it out"
        raise ConfigError(f"memory={memory!r}: {algorithm.name} {hint}")
    if privacy is not None and clip_norm is not None:
        raise ConfigError(f"clip_norm={clip_norm}: the privacy settings have their own; leave it out")
    private = None if privacy is None else privacy_settings(privacy, algorithm, share_metrics=share_metrics)
    return JobConfig(
        algorithm.name,
        dict(algorithm.settings),
        memory=cast(Memory, memory or ("client" if upload.remembered else "none")),  # JobConfig checks it
        unit=unit if unit is not None else (WEIGHTED_UNIT if upload.weighted else PLAIN_UNIT),
        clip_norm=clip_norm if privacy is None else privacy.clip_norm,
        seed=seed,
        weighs=upload.weighted,
        secure=None if secure is None else secure.as_dict(),
        privacy=private,
    )


def initial_server_arrays(algorithm: Algorithm, layout: Layout, model: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return what the server stores before the first round."""
    fixed = {f"{FIXED}{name}": array for name, array in layout.untrained(model).items()}
    return {**_as_arrays(algorithm.init_server(jnp.asarray(layout.flatten(model)), 0)), **fixed}


def model_of(ledger: Ledger, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return the model among the server's arrays, in its own shapes and types."""
    return ledger.layout.unflatten(arrays["params"], _fixed(arrays, drop=True))


def select(
    algorithm: Algorithm, ledger: Ledger, arrays: Arrays, available: Collection[str], *, cohort_size: int
) -> list[str]:
    """Return the clients that the algorithm selects, first choice first.

    Args:
        algorithm: The algorithm of the job.
        ledger: Knows the clients and the round.
        arrays: The server's arrays.
        available: Clients that can be asked; those in a cool-down after a failure, and those that the limits of a
            private job exclude, are left out.
        cohort_size: The largest number of clients to select.
    """
    rows = ledger.clients()
    size = min(cohort_size, len(rows))
    ready = [client for client in rows if client.id in available and is_ready(ledger, client)]
    if size < 1 or not ready:
        return []
    # Padded with clients that are not available: JAX compiles for each length, and keeps what it has compiled.
    length = max(size, 1 << (len(ready) - 1).bit_length())
    facts = _facts(algorithm, ledger, ready, cohort_size=size, length=length)._replace(num_clients=len(rows))
    mask_of_ready = jnp.asarray(np.arange(length) < len(ready))
    clients, mask = algorithm.select(_as_server(algorithm, arrays), mask_of_ready, facts)
    selected = [ready[position].id for position in np.asarray(clients)[np.asarray(mask)]]
    if len(set(selected)) < len(selected):
        raise ConfigError(f"algorithm {algorithm.name}: select returned a client twice in round {ledger.round}")
    return selected


def is_ready(ledger: Ledger, client: ClientRow) -> bool:
    """Return whether a client that is available can be asked to train in the open round."""
    return client.backoff_until <= ledger.round and ledger.may_take_part(client)


def merge(
    algorithm: Algorithm, ledger: Ledger, arrays: Arrays, cohort: Collection[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """Return the server's arrays after the open round.

    Args:
        algorithm: The algorithm of the job.
        ledger: Knows the sums of the open round.
        arrays: The server's arrays before it.
        cohort: The clients whose uploads count in this round.

    Raises:
        DivergedError: If the model would not be finite.
    """
    sums, unit = ledger.sums(), ledger.config.unit
    if sums.num_clients == 0:
        return dict(arrays)
    sums = add_noise(sums, ledger)
    remembered = _declared_upload(algorithm).remembered
    trained = _ComputedOnAccess(lambda: sums.trained_delta_in(unit))
    summed = Sums(
        fresh={} if remembered else trained,
        delta=trained if remembered else {},
        total=_ComputedOnAccess(lambda: sums.total_in(unit)) if remembered else {},
        num=jnp.int32(sums.num),
        weight=jnp.float32(sums.weight),
    )
    rows = ledger.clients()
    facts = _facts(algorithm, ledger, rows, cohort_size=max(1, len(cohort)))._replace(
        num_clients=sums.num_clients, total_weight=sums.total_weight or 1.0, cohort=_cohort(rows, cohort)
    )
    after = _as_arrays(algorithm.merge(_as_server(algorithm, arrays), summed, facts))
    if not all(np.isfinite(array).all() for array in after.values()):
        raise DivergedError(f"the model is not finite after round {ledger.round}: the round is discarded")
    return {**after, **_fixed(arrays)}


class _ComputedOnAccess(Mapping[str, Any]):
    """The one part of a sum; an algorithm that does not use it does not pay for the conversion of a large model."""

    def __init__(self, compute: Callable[[], npt.NDArray[np.float32]]) -> None:
        self._compute = compute

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        if name != PART:
            raise KeyError(name)
        return self._compute()

    def __iter__(self) -> Iterator[str]:
        return iter([PART])

    def __len__(self) -> int:
        return 1


def _declared_upload(algorithm: Algorithm) -> UpdateUpload:
    """Return what clients upload; raise ConfigError if the algorithm cannot be deployed."""
    obstacles = algorithm.obstacles_to_deployment()
    if obstacles or not isinstance(algorithm.contribute, UpdateUpload):
        raise ConfigError(
            f"algorithm={algorithm.name} {dict(algorithm.settings)}: cannot be deployed: {'; '.join(obstacles)}. "
            "fedlaavg, fedlaavg_fresh, fedvarp, fedavg, fedadam, fedyogi and amplified_fedavg can, with "
            'weighting="update" or "none"'
        )
    return algorithm.contribute


def _facts(
    algorithm: Algorithm, ledger: Ledger, rows: list[ClientRow], *, cohort_size: int, length: int | None = None
) -> RoundFacts:
    """Return the facts about some clients, in arrays of this length; by default the number of clients."""
    ids, last_round = np.zeros((2, length or len(rows)), np.int32)
    ids[: len(rows)] = [client.number for client in rows]  # JAX would convert long lists slowly
    last_round[: len(rows)] = [client.last_round for client in rows]
    return RoundFacts(
        round=jnp.int32(ledger.round),
        seed=jnp.uint32(ledger.config.seed),
        num_clients=len(rows),
        cohort_size=cohort_size,
        ids=jnp.asarray(ids),
        last_round=jnp.asarray(last_round),
        numbers=algorithm.numbers,
        total_weight=1.0,  # unused by select
    )


def _cohort(rows: list[ClientRow], clients: Collection[str]) -> Cohort:
    positions = [position for position, client in enumerate(rows) if client.id in clients]
    return Cohort(jnp.asarray(positions, jnp.int32), jnp.ones(len(positions), bool))


def _as_server(algorithm: Algorithm, arrays: Arrays) -> Any:
    params = jnp.asarray(arrays["params"])
    like = jax.eval_shape(lambda: algorithm.init_server(params, 0))
    leaves = [jnp.asarray(arrays[name]) for name in named_leaves(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _fixed(arrays: Arrays, *, drop: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays that are not trained, by their names here or, with `drop`, in the model."""
    found = {name: array for name, array in arrays.items() if name.startswith(FIXED)}
    return {name.removeprefix(FIXED): array for name, array in found.items()} if drop else found


def _as_arrays(server: Any) -> dict[str, npt.NDArray[Any]]:
    return {name: np.asarray(leaf) for name, leaf in named_leaves(server).items()}
