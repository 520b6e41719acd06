"""events.jsonl: what happened in a job, a JSON object a line, for people, dashboards and `fedlatest deploy local`."""

import json
import logging
import time
from math import isfinite
from pathlib import Path
from typing import Any

log = logging.getLogger("flwr")
LOUD = {"refused", "lost", "restored", "resync", "expired", "failed", "left", "joined", "stopped"}


class Journal:
    """Appends events; those that an operator should know of go to Flower's log as well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, event: str, **facts: Any) -> None:
        """Write an event; what is not a finite number has no place in JSON, and is null."""
        facts = {name: None if isinstance(fact, float) and not isfinite(fact) else fact for name, fact in facts.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 3), "event": event, **facts}) + "\n")
        if event in LOUD:
            words = " ".join(f"{name}={value}" for name, value in facts.items())
            (log.warning if event != "joined" else log.info)("fedlatest: %s %s", event, words)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All events; a last line that is still being written is left out."""
    if not path.is_file():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]
