"""A run: an app that was submitted to the SuperLink."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlatest.deployment import flower
from fedlatest.deployment.process import Process, tail
from fedlatest.deployment.superlink import SuperLink
from fedlatest.errors import DeploymentError

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
