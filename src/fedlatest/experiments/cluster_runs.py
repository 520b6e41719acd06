"""Running batches on a Dask cluster; `cluster_worker` has the functions that the workers call.

Dask (the extra `cluster`) distributes the batches and repeats them when a worker dies. The messages are plain data: the
name of a recipe, values, seeds and paths. A worker loads the data itself and writes the run folders, which must be on a
file system that it shares with this process; a repeated batch continues from its checkpoints.
"""

import asyncio
import concurrent.futures
import logging
import os
import queue
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedlatest.errors import ClusterError, FedlatestError, MissingExtraError

try:
    from distributed import Client, Future, KilledWorker, LocalCluster
    from distributed.comm.addressing import parse_address
    from distributed.comm.registry import get_backend
except ModuleNotFoundError:
    raise MissingExtraError("--cluster", "cluster") from None

from fedlatest.experiments.cluster_worker import ENDED, RUNNING, describe_worker, run_on_worker
from fedlatest.experiments.parallel_runs import Batch, BatchCallback, BatchProgress
from fedlatest.experiments.process_runs import stop_signals_blocked
from fedlatest.paths import DATA
from fedlatest.version import __version__

LOCAL = "local"  # the address of a cluster that is started for one command
CONNECT_SECONDS = 5
DONE = "done"  # a kind of message, besides those of cluster_worker


class DataSource(NamedTuple):
    """Where a worker finds the data: a recipe, and the folder that a user gave with --data."""

    recipe: str
    folder: Path | None

    def to_plain(self) -> dict[str, Any]:
        """Return the source as plain text; `default` is the FEDLATEST_DATA of this process, for workers without one."""
        default = os.environ.get(DATA)
        return {
            "recipe": self.recipe,
            "folder": None if self.folder is None else str(self.folder.resolve()),
            "default": None if default is None else str(Path(default).resolve()),
        }


class Cluster:
    """A connected Dask cluster; made by `connect`."""

    def __init__(self, client: Client, address: str, device: str | None) -> None:
        self.client, self.address, self.device = client, address, device

    @property
    def workers(self) -> dict[str, Any]:
        """The workers that are connected to the scheduler now, by address."""
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    @property
    def notes(self) -> list[str]:
        """Messages for the user about the workers."""
        workers = self.workers
        if not workers:
            return [f"no worker is connected to {self.address} yet; start some with `dask worker {self.address}`"]
        threads = {name: facts["nthreads"] for name, facts in workers.items() if facts["nthreads"] > 1}
        return [
            f"worker {name} has {number} threads and runs as many experiments in one process, which is slow on a CPU; "
            f"start it with --nworkers {number} --nthreads 1"
            for name, number in threads.items()
        ]

    def check(self, folder: Path) -> bool:
        """Check the workers that are connected; others are checked when they get their first batch.

        Args:
            folder: the folder of the run folders, which all workers must see.

        Returns:
            Whether all of them have an accelerator, so that experiments should share programs.

        Raises:
            ClusterError: a worker has another version of fedlatest, or does not see the folder.
        """
        with _shared_file(folder) as shared:
            found = self.client.run(describe_worker, shared, on_error="return")
        for worker, answer in found.items():
            if isinstance(answer, BaseException):
                raise ClusterError(
                    f"worker {worker} cannot import fedlatest ({answer}); install fedlatest {__version__} there"
                )
            if answer["problem"]:
                raise ClusterError(f"worker {worker}: {answer['problem']}")
        return self.device != "cpu" and bool(found) and all(answer["accelerator"] for answer in found.values())

    def run(
        self,
        batches: Sequence[Batch],
        source: DataSource,
        seeds: Sequence[int],
        on_progress: BatchCallback,
        *,
        on_idle: Callable[[], None] = lambda: None,
        log: Sequence[str] = (),
    ) -> None:
        """Run batches on the workers; runs that already have a checkpoint are resumed.

        Args:
            batches: what to run; a worker runs one batch at a time per thread.
            source: where the workers find the data.
            seeds: the seeds of every experiment.
            on_progress: called in this process with the progress of the batches.
            on_idle: called every second without progress; may raise KeyboardInterrupt as `on_progress` may.
            log: names of loggers; see `fedlatest.runs.loggers`.

        Raises:
            ClusterError: a batch was on too many workers that died, or the scheduler was lost.
            FedlatestError: a worker reported an error.
        """
        if not batches:
            return
        with _shared_file(batches[0].folders[0].parent) as shared:
            request = {
                **shared,
                "source": source.to_plain(),
                "seeds": list(seeds),
                "device": self.device,
                "log": list(log),
            }
            _Job(self, batches, request, on_progress, on_idle).run()


@contextmanager
def connect(address: str, *, num_workers: int, device: str | None = None) -> Iterator[Cluster]:
    """Connect to a Dask scheduler, or start a scheduler and workers on this machine.

    Args:
        address: such as tcp://host:8786, or "local".
        num_workers: number of worker processes of a local cluster.
        device: "cpu" if the workers must not use accelerators, else None or "gpu".

    Raises:
        ClusterError: no scheduler answers at the address.
    """
    if address == LOCAL:
        with _local_cluster(num_workers) as local, Client(local, set_as_default=False) as client:
            yield Cluster(client, LOCAL, device)
    else:
        with _client(address) as client:
            yield Cluster(client, address, device)


def check_address(address: str) -> None:
    """Raise ClusterError if no scheduler answers at the address."""
    if address != LOCAL:
        _client(address).close()


