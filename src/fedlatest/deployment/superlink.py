"""The SuperLink: Flower's server, to which nodes and runs come."""

import time
from pathlib import Path

from fedlatest.deployment import flower
from fedlatest.deployment.ports import HOST, answers
from fedlatest.deployment.process import Process, tail
from fedlatest.deployment.secrets import Secrets
from fedlatest.errors import DeploymentError

READY_SECONDS = 60.0


class SuperLink:
    """A SuperLink on this machine. Its database keeps registered nodes over restarts; its port stays the same."""

    def __init__(self, folder: Path, *, port: int, secrets: Secrets | None, log: Path) -> None:
        self.home = folder / "flwr"
        self.address = f"{HOST}:{port}"
        self.process: Process | None = None
        self._folder, self._port, self._secrets, self._log = folder, port, secrets, log

    def start(self) -> None:
        """Start it; see `wait_until_ready`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        flower.write_connection(
            self.home, address=self.address, root_certificates=self._secrets.ca if self._secrets else None
        )
        self.process = Process(self._command(), log=self._log, environment=flower.environment(self.home))

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.alive

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        return self.alive and answers(self._port)

    def wait_until_ready(self) -> None:
        """Wait until it answers, or complain with the end of its log."""
        assert self.process is not None
        deadline = time.monotonic() + READY_SECONDS
        while not answers(self._port):
            if not self.process.alive or time.monotonic() > deadline:
                raise DeploymentError(
                    f"SuperLink: did not come up (exit code {self.process.exit_code}); "
                    f"read {self._log}, which ends with\n{tail(self.process.output())}"
                )
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill -9, with the ServerApp and all else that it started."""
        if self.process is not None:
            self.process.kill()

    def register(self, name: str) -> int:
        """Let a node in by its public key; its node id, which stays the same over restarts."""
        assert self._secrets is not None
        key = self._secrets.node_public_key(name)
        answer = flower.ask("supernode", "register", str(key), flower.CONNECTION, "--name", name, home=self.home)
        return int(answer["node-id"])

    def run_status(self, run: int) -> tuple[str, str]:
        """A run's status, such as `running` or `finished:failed`, and its details."""
        [row] = flower.ask("list", flower.CONNECTION, "--run-id", str(run), home=self.home)["runs"]
        return row["status"], row["status-details"]

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
