"""RunRecorder: the records of one experiment, in memory and, if a folder is given, on disk."""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.availability.base import Assumption, FingerprintedModel
from fedlatest.availability.patterns import Windows
from fedlatest.data import Federation
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.errors import DivergedError
from fedlatest.models.shapes import parameter_shapes
from fedlatest.runs import ClientRecord, LabelRow, Metrics, Row, RunFolder
from fedlatest.runs.array_files import ArrayFile, in_file_order, load_arrays
from fedlatest.runs.clients import MOST_COLUMNS, MOST_NAMED, MOST_ROWS, QUARTERS, edges, pack
from fedlatest.runs.loggers import LoggerGroup, RunLogger, Status
from fedlatest.runs.metrics import as_written
from fedlatest.simulation.clock import seconds_of
from fedlatest.simulation.costs import measure_costs
from fedlatest.simulation.engine import Measured
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.processes import arrays_from_first, from_first, is_first
from fedlatest.simulation.program import Record
from fedlatest.theory import staleness_bound
from fedlatest.trees import from_named_leaves, named_leaves

MAX_SAMPLED_ROUNDS = 10 * MOST_COLUMNS  # rounds from which the picture of availability is made
MAX_CLIENTS_PER_ROW = 200  # clients from which a row of the picture is made
MAX_CHECKED_PAIRS = 10**8  # (client, round) pairs that are evaluated to check Assumption 4
STALENESS = "largest_staleness"
KEPT_RECORDS, MAX_CLIENTS_KEPT = 128, 10_000  # records of availability that are kept in memory for later runs


class Result(NamedTuple):
    """The result of a simulation."""

    metrics: Metrics
    params: Any  # final models, NumPy arrays [seeds, ...]
    largest_staleness: int
    folder: Path | None

    def __repr__(self) -> str:
        """Return the number of rounds and seeds and the final test accuracy, instead of all arrays."""
        seeds, rounds = self.metrics.seeds, self.metrics.rounds
        accuracy = self.metrics.column("test_accuracy")[:, -1] if seeds else np.zeros(0)
        shown = ", ".join(f"{each:.4f}" for each in accuracy[:3]) + (", ..." if len(accuracy) > 3 else "")
        return (
            f"Result(rounds={rounds[-1] if len(rounds) else 0}, seeds={len(seeds)}, final test accuracy {shown}, "
            f"largest_staleness={self.largest_staleness}, folder={str(self.folder) if self.folder else None!r})"
        )


class Restored(NamedTuple):
    """A checkpoint: named arrays of a State [seeds, ...], the round after which it was written, and seconds so far."""

    arrays: ArrayFile | None  # None in all processes but the first
    round: int
    seconds: float


