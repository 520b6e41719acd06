"""ExperimentSpec: one algorithm in one setting, with everything needed to simulate it."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from fedlatest.algorithms.base import Algorithm, ClientState, Direction
from fedlatest.availability import Availability, always
from fedlatest.availability.tabulated import tabulate
from fedlatest.data import Federation
from fedlatest.delays import Timing, Work
from fedlatest.delays.common_form import in_common_form
from fedlatest.errors import ConfigError
from fedlatest.identity import describe
from fedlatest.machine import num_cores
from fedlatest.models import Loss, Model, softmax_cross_entropy
from fedlatest.models.native_training import NativeTraining
from fedlatest.models.shapes import parameter_shapes
from fedlatest.privacy import NoisePlan, Privacy, plan_noise
from fedlatest.runs.run_folder import package_versions
from fedlatest.simulation.augmentation import Augmentation
from fedlatest.simulation.blocks import Block, blocks, longest_block
from fedlatest.simulation.clock import clock_program, trial_clock
from fedlatest.simulation.device_data import compact
from fedlatest.simulation.joint_data import layout
from fedlatest.simulation.memory import device_bytes, nbytes
from fedlatest.simulation.memory_needs import client_training_bytes
from fedlatest.simulation.private_rounds import kind_of_uploads, trial_privacy
from fedlatest.simulation.program import Program, Trial, initial_client
from fedlatest.simulation.row_storage import ClientRows, RememberedType, Rows, RowStorage, row_types
from fedlatest.simulation.schedules import Schedule
from fedlatest.simulation.spec_checks import check_spec

ScalarOrSchedule = float | Schedule
CACHE_BYTES = 160_000  # models trained at once on a CPU should fit the cache of a core
NATIVE_BYTES = 2**23  # models that a kernel returns at once should fit the cache that cores share
MOST_NATIVE_BYTES = 2**28  # but each core should have two clients, within this limit
TRAINING_SHARE = 4  # clients trained at once on an accelerator may use 1 / TRAINING_SHARE of its memory
SAMPLES_TO_CHECK = 100
MARGIN_OF_TABLES = 2  # times the virtual time of a run


@dataclass(frozen=True, eq=False)
class ExperimentSpec:
    """One algorithm in one setting, over some seeds; pure data, checked when it is made.

    A compiled `Program` and one `Trial` per seed are derived from it. The arguments are those of `simulate`.

    Raises:
        ConfigError: If a value is out of range or the parts do not fit together.
    """

    federation: Federation
    model: Model
    algorithm: Algorithm
    availability: Availability
    cohort_size: int
    num_local_steps: int = 10
    batch_size: int = 5
    learning_rate: ScalarOrSchedule = 0.01
    schedule: Schedule | None = None
    augmentation: Augmentation | None = None
    client_optimizer: optax.GradientTransformation | None = None
    rates: npt.ArrayLike | None = None
    loss: Loss = softmax_cross_entropy
    rounds: int = 1
    evaluate_every: int = 20
    seeds: Sequence[int] = (0,)
    client_rows: ClientRows = "auto"
    remembered_dtype: RememberedType | None = None
    privacy: Privacy | None = None
    timing: Timing | None = None
    tabulated: bool = False
    """Evaluate the availability before the run and give delays a common form, so that specs with different models share
    a program; the results are the same, if a run ends at a virtual time up to then."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Stored with the run as part of its identity."""
    notes: tuple[str, ...] = ()
    """What a user should know about the data."""

    def __post_init__(self) -> None:
        check_spec(self)

    @cached_property
    def executed(self) -> "ExperimentSpec":
        """The spec as it is executed: with the algorithm's number of local steps, and on pooled data if it says so."""
        num_steps = self.algorithm.num_local_steps or self.num_local_steps
        spec = self if num_steps == self.num_local_steps else replace(self, num_local_steps=num_steps)
        if not self.algorithm.pooled:
            return spec
        return replace(
            spec,
            federation=self.federation.pooled,
            availability=always(1),
            cohort_size=1,
            batch_size=self.cohort_size * self.batch_size,
            rates=None,
        )

    def program(
        self,
        clients_at_once: int | None = None,
        *,
        rows: Rows | None = None,
        num_trials: int = 1,
        num_devices: int = 1,
    ) -> Program:
        """Return what a compiled round is specialised to.

        Args:
            clients_at_once: How many clients of the cohort train together on a device. By default as many as fit a
                share of the memory of an accelerator; on a CPU, as many as fit the cache, or all if a kernel trains.
            rows: How the clients' states are stored where `client_rows` leaves the choice; by default a row for each.
            num_trials: How many trials run side by side.
            num_devices: Among how many devices the clients are divided.
        """
        if clients_at_once is not None and clients_at_once < 1:
            raise ConfigError(f"clients_at_once={clients_at_once}: must be at least 1")
        spec, model, loss = self.executed, self.model, self.loss
        native, slots_per_device = _native_training(spec), -(-spec.cohort_size // num_devices)
        at_once = clients_at_once or self._default_at_once(slots_per_device, num_trials, is_native=native is not None)
        return Program(
            algorithm=spec.algorithm,
            loss=lambda params, features, labels: jnp.mean(loss.per_sample(model.apply(params, features), labels)),
            cohort_size=spec.cohort_size,
            num_steps=spec.num_local_steps,
            batch_size=spec.batch_size,
            clients_at_once=min(slots_per_device, at_once),
            schedule=self.learning_rate if callable(self.learning_rate) else self.schedule,
            augmentation=self.augmentation,
            client_optimizer=self.client_optimizer,
            native_training=native,
            branches=jax.default_backend() == "cpu",
            side_by_side=num_trials > 1,
            storage=self._storage(rows or "all" if self.client_rows == "auto" else self.client_rows),
            num_devices=num_devices,
            noise_window=0 if self.noise_plan is None else len(self.noise_plan.coefficients),
            clock=None if self.timing is None else clock_program(self.timing),
        )

    @cached_property
    def noise_plan(self) -> NoisePlan | None:
        """The noise of each round; None without differential privacy."""
        return None if self.privacy is None else plan_noise(self.privacy, kind_of_uploads(self.algorithm))

    @cached_property
    def one_client(self) -> ClientState:
        """The shapes of the state of one client."""
        return jax.eval_shape(partial(initial_client, self.algorithm), parameter_shapes(self.model.init))

    @cached_property
    def capacity(self) -> int:
        """The number of clients that can take part at all."""
        spec = self.executed
        return min(spec.federation.num_clients, spec.cohort_size * spec.rounds)

    @cached_property
    def client_training_bytes(self) -> int:
        """An estimate of the memory that one client needs in training."""
        spec = self.executed
        return client_training_bytes(
            spec.model, spec.loss, spec.client_optimizer, spec.federation, spec.batch_size, self.one_client
        )

    def _storage(self, rows: Rows) -> RowStorage:
        """Return how the clients' states are stored; options that change nothing are left out."""
        one, num_clients = self.one_client, self.executed.federation.num_clients
        if self.algorithm.buffer is not None:
            rows = "all"
        if not jax.tree.leaves(one):
            return RowStorage()
        narrows = nbytes(row_types(RowStorage(dtype=self.remembered_dtype), one).stored) < nbytes(one)
        dtype = self.remembered_dtype if narrows else None
        if rows == "all" or (rows == "seen" and self.capacity >= num_clients):
            return RowStorage(dtype=dtype)
        return RowStorage(rows, dtype, self.capacity)

    def _default_at_once(self, cohort_size: int, num_trials: int, *, is_native: bool) -> int:
        model_bytes = nbytes(parameter_shapes(self.model.init))
        if jax.default_backend() == "cpu" and is_native:
            least = max(1, min(2 * num_cores(), MOST_NATIVE_BYTES // model_bytes))
            return clients_that_fit(cohort_size, NATIVE_BYTES, model_bytes, least=least, is_limit=False)
        if jax.default_backend() == "cpu":
            # At least two: XLA copies the rows of all clients for every chunk of one, which takes 50 times longer.
            return clients_that_fit(cohort_size, CACHE_BYTES, model_bytes, least=2, is_limit=False)
        limit = device_bytes()
        if limit is None:
            return cohort_size
        return clients_that_fit(cohort_size, limit // TRAINING_SHARE, num_trials * self.client_training_bytes)

    def trials(self) -> list[Trial]:
        """Return one trial per seed."""
        spec = self.executed
        rate = 1.0 if callable(self.learning_rate) else self.learning_rate
        numbers = {name: jnp.float32(number) for name, number in self.algorithm.numbers.items()}
        rates = None if spec.rates is None else jnp.asarray(spec.rates, jnp.float32)
        privacy = None if self.noise_plan is None else trial_privacy(self.noise_plan)
        clock = None if spec._timing is None else trial_clock(spec._timing, spec.work)
        return [
            Trial(
                jnp.uint32(seed),
                spec._availability(seed),
                jnp.float32(rate),
                numbers,
                rates,
                privacy=privacy,
                clock=clock,
            )
            for seed in self.seeds
        ]

    @property
    def work(self) -> Work:
        """What a client does in one task."""
        return Work(self.num_local_steps * self.batch_size, nbytes(parameter_shapes(self.model.init)) / 1e6)

    @cached_property
    def _timing(self) -> Timing | None:
        """The timing with which a trial is compiled."""
        if self.timing is None or not self.tabulated:
            return self.timing
        return replace(self.timing, delays=in_common_form(self.timing.delays, self.federation.num_clients))

    def _availability(self, seed: int) -> Availability:
        """Return the availability model with which a trial is compiled."""
        if not self.tabulated:
            return self.availability
        # A run by time goes on for a while after its end, in which the last line of the table may apply.
        horizon = self.rounds if self.rounds_of_time is None else MARGIN_OF_TABLES * self.rounds_of_time
        return tabulate(self.availability, horizon, seed)

    def blocks(self, *, first: int = 0) -> list[Block]:
        """Return the blocks of rounds from a round on; raise ConfigError if `rounds` or `evaluate_every` is wrong."""
        return blocks(self.rounds, self.evaluate_every, first=first, longest=longest_block(self.algorithm.buffer))

    @property
    def availability_rounds(self) -> int:
        """Up to which round of the availability model a run needs it: `rounds`, unless availability follows the time.

        If it does, and the run ends at a time, this is the round at that time.
        """
        return self.rounds if self.rounds_of_time is None else self.rounds_of_time

    @property
    def rounds_of_time(self) -> int | None:
        """How many rounds of the availability model the time of the run has; None if it does not follow the time."""
        timing = self.timing
        if timing is None or timing.seconds_per_round is None or timing.until is None:
            return None
        return max(1, math.ceil(timing.until / timing.seconds_per_round))

    @cached_property
    def batch_key(self) -> Hashable:
        """Specs with equal keys can run side by side: they differ in numbers and data, not in functions or sizes."""
        leaves, structure = jax.tree.flatten(self.executed._availability(self.seeds[0]))
        shapes = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves), self.rates is None
        timing = self.executed._timing
        delays = None if timing is None else jax.tree.map(jnp.shape, timing.delays)
        same = (delays, layout(self.executed.federation), self.rounds, self.evaluate_every, tuple(self.seeds))
        return self.program().identity, shapes, same

    def manifest(self, *, num_devices: int = 1) -> dict[str, Any]:
        """Return what a run folder stores about the run; `config`, `seeds` and `data` identify it."""
        several = {"count": num_devices} if num_devices > 1 else {}
        device, spec = jax.devices()[0], self.executed
        rate, optimizer, dtype = self.learning_rate, self.client_optimizer, self._storage("all").dtype
        return {
            "config": {
                "rounds": self.rounds,
                "evaluate_every": self.evaluate_every,
                "algorithm": {
                    "name": self.algorithm.name, "title": self.algorithm.title, **self.algorithm.numbers,
                    **self.algorithm.settings,
                },
                "model": dict(self.model.settings),
                "loss": self.loss.name,
                "cohort_size": spec.cohort_size,
                "num_local_steps": spec.num_local_steps,
                "batch_size": spec.batch_size,
                "learning_rate": describe(rate) if callable(rate) else rate,
                **({} if self.schedule is None else {"schedule": describe(self.schedule)}),
                **({} if self.augmentation is None else {"augmentation": describe(self.augmentation)}),
                **({} if optimizer is None else {"client_optimizer": describe(optimizer)}),
                **({} if self.rates is None else {"rates": describe(np.asarray(self.rates, np.float32))}),
                **({} if dtype is None else {"remembered_dtype": dtype}),
                **({} if self.privacy is None else {"privacy": self.privacy.as_dict()}),
                **({} if self.timing is None else {"timing": self.timing.as_dict()}),
                "num_clients": spec.federation.num_clients,
                "recipe": dict(self.config),
            },
            "seeds": list(self.seeds),
            "data": {
                "name": self.federation.name,
                **self.federation.checksums,
                "availability": self.availability.fingerprint(),
                **({"notes": list(self.notes)} if self.notes else {}),
            },
            **({} if self.noise_plan is None else {"noise_plan": self.noise_plan.as_dict()}),
            "device": {"platform": device.platform, "kind": device.device_kind, **several},
            "versions": package_versions("jax", "jaxlib", "numpy", "optax"),
        }  # fmt: skip


def cohort_size(num_clients: int, size: int | None, participation: float | None) -> int:
    """Return K, given as a number of clients or as a share of them.

    Raises:
        ConfigError: If both or neither is given, or the share is not in (0, 1].
    """
    if (size is None) == (participation is None):
        raise ConfigError("give either cohort_size (the number of clients per round) or participation (their share)")
    if size is not None:
        return int(size)
    assert participation is not None
    if not 0 < participation <= 1:
        raise ConfigError(f"participation={participation}: must be in (0, 1]")
    return max(1, round(participation * num_clients))


def kernels_of(model: Model) -> NativeTraining | None:
    """Return how kernels train and evaluate a model; None if they do not fit it."""
    native: NativeTraining | None = model.native_training
    if native is None or model.apply is not native.apply:
        return None
    leaves = jax.tree.leaves(parameter_shapes(model.init))
    return native if all(leaf.dtype == jnp.float32 for leaf in leaves) else None


def _native_training(spec: ExperimentSpec) -> NativeTraining | None:
    """Return how kernels train the model, if they can do so with this spec's algorithm, loss and samples."""
    native = kernels_of(spec.model)
    if native is None or spec.client_optimizer is not None or spec.algorithm.pooled or spec.loss != native.loss:
        return None
    if spec.augmentation is not None:
        return None
    if spec.federation.labels.ndim != 1 or not np.issubdtype(spec.federation.labels.dtype, np.integer):
        return None
    if not isinstance(spec.algorithm.direction, Direction):
        return None
    # Some samples tell in which form all of them are stored; a wrong guess costs no more than an unused kernel.
    some = jax.tree.map(lambda leaf: leaf[:SAMPLES_TO_CHECK], spec.federation.features)
    train = native.choose(compact(some), spec.batch_size)
    return None if train is None else native


def clients_that_fit(cohort_size: int, room: int, client_bytes: int, *, least: int = 1, is_limit: bool = True) -> int:
    """Return how many clients of a cohort train together: about as many as fit.

    Of the sizes down to half of the largest that fits, the one that leaves the fewest slots of the last chunk empty is
    chosen.

    Args:
        cohort_size: The number of clients in the cohort.
        room: Bytes that they may use together.
        client_bytes: Bytes that one of them uses.
        least: Train at least this many clients together, even if they do not fit.
        is_limit: Whether `room` must not be exceeded; otherwise it may be, by a quarter.

    >>> clients_that_fit(100, room=160_000, client_bytes=31_400), clients_that_fit(100, room=7, client_bytes=10)
    (5, 1)
    >>> clients_that_fit(10, room=47, client_bytes=10), clients_that_fit(10, room=47, client_bytes=10, is_limit=False)
    (4, 5)
    """
    most = max(least, room // client_bytes)
    largest = most if is_limit else most * 5 // 4
    if largest >= cohort_size:
        return cohort_size
    # The first of several equally good sizes is the largest that fits.
    sizes = [*range(most, most // 2, -1), *range(most + 1, largest + 1)]
    return min(sizes, key=lambda at_once: -(-cohort_size // at_once) * at_once)
