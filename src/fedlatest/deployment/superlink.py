"""The SuperLink, Flower's server, which is restarted when it ends, and the runs that are submitted to it."""

import math
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedlatest.deployment import private_files
from fedlatest.deployment.flwr_cli import (
    CONNECTION,
    ExecutorWatch,
    environment,
    flwr,
    program,
    toml,
    write_connection,
)
from fedlatest.deployment.process import HOST, Process, is_listening, tail
from fedlatest.deployment.secrets import Secrets
from fedlatest.errors import DeploymentError

READY_TIMEOUT = 60.0
APP_TIMEOUT = 60.0  # between the acceptance of a run and the start of its ServerApp, which takes about a second
MAX_CRASHES = 3  # `kill` does not count as a crash
APP_PROGRAM = "flwr-serverapp"
_NO_HEARTBEAT = "No heartbeat"  # in Flower's details of a run whose app has disappeared
_STARTED = re.compile(r"Successfully started run (\d+)")


class RunStatus(NamedTuple):
    """The status of a run, such as `running` or `finished:failed`, and Flower's explanation."""

    status: str
    details: str = ""

    @property
    def finished(self) -> bool:
        """Whether the run has ended, or was never accepted."""
        return self.status.startswith("finished") or self.status == "not accepted"

    @property
    def lost(self) -> bool:
        """Whether Flower has noticed that the app has disappeared; an app that fails reports it before it ends."""
        return self.status == "finished:failed" and _NO_HEARTBEAT in self.details


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
        self._executor = ExecutorWatch()
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

    def check_executor(self, programs: Collection[str]) -> bool:
        """Return whether it cannot start a run any more, because its executor is lost, and runs none.

        Args:
            programs: The names of the programs that it runs.
        """
        if self.process is None or not self._executor.is_lost(self.process, programs):
            return False
        return APP_PROGRAM not in programs

    def register(self, name: str) -> None:
        """Register the public key of a node."""
        assert self._secrets is not None
        key = self._secrets.node_public_key(name)
        try:
            flwr("supernode", "register", str(key), CONNECTION, "--name", name, home=self.home)
        except DeploymentError as error:
            if "already in use" not in str(error):  # registered before an interruption
                raise

    def run_status(self, run: int) -> RunStatus:
        """Return the status of a run."""
        [row] = flwr("list", CONNECTION, "--run-id", str(run), home=self.home)["runs"]
        return RunStatus(str(row["status"]), str(row.get("status-details", "")))

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
        earlier_apps: Ids of the processes of ServerApps of earlier runs, which may still be ending.
    """

    def __init__(
        self,
        superlink: SuperLink,
        app: Path,
        *,
        config: Mapping[str, Any],
        log: Path,
        earlier_apps: Collection[int] = (),
    ) -> None:
        self.log = log
        self._superlink = superlink
        self._earlier_apps = set(earlier_apps)
        self._app_seen = self._app_gone = False
        self._app_expected_at = math.inf
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

    @property
    def app_gone(self) -> bool:
        """Whether the process of its ServerApp has ended, or never started, according to `watch_app`."""
        return self._app_gone

    def watch_app(self, apps: Collection[int]) -> None:
        """Find out whether the ServerApp runs, given the ids of the processes of all ServerApps of the SuperLink."""
        own = set(apps) - self._earlier_apps
        if own or self.id is None:
            self._app_expected_at = time.monotonic() + APP_TIMEOUT
        self._app_seen = self._app_seen or bool(own)
        self._app_gone = not own and (self._app_seen or time.monotonic() > self._app_expected_at)

    def status(self) -> RunStatus:
        """Return the status of the run.

        It is queried from the SuperLink, which takes about a second: `flwr run` exits with 0 even if the run failed.
        """
        if self.id is None:
            return RunStatus("not accepted" if self.ended else "submitted")
        return self._superlink.run_status(self.id)

    def error(self, why: str) -> DeploymentError:
        """Return the error for a run that ended before the job was finished."""
        return DeploymentError(
            f"run {self.id or ''}: {why}; to continue from the last round, repeat the command with --resume; "
            f"its log {self.log} ends with\n{tail(self.process.output())}"
        )
