"""Claims of a paper with the measured and published numbers and a verdict, as CSV or Markdown."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedlatest.files import write_csv, write_text


class Claim(NamedTuple):
    """A claim with its numbers as text; `holds` is None if it was not judged."""

    group: str
    claim: str
    measured: str
    published: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "does not hold", None: "not judged"}[self.holds]


def write_claims(claims: Sequence[Claim], path: Path) -> Path:
    """Write claims as Markdown if the file name ends in .md, otherwise as CSV; return `path`."""
    if path.suffix == ".md":
        write_text(path, _as_markdown(claims))
    else:
        header = ["group", "claim", "measured", "published", "verdict"]
        write_csv(path, [header, *([*claim[:4], claim.verdict] for claim in claims)])
    return path


def _as_markdown(claims: Sequence[Claim]) -> str:
    """Return one table per group; the verdict of a claim that does not hold is bold."""
    lines = []
    for group in dict.fromkeys(claim.group for claim in claims):
        lines += [f"### {group}", "", "| claim | measured | published | verdict |", "|---|---|---|---|"]
        for claim in (claim for claim in claims if claim.group == group):
            verdict = f"**{claim.verdict}**" if claim.holds is False else claim.verdict
            cells = [cell.replace("|", "\\|") for cell in (claim.claim, claim.measured, claim.published, verdict)]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)
