"""A node: Flower's SuperNode for one client, under a supervisor that brings it back."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from fedlatest.deployment import flwr_cli as flower
from fedlatest.deployment.process import HOST, Process, tail
from fedlatest.deployment.secrets import Secrets

Presence = Literal["here", "coming", "away", "killed", "refused"]
RETRY_SECONDS = 5.0  # Flower refuses a node for up to 60 s after a kill -9 of its predecessor, which it believes online
_CONNECTED = "SuperNode ID:"  # what a SuperNode logs when it has been let in


class Node:
    """One node on this machine. `here` and `away` say what is wanted; `look_after`, called often, makes it so."""

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
        self.last_words = ""
        self._home, self._superlink, self._port, self._secrets = folder / "flwr", superlink, port, secrets
        self._connected, self._leaving = False, False
        self._not_before = 0.0
        self._down: Presence = "away"  # what to call it while no process is there
        state = folder / "state"
        state.mkdir(parents=True, exist_ok=True)
        self._config = folder / "node.toml"
        self._config.write_text(flower.toml({**config, "name": name, "state-dir": str(state)}), encoding="utf-8")

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.alive

    @property
    def presence(self) -> Presence:
        """`coming`: it was started and is not let in yet. `refused`: it was turned away and will be tried again."""
        if not self.alive or self._leaving:
            return self._down if self.wanted or self._down == "killed" else "away"
        assert self.process is not None
        self._connected = self._connected or _CONNECTED in self.process.output()
        return "here" if self._connected else "coming"

    def here(self) -> None:
        """Let it be here."""
        self.wanted = True

    def away(self) -> None:
        """Let it go politely: the server sees it within a second."""
        self.wanted = False
        if self.alive and not self._leaving:
            assert self.process is not None
            self._leaving = True
            self.process.stop()

    def kill(self, *, down: float = 0.0) -> None:
        """Kill -9, with its ClientApp and all else that it started; if wanted it is back `down` seconds later."""
        if self.process is not None:
            self.process.kill()
            self.process = None
            self._not_before = time.monotonic() + down
            self._leaving, self._down = False, "killed"

    def look_after(self) -> None:
        """Start it if it should be here and is not; some seconds later if it ended by itself."""
        if self.alive:
            return
        if self.process is not None:
            self._bury(self.process)
        if self.wanted and time.monotonic() >= self._not_before:
            self._start()

    def _start(self) -> None:
        self.process = Process(self._command(), log=self.log, environment=flower.environment(self._home))
        self._connected = False

    def _bury(self, process: Process) -> None:
        """Its process has ended: because it was asked to, or by itself."""
        self.last_words = tail(process.output())
        if not self._leaving:
            self._not_before = time.monotonic() + RETRY_SECONDS
        self._down = "away" if self._leaving else "refused"
        self.process, self._leaving = None, False

    def _command(self) -> list[str]:
        secrets = self._secrets
        security = ["--insecure"] if secrets is None else [
            "--root-certificates", str(secrets.ca), "--auth-supernode-private-key", str(secrets.node_key(self.name)),
        ]  # fmt: skip
        return [
            flower.program("flower-supernode"), "--superlink", self._superlink, "--host", HOST,
            "--port", str(self._port), "--node-config", str(self._config), *security,
        ]  # fmt: skip
