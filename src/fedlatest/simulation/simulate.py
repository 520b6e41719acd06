"""`simulate`: run an experiment, or several side by side, record it, and be able to go on after an interruption."""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedlatest.algorithms import Algorithm
from fedlatest.availability import Availability
from fedlatest.data import Federation
from fedlatest.errors import ConfigError, DivergedError
from fedlatest.models import Loss, Model, softmax_cross_entropy
from fedlatest.runs import Row, RunFolder
from fedlatest.runs.tensorboard import Tensorboard
from fedlatest.simulation.blocks import Pace, blocks
from fedlatest.simulation.engine import Engine, States, Training
from fedlatest.simulation.experiment_spec import ExperimentSpec, engine_for
from fedlatest.simulation.experiment_spec import cohort_size as _cohort_size
from fedlatest.simulation.recorder import RunRecorder
from fedlatest.simulation.result import Progress, Result
from fedlatest.simulation.rounds import Record

ProgressCallback = Callable[[Progress], None]


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
    on_progress: ProgressCallback | None = None,
    clients_at_once: int | None = None,
) -> Result:
    """Train `model` on the clients of `federation` as they come and go.

    Give `cohort_size` (K) or `participation` (K / N). With `out` the run is written to a folder that `resume` continues
    after an interruption; the continued run is bit-identical to an uninterrupted one on the same device. `config` is
    stored with the run as part of its identity.

    >>> import fedlatest
    >>> samples = fedlatest.load_digits()
    >>> federation = samples.to_federation(fedlatest.by_label(samples.labels, num_clients=20, seed=0))
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
        _cohort_size(federation.num_clients, cohort_size, participation),
        int(num_local_steps),
        int(batch_size),
        float(learning_rate),
    )
    if out is None and (resume or force or tensorboard):
        raise ConfigError("resume, force, tensorboard: only a run with `out` can be resumed, replaced or logged")
    spec = ExperimentSpec(
        federation=federation,
        model=model,
        algorithm=algorithm,
        availability=availability,
        training=training,
        loss=loss,
        rounds=int(rounds),
        evaluate_every=int(evaluate_every),
        seeds=tuple(int(seed) for seed in seeds),
        config=dict(config or {}),
    )
    return simulate_spec(
        spec,
        None if out is None else Path(out),
        resume=resume,
        force=force,
        checkpoint_seconds=checkpoint_seconds,
        tensorboard=tensorboard,
        on_progress=on_progress,
        clients_at_once=clients_at_once,
    )


def simulate_spec(spec: ExperimentSpec, out: Path | None = None, **options: Any) -> Result:
    """Simulate one spec; the options are those of `simulate_together`."""
    [result] = simulate_together([spec], None if out is None else [out], **options)
    if isinstance(result, DivergedError):
        raise result
    return result


def simulate_together(
    specs: Sequence[ExperimentSpec],
    outs: Sequence[Path] | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    on_progress: ProgressCallback | None = None,
    clients_at_once: int | None = None,
) -> list[Result | DivergedError]:
    """Simulate specs that share a compiled program (`ExperimentSpec.program`) side by side, each into its own folder.

    A spec that diverges yields its error and leaves the others alone. Each is what it would be alone: bit for bit on a
    CPU, where specs take turns; to rounding on an accelerator, where they are lanes of one program.
    """
    if outs is not None and not len(specs) == len(outs) == len(set(outs)):
        raise ConfigError(f"outs: {len(specs)} specs need as many folders, each its own; there are {len(set(outs))}")
    if not specs:
        return []
    for spec in specs:
        blocks(spec.rounds, spec.evaluate_every)  # complains about nonsense before anything is set up
    engine = engine_for(specs, clients_at_once=clients_at_once)
    folders = [RunFolder(out) for out in outs] if outs is not None else [None] * len(specs)
    books = [
        RunRecorder(spec, folder, Tensorboard() if tensorboard else None)
        for spec, folder in zip(specs, folders, strict=True)
    ]
    try:
        for book in books:
            book.begin(engine, resume=resume, force=force)
        left = [book for book in books if book.result is None]
        if not left and on_progress:
            on_progress(Progress(specs[0].rounds, specs[0].rounds, [], None, engine.bytes_needed))
        for _, group in groupby(sorted(left, key=_rounds_done), key=_rounds_done):
            together = list(group)
            if len(together) < len(books):
                engine = engine_for([book.spec for book in together], clients_at_once=clients_at_once)
            _Run(engine, together, Pace(checkpoint_seconds), on_progress).play()
    finally:
        for book in books:
            book.close()
    return [book.result for book in books if book.result is not None]


def _rounds_done(book: RunRecorder) -> int:
    return book.folder.rounds_done if book.folder else 0


class _Run:
    """The loop over blocks for some books at the same round: play, look, record, checkpoint."""

    def __init__(
        self, engine: Engine, books: list[RunRecorder], pace: Pace, on_progress: ProgressCallback | None
    ) -> None:
        self.engine, self.books, self.pace, self.on_progress = engine, books, pace, on_progress
        self.rounds, self.evaluate_every = books[0].spec.rounds, books[0].spec.evaluate_every
        self.seconds_before, self.began = 0.0, time.monotonic()
        self.compiled: set[int] = set()
        self.timed_rounds, self.timed_seconds = 0, 0.0

    def play(self) -> None:
        states, first = self._begin()
        for block in blocks(self.rounds, self.evaluate_every, first=first):
            begun = time.monotonic()
            states, record = self.engine.advance(states, block.last - block.first)
            self._note(states, record, block.last)
            if not self._open():
                return
            new = self._evaluate(states, block.last, record) if block.evaluate else []
            self._time(block.last - block.first, time.monotonic() - begun)
            try:
                self._tell(block.last, new)
            except KeyboardInterrupt:  # a on_progress may ask to stop: nothing is lost
                self._checkpoint(states, block.last)
                raise
            if self.pace.due():
                self._checkpoint(states, block.last)
        params = self.engine.params(states)
        for lanes, book in self._open():
            book.finish(_part(params, lanes), self._seconds(), self.engine)

    def _open(self) -> list[tuple[slice, RunRecorder]]:
        """The books that are not closed yet, with their lanes."""
        seeds = len(self.books[0].spec.seeds)
        lanes = [slice(seeds * i, seeds * (i + 1)) for i in range(len(self.books))]
        return [(part, book) for part, book in zip(lanes, self.books, strict=True) if book.result is None]

    def _begin(self) -> tuple[States, int]:
        like = jax.eval_shape(
            lambda: _part(self.engine.join(self.engine.start()), slice(len(self.books[0].spec.seeds)))
        )
        restored = [book.restore(like) for book in self.books]
        parts = [part for part in restored if part is not None]
        if not parts:
            states, first = self.engine.start(), 0
        else:
            states = self.engine.split(
                jax.tree.map(lambda *leaves: np.concatenate(leaves), *[part[0] for part in parts])
            )
            first, self.seconds_before = parts[0][1], max(part[2] for part in parts)
        for book in self.books:
            book.open_log(first_round=first + 1 if parts else 0)
        self._tell(first, [] if parts else self._evaluate(states, 0, None))
        return states, first

    def _note(self, states: States, record: Record, round: int) -> None:
        failures = self.engine.failures(states)
        for lanes, book in self._open():
            failed = [failure for failure in failures[lanes] if failure is not None]
            if failed:
                book.diverged(failed[0], round=round)
            else:
                book.note(_part(record, lanes), self.engine.federation.num_clients)

    def _evaluate(self, states: States, round: int, record: Record | None) -> list[Row]:
        measured, seconds = self.engine.measure(states), self._seconds()
        new: list[Row] = []
        for lanes, book in self._open():
            about = None if record is None else _part(record, lanes)
            new.extend(book.evaluated(round, seconds, _part(measured, lanes), about))
        return new

    def _checkpoint(self, states: States, round: int) -> None:
        began, joined = time.monotonic(), self.engine.join(states)
        for lanes, book in self._open():
            book.checkpoint(_part(joined, lanes), round=round, seconds=self._seconds())
        self.pace.written(time.monotonic() - began)

    def _tell(self, round: int, new: list[Row]) -> None:
        if self.on_progress:
            pace = self.timed_seconds / self.timed_rounds if self.timed_rounds else None
            left = None if pace is None else (self.rounds - round) * pace
            self.on_progress(Progress(round, self.rounds, new, left, self.engine.bytes_needed))

    def _time(self, num_rounds: int, seconds: float) -> None:
        """Blocks of a length are timed from the second on: the first was compiled."""
        if num_rounds in self.compiled:
            self.timed_rounds += num_rounds
            self.timed_seconds += seconds
        self.compiled.add(num_rounds)

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began


def _part(tree: Any, lanes: slice) -> Any:
    return jax.tree.map(lambda leaf: leaf[lanes], tree)
