"""Ways of storing client states: the same results wherever rows are, exact sums in any type, resumed and in blocks."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from fedlatest import (
    ConfigError,
    DivergedError,
    Model,
    Progress,
    Result,
    RunFolder,
    RunFolderError,
    always,
    bernoulli,
    fedavg,
    fedawe,
    fedlaavg,
    scaffold,
    simulate,
)
from fedlatest.algorithms.base import Algorithm, ClientState, Cohort
from fedlatest.runs.array_files import ArrayFile, load_arrays, save_arrays
from fedlatest.simulation import Engine, ExperimentSpec, checkpoints
from fedlatest.simulation.client_rows import make_rows, mean_of_remembered, read_rows, replace_rows
from fedlatest.simulation.experiment_spec import clients_that_fit
from fedlatest.simulation.memory_needs import MemoryRoom
from fedlatest.simulation.rounds import advance
from fedlatest.simulation.row_storage import RowSlots, RowStorage, encode, find_rows, no_slots, round_to, row_types
from fedlatest.simulation.sharded_engine import ShardedEngine
from fedlatest.simulation.sharding import AXIS
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(30, seed=3)
SPARSE = bernoulli(np.full(30, 0.12))  # some cohorts are not full, and some clients never take part
OPTIONS: dict[str, Any] = {
    "rounds": 6,
    "cohort_size": 4,
    "num_local_steps": 2,
    "batch_size": 3,
    "learning_rate": 0.3,
    "evaluate_every": 3,
    "seeds": (4, 9),
    "clients_at_once": 3,  # the last chunk has empty slots
}


def run(algorithm: Algorithm | None = None, out: Path | None = None, **options: Any) -> Result:
    return simulate(FEDERATION, MODEL, algorithm or fedlaavg(), SPARSE, out=out, **(OPTIONS | options))


def without_timing(result: Result) -> list[Any]:
    """Return the metrics without seconds and without the average error, whose rounding depends on the order of rows."""
    return [row._replace(seconds=0.0, average_error=None) for row in result.metrics.rows]


def assert_same(one: Result, other: Result) -> None:
    assert without_timing(one) == without_timing(other)
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


def spec(algorithm: Algorithm, model: Model = MODEL, **options: Any) -> ExperimentSpec:
    settings = {key: value for key, value in OPTIONS.items() if key != "clients_at_once"}
    return ExperimentSpec(FEDERATION, model, algorithm, SPARSE, **(settings | options))


@pytest.mark.parametrize(
    ("algorithm", "side_by_side"),
    [
        pytest.param(fedlaavg(weighting="update"), False, id="fedlaavg"),
        pytest.param(scaffold(), False, id="scaffold", marks=pytest.mark.slow),
        pytest.param(fedawe(), False, id="fedawe"),
        pytest.param(fedlaavg(), True, id="fedlaavg, batched"),
        pytest.param(fedawe(), True, id="fedawe, batched", marks=pytest.mark.slow),
    ],
)
def test_results_do_not_depend_on_where_rows_are(
    algorithm: Algorithm, side_by_side: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, also where seeds are batched. 6 rounds of 4 clients: 24 rows suffice for 30 clients.

    FedAWE has private rows, which do not start as zeros.
    """
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)
    expected = run(algorithm, client_rows="all")
    for rows in ("seen", "host", "disk"):
        found = run(algorithm, client_rows=rows)
        assert_same(expected, found)
        errors = [row.average_error for row in found.metrics.rows if row.average_error is not None]
        assert max(errors, default=0.0) < 1e-6
        assert bool(errors) == (algorithm.name != "fedawe")


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_narrow_rows_give_the_same_results_everywhere(dtype: str) -> None:
    expected = run(client_rows="all", remembered_dtype=dtype)
    for rows in ("seen", "host", "disk"):
        assert_same(expected, run(client_rows=rows, remembered_dtype=dtype))
    wide = run(client_rows="all")
    narrow, exact = (np.asarray(result.params["weight"]) for result in (expected, wide))
    assert not np.array_equal(narrow, exact)
    np.testing.assert_allclose(narrow, exact, atol=0.02)


