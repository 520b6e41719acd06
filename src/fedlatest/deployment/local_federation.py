"""A federation of real processes on this machine: a SuperLink, nodes, and runs of an app."""

import os
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedlatest.deployment import private_files
from fedlatest.deployment.node import Node, NodeState
from fedlatest.deployment.process import free_ports, running_programs, stop_all
from fedlatest.deployment.secrets import Secrets, make_secrets
from fedlatest.deployment.superlink import APP_PROGRAM, Run, SuperLink
from fedlatest.errors import ConfigError
from fedlatest.ledger.event_log import append_event, read_events

STOP_TIMEOUT = 4.0
_CHECK_SECONDS = 1.0  # between two looks at the processes that the SuperLink and the nodes have started


class LocalFederation:
    """The processes of a federation, as a context manager that stops all of them at its end.

    Its folder contains `job/` (for the app), `logs/`, `secrets/` (with TLS), `superlink/`, `nodes/NAME/state/` (the
    client's state folder) and `deployment.jsonl` (the events of the processes). A second federation in the same folder
    continues: it has the same registered keys, client states and job. `ensure_running` has to be called often.

    Args:
        folder: The folder of the federation.
        app: Folder of the Flower app.
        num_nodes: Number of nodes, each with one client; they are named node0, node1, ...
        tls: Use TLS, and accept only nodes with registered keys.
    """

    def __init__(self, folder: Path, *, app: Path, num_nodes: int, tls: bool = False) -> None:
        if num_nodes < 1:
            raise ConfigError(f"num_nodes={num_nodes}: must be at least 1")
        self.folder, self.app = folder.absolute(), app.absolute()
        self.names = [f"node{index}" for index in range(num_nodes)]
        self.job, self.logs, self.log = self.folder / "job", self.folder / "logs", self.folder / "deployment.jsonl"
        self.run: Run | None = None
        self._tls = tls
        self._last_states: dict[str, NodeState] = {}
        self._next_check = 0.0

    def __enter__(self) -> Self:
        for folder in (self.folder, self.job, self.logs, self.folder / "nodes"):
            private_files.make_folder(folder)
        private_files.open_to_append(self.log).close()
        self.secrets = self._make_secrets() if self._tls else None
        link_port, *ports = free_ports(1 + len(self.names))
        self.superlink = SuperLink(
            self.folder / "superlink", port=link_port, secrets=self.secrets, log=self.logs / "superlink.log"
        )
        self.nodes = {
            name: Node(
                name,
                self.folder / "nodes" / name,
                superlink=self.superlink.address,
                port=port,
                secrets=self.secrets,
                log=self.logs / f"{name}.log",
                config={"partition-id": index, "num-partitions": len(self.names)},
            )
            for index, (name, port) in enumerate(zip(self.names, ports, strict=True))
        }
        try:
            self.superlink.wait_until_ready()
            self._register()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all processes: first the nodes, so that they can sign off at the SuperLink."""
        runs = [self.run.process] if self.run else []
        for node in self.nodes.values():
            node.resume()
        nodes = [node.process for node in self.nodes.values() if node.process is not None]
        try:
            stop_all([*runs, *nodes], timeout=STOP_TIMEOUT)
        finally:
            if self.superlink.process is not None:
                stop_all([self.superlink.process], timeout=STOP_TIMEOUT)
        self.log_event("stopped")

    def kill_superlink(self, *, down: float = 0.0) -> None:
        """Kill the SuperLink and its ServerApp; it restarts after `down` seconds. The run is lost, but not the job."""
        self.superlink.kill(down=down)
        self.drop_run()

    @property
    def app_processes(self) -> list[int]:
        """The ids of the processes of ServerApps."""
        if self.superlink.process is None:
            return []
        [programs] = running_programs([self.superlink.process])
        return [pid for pid, name in programs.items() if name == APP_PROGRAM]

    def kill_app(self) -> None:
        """Kill the ServerApp, but not its SuperLink."""
        for pid in self.app_processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def drop_run(self) -> None:
        """End the run, because its SuperLink or its ServerApp is lost."""
        if self.run is not None:
            self.run.process.kill()  # it would notice only later
            self.run = None

    def submit(self, config: Mapping[str, Any]) -> Run:
        """Submit a run of the app with these values of its run config, to which `job` is added.

        Earlier runs are stopped first: one that was waiting when the SuperLink was lost would start now.
        """
        number = 1 + sum(event["event"] == "submitted" for event in read_events(self.log))
        if number > 1:
            self.superlink.stop_runs()
        log = self.logs / f"run{number}.log"
        self.run = Run(
            self.superlink,
            self.app,
            config={**config, "job": str(self.job)},
            log=log,
            earlier_apps=self.app_processes,
        )
        self.log_event("submitted", log=log.name)
        return self.run

    def ensure_running(self) -> None:
        """Restart processes that should run and do not, and log changes of their states."""
        self.superlink.ensure_running()
        self._log_state("superlink", "online" if self.superlink.ready else "connecting")
        for node in self.nodes.values():
            node.ensure_running()
            self._log_state(node.name, node.state)
        if time.monotonic() >= self._next_check:
            self._check_programs()
            self._next_check = time.monotonic() + _CHECK_SECONDS

    def _check_programs(self) -> None:
        """Look for processes that Flower does not restart: the ServerApp and the executors."""
        nodes = [node for node in self.nodes.values() if node.process is not None]
        link = self.superlink.process
        processes = [process for process in (link, *(node.process for node in nodes)) if process is not None]
        programs = dict(zip([process.pid for process in processes], running_programs(processes), strict=True))
        if self.run is not None and link is not None:
            self.run.watch_app([pid for pid, name in programs[link.pid].items() if name == APP_PROGRAM])
        if link is not None and self.superlink.check_executor(programs[link.pid].values()):
            self.log_event("restarted", who="superlink", why="its executor has ended")
            self.kill_superlink()
        for node in nodes:
            if node.process is not None and node.check_executor(programs[node.process.pid].values()):
                self.log_event("restarted", who=node.name, why="its executor has ended")

    def _log_state(self, name: str, state: NodeState) -> None:
        if state != self._last_states.get(name, "offline"):
            self.log_event("presence", who=name, presence=state)
        self._last_states[name] = state

    def log_event(self, event: str, **facts: Any) -> None:
        """Append an event to `deployment.jsonl`."""
        append_event(self.log, event, **facts)

    def _make_secrets(self) -> Secrets:
        folder = self.folder / "secrets"
        return make_secrets(folder, nodes=[name for name in self.names if name not in Secrets(folder).nodes])

    def _register(self) -> None:
        """Register the keys of nodes that are not in the SuperLink's database yet."""
        if self.secrets is None:
            return
        known = {event["node"] for event in read_events(self.log) if event["event"] == "registered"}
        new = [name for name in self.names if name not in known]
        with ThreadPoolExecutor(2) as pool:  # a command takes about a second, mostly to import Flower
            for name, _ in zip(new, pool.map(self.superlink.register, new), strict=True):
                self.log_event("registered", node=name)
