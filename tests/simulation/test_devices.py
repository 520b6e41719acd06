"""Several devices and several processes give what one device gives, to rounding, and divide the memory."""

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import ConfigError, RunFolder, bernoulli, fedlaavg, simulate, softmax_cross_entropy
from fedlatest.algorithms import ALGORITHMS
from fedlatest.data.features import Words
from fedlatest.simulation.evaluation import evaluate, tally
from tests.problems import MODEL, small_federation
from tests.simulation.device_runs import finish, start

Arrays = Mapping[str, np.ndarray[Any, Any]]


def load(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as file:
        return dict(file)


def assert_close(one: Arrays, several: Arrays) -> None:
    """Assert that arrays are equal: whole numbers and decisions exactly, numbers to a few units of rounding."""
    assert set(one) == set(several)
    for name, value in one.items():
        if np.issubdtype(value.dtype, np.floating):
            np.testing.assert_allclose(several[name], value, rtol=2e-5, atol=2e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(several[name], value, err_msg=name)


def part(arrays: Arrays, prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


# Among them, these have fresh, remembered and private parts, offsets, a brief and an action after the merge.
SOME = ("fedlaavg", "fedawe", "scaffold")


def save_rounds(folder: Path, *names: str) -> Arrays:
    """Return the rounds of some algorithms on one, two and, for some of them, four devices."""
    finish(start("algorithms", str(folder / "rounds.npz"), *names, num_devices=4))
    return load(folder / "rounds.npz")


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    """The rounds of the algorithms in SOME."""
    return save_rounds(tmp_path_factory.mktemp("devices"), *SOME)


def assert_same_on_two_devices(rounds: Arrays, name: str) -> None:
    one = part(rounds, f"{name}/1/")
    assert np.abs(one["state.server.params.weight"]).max() > 0
    assert_close(one, part(rounds, f"{name}/2/"))


@pytest.mark.parametrize("name", SOME)
def test_two_devices_give_the_same_as_one(rounds: Arrays, name: str) -> None:
    """7 clients and cohorts of 3: cohorts, client states and server state after 6 rounds."""
    assert_same_on_two_devices(rounds, name)


@pytest.mark.slow
def test_every_algorithm_gives_the_same_on_two_devices(tmp_path: Path) -> None:
    others = [name for name in ALGORITHMS if name not in SOME]
    rounds = save_rounds(tmp_path, *others)
    for name in others:
        assert_same_on_two_devices(rounds, name)


@pytest.mark.parametrize("name", ["fedlaavg", "fedawe"])
def test_four_devices(rounds: Arrays, name: str) -> None:
    """Four devices hold 2, 2, 2 and 1 of 7 clients, and one of them has no slot of a cohort of 3 to train."""
    assert_close(part(rounds, f"{name}/1/"), part(rounds, f"{name}/4/"))


@pytest.mark.slow
def test_augmentation_does_not_depend_on_the_devices(tmp_path: Path) -> None:
    finish(start("augmented", str(tmp_path / "augmented.npz"), num_devices=2))
    found = load(tmp_path / "augmented.npz")
    assert_close(part(found, "1/"), part(found, "2/"))
    weight = "state.server.params.weight"
    assert not np.allclose(found[f"0/{weight}"], found[f"1/{weight}"], rtol=1e-2)


def test_programs_that_draw_batches_and_read_their_samples_at_once_can_be_compiled() -> None:
    """LLVM's time is exponential if the shuffle is computed in the loop that reads the samples."""
    assert finish(start("fused", num_devices=2)) == "trained on 1\ntrained on 2\n"


@pytest.mark.slow
def test_trials_that_are_batched_in_one_program(tmp_path: Path) -> None:
    finish(start("trials", str(tmp_path / "trials.npz"), num_devices=2))
    found = load(tmp_path / "trials.npz")
    assert found["1/state.round"].shape == (2,)
    assert_close(part(found, "1/"), part(found, "2/"))


@pytest.mark.slow
def test_each_device_holds_its_part(tmp_path: Path) -> None:
    """7 clients: 4 rows on each of two devices. The longer part of the samples is that of 4 or of 3 clients."""
    rows, samples, sizes = (
        list(map(int, line.split())) for line in finish(start("layout", num_devices=2)).splitlines()
    )
    assert rows == [4, 4, 7]
    longer = max(sum(sizes[:4]), sum(sizes[4:]))
    assert samples == [longer, longer, sum(sizes)]
    assert longer < sum(sizes)


def without_seconds(folder: Path) -> list[Any]:
    return [row._replace(seconds=0.0) for row in RunFolder(folder).metrics().rows]


def assert_metrics_close(one: Path, other: Path) -> None:
    ours, theirs = without_seconds(one), without_seconds(other)
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    np.testing.assert_allclose(
        np.array([row[3:7] for row in theirs], float), np.array([row[3:7] for row in ours], float), rtol=1e-4, atol=1e-5
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run on two devices."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start("run", str(folder), "2", "0", "new", num_devices=2))
    return folder


def test_an_interrupted_run_resumes_on_two_devices_bit_identically(whole: Path, tmp_path: Path) -> None:
    assert finish(start("run", str(tmp_path), "2", "4", "new", num_devices=2)) == "interrupted\n"
    assert (tmp_path / "checkpoint.safetensors").is_file()
    finish(start("run", str(tmp_path), "2", "0", "resume", num_devices=2))
    assert without_seconds(tmp_path) == without_seconds(whole)
    assert (tmp_path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert RunFolder(tmp_path).manifest["device"]["count"] == 2


@pytest.mark.slow
def test_an_interrupted_run_resumes_on_another_number_of_devices(whole: Path, tmp_path: Path) -> None:
    """A checkpoint holds one row per client, however they are divided; the manifest says what was used."""
    finish(start("run", str(tmp_path), "2", "4", "new", num_devices=2))
    finish(start("run", str(tmp_path), "1", "0", "resume"))
    assert_metrics_close(whole, tmp_path)
    assert [changed["device"].get("count") for changed in RunFolder(tmp_path).manifest["resumed_with"]] == [None]


def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return f"localhost:{listener.getsockname()[1]}"


@pytest.mark.slow
def test_two_processes(whole: Path, tmp_path: Path) -> None:
    """Two processes with a device each; the first stops both, and both resume; only the first writes files."""
    for stop, resume in (("4", "new"), ("0", "resume")):
        address = free_address()
        both = [start("process", str(n), address, str(tmp_path / "run"), "0", stop, resume) for n in range(2)]
        printed = [finish(process).splitlines()[-1] for process in both]
        assert printed[0] == printed[1]
        assert printed[0].startswith("interrupted" if resume == "new" else "final accuracy")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert RunFolder(tmp_path / "run").finished
    assert_metrics_close(whole, tmp_path / "run")
    again = [
        start("process", str(n), free, str(tmp_path / "run"), "0", "0", "resume")
        for free in [free_address()]
        for n in range(2)
    ]
    assert [finish(process).splitlines()[-1] for process in again] == printed  # both receive the finished run's result


@contextmanager
def two_endless_processes(*arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start two processes that run one simulation for ever; wait until both train, and kill them at the end."""
    address = free_address()
    both = [start("endless", str(number), address, *arguments) for number in range(2)]
    try:
        for process in both:
            assert process.stdout is not None
            while "training" not in (line := process.stdout.readline()):
                assert line, process.communicate()[1][-2000:]
        yield both
    finally:
        for process in both:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("killed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_process_that_dies_ends_the_other(killed: int) -> None:
    """kill -9: the other process ends within a minute with a message instead of waiting for ever."""
    with two_endless_processes() as both:
        both[killed].kill()
        started = time.monotonic()
        _, err = both[1 - killed].communicate(timeout=120)
        assert time.monotonic() - started < 60
        assert both[1 - killed].returncode != 0
        assert "another process of this simulation has ended" in err or "another task died" in err


@pytest.mark.parametrize("signalled", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_sigterm_of_one_process_stops_both_at_a_checkpoint(signalled: int, tmp_path: Path) -> None:
    with two_endless_processes(str(tmp_path / "run")) as both:
        both[signalled].terminate()
        printed = [finish(process).splitlines()[-1] for process in both]
    assert printed[0] == printed[1]
    assert printed[0] == f"stopped after round {RunFolder(tmp_path / 'run').rounds_done}"
    assert (tmp_path / "run/checkpoint.safetensors").is_file()


def test_too_few_devices() -> None:
    with pytest.raises(ConfigError, match=r"devices=2: JAX finds 1 cpu device\(s\); start Python with JAX_NUM_CPU_DEV"):
        simulate(small_federation(6), MODEL, fedlaavg(), bernoulli(np.full(6, 0.5)), rounds=1, cohort_size=2, devices=2)


def test_padded_samples_do_not_count() -> None:
    """tally over 5 rows of which 3 are real = evaluate over the 3; texts are sorted by length with their padding."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(5, 4)).astype(np.float32), np.array([0, 1, 2, 0, 0])
    params = {"weight": rng.normal(size=(3, 4)).astype(np.float32), "bias": np.zeros(3, np.float32)}
    few = evaluate(MODEL.apply, softmax_cross_entropy, params, features[:3], jnp.array(labels[:3]), num_labels=3)
    total = tally(
        MODEL.apply, softmax_cross_entropy, params, features, jnp.array(labels), num_labels=3, num_real=jnp.int32(3)
    )
    np.testing.assert_allclose(total.loss / 3, few.loss, rtol=1e-6)
    assert float(total.accuracy) == pytest.approx(3 * float(few.accuracy))
    np.testing.assert_array_equal(total.num_correct, few.num_correct)

    words = Words(np.array([[1, 2], [1, 0], [2, 2], [0, 0]], np.int32), np.array([2, 1, 2, 0], np.int32))
    table = np.array([[0.0], [1.0], [3.0]], np.float32)
    sums = tally(
        lambda params, texts: jnp.sum(texts.vectors, axis=(1, 2))[:, None] + params, softmax_cross_entropy,
        jnp.array([0.0, 1.0]), words, jnp.array([1, 1, 0, 1]), table=jnp.array(table), num_labels=2,
        num_real=jnp.int32(3),
    )  # fmt: skip
    assert sums.num_correct.tolist() == [0.0, 2.0]  # the model always answers 1; the last text is padding
