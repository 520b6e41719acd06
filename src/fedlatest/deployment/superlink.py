"""The SuperLink, Flower's server, which is restarted when it ends, and the runs that are submitted to it."""

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedlatest.deployment import private_files
from fedlatest.deployment.flwr_cli import CONNECTION, environment, flwr, program, toml, write_connection
from fedlatest.deployment.process import HOST, Process, is_listening, tail
from fedlatest.deployment.secrets import Secrets
from fedlatest.errors import DeploymentError

READY_TIMEOUT = 60.0
MAX_CRASHES = 3  # `kill` does not count as a crash
_STARTED = re.compile(r"Successfully started run (\d+)")


class SuperLink:
    """A SuperLink on this machine.

    After a restart it has the same port and, from its database, the same registered nodes. `ensure_running` starts it
    and has to be called often.

    Args:
        folder: Folder for its database and Flower's configuration.
        port: The port to listen on.
        secrets: Certificates for TLS and node authentication; None for neither.
        log: File for its output.
    """

    def __init__(self, folder: Path, *, port: int, secrets: Secrets | None, log: Path) -> None:
        self.home = folder / "flwr"
        self.address = f"{HOST}:{port}"
        self.process: Process | None = None
        self._folder, self._port, self._secrets, self._log = folder, port, secrets, log
        self._ready, self._crashes = False, 0
        self._not_before = self._started_at = 0.0

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.alive

    @property
    def ready(self) -> bool:
        """Whether its process runs and accepts connections."""
        self._ready = self.alive and (self._ready or is_listening(self._port))
        return self._ready

    def ensure_running(self) -> None:
        """Start it if it is not running.

        Raises:
            DeploymentError: It does not become ready or crashes repeatedly; the message has the end of its log.
        """
        if self.alive:
            if not self.ready and time.monotonic() > self._started_at + READY_TIMEOUT:
                raise self._error(f"not ready within {READY_TIMEOUT:.0f} s")
            return
        if self.process is not None:
            self._crashes += 1
            if not self._ready or self._crashes > MAX_CRASHES:
                raise self._error(f"ended unexpectedly with exit code {self.process.exit_code}")
        if time.monotonic() >= self._not_before:
            self._start()

    def wait_until_ready(self) -> None:
        """Start it and wait until it accepts connections."""
        while not self.ready:
            self.ensure_running()
            time.sleep(0.05)

    def kill(self, *, down: float = 0.0) -> None:
        """Kill it with SIGKILL, including the ServerApp; `ensure_running` restarts it after `down` seconds."""
        if self.process is not None:
            self.process.kill()
            self.process = None
            self._not_before = time.monotonic() + down

    def register(self, name: str) -> None:
        """Register the public key of a node."""
        assert self._secrets is not None
        key = self._secrets.node_public_key(name)
        try:
            flwr("supernode", "register", str(key), CONNECTION, "--name", name, home=self.home)
        except DeploymentError as error:
            if "already in use" not in str(error):  # registered before an interruption
                raise

    def run_status(self, run: int) -> str:
        """Return the status of a run, such as `running` or `finished:failed`."""
        [row] = flwr("list", CONNECTION, "--run-id", str(run), home=self.home)["runs"]
        return str(row["status"])

    def stop_runs(self) -> None:
        """Stop all runs that have not finished."""
        for row in flwr("list", CONNECTION, home=self.home)["runs"]:
            if not row["status"].startswith("finished"):
                with suppress(DeploymentError):  # it may have finished in the meantime
                    flwr("stop", row["run-id"], CONNECTION, home=self.home)

    def _start(self) -> None:
        private_files.make_folder(self._folder)
        write_connection(self.home, address=self.address, root_certificates=self._secrets.ca if self._secrets else None)
        self.process = Process(self._command(), log=self._log, environment=environment(self.home))
        self._ready, self._started_at = False, time.monotonic()

    def _error(self, what: str) -> DeploymentError:
        output = tail(self.process.output()) if self.process else ""
        return DeploymentError(f"SuperLink: {what}; its log {self._log} ends with\n{output}")

    def _command(self) -> list[str]:
        secrets = self._secrets
        security = ["--insecure"] if secrets is None else [
            "--ssl-ca-certfile", str(secrets.ca), "--ssl-certfile", str(secrets.certificate),
            "--ssl-keyfile", str(secrets.key), "--enable-supernode-auth",
        ]  # fmt: skip
        return [
            program("flower-superlink"), "--host", HOST, "--port", str(self._port),
            "--database", str(self._folder / "link.db"), "--disable-runtime-dependency-installation", *security,
        ]  # fmt: skip


class Run:
    """A run of an app: `flwr run --stream`, which writes the ServerApp's output to a log.

    The process ends when the run ends or the SuperLink is lost.

    Args:
        superlink: The SuperLink to submit to.
        app: Folder of the Flower app.
        config: Values of the app's run config.
        log: File for the output.
    """

    def __init__(self, superlink: SuperLink, app: Path, *, config: Mapping[str, Any], log: Path) -> None:
        self.log = log
        self._superlink = superlink
        if not log.parent.is_dir():
            private_files.make_folder(log.parent)
        values = log.with_suffix(".toml")  # a file, because values may have quotes and spaces
        private_files.write(values, toml(config))
        command = [program("flwr"), "run", str(app), CONNECTION, "-c", str(values), "--stream"]
        self.process = Process(command, log=log, environment=environment(superlink.home))

    @property
    def id(self) -> int | None:
        """Flower's id of the run; None until the SuperLink has accepted it."""
        found = _STARTED.search(self.process.output())
        return int(found[1]) if found else None

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return not self.process.alive

    def status(self) -> str:
        """Return the status of the run, such as `running`, `finished:completed` or `finished:failed`.

        It is queried from the SuperLink, which takes about a second: `flwr run` exits with 0 even if the run failed.
        """
        if self.id is None:
            return "not accepted" if self.ended else "submitted"
        return self._superlink.run_status(self.id)

    def error(self, status: str) -> DeploymentError:
        """Return the error for a run that ended before the job was finished."""
        return DeploymentError(
            f"run {self.id or ''}: {status}; its log {self.log} ends with\n{tail(self.process.output())}"
        )