def test_rows_are_in_use_only_for_clients_that_took_part() -> None:
    engine = Engine([spec(fedlaavg(), client_rows="seen", seeds=(4,))])
    [state], record = engine.advance(engine.start(), 6)
    took_part = np.unique(record.cohort.clients[record.cohort.mask])
    assert state.slots is not None
    row_of, rows = np.asarray(state.slots.row_of[0]), np.asarray(state.clients.remembered["update"]["weight"][0])
    assert np.flatnonzero(row_of >= 0).tolist() == took_part.tolist()
    assert sorted(row_of[took_part]) == list(range(took_part.size)) == list(range(int(state.slots.num_used[0])))
    assert rows.shape == (25, 3, 4)  # 6 x 4, and one that stays as it was
    assert all(rows[number].any() for number in range(took_part.size))
    assert not rows[took_part.size :].any()


def test_new_rows_follow_the_order_of_the_cohort() -> None:
    """5 clients, 3 rows. Clients 4 and 1 take rows 0 and 1; then 1 keeps row 1, masked 3 gets none, 0 takes row 2."""
    storage = RowStorage("seen", capacity=3)
    slots, rows = find_rows(storage, no_slots(storage, 5), Cohort(jnp.array([4, 1]), jnp.array([True, True])))
    assert rows.tolist() == [0, 1]
    slots, rows = find_rows(storage, slots, Cohort(jnp.array([1, 3, 0]), jnp.array([True, False, True])))
    assert rows.tolist() == [1, 5, 2]  # 5 is beyond the last row, which is row 3
    assert isinstance(slots, RowSlots)
    assert slots.row_of.tolist() == [2, 1, -1, -1, 0]
    assert slots.num_used == 3


def test_the_difference_is_that_of_the_rounded_rows() -> None:
    """In bfloat16 numbers near 1 are 2^-7 apart: 1.003 is stored as 1, so the total grows by 1, not by 1.003."""
    one = ClientState({"x": jnp.zeros(1)})
    storage = RowStorage(dtype="bfloat16")
    types, rows = row_types(storage, one), make_rows(storage.stored(one), 3)
    slots = Cohort(jnp.array([0, 2]), jnp.array([True, False]))
    old = read_rows(rows, slots.clients, types)
    assert old.remembered["x"].dtype == jnp.float32
    new, nothing = ClientState({"x": jnp.array([[1.003], [5.0]])}), {"x": jnp.zeros(1)}
    rows, change = replace_rows(rows, slots, old, new, nothing, types)
    assert change["x"].tolist() == [1.0]
    assert change["x"].dtype == jnp.float32
    assert read_rows(rows, jnp.arange(3), types).remembered["x"].tolist() == [[1.0], [0.0], [0.0]]


def test_small_numbers_are_not_lost_in_float16() -> None:
    """Below 2^-14 float16 has subnormal numbers, multiples of 2^-24: 3.3 of these are stored as 3."""
    found = jax.jit(lambda x: round_to(x, jnp.float16))(jnp.array([3.3 * 2**-24, 1.0005]))
    assert found.tolist() == [3 * 2**-24, 1 + 2**-10]


@pytest.mark.parametrize("num_clients", [7, 9])
def test_the_mean_of_many_rows_is_taken_in_blocks(num_clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """7 rows 0 .. 6 in blocks of 2; with 9 clients, the last row is also the state of two that have none."""
    monkeypatch.setattr("fedlatest.simulation.client_rows.SUMMED_BYTES", 4)
    one = ClientState({"x": jnp.zeros(1)})
    types = row_types(RowStorage(dtype="bfloat16"), one)
    rows = ClientState({"x": encode(jnp.arange(7, dtype=jnp.bfloat16)[:, None])})
    mean = mean_of_remembered(rows, types.stored.remembered, one.remembered, num_clients)
    assert mean["x"].tolist() == [pytest.approx((21 + 6 * (num_clients - 7)) / num_clients)]


NARROW_MODEL = Model(lambda key: jax.tree.map(lambda x: x.astype(jnp.bfloat16), MODEL.init(key)), MODEL.apply)


@pytest.mark.parametrize(
    ("algorithm", "model", "options"),
    [
        pytest.param(fedlaavg(), MODEL, {"remembered_dtype": "bfloat16"}, id="bfloat16"),
        pytest.param(fedlaavg(), MODEL, {"remembered_dtype": "float16", "client_rows": "host"}, id="float16, host"),
        pytest.param(fedlaavg(weighting="update"), NARROW_MODEL, {}, id="bfloat16 model"),
        pytest.param(scaffold(), NARROW_MODEL, {"remembered_dtype": "float16"}, id="scaffold, bfloat16 model"),
    ],
)
def test_the_total_stays_the_sum_of_what_is_stored(algorithm: Algorithm, model: Model, options: Any) -> None:
    """After 400 rounds the error is rounding of float32 sums: far less than one rounding of a 16-bit number."""
    engine = Engine([spec(algorithm, model, rounds=400, seeds=(1,), **options)])
    [state], _ = engine.advance(engine.start(), 400)
    error = engine.measure([state]).average_error[0]
    norm = np.sqrt(sum(np.sum((np.asarray(leaf) / 30) ** 2) for leaf in jax.tree.leaves(state.total)))
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(state.total))
    assert error < 1e-5 * norm  # bfloat16 has 8 bits: 4e-3 a rounding


