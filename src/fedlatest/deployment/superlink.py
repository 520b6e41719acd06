"""The SuperLink: Flower's server, to which nodes and runs come, under a supervisor that brings it back."""

import time
from contextlib import suppress
from pathlib import Path

from fedlatest.deployment import flwr_cli as flower
from fedlatest.deployment.process import HOST, Process, answers, tail
from fedlatest.deployment.secrets import Secrets
from fedlatest.errors import DeploymentError

READY_SECONDS = 60.0
MOST_CRASHES = 3  # it may die by itself so often; a death by `kill` does not count


class SuperLink:
    """A SuperLink on this machine. Its database keeps registered nodes over restarts; its port stays the same."""

    def __init__(self, folder: Path, *, port: int, secrets: Secrets | None, log: Path) -> None:
        self.home = folder / "flwr"
        self.address = f"{HOST}:{port}"
        self.process: Process | None = None
        self._folder, self._port, self._secrets, self._log = folder, port, secrets, log
        self._ready, self._crashes = False, 0
        self._not_before = self._started_at = 0.0

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.alive

    @property
    def ready(self) -> bool:
        """Whether it runs and has answered."""
        self._ready = self.alive and (self._ready or answers(self._port))
        return self._ready

    def kill(self, *, down: float = 0.0) -> None:
        """Kill -9, with the ServerApp and all else that it started; `look_after` brings it back in `down` seconds."""
        if self.process is not None:
            self.process.kill()
            self.process = None
            self._not_before = time.monotonic() + down

    def look_after(self) -> None:
        """Start it if it is not there; complain, with the end of its log, if that is of no use."""
        if self.alive:
            if not self.ready and time.monotonic() > self._started_at + READY_SECONDS:
                raise self._complaint(f"no answer within {READY_SECONDS:.0f} s")
            return
        if self.process is not None:
            self._crashes += 1
            if not self._ready or self._crashes > MOST_CRASHES:
                raise self._complaint(f"ended by itself with exit code {self.process.exit_code}")
        if time.monotonic() >= self._not_before:
            self._start()

    def wait_until_ready(self) -> None:
        """Look after it until it answers."""
        while not self.ready:
            self.look_after()
            time.sleep(0.05)

    def register(self, name: str) -> None:
        """Let a node in by its public key."""
        assert self._secrets is not None
        key = self._secrets.node_public_key(name)
        try:
            flower.ask("supernode", "register", str(key), flower.CONNECTION, "--name", name, home=self.home)
        except DeploymentError as error:
            if "already in use" not in str(error):  # by itself: it was registered before an interruption
                raise

    def run_status(self, run: int) -> str:
        """A run's status, such as `running` or `finished:failed`."""
        [row] = flower.ask("list", flower.CONNECTION, "--run-id", str(run), home=self.home)["runs"]
        return str(row["status"])

    def stop_runs(self) -> None:
        """Stop all runs that are not finished."""
        for row in flower.ask("list", flower.CONNECTION, home=self.home)["runs"]:
            if not row["status"].startswith("finished"):
                with suppress(DeploymentError):  # it may have finished meanwhile
                    flower.ask("stop", row["run-id"], flower.CONNECTION, home=self.home)

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        trusted = self._secrets.ca if self._secrets else None
        flower.write_connection(self.home, address=self.address, root_certificates=trusted)
        self.process = Process(self._command(), log=self._log, environment=flower.environment(self.home))
        self._ready, self._started_at = False, time.monotonic()

    def _complaint(self, what: str) -> DeploymentError:
        said = tail(self.process.output()) if self.process else ""
        return DeploymentError(f"SuperLink: {what}; read {self._log}, which ends with\n{said}")

    def _command(self) -> list[str]:
        secrets = self._secrets
        security = ["--insecure"] if secrets is None else [
            "--ssl-ca-certfile", str(secrets.ca), "--ssl-certfile", str(secrets.certificate),
            "--ssl-keyfile", str(secrets.key), "--enable-supernode-auth",
        ]  # fmt: skip
        return [
            flower.program("flower-superlink"), "--host", HOST, "--port", str(self._port),
            "--database", str(self._folder / "link.db"), "--disable-runtime-dependency-installation", *security,
        ]  # fmt: skip