class RunRecorder:
    """The records of one spec; everything passed to it concerns its own trials, [seeds, ...].

    If several processes simulate together, each has a recorder, but only that of the first reads and writes the folder.

    Args:
        spec: The experiment.
        path: The folder that the run is written to; None keeps it in memory.
        loggers: Loggers beside the folder's own files.
        num_devices: Among how many devices the clients are divided.
    """

    def __init__(
        self, spec: ExperimentSpec, path: Path | None, loggers: Sequence[RunLogger] = (), *, num_devices: int = 1
    ) -> None:
        self.spec, self.path, self.num_devices = spec, path, num_devices
        self.folder = RunFolder(path) if path is not None and is_first() else None
        self.loggers = LoggerGroup(loggers if is_first() else ())
        self.rows: list[Row] = []
        self.largest_staleness = 0
        self.rounds_done = 0  # in the last checkpoint
        self.result: Result | DivergedError | None = None
        self._held: npt.NDArray[np.int64] | None = None  # number of test samples of each label

    def begin(self, *, resume: bool, force: bool) -> None:
        """Prepare and lock the folder; the result of a finished run is read from it."""
        if self.path is None:
            return
        self.rounds_done, finished, diverged = from_first(lambda: self._begin_folder(resume=resume, force=force))
        if finished:
            self.result = self._read_result()
        elif diverged is not None:
            self.result = DivergedError(diverged)

    def _begin_folder(self, *, resume: bool, force: bool) -> tuple[int, bool, str | None]:
        """Return the rounds in the last checkpoint, whether the run is finished, and why it diverged if it did."""
        assert self.folder is not None
        self.folder.begin(self.spec.manifest(num_devices=self.num_devices), resume=resume, force=force)
        finished, diverged = self.folder.finished, self.folder.manifest.get("diverged")
        if not finished and diverged is None and not self.spec.algorithm.pooled and self.folder.clients() is None:
            self.folder.describe(describe_clients(self.spec))
        return self.folder.rounds_done, finished, diverged

    def restore(self) -> Restored | None:
        """Return the last checkpoint and truncate the records to it; None if there is none."""
        if self.path is None:
            return None
        arrays: ArrayFile | None = None

        def facts() -> tuple[list[Any], tuple[int, float, int] | None]:
            nonlocal arrays
            assert self.folder is not None
            restored = self.folder.restore()
            rows = [list(row) for row in self.folder.metrics().rows]
            if restored is None:
                return rows, None
            arrays, round, seconds = restored
            return rows, (round, seconds, int(arrays[STALENESS]))

        rows, checkpoint = from_first(facts)
        self.rows = [Row(*row) for row in rows]
        if checkpoint is None:
            return None
        round, seconds, self.largest_staleness = checkpoint
        return Restored(arrays, round, seconds)

    def open_log(self, *, first_round: int) -> None:
        """Start the loggers at a round."""
        if self.folder:
            self.loggers.start(self.folder.path, self.folder.manifest, first_round=first_round)

    def record_cohorts(self, record: Record) -> None:
        """Record the cohorts of a block of rounds."""
        self.largest_staleness = max(self.largest_staleness, int(record.max_staleness.max()))
        if self.folder:
            positions, mask = np.asarray(record.cohort.clients), np.asarray(record.cohort.mask)
            self.folder.note_cohorts(pack(positions, mask, self.spec.executed.federation.num_clients))

    def record_evaluation(self, round: int, seconds: float, measured: Measured, record: Record | None) -> list[Row]:
        """Record an evaluation and return its rows.

        Args:
            round: The number of rounds done.
            seconds: Since the start of the run.
            measured: Losses and accuracies.
            record: The last block of rounds; None before the first.
        """
        new = _rows(self.spec, round, seconds, measured, record)
        self.rows.extend(new)
        if self.folder:
            self.folder.record(new)
            if measured.test.num_correct.size:
                self.folder.record_labels(self._label_rows(round, measured.test.num_correct))
        self.loggers.log(new)
        return new

    def checkpoint(self, state: Mapping[str, Any], *, round: int, seconds: float) -> None:
        """Save everything needed to continue: the named arrays of a State, each a list of parts in order."""
        if self.folder:
            arrays = {**state, STALENESS: np.int32(self.largest_staleness)}
            self.folder.checkpoint(arrays, round=round, seconds=seconds)
        elif self.path is not None:  # the first process writes the file and gathers the parts in its order
            for name in in_file_order(state):
                for part in state[name]:
                    for _ in part.blocks():
                        pass

    def end_diverged(self, error: DivergedError, *, round: int) -> None:
        """End a run that diverged."""
        self.result = error
        if self.folder:
            facts = {**assumption_facts(self.spec), "largest_staleness": self.largest_staleness}
            self.folder.mark_diverged(str(error), round=round, facts={"availability": facts})

    def end_finished(self, params: Any, *, round: int, seconds: float) -> None:
        """End a run that completed its rounds or its virtual time.

        Args:
            params: The final models, NumPy arrays [seeds, ...].
            round: The number of rounds done.
            seconds: Duration of the run.
        """
        if self.folder:
            facts = {**self._final_facts(seconds), **({"rounds_done": round} if round < self.spec.rounds else {})}
            self.folder.finish(named_leaves(params), round=round, facts=facts)
        self.result = Result(Metrics(self.rows), params, self.largest_staleness, self.path)

    def close(self) -> None:
        """End the logs and unlock the folder."""
        self.loggers.finish(self._status)
        if self.folder:
            self.folder.release()

    @property
    def _status(self) -> Status:
        if self.result is None:
            return "stopped"
        return "diverged" if isinstance(self.result, DivergedError) else "finished"

    def _read_result(self) -> Result:
        like = parameter_shapes(self.spec.model.init)
        seeds = len(self.spec.seeds)
        stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), like)
        params = None

        def facts() -> tuple[list[Any], int]:
            nonlocal params
            assert self.folder is not None
            file = self.folder / "model.safetensors"
            params = from_named_leaves(load_arrays(file)[0], stacked, source=file)
            self.folder.tidy()
            rows = [list(row) for row in self.folder.metrics().rows]
            return rows, self.folder.manifest["availability"]["largest_staleness"]

        rows, staleness = from_first(facts)
        metrics = Metrics([Row(*row) for row in rows])
        return Result(metrics, arrays_from_first(params, stacked), staleness, self.path)

    def _label_rows(self, round: int, num_correct: npt.ArrayLike) -> list[LabelRow]:
        num_correct = np.asarray(num_correct)
        if self._held is None:
            self._held = np.bincount(self.spec.federation.test_labels, minlength=num_correct.shape[-1])
        shares = np.where(self._held > 0, num_correct / np.maximum(self._held, 1), np.nan)
        return [LabelRow(seed, round, share) for seed, share in zip(self.spec.seeds, shares, strict=True)]

    def _final_facts(self, seconds: float) -> dict[str, Any]:
        """Return E, Lemma 1's bound where it applies, and the staleness that was observed."""
        about, spec = assumption_facts(self.spec), self.spec.executed
        bound = None
        if about["assumption_holds"] and spec.algorithm.oldest_first and spec.timing is None:
            num_clients = spec.federation.num_clients
            bound = staleness_bound(
                num_clients=num_clients, cohort_size=spec.cohort_size, smallest_e=about["smallest_e"]
            )
        observed = {"staleness_bound": bound, "largest_staleness": self.largest_staleness}
        return {"seconds": round(seconds, 3), "availability": {**about, **observed}, "costs": self._costs()}

    def _costs(self) -> dict[str, int]:
        spec = self.spec.executed
        costs = measure_costs(
            spec.algorithm,
            parameter_shapes(spec.model.init),
            num_clients=spec.federation.num_clients,
            cohort_size=spec.cohort_size,
            num_steps=spec.num_local_steps,
            has_rates=spec.rates is not None,
        )
        return costs._asdict()


