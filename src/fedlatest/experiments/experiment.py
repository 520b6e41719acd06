"""From resolved values to a simulation: `Recipe` -> `Experiment` -> `FederationBuilder` -> `ExperimentSpec`.

A recipe turns KEY=VALUE overrides into experiments. An experiment is a name and its values; `Experiment.spec` builds
what the simulator needs from them. A `FederationBuilder` partitions the data; experiments with equal partitions share
one federation.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability, ClientInfo
from fedlatest.availability.named import recorded_devices
from fedlatest.data import AccountSplit, Federation, Samples, TweetSet, tweet_federation
from fedlatest.data.progress import ProgressCallback
from fedlatest.delays import Delays, Timing, constant, lognormal, read_delays
from fedlatest.errors import ConfigError, DataError
from fedlatest.experiments.known_rates import participation_rates
from fedlatest.experiments.settings import build_component, component_keywords, key_of, resolve
from fedlatest.models import Loss, Model, sigmoid_cross_entropy, softmax_cross_entropy
from fedlatest.paths import DATA, data_folder
from fedlatest.privacy import Privacy
from fedlatest.simulation import ExperimentSpec, Result, simulate_spec
from fedlatest.simulation.augmentation import named_augmentation
from fedlatest.simulation.experiment_spec import cohort_size
from fedlatest.simulation.row_storage import ClientRows
from fedlatest.simulation.schedules import named_schedule

Data = Samples | TweetSet
KEPT_SPECS = 4096
TEXT_COMPONENTS = {"partition": "account", "model": "lstm"}  # the only ones that take texts; they take nothing else


class BuiltFederation(NamedTuple):
    """A federation, and what the availability model, the model and the user need to know about it."""

    federation: Federation
    clients: ClientInfo
    sizes: Mapping[str, int]  # keyword arguments of the model's factory
    loss: Loss
    notes: tuple[str, ...] = ()  # messages for the user, also stored with the run


class FederationBuilder:
    """Partitions a data set into federations and keeps them, so that equal values share one Federation."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self._built: dict[tuple[Any, ...], BuiltFederation] = {}
        self._availability: dict[tuple[Any, ...], Availability] = {}
        self._coverage: dict[str, None] = {}  # notes on traces, in their order
        self._models: dict[tuple[Any, ...], Model] = {}
        self._specs: dict[Hashable, ExperimentSpec] = {}
        self._rates: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
        self._devices: dict[tuple[Any, ...], list[str | None]] = {}  # of traces, one per client

    def build(self, values: Mapping[str, Any]) -> BuiltFederation:
        """Return the federation that an experiment's values describe."""
        if values["partition_seed"] < 0:
            raise ConfigError(f"partition_seed={values['partition_seed']}: must be 0 or larger")
        _check_text_components(self.data, values)
        identity = _identity("partition", values)
        if identity not in self._built:
            if isinstance(self.data, TweetSet):
                self._built[identity] = _build_from_tweets(self.data, values)
            else:
                self._built[identity] = _build_from_samples(self.data, values)
        return self._built[identity]

    def availability(self, values: Mapping[str, Any]) -> Availability:
        """Return the availability model that an experiment's values describe."""
        identity = (*_identity("partition", values), *_identity("availability", values))
        if identity not in self._availability:
            clients = self.build(values).clients
            self._availability[identity] = build_component("availability", values, clients=clients)
            if values["availability"] == "trace":
                self._coverage.update(dict.fromkeys(_trace_coverage(values, self._availability[identity])))
        return self._availability[identity]

    def model(self, values: Mapping[str, Any]) -> Model:
        """Return the model that an experiment's values describe; equal values share one."""
        sizes = self.build(values).sizes
        keys = ("model", *component_keywords("model", values))
        identity = (*(values[key] for key in keys), *sizes.items())
        if identity not in self._models:
            self._models[identity] = build_component("model", values, **sizes)
        return self._models[identity]

    def rates(self, values: Mapping[str, Any], cohort_size: int) -> npt.NDArray[np.float64]:
        """Return the participation rates of the clients, for algorithms that must know them."""
        availability = self.availability(values)
        identity = (availability.fingerprint(), values["rounds"], cohort_size)
        if identity not in self._rates:
            rates = participation_rates(availability, rounds=values["rounds"], cohort_size=cohort_size)
            self._rates[identity] = rates
        return self._rates[identity]

    def timing(self, values: Mapping[str, Any]) -> Timing | None:
        """Return the timing that an experiment's values describe, if any.

        Clients that follow the devices of a trace have the delays of these devices.
        """
        clients = self.build(values).clients
        if "delays" not in values or values["availability"] != "trace":
            return timing_of(values, clients.num_clients)
        identity = (*_identity("partition", values), *_identity("availability", values))
        if identity not in self._devices:
            self._devices[identity] = recorded_devices(clients, values)
        return timing_of(values, clients.num_clients, devices=self._devices[identity])

    def check(self, values: Mapping[str, Any]) -> None:
        """Raise an error if the federation, the availability or the algorithm of an experiment cannot be built."""
        self.availability(values)
        build_component("algorithm", values)

    def kept_spec(self, identity: Hashable, make: Callable[[], ExperimentSpec]) -> ExperimentSpec:
        """Return the spec of an experiment, made at the first call; grouping, compiling and running use the same."""
        if identity not in self._specs:
            if len(self._specs) >= KEPT_SPECS:
                self._specs.clear()
            self._specs[identity] = make()
        return self._specs[identity]

    @property
    def notes(self) -> list[str]:
        """Messages for the user about the federations and traces built so far, each once."""
        return list(dict.fromkeys([note for built in self._built.values() for note in built.notes] + [*self._coverage]))


