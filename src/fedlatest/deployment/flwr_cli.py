"""Flower's command-line programs: their paths, their environment, and the output of `flwr`."""

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fedlatest.deployment import private_files
from fedlatest.deployment.process import Process, run_command, tail
from fedlatest.errors import DeploymentError, MissingExtraError

CONNECTION = "fedlatest"  # the SuperLink's name in Flower's configuration
_EXECUTOR = "flower-superexec"
_COMMAND_TIMEOUT = 60.0


def require_flower() -> None:
    """Raise MissingExtraError if Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtraError("deploy", "flower")


def program(name: str) -> str:
    """Return the path of one of Flower's programs: beside the running Python, or on the PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside if beside.is_file() else shutil.which(name) or beside)


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's processes: ours, with Flower's files in `home` and without telemetry."""
    folder = str(Path(sys.executable).parent)  # Flower starts flower-superexec and the apps by name
    return {
        **os.environ,
        "PATH": os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # seconds; Flower's 1 delays each app, a shorter one costs CPU
        "NO_PROXY": ",".join(filter(None, ["127.0.0.1,localhost", os.environ.get("NO_PROXY", "")])),
        "no_proxy": ",".join(filter(None, ["127.0.0.1,localhost", os.environ.get("no_proxy", "")])),
    }


class ExecutorWatch:
    """Finds out whether a node or a SuperLink has lost its executor, the process that starts its apps.

    Flower does not start another one. An executor is lost if it was running and has been missing for `TIMEOUT` seconds.
    """

    TIMEOUT = 3.0

    def __init__(self) -> None:
        self._process: Process | None = None  # the one whose executor was last seen
        self._missing_since = math.inf

    def is_lost(self, process: Process, programs: Collection[str]) -> bool:
        """Return whether the executor is lost; to be called often.

        Args:
            process: The process of the node or the SuperLink.
            programs: The names of all programs that it has started and that are running.
        """
        if _EXECUTOR in programs:
            self._process, self._missing_since = process, math.inf
            return False
        if process is not self._process:
            return False
        now = time.monotonic()
        self._missing_since = min(self._missing_since, now)
        return now >= self._missing_since + self.TIMEOUT


def toml(values: Mapping[str, Any]) -> str:
    """Format flat values as TOML, in which strings, numbers and booleans are written as in JSON."""
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())


def write_connection(home: Path, *, address: str, root_certificates: Path | None) -> None:
    """Write the configuration with which `flwr` reaches the SuperLink.

    Args:
        home: Flower's home folder.
        address: Host and port of the SuperLink.
        root_certificates: The certificate of the CA; None for a connection without TLS.
    """
    trust = {"insecure": True} if root_certificates is None else {"root-certificates": str(root_certificates)}
    private_files.make_folder(home)
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n{toml({"address": address, **trust})}'
    private_files.write(home / "config.toml", text)


def flwr(*arguments: str, home: Path) -> dict[str, Any]:
    """Run `flwr ARGUMENTS --format json` and return its output.

    Raises:
        DeploymentError: The command failed or timed out.
    """
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = run_command(command, environment=environment(home), timeout=_COMMAND_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise DeploymentError(f"flwr {' '.join(arguments)}: did not finish within {_COMMAND_TIMEOUT:.0f} s") from None
    output = _find_json(done.stdout)
    if done.returncode or not output or not output.get("success"):
        raise DeploymentError(f"flwr {' '.join(arguments)}: failed; its output was\n{tail(done.stdout + done.stderr)}")
    return output


def _find_json(text: str) -> dict[str, Any] | None:
    """Return the JSON object in the output of a command, which may have other text around it."""
    try:
        return json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return None
