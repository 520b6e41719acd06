"""Claims: what a paper says, what was measured, and whether the one bears out the other."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedlatest.runs.files import write_atomically


class Claim(NamedTuple):
    """A statement with its numbers, as text; `holds` is None where it was not judged."""

    group: str
    claim: str
    measured: str
    published: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """In words."""
        return {True: "holds", False: "does not hold", None: "not judged"}[self.holds]


def write_claims(claims: Sequence[Claim], path: Path) -> Path:
    """Claims as CSV."""

    def write(draft: Path) -> None:
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["group", "claim", "measured", "published", "verdict"])
            writer.writerows(
                [claim.group, claim.claim, claim.measured, claim.published, claim.verdict] for claim in claims
            )

    write_atomically(path, write)
    return path