@dataclass(frozen=True)
class Experiment:
    """One algorithm in one setting, as pure data.

    Attributes:
        name: the name of its run folder when a command runs several experiments.
        values: every key of the experiment with its value, as `settings.resolve` returns them.
        tabulated: whether the availability is evaluated before the run, so that experiments with different availability
            models share a compiled program; the results are the same.
    """

    name: str
    values: Mapping[str, Any]
    tabulated: bool = False

    def spec(
        self, builder: FederationBuilder, seeds: Sequence[int] = (0,), *, client_rows: ClientRows = "auto"
    ) -> ExperimentSpec:
        """Build what the simulator needs; raise ConfigError if a value is out of range.

        Args:
            builder: partitions the data.
            seeds: seeds to run.
            client_rows: where the clients' states are stored; see `simulate`. It does not change results.
        """
        identity = (tuple(sorted(self.values.items())), self.tabulated, tuple(seeds), client_rows)
        return builder.kept_spec(identity, lambda: self._make_spec(builder, seeds, client_rows))

    def _make_spec(self, builder: FederationBuilder, seeds: Sequence[int], client_rows: ClientRows) -> ExperimentSpec:
        values = self.values
        if values["local_steps"] < 1:
            raise ConfigError(f"local_steps={values['local_steps']}: must be at least 1")
        built, algorithm = builder.build(values), build_component("algorithm", values)
        num_clients = built.federation.num_clients
        size, timing = cohort_size(num_clients, None, values["participation"]), builder.timing(values)
        is_open = timing is not None and timing.seconds_per_round is not None and timing.until is None
        return ExperimentSpec(
            federation=built.federation,
            model=builder.model(values),
            algorithm=algorithm,
            availability=builder.availability(values),
            cohort_size=size,
            rates=builder.rates(values, size) if "rates" in algorithm.requires else None,
            num_local_steps=values["local_steps"],
            batch_size=values["batch_size"],
            learning_rate=values["learning_rate"],
            schedule=named_schedule(values.get("schedule"), values.get("schedule_rounds")),
            augmentation=named_augmentation(values.get("augmentation")),
            loss=built.loss,
            rounds=values["rounds"],
            evaluate_every=values["evaluate_every"],
            seeds=tuple(seeds),
            client_rows=client_rows,
            remembered_dtype=values.get("remembered_dtype"),
            privacy=privacy_of(values, num_clients),
            timing=timing,
            tabulated=self.tabulated and not is_open,  # a table needs an end
            config=dict(values),
            notes=built.notes,
        )

    def run(self, data: Data, *, seeds: Sequence[int] = (0,), out: Path | None = None, **options: Any) -> Result:
        """Simulate the experiment.

        Args:
            data: the data set to partition.
            seeds: seeds to run, batched in one program.
            out: the run folder; None keeps the result in memory only.
            **options: further arguments of `simulate` (resume, force, on_progress, ...).

        Returns:
            Metrics and final models of all seeds.
        """
        return simulate_spec(self.spec(FederationBuilder(data), seeds), out, **options)

    def with_values(self, **changes: Any) -> "Experiment":
        """Return a copy of the experiment with some values changed."""
        return replace(self, values={**self.values, **changes})


