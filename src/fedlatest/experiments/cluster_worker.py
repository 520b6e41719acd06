"""What a worker of a Dask cluster does: check that it can run experiments, and run a batch of them.

`cluster_runs` sends the requests, which are plain data.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jax
from distributed import Reschedule, Worker, get_worker
from distributed.core import Status

from fedlatest.errors import ClusterError, FedlatestError, RunFolderInUseError
from fedlatest.experiments import RECIPES
from fedlatest.experiments.experiment import FederationBuilder
from fedlatest.experiments.parallel_runs import Batch, run_batch
from fedlatest.paths import data_folder
from fedlatest.version import __version__

VISIBLE_SECONDS = 5  # a file system may show a new file to other machines a little later
LOCKED_SECONDS = 60  # how long a run folder may be in use by a worker that is about to stop
LOCK_SECONDS = 1  # between two attempts to use it
REPORT_SECONDS = 0.2  # shortest time between two reports of a batch
RUNNING, ENDED = "running", "ended"  # kinds of messages


def run_on_worker(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run one batch on a worker of a Dask cluster; called by Dask.

    Args:
        request: plain data, made by `Cluster.run`.

    Returns:
        The number of rounds and the experiments that diverged, or an error as text.
    """
    worker = get_worker()
    key, address = worker.get_current_task(), worker.address
    reported = 0.0

    def send(kind: str, round: int = 0) -> None:
        worker.log_event(
            request["topic"], {"kind": kind, "number": request["number"], "round": round, "worker": address}
        )

    def report(round: int) -> None:
        nonlocal reported
        if time.monotonic() - reported >= REPORT_SECONDS:
            reported = time.monotonic()
            send(RUNNING, round)
        if _is_cancelled(worker, key) or worker.status not in (Status.running, Status.paused):
            raise KeyboardInterrupt  # writes a checkpoint

    try:
        if problem := _problem(request):
            return {"error": problem, "worker": address}
        _use_device(request["device"])
        builder = _builder(request["source"]["recipe"], _folder(request["source"]))
        batch = Batch.from_plain(request["batch"])
        rounds, diverged = _run_when_unlocked(batch, builder, request, report)
    except KeyboardInterrupt:
        if _is_cancelled(worker, key):
            return {}  # no process reads the result
        raise Reschedule from None  # this worker is closing; another one continues from the checkpoint
    except (FedlatestError, OSError) as error:
        return {"error": str(error), "worker": address}
    finally:
        send(ENDED)
    return {"rounds": rounds, "diverged": diverged}


def describe_worker(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return why this worker cannot run experiments, or None, and whether it has an accelerator."""
    return {"problem": _problem(shared), "accelerator": _has_accelerator()}


def _run_when_unlocked(
    batch: Batch, builder: FederationBuilder, request: Mapping[str, Any], report: Callable[[int], None]
) -> tuple[int, dict[str, str]]:
    """Run a batch; first wait until another worker, which is stopping or was lost, no longer writes to its folders."""
    deadline = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            return run_batch(batch, builder, request["seeds"], report, log=request["log"])
        except RunFolderInUseError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOCK_SECONDS)
            report(0)  # raises KeyboardInterrupt if the batch was cancelled


def _folder(source: Mapping[str, Any]) -> Path | None:
    """Return the folder of the data: that of --data, or else the FEDLATEST_DATA of this worker or of the command."""
    if source["folder"] or not RECIPES[source["recipe"]].reads_files:
        return Path(source["folder"]) if source["folder"] else None
    return data_folder(None) or data_folder(source["default"])


@lru_cache(maxsize=1)
def _builder(recipe: str, folder: Path | None) -> FederationBuilder:
    """Return a data set, which a worker keeps for its next batch."""
    return FederationBuilder(RECIPES[recipe].load(folder))


def _is_cancelled(worker: Worker, key: Any) -> bool:
    """Return whether a task was cancelled, or its client has gone."""
    task = worker.state.tasks.get(key)
    return task is None or task.state == "cancelled"


def _use_device(device: str | None) -> None:
    """Use the CPU if asked to; there, one thread per worker, because a worker is meant to have one core.

    Raises:
        ClusterError: JAX already uses another kind of device, for an earlier command.
    """
    uses_cpu = device == "cpu" or not _has_accelerator()
    if uses_cpu:
        os.environ.setdefault("NPROC", "1")
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
        changed = jax.default_backend() != "cpu"
    else:
        changed = not uses_cpu and jax.config.values["jax_platforms"] == "cpu"
    if changed:
        raise ClusterError("JAX already uses another kind of device, for an earlier command; restart the worker")


def _has_accelerator() -> bool:
    """Return whether JAX would use an accelerator; does not start JAX."""
    return bool(entry_points(group="jax_plugins")) and os.environ.get("JAX_PLATFORMS") != "cpu"


def _problem(shared: Mapping[str, Any]) -> str | None:
    """Return why this worker cannot run experiments, or None."""
    if shared["version"] != __version__:
        return f"has fedlatest {__version__}, the command {shared['version']}; install the same version"
    path, deadline = Path(shared["path"]), time.monotonic() + VISIBLE_SECONDS
    while not _is_visible(path):
        if time.monotonic() > deadline:
            return (
                f"does not see {path.parent} of the machine that runs the command; workers write run folders, so "
                "--out must be on a file system that all machines share"
            )
        time.sleep(0.2)
    return None


def _is_visible(path: Path) -> bool:
    with suppress(OSError):
        os.listdir(path.parent)  # noqa: PTH208  refreshes what a network file system remembers of the folder
        return path.is_file()
    return False
