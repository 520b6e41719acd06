"""`simulate`: run an experiment, or several side by side, record them, and continue after an interruption."""

import math
import numbers
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import optax

from fedlatest.algorithms import Algorithm
from fedlatest.availability import Availability
from fedlatest.data import Federation
from fedlatest.delays import Timing
from fedlatest.errors import ConfigError, DivergedError
from fedlatest.models import Loss, Model, softmax_cross_entropy
from fedlatest.privacy import Privacy
from fedlatest.runs import Row, RunFolder
from fedlatest.runs.loggers import LoggerChoice, make_logger
from fedlatest.simulation.augmentation import Augmentation
from fedlatest.simulation.blocks import CheckpointTimer, RemainingTime
from fedlatest.simulation.clock import Now, seconds_of
from fedlatest.simulation.compile_ahead import Compilation
from fedlatest.simulation.engine import Engine, fetch
from fedlatest.simulation.experiment_spec import ExperimentSpec, ScalarOrSchedule
from fedlatest.simulation.experiment_spec import cohort_size as _cohort_size
from fedlatest.simulation.printed_progress import PrintedProgress
from fedlatest.simulation.processes import clear_errors, for_each, from_first, in_any, is_terminating
from fedlatest.simulation.program import Record, State
from fedlatest.simulation.recorder import Result, RunRecorder
from fedlatest.simulation.row_storage import ClientRows, RememberedType
from fedlatest.simulation.schedules import Schedule
from fedlatest.simulation.sharded_engine import make_engine


class Progress(NamedTuple):
    """What a progress callback receives before the first round and after each block of rounds."""

    round: int
    rounds: int  # in the run; if it ends at a virtual time, an estimate until then
    rows: Sequence[Row]  # new evaluations
    seconds_left: float | None  # an estimate, once a block has been timed after compilation
    bytes_needed: int
    notes: Sequence[str] = ()  # choices that were made for the run