def test_an_update_too_large_for_float16_is_reported() -> None:
    """Finite as float32, infinite as float16: the failure names the first such client."""
    with pytest.raises(DivergedError, match=r"the upload of client \d+ in round 0 \(seed 4\) is not finite"):
        run(learning_rate=1e6, remembered_dtype="float16", rounds=1)
    run(learning_rate=1e6, rounds=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("seen", "seen"),
        ("disk", "disk"),
        ("all", "host"),
        pytest.param("host", "seen", marks=pytest.mark.slow),
        pytest.param("seen", "all", marks=pytest.mark.slow),
    ],
)
def test_a_run_is_resumed_with_any_storage(before: str, after: str, tmp_path: Path) -> None:
    """The checkpoint of one storage is continued by another; FedAWE's rows do not start as zeros."""

    def interrupt(progress: Progress) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    algorithms = {"remembered": (fedlaavg(), "bfloat16"), "private": (fedawe(), None)}
    for name, (algorithm, dtype) in algorithms.items():
        folder = tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            run(algorithm, folder, on_progress=interrupt, client_rows=before, remembered_dtype=dtype)
        assert RunFolder(folder).rounds_done == 3
        resumed = run(algorithm, folder, resume=True, client_rows=after, remembered_dtype=dtype)
        assert_same(run(algorithm, remembered_dtype=dtype), resumed)


def interrupted(folder: Path, **options: Any) -> Path:
    """Return the checkpoint of a run of FedAWE that was interrupted after 3 rounds."""

    def interrupt(progress: Progress) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(fedawe(), folder, on_progress=interrupt, **options)
    return folder / "checkpoint.safetensors"


def test_a_checkpoint_of_some_rows_is_restored_on_several_devices(tmp_path: Path) -> None:
    """Clients without a row have the initial state, which is not zero; a mesh of one device divides as others do."""
    path = interrupted(tmp_path / "run", client_rows="seen")
    own, mesh, file = spec(fedawe()), Mesh(np.array(jax.devices()[:1]), (AXIS,)), ArrayFile(path)
    assert "slots.row_of" in file
    one, several = (engine.restore([file]) for engine in (Engine([own]), ShardedEngine([own], mesh)))
    for left, right in zip(one, several, strict=True):
        jax.tree.map(np.testing.assert_array_equal, left, right)


def test_a_checkpoint_with_damaged_rows_is_refused(tmp_path: Path) -> None:
    path = interrupted(tmp_path / "run", client_rows="seen")
    arrays, metadata = load_arrays(path)
    row_of = arrays["slots.row_of"]
    first, second = np.flatnonzero(row_of[0] >= 0)[:2]
    for value in (-1, row_of[0, second], 1000):
        damaged = row_of.copy()
        damaged[0, first] = value
        save_arrays(path, {**arrays, "slots.row_of": damaged}, metadata)
        with pytest.raises(RunFolderError, match=r"damaged: slots\.row_of does not match"):
            run(fedawe(), tmp_path / "run", resume=True, client_rows="seen")


