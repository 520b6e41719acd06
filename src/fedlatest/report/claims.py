"""Claims: what a paper says, what was measured, and whether the one bears out the other."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedlatest.files import write_csv, write_text


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
    if path.suffix == ".md":
        write_text(path, _as_markdown(claims))
    else:
        header = ["group", "claim", "measured", "published", "verdict"]
        write_csv(path, [header, *([*claim[:4], claim.verdict] for claim in claims)])
    return path


def _as_markdown(claims: Sequence[Claim]) -> str:
    """A table per group; a claim that does not hold stands out."""
    lines = []
    for group in dict.fromkeys(claim.group for claim in claims):
        lines += [f"### {group}", "", "| claim | measured | published | verdict |", "|---|---|---|---|"]
        for claim in (claim for claim in claims if claim.group == group):
            verdict = f"**{claim.verdict}**" if claim.holds is False else claim.verdict
            cells = [cell.replace("|", "\\|") for cell in (claim.claim, claim.measured, claim.published, verdict)]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)
