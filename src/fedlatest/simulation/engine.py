"""The compiled simulator: seeds and experiments that share a program side by side, a block of rounds per call."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import isroutine
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.algorithms import Algorithm
from fedlatest.availability import Availability, always
from fedlatest.data import Federation
from fedlatest.errors import ConfigError, DivergedError
from fedlatest.models import Loss, Model
from fedlatest.simulation.evaluation import Score, evaluate
from fedlatest.simulation.local_training import DeviceData, place
from fedlatest.simulation.rounds import NEVER, Lane, Record, Rules, State, average_error, play_block, start
from fedlatest.simulation.storage import compact, expand
from fedlatest.streams import Purpose, bits

States = list[State]
CACHE_BYTES = 160_000  # models trained at once on a CPU should fit the cache of a core


class Training(NamedTuple):
    """The numbers of local training and selection."""

    cohort_size: int
    num_local_steps: int
    batch_size: int
    learning_rate: float


class Variant(NamedTuple):
    """What may differ between experiments that share a compiled program."""

    availability: Availability
    learning_rate: float
    numbers: Mapping[str, float]  # the algorithm's


@dataclass(frozen=True)
class Group:
    """Lanes that run side by side in one program; a group of one carries no axis of lanes."""

    lanes: Lane
    size: int
    one_availability: bool  # all lanes share it, so it carries no axis of lanes


class Measured(NamedTuple):
    """An evaluation of all lanes, each [lanes]."""

    train: Score
    test: Score
    average_error: Any  # None for a method without memory


class Engine:
    """Runs every variant of an experiment for every seed; states and records carry a leading axis [lanes].

    Lanes are ordered by variant, then seed. On an accelerator they run side by side in one program. On a CPU each is a
    group of its own and they take turns with the same program: there, a small model's products are slower when batched.
    """

    def __init__(
        self,
        federation: Federation,
        model: Model,
        algorithm: Algorithm,
        availability: Availability,
        training: Training,
        *,
        loss: Loss,
        seeds: Sequence[int],
        variants: Sequence[Variant] | None = None,
        clients_at_once: int | None = None,
    ) -> None:
        variants = variants or [Variant(availability, training.learning_rate, algorithm.numbers)]
        for variant in variants:
            _check(federation, variant, training, seeds)
        if clients_at_once is not None and clients_at_once < 1:
            raise ConfigError(f"clients_at_once={clients_at_once}: must be at least 1")
        _check_outputs(federation, model, loss)
        if algorithm.pooled:
            federation, training = _pool(federation, training)
            variants = [variant._replace(availability=always(1)) for variant in variants]
        self.federation, self.training = federation, training
        self.seeds = np.tile(np.asarray(seeds, np.uint32), len(variants))  # [lanes]
        self.groups = _groups(variants, seeds)
        self.model, self.loss = model, loss
        self.rules = Rules(
            algorithm=algorithm,
            loss=lambda params, features, labels: jnp.mean(loss.per_sample(model.apply(params, features), labels)),
            cohort_size=training.cohort_size,
            num_steps=algorithm.num_local_steps or training.num_local_steps,
            batch_size=training.batch_size,
            clients_at_once=min(training.cohort_size, clients_at_once or _clients_at_once(model, training.cohort_size)),
        )
        self.samples, self.test = _placed(federation)
        self.num_labels = federation.num_labels if federation.has_classes else 0
        self._begin = jax.jit(self._blank)
        self._advance = jax.jit(self._play, static_argnames=("num_rounds", "size"), donate_argnames="state")
        self._measure = jax.jit(self._score)

    def start(self) -> States:
        """The state before round 0; each seed has its own initial model."""
        # JAX recognises a function that it has seen: engines of one model share its program, whatever the algorithm.
        init = jax.jit(self.model.init if isroutine(self.model.init) else partial(self.model.init))
        seeds = [np.atleast_1d(group.lanes.seed) for group in self.groups]
        return [self._begin([init(_initial_key(seed)) for seed in group]) for group in seeds]

    def advance(self, states: States, num_rounds: int) -> tuple[States, Record]:
        """Play `num_rounds` rounds; the given states are used up. Records are [lanes, rounds, ...] NumPy arrays."""
        played = [
            self._advance(self.samples, group.lanes, state=state, num_rounds=num_rounds, size=group.size)
            for group, state in zip(self.groups, states, strict=True)
        ]
        return [state for state, _ in played], _join([record for _, record in played])

    def measure(self, states: States) -> Measured:
        """Loss and accuracy on the full train and test sets, and the audit of the stored average."""
        measured = _join([self._measure(self.samples, self.test, state) for state in states])
        return measured if self.rules.algorithm.remembers else measured._replace(average_error=None)

    def failures(self, states: States) -> list[DivergedError | None]:
        """For each lane: which client's contribution was the first that was not finite, if one was."""
        failures = [(state.failed_round, state.failed_client) for state in states]
        rounds, clients = (np.concatenate(parts) for parts in zip(*jax.device_get(failures), strict=True))
        return [
            None
            if round == NEVER
            else DivergedError(
                f"training diverged: the contribution of client {client} in round {round} (seed {seed}) "
                "is not finite; try a smaller learning_rate"
            )
            for seed, round, client in zip(self.seeds, rounds, clients, strict=True)
        ]

    @cached_property
    def bytes_needed(self) -> int:
        """Memory for the samples and for the state of every lane; what training holds for a moment comes on top."""
        return _nbytes((self.samples, self.test, jax.eval_shape(self.start)))

    def check_memory(self) -> None:
        """Refuse a run that cannot fit, before its state is allocated."""
        room = _bytes_there()
        if room is not None and self.bytes_needed > room:
            raise ConfigError(
                f"the run needs {self.bytes_needed / 2**30:.1f} GiB of memory, this device has {room / 2**30:.1f} GiB; "
                "use fewer clients, fewer seeds or a smaller model"
            )

    def join(self, parts: Sequence[Any]) -> Any:
        """The states of all lanes, or a part of them, as one tree [lanes, ...], however they are grouped."""
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    def params(self, states: States) -> Any:
        """The models of all lanes, [lanes, ...]."""
        return self.join([state.server.params for state in states])

    def split(self, joined: Any) -> States:
        """The inverse of `join`."""
        ends = np.cumsum([group.size for group in self.groups])
        parts = [slice(end - group.size, end) for group, end in zip(self.groups, ends, strict=True)]
        return [jax.tree.map(lambda leaf, part=part: jnp.asarray(leaf[part]), joined) for part in parts]

    def _blank(self, models: list[Any]) -> State:
        together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
        return jax.vmap(lambda params: start(self.rules, params, self.federation.num_clients))(together)

    def _play(
        self, samples: DeviceData, lanes: Lane, *, state: State, num_rounds: int, size: int
    ) -> tuple[State, Record]:
        play = partial(play_block, self.rules, samples, num_rounds=num_rounds)
        if size > 1:
            axes = (0, None if self.groups[0].one_availability else 0, 0, 0, 0)
            return jax.vmap(lambda *parts: play(Lane(*parts[:-1]), parts[-1]), in_axes=axes)(*lanes, state)
        # A vmap over one lane would make XLA choose matrix products for a CPU that are a third slower.
        outcome = play(lanes, jax.tree.map(lambda leaf: leaf[0], state))
        return jax.tree.map(lambda leaf: leaf[None], outcome)

    def _score(self, samples: DeviceData, test: Any, state: State) -> Measured:
        def measure(state: State) -> Measured:
            score = partial(evaluate, self.model.apply, self.loss, state.server.params, table=samples.table)
            on_train = score(samples.features, samples.labels)
            on_test = score(*test, num_labels=self.num_labels)
            return Measured(on_train, on_test, average_error(state))

        return jax.vmap(measure)(state)