def _client(address: str) -> Client:
    try:
        get_backend(parse_address(address)[0])  # raises ValueError if the scheme is unknown
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # OSError: also a timeout
        raise ClusterError(
            f"--cluster {address}: no Dask scheduler answers there ({error}); start one with `dask scheduler` and "
            "give the address that it prints, such as tcp://host:8786"
        ) from None


@contextmanager
def _local_cluster(num_workers: int) -> Iterator[Any]:
    with stop_signals_blocked():  # Ctrl-C is sent to all processes of a terminal; only this one handles it
        cluster = LocalCluster(
            n_workers=num_workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,  # Dask would kill a worker that uses more than its share of the memory
            dashboard_address="localhost:0",  # any free port; None would take 8787 and warn if it is in use
            silence_logs=logging.CRITICAL,
        )
    try:
        yield cluster
    finally:
        cluster.close()


class _Job:
    """One call of `Cluster.run`."""

    def __init__(
        self,
        cluster: Cluster,
        batches: Sequence[Batch],
        request: Mapping[str, Any],
        on_progress: BatchCallback,
        on_idle: Callable[[], None],
    ) -> None:
        self.cluster, self.client, self.batches = cluster, cluster.client, batches
        self.on_progress, self.on_idle = on_progress, on_idle
        self.topic = f"fedlatest-{secrets.token_hex(8)}"
        self.request = {**request, "topic": self.topic}
        self.messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.running: dict[int, str] = {}  # number of a batch -> its worker
        self.last_worker: dict[int, str] = {}
        self.unfinished = set(range(len(batches)))

    def run(self) -> None:
        """Run all batches; on any exception, ask the workers to write checkpoints and stop, and wait for them."""
        self.client.subscribe_topic(self.topic, lambda event: self.messages.put(event[1]))
        futures = [self._submit(number, batch) for number, batch in enumerate(self.batches)]
        try:
            while self.unfinished:
                self._handle(self._next_message())
        except BaseException:
            self._stop(futures)
            raise
        finally:
            self.client.unsubscribe_topic(self.topic)

    def _submit(self, number: int, batch: Batch) -> Future[Any]:
        absolute = batch._replace(folders=tuple(folder.resolve() for folder in batch.folders))
        request = {**self.request, "number": number, "batch": absolute.to_plain()}
        key = f"{self.topic}-{number}"
        future = self.client.submit(run_on_worker, request, key=key, pure=False, priority=-number)
        future.add_done_callback(lambda ended: self.messages.put({"kind": DONE, "number": number, "future": ended}))
        return future

    def _next_message(self) -> dict[str, Any]:
        while True:
            with suppress(queue.Empty):
                return self.messages.get(timeout=1)
            if self.client.status not in ("running", "connecting"):
                raise ClusterError(self._lost())
            self.on_idle()

    def _handle(self, message: Mapping[str, Any]) -> None:
        number = message["number"]
        if number not in self.unfinished:
            return  # sent before the result and received after it
        if message["kind"] == RUNNING:
            worker, round, previous = message["worker"], message["round"], self.last_worker.get(number)
            self.running[number] = self.last_worker[number] = worker
            note = ""
            if previous not in (None, worker):
                note = f"{self._names(number)}: worker {previous} was lost; {worker} continues from round {round}"
            self.on_progress(BatchProgress(number, round, note=note))
        elif message["kind"] == ENDED:
            self._note_end(message)
        else:
            result = self._result(number, message["future"])
            self.unfinished.remove(number)
            self.on_progress(BatchProgress(number, result["rounds"], True, result["diverged"]))

    def _result(self, number: int, future: Future[Any]) -> dict[str, Any]:
        try:
            result: dict[str, Any] = future.result()
        except KilledWorker as error:
            raise ClusterError(
                f"{self._names(number)}: {error.allowed_failures + 1} workers died while they ran it (out of memory?); "
                "look at their logs, then run the same command again to resume from the last checkpoint"
            ) from None
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            raise ClusterError(self._lost()) from None
        if "error" in result:
            raise FedlatestError(f"{result['error']} (on worker {result['worker']})")
        return result

    def _stop(self, futures: Sequence[Future[Any]]) -> None:
        """Cancel the batches, which makes their workers write checkpoints, and wait until they have."""
        if self.client.status != "running":
            return
        self.client.cancel(list(futures), force=True)
        while self.running:
            with suppress(queue.Empty):
                message = self.messages.get(timeout=1)
                if message["kind"] == ENDED:
                    self._note_end(message)
                continue
            connected = self.cluster.workers
            self.running = {number: worker for number, worker in self.running.items() if worker in connected}

    def _note_end(self, message: Mapping[str, Any]) -> None:
        """Note that a worker no longer runs a batch; a worker that was lost may end after another one has begun."""
        if self.running.get(message["number"]) == message["worker"]:
            del self.running[message["number"]]

    def _lost(self) -> str:
        return (
            f"the connection to the scheduler at {self.cluster.address} was lost; run the same command again to resume "
            "from the last checkpoints"
        )

    def _names(self, number: int) -> str:
        first, *others = (experiment.name for experiment in self.batches[number].experiments)
        return f"{first} and {len(others)} more" if others else first


@contextmanager
def _shared_file(folder: Path) -> Iterator[dict[str, Any]]:
    """Create a file that every worker must see; yield what a worker needs to check that."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / f".fedlatest-cluster-{secrets.token_hex(8)}"
    path.write_text("Workers of a Dask cluster check with this file whether they share this folder.\n")
    try:
        yield {"path": str(path), "version": __version__}
    finally:
        path.unlink(missing_ok=True)
