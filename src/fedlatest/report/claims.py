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
    """Claims as CSV, or as Markdown if the name ends in .md."""
    write_atomically(
        path, lambda draft: _as_markdown(claims, draft) if path.suffix == ".md" else _as_csv(claims, draft)
    )
    return path


def _as_csv(claims: Sequence[Claim], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "claim", "measured", "published", "verdict"])
        writer.writerows([*claim[:4], claim.verdict] for claim in claims)


def _as_markdown(claims: Sequence[Claim], path: Path) -> None:
    """A table per group; a claim that does not hold stands out."""
    lines = []
    for group in dict.fromkeys(claim.group for claim in claims):
        lines += [f"### {group}", "", "| claim | measured | published | verdict |", "|---|---|---|---|"]
        for claim in (claim for claim in claims if claim.group == group):
            verdict = f"**{claim.verdict}**" if claim.holds is False else claim.verdict
            cells = [cell.replace("|", "\\|") for cell in (claim.claim, claim.measured, claim.published, verdict)]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