@pytest.mark.parametrize("rows", ["host", "disk"])
def test_a_client_that_is_selected_twice_is_reported_wherever_rows_are(rows: str) -> None:
    def select(server: Any, available: jax.Array, facts: Any) -> Cohort:
        del server, available, facts
        return Cohort(jnp.zeros(4, jnp.int32), jnp.ones(4, bool))

    with pytest.raises(ConfigError, match="select returned a position twice"):
        run(replace(fedlaavg(), select=select), client_rows=rows)


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing to a mapped file for which there is no space would end the process without a message."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(RunFolderError, match=r"is full \(No space left on device\); make space there"):
        run(client_rows="disk")


def test_the_type_is_part_of_a_run_and_the_place_is_not(tmp_path: Path) -> None:
    run(out=tmp_path / "a", remembered_dtype="bfloat16", client_rows="host")
    assert RunFolder(tmp_path / "a").manifest["config"]["remembered_dtype"] == "bfloat16"
    run(out=tmp_path / "a", remembered_dtype="bfloat16", client_rows="disk", resume=True)
    with pytest.raises(RunFolderError, match="remembered_dtype was 'bfloat16', now None"):
        run(out=tmp_path / "a", resume=True)


def test_a_type_that_changes_nothing_is_not_recorded() -> None:
    """FedAvg remembers nothing, and float32 is the type of the model."""
    for chosen in (spec(fedavg(), remembered_dtype="bfloat16"), spec(fedlaavg(), remembered_dtype="float32")):
        assert "remembered_dtype" not in chosen.manifest()["config"]
        assert chosen.program() == spec(chosen.algorithm).program()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client_rows": "ram"}, "client_rows=ram: choose one of auto, all, seen, host, disk"),
        ({"remembered_dtype": "int8"}, "remembered_dtype=int8: choose one of float32, bfloat16, float16"),
    ],
)
def test_unknown_names_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(**options)


def test_more_rounds_than_there_are_rows_for_are_refused() -> None:
    engine = Engine([spec(fedlaavg(), client_rows="seen")])
    with pytest.raises(ValueError, match="the rows suffice for 6 rounds"):
        engine.advance(engine.start(), 7)


# 30 clients with a model of 2^22 numbers: 480 MiB of rows, 240 MiB in 16 bits; 4 of them can take part: 64 MiB.
LARGE = Model(lambda key: {"w": jnp.zeros((2**20, 4))}, lambda params, features: features @ params["w"][:4, :3])


def room_of(mebibytes: int, *, disk: int = 0, shared: bool = True, host: int = 0) -> MemoryRoom:
    return MemoryRoom(mebibytes * 2**20, (mebibytes if shared else host) * 2**20, disk * 2**20, shared)


def large_spec(rounds: int, **options: Any) -> ExperimentSpec:
    return ExperimentSpec(
        FEDERATION, LARGE, fedlaavg(), always(30), 4, num_local_steps=1, batch_size=1, rounds=rounds, **options
    )


def test_rows_of_clients_that_take_part_are_chosen_if_all_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlatest.simulation.engine.memory_room", lambda: room_of(400))
    engine = Engine([large_spec(rounds=1)])
    engine.check_memory()
    assert engine.program.storage.rows == "seen"
    assert engine.notes == [
        "client_rows=seen: rows for all 30 clients (0.5 GiB) do not fit into memory; rows for the 4 that can take part "
        "(0.1 GiB) do, with the same results"
    ]
    monkeypatch.setattr("fedlatest.simulation.engine.memory_room", lambda: room_of(1000))
    engine = Engine([large_spec(rounds=1)])
    assert engine.program.storage.rows == "all"
    assert not engine.notes


