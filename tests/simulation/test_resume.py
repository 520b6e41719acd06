"""Interrupted and resumed runs are bit-identical to uninterrupted ones, at any moment of the interruption."""

import math
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from fedlatest import (
    ConfigError,
    MissingExtraError,
    Progress,
    Result,
    RunFolder,
    RunFolderError,
    bernoulli,
    fedlaavg,
    naive,
    simulate,
    softmax_cross_entropy,
)
from fedlatest.runs import array_files
from fedlatest.runs.array_files import save_arrays
from fedlatest.runs.metrics import Metrics
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(8, seed=1)
OPTIONS: dict[str, Any] = {
    "rounds": 23,
    "cohort_size": 3,
    "num_local_steps": 2,
    "batch_size": 3,
    "learning_rate": 0.2,
    "evaluate_every": 5,
    "seeds": (4, 9),
}


def run_small(out: Path | None = None, algorithm: Any = None, **options: Any) -> Result:
    pattern = bernoulli(np.full(8, 0.4))
    return simulate(FEDERATION, MODEL, algorithm or fedlaavg(), pattern, out=out, **(OPTIONS | options))


def interrupt_at(round: int) -> Any:
    def listen(progress: Progress) -> None:
        if progress.round == round:
            raise KeyboardInterrupt

    return listen