def assumption_facts(spec: ExperimentSpec) -> dict[str, Any]:
    """Return whether Assumption 4 holds for every seed, with which E, and which clients were never available.

    For random availability of many clients over many rounds, a sample of the clients is examined. The facts then hold
    `clients_examined`; E is a lower bound, and whether the assumption holds is known only if it does not.
    """
    by_time = spec.timing is not None and spec.timing.seconds_per_round is not None
    if spec.algorithm.pooled or by_time:  # no clients whose availability could matter, or no rounds of equal length
        return {"smallest_e": None, "assumption_holds": None, "num_never_available": 0, "never_available": []}
    most, availability = clients_to_check(spec.rounds), spec.availability
    seeds = spec.seeds if availability.intervals() is None else spec.seeds[:1]  # intervals do not depend on the seed
    found = [_assumption(availability, spec.rounds, seed, most) for seed in seeds]
    never = np.unique(np.concatenate([each.never_available for each in found]))
    is_sample = found[0].is_sample
    return {
        "smallest_e": None if never.size else max(each.smallest_e for each in found if each.smallest_e is not None),
        "assumption_holds": False if never.size else None if is_sample else True,
        "num_never_available": never.size,
        "never_available": spec.federation.ids[never[:MOST_NAMED]].tolist(),
        **({"clients_examined": found[0].clients.size} if is_sample else {}),
    }


def _assumption(model: Availability, rounds: int, seed: int, max_clients: int) -> Assumption:
    if model.num_clients > MAX_CLIENTS_KEPT:
        return model.assumption(rounds, seed, max_clients=max_clients)
    with _LOCK:
        return _kept_assumption(FingerprintedModel.of(model), rounds, seed, max_clients)


@lru_cache(maxsize=KEPT_RECORDS)  # many runs of a comparison have the same availability
def _kept_assumption(named: FingerprintedModel, rounds: int, seed: int, max_clients: int) -> Assumption:
    return named.model.assumption(rounds, seed, max_clients=max_clients)