class Load(Protocol):
    """Loads a data set from `folder`, or from its default place if None; reports progress to `on_progress`."""

    def __call__(self, folder: Path | None, *, on_progress: ProgressCallback | None = None) -> Data:
        """Return the data set."""


@dataclass(frozen=True)
class Recipe:
    """A named set of experiments on one data set.

    Attributes:
        name: the argument of `fedlatest run`.
        summary: one line for `fedlatest list`.
        load: loads the data set.
        experiments: KEY=VALUE overrides -> experiments; raises ConfigError for the first invalid override.
        defaults: the values without overrides.
        reads_files: whether the data set is read from a folder, given with --data or FEDLATEST_DATA.
    """

    name: str
    summary: str
    load: Load
    experiments: Callable[[list[str]], list[Experiment]]
    defaults: Mapping[str, Any]
    reads_files: bool = True

    @property
    def shared_overrides(self) -> list[str]:
        """The defaults of keys that belong to the default algorithm, as KEY=VALUE, to apply them to other algorithms.

        >>> from fedlatest.experiments.cifar10 import cifar10
        >>> cifar10.shared_overrides
        ['weighting=none']
        """
        if "algorithm" not in self.defaults:
            return []
        own = component_keywords("algorithm", self.defaults)
        return [f"{key}={value}" for key, value in self.defaults.items() if key in own]

    def named(self, changes: str) -> Experiment:
        """Return the experiment for KEY=VALUE overrides separated by spaces, named after those that change a default.

        >>> from fedlatest.experiments.mnist import mnist
        >>> mnist.named("algorithm=fedavg period=50 digits=1").name
        'fedavg-period=50'
        """
        [experiment] = self.experiments(changes.split())
        values = experiment.values
        changed = [change for change in changes.split() if values[key_of(change)] != self.defaults.get(key_of(change))]
        shown = [change for change in changed if key_of(change) != "algorithm"]
        return Experiment("-".join([values["algorithm"], *shown]), values)


def privacy_of(values: Mapping[str, Any], num_clients: int) -> Privacy | None:
    """Return the guarantee of differential privacy that an experiment's values ask for, if any.

    Raises:
        ConfigError: If some of its keys are given but not `epsilon` and `clip_norm`, or a value is out of range.

    >>> privacy_of({"epsilon": 8.0, "clip_norm": 0.5, "rounds": 100}, 1000).delta == 1000**-1.1
    True
    """
    keys = ("epsilon", "delta", "clip_norm", "min_separation", "max_participations", "mechanism")
    given = {key: values[key] for key in keys if key in values}
    if not given:
        return None
    for key in ("epsilon", "clip_norm"):
        if key not in given:
            raise ConfigError(f"{next(iter(given))}: differential privacy needs {key}; add --set {key}=...")
    own = {"delta": num_clients**-1.1, "rounds": values["rounds"], **given, "epsilon": float(given["epsilon"])}
    return Privacy(**own)


def timing_of(
    values: Mapping[str, Any], num_clients: int, *, devices: Sequence[str | None] | None = None
) -> Timing | None:
    """Return the timing that an experiment's values ask for, if any.

    A relative path of `delays` names a file in the current folder, or else in the folder FEDLATEST_DATA/traces.

    Args:
        values: The values of the experiment.
        num_clients: Number of clients.
        devices: For each client the device of the file of delays that it is; see `read_delays`.

    Raises:
        ConfigError: If a value is out of range, or delays are given in two ways.
        DataError: If the file of delays cannot be read.

    >>> timing_of({"training_seconds": 10.0, "deadline": 30.0}, 5).deadline
    30.0
    """
    stages = {key: values[key] for key in ("download_seconds", "training_seconds", "upload_seconds") if key in values}
    keys = ("deadline", "answers", "seconds_per_round", "interruption", "until")
    limits = {key: values[key] for key in keys if key in values}
    if "delays" in values:
        if stages or "training_sigma" in values:
            raise ConfigError(f"delays={values['delays']}: give a file or seconds for all clients, not both")
        path = _find_delays(values["delays"])
        return Timing(read_delays(path, num_clients=num_clients, devices=devices), **limits)
    if "training_sigma" in values and "training_seconds" not in values:
        raise ConfigError("training_sigma: needs training_seconds, the median; add --set training_seconds=...")
    if not stages and not limits:
        return None
    durations = {key.removesuffix("_seconds"): constant(seconds) for key, seconds in stages.items()}
    if "training_sigma" in values:
        durations["training"] = lognormal(values["training_seconds"], sigma=values["training_sigma"])
    return Timing(Delays(**durations), **limits)


