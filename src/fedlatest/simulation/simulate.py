"""`simulate`: run an experiment, record it, and be able to go on after an interruption."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlatest.algorithms import Algorithm
from fedlatest.availability import Availability
from fedlatest.data import Federation
from fedlatest.errors import ConfigError
from fedlatest.models import Loss, Model, softmax_cross_entropy
from fedlatest.runs import Metrics, Row, RunFolder
from fedlatest.runs.files import load_tree
from fedlatest.runs.metrics import as_written
from fedlatest.runs.participation import pack
from fedlatest.runs.tensorboard import Tensorboard
from fedlatest.simulation.engine import Engine, Measured, States, Training
from fedlatest.simulation.rounds import Record
from fedlatest.simulation.schedule import Pace, blocks
from fedlatest.version import __version__


class Progress(NamedTuple):
    """What a listener hears before the first round and after each block; it may raise KeyboardInterrupt to stop."""

    round: int
    rounds: int
    rows: Sequence[Row]  # new evaluations
    seconds_left: float | None  # an estimate, once a block has been timed after compilation
    bytes_needed: int


class Result(NamedTuple):
    """What a simulation leaves."""

    metrics: Metrics
    params: Any  # final models, [seeds, ...]
    largest_staleness: int
    folder: Path | None


def simulate(
    federation: Federation,
    model: Model,
    algorithm: Algorithm,
    availability: Availability,
    *,
    rounds: int,
    cohort_size: int | None = None,
    participation: float | None = None,
    num_local_steps: int = 10,
    batch_size: int = 5,
    learning_rate: float = 0.01,
    seeds: Sequence[int] = (0,),
    loss: Loss = softmax_cross_entropy,
    evaluate_every: int = 20,
    out: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    config: Mapping[str, Any] | None = None,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    listener: Callable[[Progress], None] | None = None,
    clients_at_once: int | None = None,
) -> Result:
    """Train `model` on the clients of `federation` as they come and go.

    Give `cohort_size` (K) or `participation` (K / N). With `out` the run is written to a folder that `resume` continues
    after an interruption; the continued run is bit-identical to an uninterrupted one on the same device. `config` is
    stored with the run as part of its identity.

    >>> import fedlatest
    >>> samples = fedlatest.load_digits()
    >>> federation = samples.deal(fedlatest.by_label(samples.labels, num_clients=20, seed=0))
    >>> result = fedlatest.simulate(
    ...     federation,
    ...     fedlatest.logistic(num_features=64, num_classes=10),
    ...     fedlatest.fedlaavg(),
    ...     fedlatest.diurnal(federation.client_labels() < 5, period=5),
    ...     rounds=20,
    ...     participation=0.5,
    ... )
    >>> result.metrics.column("test_accuracy").shape
    (1, 2)
    """
    training = Training(
        _cohort_size(federation, cohort_size, participation),
        int(num_local_steps),
        int(batch_size),
        float(learning_rate),
    )
    if out is None and (resume or force or tensorboard):
        raise ConfigError("resume, force, tensorboard: only a run with `out` can be resumed, replaced or logged")
    blocks(rounds, evaluate_every)  # complains about nonsense before anything is set up
    rounds, evaluate_every, seeds = int(rounds), int(evaluate_every), [int(seed) for seed in seeds]
    engine = Engine(
        federation, model, algorithm, availability, training, loss=loss, seeds=seeds, clients_at_once=clients_at_once
    )
    engine.check_memory()
    folder = RunFolder(Path(out)) if out is not None else None
    run = _Run(engine, availability, folder, seeds, rounds, evaluate_every, Pace(checkpoint_seconds), listener)
    if folder is None:
        return run.play()
    run.tensorboard = Tensorboard() if tensorboard else None
    identity = {
        "rounds": rounds,
        "evaluate_every": evaluate_every,
        "algorithm": {"name": algorithm.name, **algorithm.settings},
        "model": dict(model.settings),
        "loss": loss.name,
        **engine.training._asdict(),
        "num_local_steps": engine.rules.num_steps,
        "num_clients": engine.federation.num_clients,
        "recipe": dict(config or {}),
    }
    manifest = _manifest(federation, availability, identity, seeds)
    try:
        if folder.begin(manifest, resume=resume, force=force) and folder.finished:
            return run.read_back()
        return run.play()
    finally:
        run.close()


class _Run:
    """The loop over blocks: play, look, record, checkpoint."""

    def __init__(
        self,
        engine: Engine,
        availability: Availability,
        folder: RunFolder | None,
        seeds: list[int],
        rounds: int,
        evaluate_every: int,
        pace: Pace,
        listener: Callable[[Progress], None] | None,
    ) -> None:
        self.engine, self.availability, self.folder, self.seeds = engine, availability, folder, seeds
        self.rounds, self.evaluate_every, self.pace, self.listener = rounds, evaluate_every, pace, listener
        self.tensorboard: Tensorboard | None = None
        self.rows: list[Row] = []
        self.seconds_before, self.began = 0.0, time.monotonic()
        self.largest_staleness = 0
        self.compiled: set[int] = set()
        self.timed_rounds, self.timed_seconds = 0, 0.0

    def play(self) -> Result:
        states, first = self._begin()
        for block in blocks(self.rounds, self.evaluate_every, first=first):
            begun = time.monotonic()
            states, record = self.engine.advance(states, block.last - block.first)
            self._note(states, record)
            new = self._evaluate(states, block.last, record) if block.evaluate else []
            self._time(block.last - block.first, time.monotonic() - begun)
            try:
                self._tell(block.last, new)
            except KeyboardInterrupt:  # a listener may ask to stop: nothing is lost
                self._checkpoint(states, block.last)
                raise
            if self.pace.due():
                self._checkpoint(states, block.last)
        return self._end(states)

    def read_back(self) -> Result:
        """What a finished run left."""
        assert self.folder is not None
        like = jax.eval_shape(lambda: self.engine.params(self.engine.start()))
        params, _ = load_tree(self.folder / "model.safetensors", like)
        self.folder.tidy()
        self._tell(self.rounds, [])
        staleness = self.folder.manifest["availability"]["largest_staleness"]
        return Result(self.folder.metrics(), params, staleness, self.folder.path)

    def close(self) -> None:
        """Flush what is logged and let go of the folder."""
        if self.tensorboard:
            self.tensorboard.close()
        if self.folder:
            self.folder.release()

    def _begin(self) -> tuple[States, int]:
        restored = self._restore() if self.folder else None
        states, first = restored or (self.engine.start(), 0)
        if self.tensorboard and self.folder:
            self.tensorboard.open(self.folder / "tensorboard", self.seeds, first_round=first + 1 if restored else 0)
        self._tell(first, [] if restored else self._evaluate(states, 0, None))
        return states, first

    def _restore(self) -> tuple[States, int] | None:
        assert self.folder is not None
        restored = self.folder.restore(jax.eval_shape(lambda: self._bundle(self.engine.start())))
        self.rows = list(self.folder.metrics().rows)
        if restored is None:
            return None
        (joined, largest), first, self.seconds_before = restored
        self.largest_staleness = int(largest)
        return self.engine.split(joined), first

    def _bundle(self, states: States) -> tuple[Any, Any]:
        """What a checkpoint holds: the states of all seeds side by side, so that any device can go on."""
        return self.engine.join(states), jnp.int32(self.largest_staleness)

    def _note(self, states: States, record: Record) -> None:
        self.engine.check_finite(states)
        self.largest_staleness = max(self.largest_staleness, int(record.max_staleness.max()))
        if self.folder:
            cohort = record.cohort
            positions, mask = np.asarray(cohort.clients), np.asarray(cohort.mask)
            self.folder.note_cohorts(pack(positions, mask, self.engine.federation.num_clients))

    def _evaluate(self, states: States, round: int, record: Record | None) -> list[Row]:
        measured = self.engine.measure(states)
        new = _rows(self.seeds, round, self._seconds(), measured, record)
        self.rows.extend(new)
        if self.folder:
            self.folder.record(new)
        if self.tensorboard:
            self.tensorboard.record(new)
        return new

    def _checkpoint(self, states: States, round: int) -> None:
        if self.folder:
            began = time.monotonic()
            self.folder.checkpoint(self._bundle(states), round=round, seconds=self._seconds())
            self.pace.written(time.monotonic() - began)

    def _tell(self, round: int, new: list[Row]) -> None:
        if self.listener:
            pace = self.timed_seconds / self.timed_rounds if self.timed_rounds else None
            left = None if pace is None else (self.rounds - round) * pace
            self.listener(Progress(round, self.rounds, new, left, self.engine.bytes_needed))

    def _time(self, num_rounds: int, seconds: float) -> None:
        """Blocks of a length are timed from the second on: the first was compiled."""
        if num_rounds in self.compiled:
            self.timed_rounds += num_rounds
            self.timed_seconds += seconds
        self.compiled.add(num_rounds)

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def _end(self, states: States) -> Result:
        params = jax.tree.map(np.asarray, self.engine.params(states))
        if self.folder:
            self.folder.finish(params, round=self.rounds, facts=self._facts())
        path = self.folder.path if self.folder else None
        return Result(Metrics(self.rows), params, self.largest_staleness, path)

    def _facts(self) -> dict[str, Any]:
        """What the finished run says of availability: E, Lemma 1's bound where it applies, the staleness seen."""
        algorithm, smallest = self.engine.rules.algorithm, None
        if not algorithm.pooled:
            found = [self.availability.assumption(self.rounds, seed).smallest_e for seed in self.seeds]
            smallest = None if None in found else max(e for e in found if e is not None)
        turns = -(-self.engine.federation.num_clients // self.engine.rules.cohort_size)
        return {
            "seconds": round(self._seconds(), 3),
            "availability": {
                "smallest_e": smallest,
                "staleness_bound": turns * smallest - 1 if smallest and algorithm.oldest_first else None,
                "largest_staleness": self.largest_staleness,
            },
        }


def _cohort_size(federation: Federation, cohort_size: int | None, participation: float | None) -> int:
    if (cohort_size is None) == (participation is None):
        raise ConfigError("give either cohort_size (how many clients a round) or participation (their share)")
    if cohort_size is not None:
        return int(cohort_size)
    assert participation is not None
    if not 0 < participation <= 1:
        raise ConfigError(f"participation={participation}: a share of the clients is in (0, 1]")
    return max(1, round(participation * federation.num_clients))


def _manifest(
    federation: Federation, availability: Availability, identity: Mapping[str, Any], seeds: Sequence[int]
) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "config": dict(identity),
        "seeds": list(seeds),
        "data": {"name": federation.name, **federation.checksums(), "availability": availability.fingerprint()},
        "device": {"platform": device.platform, "kind": device.device_kind},
        "versions": {
            "python": platform.python_version(),
            "fedlatest": __version__,
            **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
        },
    }


def _rows(seeds: Sequence[int], round: int, seconds: float, measured: Measured, record: Record | None) -> list[Row]:
    rows = []
    for index, seed in enumerate(seeds):
        error = None if measured.average_error is None else float(measured.average_error[index])
        row = Row(
            seed,
            round,
            seconds,
            train_loss=float(measured.train.loss[index]),
            train_accuracy=float(measured.train.accuracy[index]),
            test_loss=float(measured.test.loss[index]),
            test_accuracy=float(measured.test.accuracy[index]),
            average_error=error,
        )
        if record is not None:
            row = row._replace(
                num_available=int(record.num_available[index, -1]),
                cohort_size=int(record.cohort_size[index, -1]),
                mean_staleness=float(record.mean_staleness[index, -1]),
                max_staleness=int(record.max_staleness[index, -1]),
            )
        rows.append(as_written(row))
    return rows
