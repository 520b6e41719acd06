"""The event log of a job: for people, dashboards and `fedlatest deploy local`."""

import logging
from math import isfinite
from pathlib import Path
from typing import Any

from fedlatest.ledger.events import append_event

log = logging.getLogger("flwr")
MOST = 300  # characters of a text: some come from clients
LOUD = {"refused", "lost", "restored", "resync", "expired", "failed", "left", "joined", "stopped"}


class Journal:
    """Appends events; those that an operator should know of go to Flower's log as well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, event: str, **facts: Any) -> None:
        """Write an event; what is not a finite number has no place in JSON, and is null."""
        facts = {name: fact[:MOST] if isinstance(fact, str) else fact for name, fact in facts.items()}
        facts = {name: None if isinstance(fact, float) and not isfinite(fact) else fact for name, fact in facts.items()}
        append_event(self.path, event, **facts)
        if event in LOUD:
            words = " ".join(f"{name}={value}" for name, value in facts.items() if value != "")
            (log.warning if event != "joined" else log.info)("fedlatest: %s %s", event, words)
