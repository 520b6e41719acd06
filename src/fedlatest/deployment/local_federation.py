"""A whole federation on this machine: a SuperLink, nodes, and runs of an app, each a process of its own."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedlatest.deployment.flwr_cli import Run
from fedlatest.deployment.node import Node, Presence
from fedlatest.deployment.process import free_ports, stop_all
from fedlatest.deployment.secrets import Secrets, make_secrets
from fedlatest.deployment.superlink import SuperLink
from fedlatest.errors import ConfigError
from fedlatest.ledger.job_folder import append_event, read_events

STOP_PATIENCE = 4.0


class LocalFederation:
    """Processes of one federation in a folder; a context manager, after which none of them is left.

    The folder holds `job/` (the app's own), `logs/`, `secrets/` with TLS, `superlink/`, `nodes/NAME/state/` (what a
    node keeps) and `deployment.jsonl` (what happened to the processes). A second federation in the same folder goes on:
    registered keys, the nodes' state and the job are still there. Call `look_after` every now and then.
    """

    def __init__(
        self, folder: Path, *, app: Path, num_nodes: int, tls: bool = False, names: Sequence[str] | None = None
    ) -> None:
        self.folder, self.app = folder.absolute(), app.absolute()
        self.names = [f"node{index}" for index in range(num_nodes)] if names is None else list(names)
        if num_nodes < 1 or len(set(self.names)) != num_nodes:
            raise ConfigError(
                f"num_nodes={num_nodes}, names={self.names}: a federation has a node or more, named apart"
            )
        self.job, self.logs, self.log = self.folder / "job", self.folder / "logs", self.folder / "deployment.jsonl"
        self.run: Run | None = None
        self._tls = tls
        self._seen: dict[str, Presence] = {}

    def __enter__(self) -> Self:
        self.job.mkdir(parents=True, exist_ok=True)
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
        """End all processes: politely, then by force. Nodes first, so that the SuperLink hears their farewells."""
        started = [self.run.process] if self.run else []
        nodes = [node.process for node in self.nodes.values() if node.process is not None]
        try:
            stop_all([*started, *nodes], patience=STOP_PATIENCE)
        finally:
            if self.superlink.process is not None:
                stop_all([self.superlink.process], patience=STOP_PATIENCE)
        self.note("stopped")

    def kill_superlink(self, *, down: float = 0.0) -> None:
        """Kill -9 of the SuperLink and its ServerApp, back `down` seconds later. The run is lost, the job is not."""
        self.superlink.kill(down=down)
        self.drop_run()

    def drop_run(self) -> None:
        """Give up a run whose SuperLink has died."""
        if self.run is not None:
            self.run.process.kill()  # it would find out, but later
            self.run = None

    def submit(self, config: Mapping[str, Any]) -> Run:
        """Submit the app with these values of its configuration, and `job`, the folder of the job.

        Runs from before the SuperLink's death are stopped first: one that was still waiting would start now, beside it.
        """
        number = 1 + sum(event["event"] == "submitted" for event in read_events(self.log))
        if number > 1:
            self.superlink.stop_runs()
        log = self.logs / f"run{number}.log"
        self.run = Run(self.superlink, self.app, config={**config, "job": str(self.job)}, log=log)
        self.note("submitted", log=log.name)
        return self.run

    def look_after(self) -> None:
        """Bring back what should be here and is not; note who came and went."""
        self.superlink.look_after()
        self._note_presence("superlink", "here" if self.superlink.ready else "coming")
        for node in self.nodes.values():
            node.look_after()
            self._note_presence(node.name, node.presence)

    def _note_presence(self, who: str, presence: Presence) -> None:
        if presence != self._seen.get(who, "away"):
            self.note("presence", who=who, presence=presence)
        self._seen[who] = presence

    def note(self, event: str, **facts: Any) -> None:
        """Write to `deployment.jsonl`."""
        append_event(self.log, event, **facts)

    def _make_secrets(self) -> Secrets:
        folder = self.folder / "secrets"
        return make_secrets(folder, nodes=[name for name in self.names if name not in Secrets(folder).nodes])

    def _register(self) -> None:
        """Let in the nodes that the SuperLink's database does not know yet."""
        if self.secrets is None:
            return
        known = {event["node"] for event in read_events(self.log) if event["event"] == "registered"}
        new = [name for name in self.names if name not in known]
        with ThreadPoolExecutor(2) as pool:  # a command takes a second, most of it to import Flower
            for name, _ in zip(new, pool.map(self.superlink.register, new), strict=True):
                self.note("registered", node=name)