def without_seconds(metrics: Metrics) -> list[Any]:
    return [row._replace(seconds=0.0) for row in metrics.rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """An uninterrupted run; tests only read its folder."""
    return run_small(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def finished(whole: Result, tmp_path: Path) -> Path:
    """A new folder with a finished run in it."""
    assert whole.folder is not None
    shutil.copytree(whole.folder, tmp_path / "finished")
    return tmp_path / "finished"


def assert_identical(whole: Result, cut: Path) -> None:
    """Assert that two run folders are bit-identical except for the seconds."""
    assert whole.folder is not None
    one, other = RunFolder(whole.folder), RunFolder(cut)
    assert without_seconds(one.metrics()) == without_seconds(other.metrics())
    for ours, theirs in zip(one.participation(), other.participation(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert one.manifest["availability"] == other.manifest["availability"]


@pytest.mark.parametrize("algorithm", [fedlaavg(), naive()], ids=["fedlaavg", "naive"])
def test_interrupted_twice_and_resumed(tmp_path: Path, algorithm: Any) -> None:
    whole = run_small(tmp_path / "whole", algorithm)
    for round in (5, 20):
        with pytest.raises(KeyboardInterrupt):
            run_small(tmp_path / "cut", algorithm, on_progress=interrupt_at(round), resume=round == 20)
        assert not RunFolder(tmp_path / "cut").finished
    run_small(tmp_path / "cut", algorithm, resume=True)
    assert_identical(whole, tmp_path / "cut")


def test_interrupted_before_the_first_checkpoint(whole: Result, tmp_path: Path) -> None:
    """Ctrl-C while nothing but round 0 has been evaluated: the resumed run starts again and writes no row twice."""
    with pytest.raises(KeyboardInterrupt):
        run_small(tmp_path / "cut", on_progress=interrupt_at(0))
    run_small(tmp_path / "cut", resume=True)
    assert_identical(whole, tmp_path / "cut")


@pytest.fixture
def checkpoint_always(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Options that checkpoint after every block, however long writing takes."""
    monkeypatch.setattr("fedlatest.simulation.blocks.CHECKPOINT_SHARE", math.inf)
    return {"checkpoint_seconds": 0.0}


def test_crash_between_participation_and_checkpoint(
    whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint_always: dict[str, float]
) -> None:
    """The participation part of rounds 5 .. 10 is on disk, their checkpoint is not: they are run and recorded again."""

    def die(path: Path, tree: Any, metadata: dict[str, str]) -> None:
        if metadata.get("round") == "10":
            raise KeyboardInterrupt
        save_arrays(path, tree, metadata)

    with monkeypatch.context() as patch:
        patch.setattr("fedlatest.runs.run_folder.save_arrays", die)
        with pytest.raises(KeyboardInterrupt):
            run_small(tmp_path / "cut", **checkpoint_always)
    assert len(list((tmp_path / "cut/participation").glob("*-000000010.npz"))) == 1
    run_small(tmp_path / "cut", resume=True)
    assert_identical(whole, tmp_path / "cut")


def test_incomplete_row_in_the_metrics(whole: Result, tmp_path: Path) -> None:
    """A crash may truncate the last line of metrics.csv; the rows since the checkpoint are written again."""
    with pytest.raises(KeyboardInterrupt):
        run_small(tmp_path / "cut", on_progress=interrupt_at(10))
    with (tmp_path / "cut/metrics.csv").open("a") as file:
        file.write("4,15,1.25,0.7")
    run_small(tmp_path / "cut", resume=True)
    assert_identical(whole, tmp_path / "cut")


def test_kill_minus_9(whole: Result, tmp_path: Path) -> None:
    """A process killed with kill -9, with checkpoints at every block, resumes bit-identically."""
    script = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from tests.simulation.test_resume import run_small
        run_small(Path({str(tmp_path / "cut")!r}), checkpoint_seconds=0.0, on_progress=lambda progress: time.sleep(0.2))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2], env=dict(os.environ))
    metrics = tmp_path / "cut/metrics.csv"
    deadline = time.monotonic() + 120
    while not (metrics.is_file() and len(metrics.read_text().splitlines()) >= 1 + 2 * 3):  # rounds 0, 5, 10
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not RunFolder(tmp_path / "cut").finished
    assert (tmp_path / "cut/checkpoint.safetensors").is_file()
    run_small(tmp_path / "cut", resume=True)
    assert_identical(whole, tmp_path / "cut")


def test_the_result_of_a_finished_run_is_read(whole: Result, finished: Path) -> None:
    again = run_small(finished, resume=True)
    assert without_seconds(again.metrics) == without_seconds(whole.metrics)
    assert again.largest_staleness == whole.largest_staleness
    jax.tree.map(np.testing.assert_array_equal, again.params, whole.params)


def test_a_run_is_not_overwritten(finished: Path) -> None:
    with pytest.raises(RunFolderError, match="finished run; add --resume to continue it or --force"):
        run_small(finished)
    run_small(finished, force=True, rounds=5)
    assert RunFolder(finished).metrics().rounds.tolist() == [0, 5]


def test_another_configuration_is_refused(finished: Path) -> None:
    """The message names the key and both values, and the run is unchanged."""
    before = (finished / "metrics.csv").read_bytes()
    with pytest.raises(RunFolderError, match=r"learning_rate was 0\.2, now 0\.3"):
        run_small(finished, resume=True, learning_rate=0.3)
    with pytest.raises(RunFolderError, match=r"seeds was \[4, 9\], now \[4\]"):
        run_small(finished, resume=True, seeds=(4,))
    assert (finished / "metrics.csv").read_bytes() == before


def test_full_disk_while_checkpointing(
    whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint_always: dict[str, float]
) -> None:
    """ENOSPC at the second checkpoint: a clear error, the first checkpoint intact, and the run resumes from it."""
    calls = []

    def write(path: Path, parts: Any, metadata: Any) -> None:
        calls.append(path)
        path.write_bytes(b"half")
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        genuine(path, parts, metadata)

    genuine = array_files._write_safetensors
    with monkeypatch.context() as patch:
        patch.setattr("fedlatest.runs.array_files._write_safetensors", write)
        with pytest.raises(RunFolderError, match=r"checkpoint\.safetensors: could not be written.*No space left"):
            run_small(tmp_path / "cut", **checkpoint_always)
    assert not list((tmp_path / "cut").glob(".*draft"))
    run_small(tmp_path / "cut", resume=True)
    assert_identical(whole, tmp_path / "cut")


def test_another_availability_or_loss_is_refused(finished: Path) -> None:
    """They are not part of `config`, but they identify the experiment."""
    with pytest.raises(RunFolderError, match="another configuration \\(availability was 'blake2b:"):
        simulate(FEDERATION, MODEL, fedlaavg(), bernoulli(np.full(8, 0.5)), out=finished, resume=True, **OPTIONS)
    other = softmax_cross_entropy._replace(name="mine")
    with pytest.raises(RunFolderError, match="loss was 'softmax_cross_entropy', now 'mine'"):
        run_small(finished, resume=True, loss=other)


def test_killed_while_starting(tmp_path: Path) -> None:
    """A kill may leave a draft of the manifest, or everything but the manifest. A new run may start there."""
    (tmp_path / ".manifest.json.draft").write_text("{")
    (tmp_path / "metrics.csv").write_text("seed,")
    run_small(tmp_path)
    assert RunFolder(tmp_path).finished
    assert not list(tmp_path.glob(".*"))


def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    """A progress callback of the first run tries to resume the same folder, as a second process would."""

    def intrude(progress: Progress) -> None:
        if progress.round == 5:
            with pytest.raises(RunFolderError, match="another process is running here"):
                run_small(tmp_path, resume=True)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_small(tmp_path, on_progress=intrude)
    run_small(tmp_path, resume=True)  # the first has let go
    assert RunFolder(tmp_path).finished


def test_a_resumed_run_may_regroup_its_seeds(whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of seeds that take turns (CPU) continues with batched seeds (GPU), equal to rounding."""
    with pytest.raises(KeyboardInterrupt):
        run_small(tmp_path / "cut", on_progress=interrupt_at(10))
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: True)
    run_small(tmp_path / "cut", resume=True)
    regrouped = RunFolder(tmp_path / "cut").metrics()
    np.testing.assert_allclose(whole.metrics.column("train_loss"), regrouped.column("train_loss"), rtol=1e-4)


@pytest.mark.parametrize("left", ["", "seed,rou", "seed,round,0,1,2\n", "seed,round,0,1,2\n0,0,0.5,0.5,0.5\n0,5,0."])
def test_truncated_labels_file(whole: Result, tmp_path: Path, left: str) -> None:
    """After a kill truncated labels.csv, the resumed run completes it."""
    with pytest.raises(KeyboardInterrupt):
        run_small(tmp_path / "cut", on_progress=interrupt_at(0))
    (tmp_path / "cut/labels.csv").write_text(left)
    run_small(tmp_path / "cut", resume=True)
    assert whole.folder is not None
    one, other = (RunFolder(path).labels() for path in (whole.folder, tmp_path / "cut"))
    assert one is not None
    assert other is not None
    assert one.rounds.tolist() == other.rounds.tolist()
    np.testing.assert_array_equal(one.accuracy, other.accuracy)


def test_force_checks_before_it_deletes(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard is missing, or the configuration cannot be stored: the finished run is kept."""
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[tensorboard\]'"):
        run_small(finished, force=True, tensorboard=True)
    with pytest.raises(ConfigError, match="only numbers, texts"):
        run_small(finished, force=True, config={"where": finished})
    assert RunFolder(finished).finished


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunFolderError, match="cannot hold a run"):
        run_small(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_files_of_the_user_are_never_deleted(tmp_path: Path) -> None:
    """A folder without a manifest is not a run, even if it holds a file with the name of a run's file."""
    (tmp_path / "model.safetensors").write_text("mine")
    for force in (False, True):
        with pytest.raises(RunFolderError, match="not empty and holds no run"):
            run_small(tmp_path, force=force)
    assert (tmp_path / "model.safetensors").read_text() == "mine"


def test_a_locked_folder_cannot_be_deleted(tmp_path: Path) -> None:
    def intrude(progress: Progress) -> None:
        if progress.round == 5:
            with pytest.raises(RunFolderError, match="another process is running here"):
                RunFolder(str(tmp_path)).remove_run()

    run_small(tmp_path, on_progress=intrude)
    assert RunFolder(tmp_path).finished


def test_damaged_files_are_named(finished: Path) -> None:
    (finished / "participation.npz").write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(RunFolderError, match=r"participation\.npz: cannot be read"):
        RunFolder(finished).participation()
    for damage, message in ((b"\xff\xfe", "cannot be read"), (b"[]", "is not a manifest")):
        (finished / "manifest.json").write_bytes(damage)
        with pytest.raises(RunFolderError, match=message):
            _ = RunFolder(finished).manifest


@pytest.mark.parametrize("place", ["round", "first array", "last byte"])
def test_a_flipped_bit_in_a_checkpoint_is_noticed(tmp_path: Path, place: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_small(tmp_path / "cut", on_progress=interrupt_at(20))
    path = tmp_path / "cut" / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    position = {"round": content.index(b'"round": "') + 10, "first array": start, "last byte": len(content) - 1}[place]
    content[position] ^= 1
    path.write_bytes(content)
    before = (tmp_path / "cut" / "metrics.csv").read_bytes()
    with pytest.raises(RunFolderError, match=r"checkpoint\.safetensors: damaged .* start the run again with --force"):
        run_small(tmp_path / "cut", resume=True)
    assert (tmp_path / "cut" / "metrics.csv").read_bytes() == before
    path.write_bytes(content[: start // 2])
    with pytest.raises(RunFolderError, match=r"checkpoint\.safetensors: cannot be read .* start the run again with"):
        run_small(tmp_path / "cut", resume=True)
