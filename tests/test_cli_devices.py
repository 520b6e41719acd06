"""`fedlatest run` on several devices and in several processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedlatest import RunFolder
from tests.command_line import fedlatest_here

FIRST_PORT, NUM_PORTS = 65536 - 4096, 4096  # JAX derives the coordinator's port from the number of the Slurm job
ARGUMENTS = (
    "run",
    "mnist",
    "--rounds",
    "4",
    "--set",
    "num_clients=10",
    "--set",
    "participation=0.3",
    "--device",
    "cpu",
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--devices", "0"), "--devices 0: must be a whole number of at least 1, or all"),
        (("--devices", "some"), "--devices some: must be a whole number of at least 1, or all"),
        (("--hosts", "two"), "--hosts two: give the number of hosts, or auto under Slurm or Open MPI"),
        (("--hosts", "2"), "--hosts: also give --host-id (0, 1, ...) and --coordinator"),
        (("--host-id", "1"), "--host-id, --coordinator: only with --hosts N"),
        (("--hosts", "2", "--host-id", "1", "--coordinator", "node1"), "--coordinator node1: give ADDRESS:PORT"),
    ],
)
def test_user_errors(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = fedlatest_here("run", "quickstart", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.slow
def test_two_devices_and_two_slurm_tasks_give_the_same(small_mnist: Path, tmp_path: Path) -> None:
    """One process with two devices; then two processes that connect by the variables that srun sets."""
    start = [sys.executable, "-m", "fedlatest", *ARGUMENTS]
    environment = {name: value for name, value in os.environ.items() if name not in ("NPROC", "FEDLATEST_DATA")}
    environment["FEDLATEST_DATA"] = str(small_mnist)
    subprocess.run(
        [*start, "--devices", "2", "--out", "devices"],
        cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    job = free_slurm_job()
    tasks = [
        subprocess.Popen(
            [*start, "--hosts", "auto", "--out", "tasks"],
            cwd=tmp_path, env={**environment, **slurm_variables(job, task)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for task in range(2)
    ]  # fmt: skip
    printed = [task.communicate(timeout=300) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], printed
    assert "figure: tasks/figure.png" in printed[0][0]
    assert "figure:" not in printed[1][0]
    assert printed[1][1] == ""
    ours, theirs = (RunFolder(tmp_path / name) for name in ("devices", "tasks"))
    assert ours.manifest["device"]["count"] == theirs.manifest["device"]["count"] == 2
    for column in ("train_loss", "test_accuracy", "max_staleness"):
        np.testing.assert_allclose(theirs.metrics().column(column), ours.metrics().column(column), rtol=1e-5)


def free_slurm_job() -> int:
    """Return the number of a job whose port is free."""
    for job in range(os.getpid() % NUM_PORTS, os.getpid() % NUM_PORTS + 100):
        with socket.socket() as listener:
            try:
                listener.bind(("", FIRST_PORT + job % NUM_PORTS))
            except OSError:
                continue
            return job
    raise AssertionError("no free port")


def slurm_variables(job: int, task: int) -> dict[str, str]:
    return {
        "SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_PROCID": str(task),
        "SLURM_LOCALID": str(task), "SLURM_STEP_NUM_NODES": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        "arena --workers 1 --availability diurnal-time --hours 0.05 --algorithms fedbuff --trials 1 --seeds 1 "
        "--set num_clients=20 --device cpu --out arena",
        "sweep digits --over training_seconds=5,10 --rounds 2 --workers 1 --device cpu --out sweep",
    ],
    ids=["arena", "sweep"],
)
def test_the_device_is_chosen_before_jax_is_used(command: str, tmp_path: Path) -> None:
    """JAX is told to use a platform that does not exist here: only --device cpu makes the command work."""
    done = subprocess.run(
        [sys.executable, "-m", "fedlatest", *command.split()],
        cwd=tmp_path, env={**os.environ, "JAX_PLATFORMS": "absent"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