@pytest.mark.parametrize(
    ("room", "options", "advice"),
    [
        (room_of(450), {}, r"it would fit with remembered_dtype=bfloat16 \(0\.4 GiB of memory\)$"),
        (
            room_of(450, disk=900),
            {},
            r"with client_rows=disk \(0\.1 GiB of memory, 0\.5 GiB of disk\), or remembered_dtype=bfloat16",
        ),
        (room_of(300, host=900, shared=False), {}, r"with client_rows=host \(0\.6 GiB of memory\)$"),
        (room_of(300), {"client_rows": "all"}, "use fewer clients, fewer seeds or a smaller model"),
        (room_of(300, disk=100), {"client_rows": "disk"}, r"0\.1 GiB of memory and 0\.5 GiB of disk space in addition"),
    ],
)
def test_a_run_that_does_not_fit_names_the_options_that_would(
    room: MemoryRoom, options: Any, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 30 rounds every client can take part, so that rows for those seen save nothing."""
    monkeypatch.setattr("fedlatest.simulation.engine.memory_room", lambda: room)
    with pytest.raises(ConfigError, match=advice):
        Engine([large_spec(rounds=30, **options)], clients_at_once=1).check_memory()


def test_training_is_counted() -> None:
    """One client at a time: the model before, during and after a step, its gradient and three rows."""
    engine = Engine([large_spec(rounds=1)], clients_at_once=1)
    model = 2**22 * 4
    assert 7 * model <= engine.bytes_needed - engine.state_bytes <= 12 * model


@pytest.mark.parametrize(("room", "expected"), [(10, 100), (1, 25), (0.1, 2), (0, 1)])
def test_clients_trained_at_once_are_bounded_by_memory(room: float, expected: int) -> None:
    """100 clients of 40 MB each in 10, 1, 0.1 and 0 GB; 25 fill four chunks evenly."""
    assert clients_that_fit(100, int(room * 1e9), 40_000_000) == expected


def test_all_rows_are_averaged_at_the_last_evaluation_only_if_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlatest.simulation.engine.MOST_AVERAGED_BYTES", 0)
    for rows in ("all", "disk"):
        errors = [row.average_error for row in run(client_rows=rows, seeds=(4,)).metrics.rows]
        assert errors[:-1] == [None, None]
        assert errors[-1] is not None


def test_blocks_of_a_device_array_are_the_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator, whose arrays are not in host memory: trial by trial, in blocks of two rows of 12 bytes."""
    monkeypatch.setattr(checkpoints, "_on_host", lambda array: None)
    monkeypatch.setattr("fedlatest.simulation.host_rows.BLOCK_BYTES", 24)
    array = jnp.arange(2 * 5 * 3, dtype=jnp.float32).reshape(2, 5, 3)
    part = checkpoints.ArrayPart(array, 0, 2, num_rows=3)
    assert [block.shape for block in part.blocks()] == [(1, 2, 3), (1, 1, 3)] * 2
    save_arrays(tmp_path / "a", {"x": part, "y": [checkpoints.ArrayPart(array[:, 0, 0], 1, 2)]}, {})
    np.testing.assert_array_equal(ArrayFile(tmp_path / "a")["x"], array[:, :3])
    assert ArrayFile(tmp_path / "a")["y"].tolist() == [15]


def test_mapped_arrays_are_those_in_the_file(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.int32(5), "half": jnp.ones(3, jnp.bfloat16),
        "flag": np.array([True, False]), "none": np.zeros((0, 4), np.float64),
    }  # fmt: skip
    save_arrays(tmp_path / "a", arrays, {})
    file = ArrayFile(tmp_path / "a")
    assert file.mapped("missing") is None
    for name, array in arrays.items():
        mapped = file.mapped(name)
        assert mapped is not None
        assert mapped.dtype == array.dtype
        np.testing.assert_array_equal(mapped, array)


@pytest.mark.parametrize(
    ("clients_at_once", "options"), [(1, {}), (2, {"remembered_dtype": "bfloat16"})], ids=["one at once", "bfloat16"]
)
def test_rows_are_replaced_in_place(clients_at_once: int, options: Any) -> None:
    """30 rows of 64 KiB are 1920 KiB, 960 in 16 bits; what the compiled rounds need temporarily is far less.

    XLA copied all rows to replace one, and on a CPU converted all of them to float32 to replace some of 16 bits.
    """
    model = Model(lambda key: {"w": jnp.zeros((2**12, 4))}, lambda params, features: features @ params["w"][:4, :3])
    spec = ExperimentSpec(FEDERATION, model, fedlaavg(), always(30), 4, rounds=2, **options)
    engine = Engine([spec], clients_at_once=clients_at_once)
    [state], [batch] = engine.start(), engine.batches
    compiled = advance.lower(
        engine.data, batch.trials, state, program=engine.program, num_rounds=2, size=1, shared_availability=True
    ).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 10 * 2**16