ProgressCallback = Callable[[Progress], None]
"""Called with the progress of a run; may raise KeyboardInterrupt, upon which the run is checkpointed and stopped."""


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
    learning_rate: ScalarOrSchedule = 0.01,
    schedule: Schedule | None = None,
    augmentation: Augmentation | None = None,
    client_optimizer: optax.GradientTransformation | None = None,
    rates: npt.ArrayLike | None = None,
    seeds: Sequence[int] = (0,),
    loss: Loss = softmax_cross_entropy,
    evaluate_every: int = 20,
    out: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    config: Mapping[str, Any] | None = None,
    checkpoint_seconds: float = 30.0,
    tensorboard: bool = False,
    log: Sequence[LoggerChoice] = (),
    progress: bool = False,
    on_progress: ProgressCallback | None = None,
    clients_at_once: int | None = None,
    client_rows: ClientRows = "auto",
    remembered_dtype: RememberedType | None = None,
    privacy: Privacy | None = None,
    timing: Timing | None = None,
    devices: int | None = None,
) -> Result:
    """Train a model on the clients of a federation as their availability allows.

    Args:
        federation: The clients' data and the test set.
        model: The (init, apply) pair to train.
        algorithm: Made by a factory such as `fedlaavg()`.
        availability: Which clients are available in which round.
        rounds: The number of rounds; the largest number, if `timing` ends the run earlier.
        cohort_size: K, the number of clients that take part in a round. Give this or `participation`.
        participation: K / N.
        num_local_steps: C, the number of local steps, unless the algorithm fixes it.
        batch_size: The number of samples in a local step.
        learning_rate: gamma, the local step size: a number, or a schedule (a function of the round, as in optax).
        schedule: A function of the round that multiplies a learning rate that is a number, such as
            `inverse_sqrt(rounds=10)`. Runs that differ only in the number share a compiled program.
        augmentation: Random changes of the samples of a batch in local training, such as `crop_flip()` for images; see
            `fedlatest.simulation.augmentation`.
        client_optimizer: An optax transformation of the local direction, without learning rate and sign, such as
            `optax.trace(0.9)`; its state starts anew in every round.
        rates: Each client's participation rate, for algorithms that require it.
        seeds: One trial is run per seed.
        loss: The loss of a sample.
        evaluate_every: Number of rounds between evaluations on the whole training and test sets.
        out: Write the run to this folder.
        resume: Continue the run in `out`; the result is bit-identical to that of an uninterrupted run on the same
            device.
        force: Replace the run in `out`.
        config: Stored with the run as part of its identity.
        checkpoint_seconds: Minimum time between checkpoints.
        tensorboard: Also log for TensorBoard; the same as `log=["tensorboard"]`.
        log: Also log to these: "tensorboard", "mlflow", "wandb", or a function that returns a
            `fedlatest.runs.loggers.RunLogger`.
        progress: Print a line every few seconds on the standard error output.
        on_progress: Called before the first round and after each block of rounds.
        clients_at_once: How many clients of a cohort train together on a device; chosen for the device by default.
        client_rows: Where the state of each client is stored: "all" (a row for every client on the device), "seen"
            (rows only for clients that have taken part), "host" (in host memory) or "disk" (in a file). All give the
            same models, bit for bit. "auto" is "all", or "seen" if "all" does not fit into memory.
        remembered_dtype: The type in which remembered updates are stored: "bfloat16" or "float16" takes half the memory
            of "float32" and changes results slightly. By default the type in which the algorithm computes.
        privacy: Give each client this guarantee of differential privacy; see `fedlatest.privacy.Privacy`.
        timing: How long the clients take, and when a round ends; the metrics then hold the virtual `time`. See
            `fedlatest.delays.Timing`.
        devices: Divide the clients among this number of JAX devices; with several processes (`jax.distributed`), of
            each process. By default one device, or all devices of all processes if there are several. Results differ
            from those of one device by rounding.

    Returns:
        The metrics, the final models [seeds, ...], the largest staleness and the folder.

    Raises:
        ConfigError: If an argument is out of range or the parts do not fit together.
        DivergedError: If a client's upload is not finite.
        RunFolderError: If `out` holds another run or cannot be written.
        ProcessError: If another process of the simulation has ended.

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
    if out is None and (resume or force or tensorboard or log):
        raise ConfigError("resume, force, tensorboard, log: only a run with `out` can be resumed, replaced or logged")
    spec = ExperimentSpec(
        federation=federation,
        model=model,
        algorithm=algorithm,
        availability=availability,
        cohort_size=_cohort_size(federation.num_clients, cohort_size, participation),
        num_local_steps=_whole("num_local_steps", num_local_steps),
        batch_size=_whole("batch_size", batch_size),
        learning_rate=learning_rate if callable(learning_rate) else _number("learning_rate", learning_rate),
        schedule=schedule,
        augmentation=augmentation,
        client_optimizer=client_optimizer,
        rates=rates,
        loss=loss,
        rounds=_whole("rounds", rounds),
        evaluate_every=_whole("evaluate_every", evaluate_every),
        seeds=tuple(_whole("seeds", seed) for seed in seeds),
        client_rows=client_rows,
        remembered_dtype=remembered_dtype,
        privacy=privacy,
        timing=timing,
        config=dict(config or {}),
    )
    return simulate_spec(
        spec,
        None if out is None else Path(out),
        resume=resume,
        force=force,
        checkpoint_seconds=checkpoint_seconds,
        log=[*(["tensorboard"] if tensorboard else []), *log],
        on_progress=_with_lines(on_progress) if progress else on_progress,
        clients_at_once=clients_at_once,
        devices=devices,
    )


def simulate_spec(spec: ExperimentSpec, out: Path | None = None, **options: Any) -> Result:
    """Simulate one spec; the options are those of `simulate_together`.

    Raises:
        DivergedError: If a client's upload is not finite.
    """
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
    log: Sequence[LoggerChoice] = (),
    on_progress: ProgressCallback | None = None,
    clients_at_once: int | None = None,
    devices: int | None = None,
) -> list[Result | DivergedError]:
    """Simulate specs that share a compiled program side by side, each into its own folder.

    A spec that diverges yields its error and does not affect the others. Each gives what it would give alone: bit for
    bit on a CPU, where specs take turns; to rounding on an accelerator, where they are trials of one program.

    Args:
        specs: Experiments with equal `ExperimentSpec.batch_key`.
        outs: A folder for each; None keeps all in memory.
        resume: Continue the runs in the folders.
        force: Replace the runs in the folders.
        checkpoint_seconds: Minimum time between checkpoints.
        log: Loggers of each run; see `simulate`.
        on_progress: Called before the first round and after each block of rounds.
        clients_at_once: How many clients of a cohort train together.
        devices: Among how many devices the clients are divided; see `simulate`.

    Returns:
        For each spec its result, or the error that says where it diverged.
    """
    if outs is not None and not len(specs) == len(outs) == len(set(outs)):
        raise ConfigError(f"outs: {len(specs)} specs need as many folders, all different; there are {len(set(outs))}")
    if not specs:
        return []
    for spec in specs:
        spec.blocks()  # raises ConfigError before anything is set up
    engine = _engine(specs, clients_at_once, devices)
    recorders = [
        RunRecorder(spec, out, [make_logger(choice) for choice in log], num_devices=engine.num_devices)
        for spec, out in zip(specs, [None] * len(specs) if outs is None else outs, strict=True)
    ]
    try:
        with clear_errors():
            for_each(recorders, lambda recorder: recorder.begin(resume=resume, force=force))
            unfinished = [recorder for recorder in recorders if recorder.result is None]
            if not unfinished and on_progress:
                on_progress(Progress(specs[0].rounds, specs[0].rounds, [], None, engine.bytes_needed))
            for _, group in groupby(sorted(unfinished, key=_rounds_done), key=_rounds_done):
                together = list(group)  # at the same round
                if len(together) < len(recorders):
                    engine = _engine([recorder.spec for recorder in together], clients_at_once, devices)
                _BlockLoop(engine, together, CheckpointTimer(checkpoint_seconds), on_progress).run()
            from_first(lambda: None)  # no process ends before the first has written the results
    finally:
        for recorder in recorders:
            recorder.close()
    return [recorder.result for recorder in recorders if recorder.result is not None]


def needed_compilations(specs: Sequence[ExperimentSpec], outs: Sequence[Path]) -> list[Compilation]:
    """Return the programs that `simulate_together(specs, outs, resume=True)` will call, to compile them ahead.

    Args:
        specs: Experiments with equal `ExperimentSpec.batch_key`.
        outs: A folder for each.
    """
    folders = [RunFolder(out) for out in outs]
    unfinished = [
        (folder.rounds_done, spec)
        for spec, folder in zip(specs, folders, strict=True)
        if not folder.exists or folder.manifest["status"] == "running"
    ]
    found: list[Compilation] = []
    for first in sorted({rounds_done for rounds_done, _ in unfinished}):
        together = [spec for rounds_done, spec in unfinished if rounds_done == first]
        remaining = together[0].blocks(first=first)
        found += Engine(together).compilations({block.last - block.first for block in remaining})
    return found


def _whole(name: str, value: float) -> int:
    """Return a whole number as an int; raise ConfigError for anything else, instead of rounding it."""
    if isinstance(value, numbers.Real) and value == math.floor(value):
        return int(value)
    raise ConfigError(f"{name}={value!r}: must be a whole number")


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={value!r}: must be a finite number above 0, or a schedule") from None


def _with_lines(on_progress: ProgressCallback | None) -> ProgressCallback:
    """Return a callback that prints lines and then calls `on_progress`."""
    lines = PrintedProgress()
    lines.begin()

    def report(progress: Progress) -> None:
        lines(progress)
        if on_progress is not None:
            on_progress(progress)

    return report


def _engine(specs: Sequence[ExperimentSpec], clients_at_once: int | None, devices: int | None) -> Engine:
    engine = make_engine(specs, clients_at_once=clients_at_once, devices=devices)
    engine.check_memory()
    return engine


def _rounds_done(recorder: RunRecorder) -> int:
    return recorder.rounds_done


class _BlockLoop:
    """The loop over blocks for specs at the same round: advance, record, evaluate, checkpoint."""

    def __init__(
        self,
        engine: Engine,
        recorders: list[RunRecorder],
        timer: CheckpointTimer,
        on_progress: ProgressCallback | None,
    ) -> None:
        self.engine, self.recorders, self.timer, self.on_progress = engine, recorders, timer, on_progress
        self.rounds = recorders[0].spec.rounds
        self.seconds_before, self.start_time = 0.0, time.monotonic()
        self.estimate = RemainingTime()
        self.times = np.zeros(len(engine.seeds))  # [trials] virtual time; 0 without it
        limits = [recorder.spec.timing and recorder.spec.timing.until for recorder in recorders]
        self.until = np.repeat([limit or math.inf for limit in limits], len(recorders[0].spec.seeds))  # [trials]

    def run(self) -> None:
        states, first = self._begin()
        self._end(states, first)
        for block in self.recorders[0].spec.blocks(first=first):
            if not self._active():
                return
            started = time.monotonic()
            states, record = self.engine.advance(states, block.last - block.first)
            self.times = _times(record.time, self.times)
            self._record(states, record, block.last)
            if not self._active():
                return
            new = self._evaluate(states, block.last, record) if block.evaluate else []
            self.estimate.add(block.last - block.first, self._share(block.last), time.monotonic() - started)
            stopped, due = in_any(self._report(block.last, new), self.timer.due())
            if stopped or due:
                self._checkpoint(states, block.last)
            if stopped:  # by the callback: nothing is lost
                raise KeyboardInterrupt
            self._end(states, block.last)

    def _ending(self, round: int) -> list[tuple[slice, RunRecorder]]:
        """Return the recorders of runs that end after a round, because of their rounds or their virtual time."""
        is_evaluated = round % self.recorders[0].spec.evaluate_every == 0
        is_over = (self.times >= self.until) & is_evaluated | (round == self.rounds)
        return [(trials, recorder) for trials, recorder in self._active() if is_over[trials].all()]

    def _end(self, states: list[State], round: int) -> None:
        """End the runs that end after a round."""
        if ending := self._ending(round):
            params, seconds = self.engine.params(states), self._seconds()
            for_each(ending, lambda each: each[1].end_finished(_part(params, each[0]), round=round, seconds=seconds))

    def _share(self, round: int) -> float:
        """Return which share of the work is done: that of the slowest trial, in rounds or in virtual time."""
        slowest = min((float((self.times / self.until)[trials].min()) for trials, _ in self._active()), default=1.0)
        return max(round / self.rounds, min(slowest, 1.0))

    def _active(self) -> list[tuple[slice, RunRecorder]]:
        """Return the recorders without a result, with their trials."""
        seeds = len(self.recorders[0].spec.seeds)
        trials = [slice(seeds * i, seeds * (i + 1)) for i in range(len(self.recorders))]
        return [(part, recorder) for part, recorder in zip(trials, self.recorders, strict=True) if not recorder.result]

    def _begin(self) -> tuple[list[State], int]:
        restored = [recorder.restore() for recorder in self.recorders]
        checkpoints = [checkpoint for checkpoint in restored if checkpoint is not None]
        if checkpoints:
            states = self.engine.restore([checkpoint.arrays for checkpoint in checkpoints])
            first, self.seconds_before = checkpoints[0].round, max(checkpoint.seconds for checkpoint in checkpoints)
        else:
            states, first = self.engine.start(), 0
        if states[0].now is not None:
            self.times = _times(fetch([state.now for state in states]), self.times)
        for recorder in self.recorders:
            recorder.open_log(first_round=first + 1 if checkpoints else 0)
        [stopped] = in_any(self._report(first, [] if checkpoints else self._evaluate(states, 0, None)))
        if stopped:
            raise KeyboardInterrupt
        return states, first

    def _record(self, states: list[State], record: Record, round: int) -> None:
        failures = self.engine.failures(states, ended=list(self.times >= self.until))
        for trials, recorder in self._active():
            failed = [failure for failure in failures[trials] if failure is not None]
            if not failed:
                recorder.record_cohorts(_part(record, trials))
            elif isinstance(failed[0], DivergedError):
                recorder.end_diverged(failed[0], round=round)
            else:  # the algorithm itself is wrong
                raise failed[0]

    def _evaluate(self, states: list[State], round: int, record: Record | None) -> list[Row]:
        ending = [recorder for _, recorder in self._ending(round)]
        measured, seconds = self.engine.measure(states, last=bool(ending)), self._seconds()
        new: list[Row] = []
        for trials, recorder in self._active():
            own = None if record is None else _part(record, trials)
            part = _part(measured, trials)
            if recorder not in ending and not self.engine.averages_quickly:
                part = part._replace(average_error=None)  # it was measured because another run ends
            new.extend(recorder.record_evaluation(round, seconds, part, own))
        return new

    def _checkpoint(self, states: list[State], round: int) -> None:
        started = time.monotonic()
        for trials, recorder in self._active():
            recorder.checkpoint(self.engine.named_parts(states, trials), round=round, seconds=self._seconds())
        self.timer.written(time.monotonic() - started)

    def _report(self, round: int, new: list[Row]) -> bool:
        """Report the progress; return whether to stop: the callback raised KeyboardInterrupt, or SIGTERM arrived."""
        if self.on_progress:
            share, notes = self._share(round), self.engine.notes
            rounds = min(self.rounds, math.ceil(round / share)) if share else self.rounds
            left = self.estimate.seconds_left(share)
            try:
                self.on_progress(Progress(round, rounds, new, left, self.engine.bytes_needed, notes))
            except KeyboardInterrupt:
                return True
        return is_terminating()

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.start_time


def _times(moments: Now | None, otherwise: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the last of some moments of each trial in seconds; `otherwise` without virtual time."""
    return otherwise if moments is None else seconds_of(moments).reshape(len(otherwise), -1)[:, -1]


def _part(tree: Any, trials: slice) -> Any:
    return jax.tree.map(lambda leaf: leaf[trials], tree)
