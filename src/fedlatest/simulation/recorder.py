"""A book: what one experiment leaves behind, in memory and, where asked, in a folder."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.availability.patterns import Windows
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.errors import DivergedError
from fedlatest.runs import ClientRecord, LabelRow, Metrics, Row, RunFolder
from fedlatest.runs.array_files import load_arrays
from fedlatest.runs.clients import MOST_COLUMNS, MOST_ROWS, QUARTERS, edges, pack
from fedlatest.runs.metrics import as_written
from fedlatest.runs.tensorboard import Tensorboard
from fedlatest.simulation.engine import Engine, Measured
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.result import Result
from fedlatest.simulation.rounds import Record
from fedlatest.theory import staleness_bound
from fedlatest.trees import from_named_leaves, named_leaves

MOST_ROUNDS_LOOKED_AT = 10 * MOST_COLUMNS
MOST_NAMED = 10  # clients that were never available, in a manifest


class RunRecorder:
    """The records of one spec; everything it is handed is of its own lanes, [seeds, ...]."""

    def __init__(self, spec: ExperimentSpec, folder: RunFolder | None, tensorboard: Tensorboard | None) -> None:
        self.spec, self.folder, self.tensorboard = spec, folder, tensorboard
        self.rows: list[Row] = []
        self.largest_staleness = 0
        self.result: Result | DivergedError | None = None

    def begin(self, engine: Engine, *, resume: bool, force: bool) -> None:
        """Take the folder; a run that has come to its end is read back."""
        if self.folder is None:
            return
        self.folder.begin(self.spec.manifest(engine), resume=resume, force=force)
        if self.folder.finished:
            self.result = self._read_back()
        elif diverged := self.folder.manifest.get("diverged"):
            self.result = DivergedError(diverged)
        elif not self.spec.algorithm.pooled and self.folder.clients() is None:
            self.folder.describe(describe(self.spec))

    def restore(self, like: Any) -> tuple[Any, int, float] | None:
        """State, round and seconds at the last checkpoint."""
        if self.folder is None:
            return None
        restored = self.folder.restore()
        self.rows = list(self.folder.metrics().rows)
        if restored is None:
            return None
        arrays, round, seconds = restored
        expected = (like, jax.ShapeDtypeStruct((), jnp.int32))
        source = self.folder / "checkpoint.safetensors"
        state, largest = from_named_leaves(arrays, expected, source=source)
        self.largest_staleness = int(largest)
        return state, round, seconds

    def open_log(self, *, first_round: int) -> None:
        """Begin TensorBoard's log at a round."""
        if self.tensorboard and self.folder:
            self.tensorboard.open(self.folder / "tensorboard", list(self.spec.seeds), first_round=first_round)

    def note(self, record: Record, num_clients: int) -> None:
        """Keep who took part in a block of rounds."""
        self.largest_staleness = max(self.largest_staleness, int(record.max_staleness.max()))
        if self.folder:
            positions, mask = np.asarray(record.cohort.clients), np.asarray(record.cohort.mask)
            self.folder.note_cohorts(pack(positions, mask, num_clients))

    def evaluated(self, round: int, seconds: float, measured: Measured, record: Record | None) -> list[Row]:
        """Keep an evaluation."""
        new = _rows(self.spec.seeds, round, seconds, measured, record)
        self.rows.extend(new)
        if self.folder:
            self.folder.record(new)
            if measured.test.num_correct.size:
                self.folder.record_labels(self._label_rows(round, measured.test.num_correct))
        if self.tensorboard:
            self.tensorboard.record(new)
        return new

    def checkpoint(self, state: Any, *, round: int, seconds: float) -> None:
        """Save everything needed to go on."""
        if self.folder:
            self.folder.checkpoint(
                named_leaves((state, jnp.int32(self.largest_staleness))), round=round, seconds=seconds
            )

    def diverged(self, error: DivergedError, *, round: int) -> None:
        """Close the book of a run that came to nothing."""
        self.result = error
        if self.folder:
            seen = {**assumption_facts(self.spec), "largest_staleness": self.largest_staleness}
            self.folder.mark_diverged(str(error), round=round, facts={"availability": seen})

    def finish(self, params: Any, seconds: float, engine: Engine) -> None:
        """Close the book of a run that came to its end."""
        params = jax.tree.map(np.asarray, params)
        if self.folder:
            self.folder.finish(named_leaves(params), round=self.spec.rounds, facts=self._facts(seconds, engine))
        path = self.folder.path if self.folder else None
        self.result = Result(Metrics(self.rows), params, self.largest_staleness, path)

    def close(self) -> None:
        """Flush what is logged and let go of the folder."""
        if self.tensorboard:
            self.tensorboard.close()
        if self.folder:
            self.folder.release()

    def _read_back(self) -> Result:
        assert self.folder is not None
        like = jax.eval_shape(self.spec.model.init, jax.random.key(0))
        seeds = len(self.spec.seeds)
        stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), like)
        file = self.folder / "model.safetensors"
        params = from_named_leaves(load_arrays(file)[0], stacked, source=file)
        self.folder.tidy()
        staleness = self.folder.manifest["availability"]["largest_staleness"]
        return Result(self.folder.metrics(), params, staleness, self.folder.path)

    def _label_rows(self, round: int, num_correct: npt.ArrayLike) -> list[LabelRow]:
        num_correct = np.asarray(num_correct)
        held = np.bincount(self.spec.federation.test_labels, minlength=num_correct.shape[-1])
        shares = np.where(held > 0, num_correct / np.maximum(held, 1), np.nan)
        return [LabelRow(seed, round, share) for seed, share in zip(self.spec.seeds, shares, strict=True)]

    def _facts(self, seconds: float, engine: Engine) -> dict[str, Any]:
        """What the finished run says of availability: E, Lemma 1's bound where it applies, the staleness seen."""
        about, algorithm = assumption_facts(self.spec), self.spec.algorithm
        bound = None
        if about["smallest_e"] is not None and algorithm.oldest_first:
            num_clients, cohort_size = engine.federation.num_clients, engine.rules.cohort_size
            bound = staleness_bound(num_clients=num_clients, cohort_size=cohort_size, smallest_e=about["smallest_e"])
        seen = {"staleness_bound": bound, "largest_staleness": self.largest_staleness}
        return {"seconds": round(seconds, 3), "availability": {**about, **seen}}