def _find_delays(path: str) -> Path:
    found, folder = Path(path), data_folder(None)
    if found.exists() or found.is_absolute():
        return found
    if folder is None or not (folder / "traces" / path).exists():
        raise DataError(f"delays={path}: cannot be read, no such file here or in the folder traces of {DATA}")
    return folder / "traces" / path


def resolve_always_available(
    defaults: Mapping[str, Any], overrides: list[str], *, availability_keys: set[str]
) -> dict[str, Any]:
    """Resolve an experiment's values; with participation=1 all clients are always available, as in the paper.

    Args:
        defaults: the recipe's defaults.
        overrides: KEY=VALUE overrides.
        availability_keys: keys of the default availability model; if one of them or `availability` is overridden,
            the user has chosen an availability, which is kept.

    Returns:
        Every key with its value.
    """
    values = resolve(defaults, overrides)
    overridden = {key_of(override) for override in overrides}
    if values["participation"] == 1 and not overridden & {"availability", *availability_keys}:
        return resolve(defaults, [*overrides, "availability=always"])
    return values


def _identity(component: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values on which a partition or an availability model depends, beside the data."""
    keys = (component, "num_clients", "partition_seed", *component_keywords(component, values))
    return tuple(values[key] for key in keys)


def _build_from_samples(samples: Samples, values: Mapping[str, Any]) -> BuiltFederation:
    num_clients, seed = values["num_clients"], values["partition_seed"]
    partition = build_component("partition", values, labels=samples.labels, num_clients=num_clients, seed=seed)
    federation = samples.to_federation(partition)
    clients = ClientInfo(
        federation.client_labels(), federation.num_labels, seed, label_shares=federation.label_shares()
    )
    sizes = {"num_features": samples.features.shape[1], "num_classes": federation.num_labels}
    return BuiltFederation(federation, clients, sizes, softmax_cross_entropy)


def _build_from_tweets(tweet_set: TweetSet, values: Mapping[str, Any]) -> BuiltFederation:
    num_clients, seed = values["num_clients"], values["partition_seed"]
    split = build_component("partition", values, tweet_set=tweet_set, num_clients=num_clients, seed=seed)
    federation = tweet_federation(tweet_set, split)
    sent = np.split(split.second, split.offsets[1:-1])
    shares = federation.label_shares()
    clients = ClientInfo(federation.client_labels(), federation.num_labels, seed, sent, shares, federation.names)
    sizes = {"num_features": tweet_set.vectors.shape[1]}
    return BuiltFederation(
        federation, clients, sizes, sigmoid_cross_entropy, tuple(_notes(tweet_set, split, num_clients))
    )


def _trace_coverage(values: Mapping[str, Any], availability: Availability) -> tuple[str, ...]:
    """Return a message if a trace makes only some of the clients available."""
    intervals = availability.intervals()
    covered = availability.num_clients if intervals is None else np.unique(intervals.clients).size
    if covered == availability.num_clients:
        return ()
    never = availability.num_clients - covered
    advice = f"num_clients={covered} or devices=repeat" if values["devices"] == "exact" else "drop_absent=true"
    return (
        f"trace={values['trace']}: covers {covered} of {availability.num_clients} clients; the other {never} are never "
        f"available; use {advice} if that is not intended",
    )


def _notes(tweet_set: TweetSet, split: AccountSplit, num_clients: int) -> Iterator[str]:
    tweets = tweet_set.tweets
    if tweets.num_malformed:
        total = tweets.num_malformed + len(tweets.positive)
        skipped = f"{tweets.num_malformed} of {total} rows are malformed and were skipped"
        yield f"{tweet_set.name}: {skipped} (first {tweets.first_malformed})"
    if split.num_dropped:
        yield f"{split.num_dropped} of {num_clients} accounts have no training tweet left and are not used as clients"


def _check_text_components(data: Data, values: Mapping[str, Any]) -> None:
    """Raise ConfigError if the partition or the model does not fit the kind of data (texts or numbers)."""
    for component, name in TEXT_COMPONENTS.items():
        if isinstance(data, TweetSet) and values[component] != name:
            raise ConfigError(f"{component}={values[component]}: does not take texts; use {component}={name}")
        if not isinstance(data, TweetSet) and values[component] == name:
            raise ConfigError(
                f"{component}={name}: takes only texts, and {data.name} holds numbers; see `fedlatest list`"
            )