@jax.jit
def _initial_key(seed: jax.Array) -> jax.Array:
    return jax.random.key(bits(seed, Purpose.INITIAL_MODEL))


def _check(federation: Federation, variant: Variant, training: Training, seeds: Sequence[int]) -> None:
    num_clients = federation.num_clients
    if not 1 <= training.cohort_size <= num_clients:
        raise ConfigError(f"cohort_size={training.cohort_size}: choose 1 .. {num_clients} (the number of clients)")
    about = variant.availability.num_clients
    if about != num_clients:
        raise ConfigError(f"availability is about {about} clients, the federation has {num_clients}")
    for name in ("num_local_steps", "batch_size"):
        if getattr(training, name) < 1:
            raise ConfigError(f"{name}={getattr(training, name)}: must be at least 1")
    if not (np.isfinite(variant.learning_rate) and variant.learning_rate > 0):
        raise ConfigError(f"learning_rate={variant.learning_rate}: must be above 0")
    if len(seeds) == 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={tuple(seeds)}: give at least one, each once")
    if not all(0 <= seed < 2**32 for seed in seeds):
        raise ConfigError(f"seeds={tuple(seeds)}: a seed is in 0 .. 2^32 - 1")


def _check_outputs(federation: Federation, model: Model, loss: Loss) -> None:
    """A cross-entropy over fewer outputs than there are labels would be silently wrong."""
    row, table = jax.tree.map(lambda leaf: leaf[:1], federation.features), federation.table
    outputs = jax.eval_shape(
        lambda key, row, table: model.apply(model.init(key), expand(row, table)), jax.random.key(0), row, table
    )
    if loss.name == "sigmoid_cross_entropy" and outputs.ndim > 1:
        raise ConfigError(f"the model has {outputs.shape[-1]} outputs a sample, {loss.name} takes one logit")
    if loss.name == "softmax_cross_entropy" and outputs.shape[-1] < federation.num_labels:
        raise ConfigError(f"the model has {outputs.shape[-1]} outputs, the data {federation.num_labels} labels")