def clients_to_check(rounds: int) -> int:
    """Return for how many clients Assumption 4 is checked, where every round must be evaluated."""
    return max(1, MAX_CHECKED_PAIRS // rounds)


def describe_clients(spec: ExperimentSpec) -> ClientRecord:
    """Return what each client holds, and a picture of the availability of the first seed.

    The picture is made from at most MAX_SAMPLED_ROUNDS rounds and MAX_CLIENTS_PER_ROW clients of each row, evenly
    spaced.
    """
    known = _DESCRIBED.setdefault(spec.federation, {})
    rounds = spec.availability_rounds
    key = FingerprintedModel.of(spec.availability), rounds, spec.seeds[0], MAX_SAMPLED_ROUNDS, MAX_CLIENTS_PER_ROW
    with _LOCK:  # several threads may ask for the same record
        if key not in known:
            if len(known) >= KEPT_RECORDS or spec.federation.num_clients > MAX_CLIENTS_KEPT:
                known.clear()
            known[key] = _describe_clients(spec.federation, spec.availability, rounds, spec.seeds[0])
        return known[key]


_LOCK = Lock()
_DESCRIBED: WeakKeyDictionary[Federation, dict[Hashable, ClientRecord]] = WeakKeyDictionary()


def _describe_clients(federation: Federation, availability: Availability, rounds: int, seed: int) -> ClientRecord:
    labels = federation.client_labels() if federation.has_classes else np.zeros(federation.num_clients, np.int64)
    clock = _time_of_day(federation, availability)
    begins = clock["window"][:, 0] if "window" in clock else np.zeros_like(labels)
    order = np.lexsort((begins, labels)).astype(np.int32)
    rows, columns = edges(federation.num_clients, MOST_ROWS), edges(rounds, MOST_COLUMNS)
    shown_rounds = _evenly_spaced(0, rounds, MAX_SAMPLED_ROUNDS)
    shown = [_evenly_spaced(first, last, MAX_CLIENTS_PER_ROW) for first, last in pairwise(rows.tolist())]
    row_sizes = np.array([len(each) for each in shown])
    row_of = np.repeat(np.arange(len(shown), dtype=np.int32), row_sizes)
    column_of = np.searchsorted(columns, shown_rounds, side="right") - 1
    model = availability.subset(order[np.concatenate(shown)])
    arrays = jax.tree.map(jnp.asarray, (row_of, shown_rounds, np.uint32(seed)))
    available = np.zeros((len(shown), len(columns) - 1), np.float32)
    np.add.at(available.T, column_of, np.asarray(_count(model, *arrays, num_rows=len(shown))))
    pairs = row_sizes[:, None] * np.bincount(column_of, minlength=len(columns) - 1)
    picture = np.round(255 * available / pairs).astype(np.uint8)
    sample = np.array([row_of.size, shown_rounds.size])
    clients = ClientRecord(labels.astype(np.int32), federation.sizes, order, rows, columns, picture, sample=sample)
    return clients._replace(**clock)


def _evenly_spaced(first: int, last: int, most: int) -> npt.NDArray[np.int32]:
    """Return at most `most` evenly spaced numbers of first .. last - 1."""
    return np.unique(np.linspace(first, last - 1, min(last - first, most)).round()).astype(np.int32)


def _time_of_day(federation: Federation, availability: Availability) -> dict[str, Any]:
    """Return at what time of day the clients' samples were created, and their daily windows, where these are known."""
    found: dict[str, Any] = {}
    if federation.second is not None:
        quarter = federation.second[federation.order] // (SECONDS_PER_DAY // QUARTERS)
        owner = np.repeat(np.arange(federation.num_clients), federation.sizes)
        cells, counts = np.unique(owner * QUARTERS + quarter, return_counts=True)
        sent = np.zeros(federation.num_clients * QUARTERS, np.uint16)
        sent[cells] = np.minimum(counts, np.iinfo(np.uint16).max)
        found["sent"] = sent.reshape(federation.num_clients, QUARTERS)
    if isinstance(availability, Windows):
        window = np.stack([availability.start, availability.length], axis=1) / 3600
        found["window"] = window.astype(np.float32)
    return found


@partial(jax.jit, static_argnames="num_rows")  # compiled once per number of clients
def _count(
    availability: Availability, row_of: jax.Array, rounds: jax.Array, seed: jax.Array, *, num_rows: int
) -> jax.Array:
    """Return how many clients of each row of the picture are available, [rounds, rows]."""

    def one(round: jax.Array) -> jax.Array:
        present = jax.lax.optimization_barrier(availability.available(round, seed))  # or XLA evaluates it twice
        return jax.ops.segment_sum(present.astype(jnp.float32), row_of, num_segments=num_rows, indices_are_sorted=True)

    return jax.lax.map(one, rounds)


def _rows(spec: ExperimentSpec, round: int, seconds: float, measured: Measured, record: Record | None) -> list[Row]:
    rows = []
    for index, seed in enumerate(spec.seeds):
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
        if spec.timing is not None:
            row = row._replace(time=0.0, downloads=0, uploads=0, merged=0)
        if record is not None:
            row = row._replace(
                num_available=int(record.num_available[index, -1]),
                cohort_size=int(record.cohort_size[index, -1]),
                mean_staleness=float(record.mean_staleness[index, -1]),
                max_staleness=int(record.max_staleness[index, -1]),
            )
            if record.time is not None and record.traffic is not None:
                counts = {name: int(count[index, -1]) for name, count in record.traffic._asdict().items()}
                row = row._replace(time=float(seconds_of(record.time)[index, -1]), **counts)
        rows.append(as_written(row))
    return rows