def assumption_facts(spec: ExperimentSpec) -> dict[str, Any]:
    """Whether Assumption 4 holds over the run for every seed, with which E, and if not, who was never available."""
    if spec.algorithm.pooled:  # no client can be away
        return {"smallest_e": None, "assumption_holds": None, "num_never_available": 0, "never_available": []}
    found = [spec.availability.assumption(spec.rounds, seed) for seed in spec.seeds]
    never = np.unique(np.concatenate([each.never_available for each in found]))
    return {
        "smallest_e": None if never.size else max(each.smallest_e for each in found if each.smallest_e is not None),
        "assumption_holds": never.size == 0,
        "num_never_available": never.size,
        "never_available": spec.federation.ids[never[:MOST_NAMED]].tolist(),
    }


def describe(spec: ExperimentSpec) -> ClientRecord:
    """Who the clients are, and a picture of when they are available (of the first seed)."""
    federation, rounds = spec.federation, spec.rounds
    labels = federation.client_labels() if federation.has_classes else np.zeros(federation.num_clients, np.int64)
    clock = _by_the_clock(spec)
    begins = clock["window"][:, 0] if "window" in clock else np.zeros_like(labels)
    order = np.lexsort((begins, labels)).astype(np.int32)
    rows, columns = edges(federation.num_clients, MOST_ROWS), edges(rounds, MOST_COLUMNS)
    looked_at = np.unique(np.linspace(0, rounds - 1, min(rounds, MOST_ROUNDS_LOOKED_AT)).round().astype(np.int32))
    column_of = np.searchsorted(columns, looked_at, side="right") - 1
    row_of = np.searchsorted(rows, np.arange(federation.num_clients), side="right") - 1
    here = np.zeros((len(rows) - 1, len(columns) - 1), np.float32)
    arrays = jax.tree.map(jnp.asarray, (order, row_of.astype(np.int32), looked_at, np.uint32(spec.seeds[0])))
    np.add.at(here.T, column_of, np.asarray(_count(spec.availability, *arrays, num_rows=len(rows) - 1)))
    pairs = np.diff(rows)[:, None] * np.bincount(column_of, minlength=len(columns) - 1)
    picture = np.round(255 * here / pairs).astype(np.uint8)
    who = ClientRecord(labels.astype(np.int32), federation.sizes, order, rows, columns, picture)
    return who._replace(**clock)


def _by_the_clock(spec: ExperimentSpec) -> dict[str, Any]:
    """When clients' samples were made, and their windows of the day, where there is such a thing."""
    found: dict[str, Any] = {}
    federation, availability = spec.federation, spec.availability
    if federation.second is not None:
        made = federation.second[federation.order] // (SECONDS_PER_DAY // QUARTERS)
        owner = np.repeat(np.arange(federation.num_clients), federation.sizes)
        counts = np.zeros((federation.num_clients, QUARTERS), np.int64)
        np.add.at(counts, (owner, made), 1)
        found["sent"] = np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16)
    if isinstance(availability, Windows):
        window = np.stack([availability.start, availability.length], axis=1) / 3600
        found["window"] = window.astype(np.float32)
    return found


@partial(jax.jit, static_argnames="num_rows")  # once for all runs of a process whose clients are as many
def _count(
    availability: Availability,
    order: jax.Array,
    row_of: jax.Array,
    rounds: jax.Array,
    seed: jax.Array,
    *,
    num_rows: int,
) -> jax.Array:
    """[rounds, rows] how many clients of each row are available."""

    def one(round: jax.Array) -> jax.Array:
        here = availability.available(round, seed)[order].astype(jnp.float32)
        return jax.ops.segment_sum(here, row_of, num_segments=num_rows, indices_are_sorted=True)

    return jax.lax.map(one, rounds)


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