def _bytes_there() -> int | None:
    """The memory of the device, where it can be known."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        limit = (device.memory_stats() or {}).get("bytes_limit")
        return None if limit is None else int(limit)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


_ON_DEVICE: WeakKeyDictionary[Federation, tuple[DeviceData, Any]] = WeakKeyDictionary()


def _placed(federation: Federation) -> tuple[DeviceData, Any]:
    """Training and test samples on the device, once per federation however many engines use it."""
    if federation not in _ON_DEVICE:
        test = jax.tree.map(jnp.asarray, (compact(federation.test_features), federation.test_labels))
        _ON_DEVICE[federation] = place(federation), test
    return _ON_DEVICE[federation]


def _pool(federation: Federation, training: Training) -> tuple[Federation, Training]:
    """One client holds everything and takes the whole cohort's batch in each step."""
    together = training.cohort_size * training.batch_size
    return federation.pooled, training._replace(cohort_size=1, batch_size=together)


def _groups(variants: Sequence[Variant], seeds: Sequence[int]) -> list[Group]:
    """All lanes in one group on an accelerator, each in its own on a CPU."""
    lanes = [
        Lane(
            jnp.uint32(seed),
            variant.availability,
            jnp.float32(variant.learning_rate),
            {name: jnp.float32(number) for name, number in variant.numbers.items()},
        )
        for variant in variants
        for seed in seeds
    ]
    if not _side_by_side() or len(lanes) == 1:
        return [Group(lane, 1, one_availability=True) for lane in lanes]
    return [_stack(lanes)]


def _stack(lanes: list[Lane]) -> Group:
    """Lanes as one, a leading axis on each array; availability that they share stays single."""
    seeds, availabilities, rates, numbers = zip(*lanes, strict=True)
    same = all(availability is availabilities[0] for availability in availabilities)

    def stack(parts: Sequence[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)

    availability = availabilities[0] if same else stack(availabilities)
    return Group(Lane(stack(seeds), availability, stack(rates), stack(numbers)), len(lanes), one_availability=same)


def _side_by_side() -> bool:
    return jax.default_backend() != "cpu"


def _clients_at_once(model: Model, cohort_size: int) -> int:
    """All at once on an accelerator; on a CPU as many as fit its cache."""
    if jax.default_backend() != "cpu":
        return cohort_size
    return max(1, CACHE_BYTES // _nbytes(jax.eval_shape(model.init, jax.random.key(0))))


def _join(parts: list[Any]) -> Any:
    """Fetch what the groups yielded, all at once, as NumPy arrays [lanes, ...]."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(parts))


def _nbytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
