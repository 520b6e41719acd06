"""A node: Flower's SuperNode process of one client, which is restarted when it ends."""

import math
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from fedlatest.deployment import private_files
from fedlatest.deployment.flwr_cli import ExecutorWatch, environment, program, toml
from fedlatest.deployment.process import HOST, Process, tail
from fedlatest.deployment.secrets import Secrets

NodeState = Literal["online", "connecting", "offline", "killed", "refused", "paused"]
RETRY_SECONDS = 5.0  # after a kill -9, Flower believes the node online and refuses its successor for up to 60 s
_CONNECTED = "SuperNode ID:"  # in the log of a SuperNode that the SuperLink has accepted


class Node:
    """A node on this machine.

    `bring_online` and `take_offline` set the wanted state; `ensure_running`, which has to be called often, starts the
    process where it is wanted.

    Args:
        name: Name of the node and of its client.
        folder: Folder for the client's state and Flower's configuration.
        superlink: Host and port of the SuperLink.
        port: A free port for the node's own use.
        secrets: Certificates and keys; None for a connection without TLS.
        log: File for its output.
        config: Values of the node config, to which `name` and `state-dir` are added.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        superlink: str,
        port: int,
        secrets: Secrets | None,
        log: Path,
        config: Mapping[str, Any],
    ) -> None:
        self.name, self.log = name, log
        self.wanted = False
        self.process: Process | None = None
        self.last_output = ""  # of the previous process
        self._home, self._superlink, self._port, self._secrets = folder / "flwr", superlink, port, secrets
        self._connected, self._stopping = False, False
        self._not_before = 0.0
        self._resume_at = math.inf
        self._executor = ExecutorWatch()
        self._state_when_down: NodeState = "offline"
        state = folder / "state"
        private_files.make_folder(folder)
        private_files.make_folder(state)
        self._config = folder / "node.toml"
        private_files.write(self._config, toml({**config, "name": name, "state-dir": str(state)}))

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.alive

    @property
    def state(self) -> NodeState:
        """The state of the node.

        `connecting`: started but not accepted yet. `refused`: not accepted, and will be started again.
        `paused`: all its processes are stopped and will continue.
        """
        if not self.alive or self._stopping:
            return self._state_when_down if self.wanted or self._state_when_down == "killed" else "offline"
        assert self.process is not None
        if self._resume_at < math.inf:
            return "paused"
        self._connected = self._connected or _CONNECTED in self.process.output()
        return "online" if self._connected else "connecting"

    def bring_online(self) -> None:
        """Let `ensure_running` start the node."""
        self.wanted = True

    def take_offline(self) -> None:
        """Stop the node with SIGTERM; the server notices within a second."""
        self.wanted = False
        self.stop()

    def stop(self) -> None:
        """Stop the node with SIGTERM; if wanted, `ensure_running` starts it again."""
        if self.alive and not self._stopping:
            assert self.process is not None
            self.resume()
            self._stopping = True
            self.process.stop()

    def pause(self, seconds: float) -> None:
        """Stop all its processes with SIGSTOP, as if the device slept; `ensure_running` continues them when due."""
        if self.process is not None:
            for _ in range(2):  # the second time for a process that was started meanwhile
                self.process.signal_all(signal.SIGSTOP)
            self._resume_at = time.monotonic() + seconds

    def resume(self) -> None:
        """End a pause."""
        if self.process is not None and self._resume_at < math.inf:
            self.process.signal_all(signal.SIGCONT)
        self._resume_at = math.inf

    def check_executor(self, programs: Collection[str]) -> bool:
        """Restart the node if its executor is lost, given the programs that it runs; return whether it does.

        Without its executor, a node would count as online but never reply. It is stopped with SIGTERM, so that it signs
        off and Flower accepts its successor at once.
        """
        if self._stopping or self.process is None or not self._executor.is_lost(self.process, programs):
            return False
        self.stop()
        return True

    def kill(self, *, down: float = 0.0) -> None:
        """Kill the node with SIGKILL, including its ClientApp; if wanted, it is restarted after `down` seconds."""
        if self.process is not None:
            self.process.kill()
            self.process = None
            self._resume_at = math.inf
            self._not_before = time.monotonic() + down
            self._stopping, self._state_when_down = False, "killed"

    def ensure_running(self) -> None:
        """Start the node if it is wanted and not running; after a delay if it ended unexpectedly."""
        if time.monotonic() >= self._resume_at:
            self.resume()
        if self.alive:
            return
        if self.process is not None:
            self._handle_exit(self.process)
        if self.wanted and time.monotonic() >= self._not_before:
            self._start()

    def _start(self) -> None:
        self.process = Process(self._command(), log=self.log, environment=environment(self._home))
        self._connected = False

    def _handle_exit(self, process: Process) -> None:
        """Record that the process has ended, after `take_offline` or unexpectedly."""
        self.last_output = tail(process.output())
        if not self._stopping:
            self._not_before = time.monotonic() + RETRY_SECONDS
        self._state_when_down = "offline" if self._stopping else "refused"
        self.process, self._stopping, self._resume_at = None, False, math.inf

    def _command(self) -> list[str]:
        secrets = self._secrets
        security = ["--insecure"] if secrets is None else [
            "--root-certificates", str(secrets.ca), "--auth-supernode-private-key", str(secrets.node_key(self.name)),
        ]  # fmt: skip
        return [
            program("flower-supernode"), "--superlink", self._superlink, "--host", HOST,
            "--port", str(self._port), "--node-config", str(self._config), *security,
        ]  # fmt: skip
