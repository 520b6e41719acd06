"""Available memory on a CPU, and checkpoints that do not copy the state."""

import tracemalloc
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from fedlatest import Model, RunFolderError, always, fedlaavg
from fedlatest.runs.array_files import ArrayFile, save_arrays
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.memory import available_bytes
from tests.problems import small_federation

GIB = 2**30


def fake_root(folder: Path, *, free: int, limit: str | None = None, used: int = 0, version: int = 2) -> Path:
    (folder / "proc").mkdir()
    (folder / "proc/meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {free // 1024} kB\n")
    group = folder / "sys/fs/cgroup" / ("" if version == 2 else "memory")
    group.mkdir(parents=True)
    if limit is not None:
        names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        (group / names[0]).write_text(f"{limit}\n")
        (group / names[1]).write_text(f"{used}\n")
        key = "inactive_file" if version == 2 else "total_inactive_file"
        (group / "memory.stat").write_text(f"anon 5\n{key} {GIB}\n")
    return folder


def test_without_a_limit_it_is_what_the_system_can_give(tmp_path: Path) -> None:
    """Not the physical memory, of which others may use most."""
    assert available_bytes(fake_root(tmp_path, free=7 * GIB)) == 7 * GIB


def test_no_limit_is_written_as_max(tmp_path: Path) -> None:
    assert available_bytes(fake_root(tmp_path, free=7 * GIB, limit="max")) == 7 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_limit_counts(tmp_path: Path, version: int) -> None:
    """4 GiB allowed, 3 used, of which 1 is file cache that can be reclaimed: 2 are left."""
    root = fake_root(tmp_path, free=7 * GIB, limit=str(4 * GIB), used=3 * GIB, version=version)
    assert available_bytes(root) == 2 * GIB


def test_the_group_of_the_process_and_those_around_it_count(tmp_path: Path) -> None:
    """The process is in /job/step; the limit of /job is the tightest: 5 - 1 GiB used + 1 reclaimable."""
    root = fake_root(tmp_path, free=64 * GIB, limit=str(60 * GIB))
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text("0::/job/step\n")
    for group, limit in (("job", 5 * GIB), ("job/step", 9 * GIB)):
        folder = root / "sys/fs/cgroup" / group
        folder.mkdir()
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{GIB}\n")
        (folder / "memory.stat").write_text(f"inactive_file {GIB}\n")
    assert available_bytes(root) == 5 * GIB


def test_types_that_cannot_be_stored_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="x has the type complex64, which cannot be stored"):
        save_arrays(tmp_path / "a", {"x": np.zeros(2, np.complex64)}, {})


def test_the_system_may_have_less_than_the_limit(tmp_path: Path) -> None:
    assert available_bytes(fake_root(tmp_path, free=GIB, limit=str(64 * GIB))) == GIB


def test_saved_arrays_are_safetensors(tmp_path: Path) -> None:
    """The official reader finds the same arrays; a list of parts is one array."""
    first, second = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((1, 3), 7, np.float32)
    save_arrays(
        tmp_path / "a",
        {
            "x": [first, second], "flag": np.array([True, False]), "n": np.int32(5),
            "half": jnp.ones(3, jnp.bfloat16), "none": np.zeros((0, 4), np.float64),
        },
        {"about": "ä"},
    )  # fmt: skip
    found = safetensors.numpy.load_file(tmp_path / "a")
    np.testing.assert_array_equal(found["x"], np.concatenate([first, second]))
    assert found["flag"].tolist() == [True, False]
    assert found["n"] == 5
    assert found["none"].shape == (0, 4)
    assert found["half"].astype(np.float32).tolist() == [1, 1, 1]
    assert ArrayFile(tmp_path / "a").metadata == {"about": "ä"}


def test_a_checkpoint_does_not_copy_the_state_of_all_trials(tmp_path: Path) -> None:
    """4 trials of 8 clients with a model of 1 MiB: 36 MiB of state; saving takes far less than one copy of it."""
    model = Model(lambda key: {"w": jnp.zeros((2**16, 4))}, lambda params, features: features @ params["w"][:4, :3])
    spec = ExperimentSpec(small_federation(8, seed=1), model, fedlaavg(), always(8), 3, seeds=(0, 1, 2, 3))
    engine = Engine([spec])
    states = engine.start()
    tracemalloc.start()
    parts = engine.named_parts(states, slice(0, 4))
    save_arrays(tmp_path / "checkpoint", parts, {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert engine.state_bytes > 36 * 2**20
    assert peak < 12 * 2**20
    restored = engine.restore([ArrayFile(tmp_path / "checkpoint")])
    for before, after in zip(states, restored, strict=True):
        np.testing.assert_array_equal(before.server.params["w"], after.server.params["w"])
        assert before.clients.remembered["update"]["w"].shape == after.clients.remembered["update"]["w"].shape
