"""Flower's commands: where they are, the environment they run in, and what they answer."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlatest.deployment import flwr_cli as flower
from fedlatest.deployment.process import Process, answer, tail
from fedlatest.deployment.superlink import SuperLink
from fedlatest.errors import DeploymentError, MissingExtraError

CONNECTION = "fedlatest"  # the SuperLink's name in Flower's configuration
_COMMAND_SECONDS = 60.0


def require_flower() -> None:
    """Complain if Flower is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise MissingExtraError("deploy: needs Flower; install it with pip install 'fedlatest[flower]'")


def program(name: str) -> str:
    """The path of one of Flower's programs: beside the Python that runs us, or wherever it is found."""
    beside = Path(sys.executable).parent / name
    return str(beside if beside.is_file() else shutil.which(name) or beside)


def environment(home: Path) -> dict[str, str]:
    """What Flower's processes run in: our own environment, with Flower's files in `home` and nothing sent elsewhere."""
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


def toml(values: Mapping[str, Any]) -> str:
    """Flat values as TOML; JSON writes strings, numbers and booleans alike."""
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())


def write_connection(home: Path, *, address: str, root_certificates: Path | None) -> None:
    """Tell the `flwr` command how to reach the SuperLink."""
    trust = {"insecure": True} if root_certificates is None else {"root-certificates": str(root_certificates)}
    home.mkdir(parents=True, exist_ok=True)
    text = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n{toml({"address": address, **trust})}'
    (home / "config.toml").write_text(text, encoding="utf-8")


def ask(*arguments: str, home: Path) -> dict[str, Any]:
    """`flwr ARGUMENTS --format json`: its answer."""
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = answer(command, environment=environment(home), seconds=_COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        raise DeploymentError(f"flwr {' '.join(arguments)}: no answer within {_COMMAND_SECONDS:.0f} s") from None
    said = _json_in(done.stdout)
    if done.returncode or not said or not said.get("success"):
        raise DeploymentError(f"flwr {' '.join(arguments)}: failed; it said\n{tail(done.stdout + done.stderr)}")
    return said


def _json_in(text: str) -> dict[str, Any] | None:
    """The JSON object in what a command said."""
    try:
        return json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return None


_STARTED = re.compile(r"Successfully started run (\d+)")


class Run:
    """`flwr run --stream`: submits the app, logs what the ServerApp says, and ends with the run or the SuperLink."""

    def __init__(self, superlink: SuperLink, app: Path, *, config: Mapping[str, Any], log: Path) -> None:
        self.log = log
        self._superlink = superlink
        log.parent.mkdir(parents=True, exist_ok=True)
        values = log.with_suffix(".toml")  # in a file: quotes and spaces survive
        values.write_text(flower.toml(config), encoding="utf-8")
        command = [flower.program("flwr"), "run", str(app), flower.CONNECTION, "-c", str(values), "--stream"]
        self.process = Process(command, log=log, environment=flower.environment(superlink.home))

    @property
    def id(self) -> int | None:
        """Flower's id of the run; None before it was accepted."""
        found = _STARTED.search(self.process.output())
        return int(found[1]) if found else None

    @property
    def ended(self) -> bool:
        """Whether its log has ended, which it does with the run or with the SuperLink."""
        return not self.process.alive

    def status(self) -> str:
        """Such as `running`, `finished:completed` or `finished:failed`: asked of the SuperLink, which takes a second.

        `flwr run` itself ends with 0 whatever became of the run.
        """
        if self.id is None:
            return "not accepted" if self.ended else "submitted"
        return self._superlink.run_status(self.id)

    def complaint(self, status: str) -> DeploymentError:
        """What to raise when the run ended, with the SuperLink well and the job unfinished."""
        said = tail(self.process.output())
        return DeploymentError(f"run {self.id or ''}: {status}; read {self.log}, which ends with\n{said}")
