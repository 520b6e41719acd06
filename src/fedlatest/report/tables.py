"""The tables of the page, as HTML that needs no script."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from fedlatest.report.claims import Claim
from fedlatest.report.grouping import POOLED, Setting
from fedlatest.report.run_records import RunRecord

DASH = "\N{EN DASH}"
VERDICTS = {True: ("holds", "✓ holds"), False: ("fails", "✗ does not hold"), None: ("open", f"{DASH} not judged")}
STATUS = {"finished": "", "diverged": "diverged", "running": "still running"}


def swatch(number: int, dash: str) -> str:
    """A piece of a run's line, as the charts draw it."""
    return (
        f'<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true"><path d="M1 5H27" stroke="var(--run-{number})" '
        f'stroke-dasharray="{escape(dash)}"/></svg>'
    )


def summary_table(
    runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str], dashes: Sequence[str]
) -> str:
    """Every run in a row; the late part is the last quarter of the rounds, E and I are Assumption 4's and Lemma 1's."""
    several = len(settings) > 1
    places = _places(runs, settings)
    head = ["algorithm", *(["setting"] if several else []), "late mean accuracy", "swing", "final accuracy"]
    head += ["E", "bound I", "largest staleness", "seconds"]
    rows = []
    for i in dict.fromkeys(i for setting in settings for i in setting.runs):
        run = runs[i]
        status = STATUS.get(run.manifest.get("status", "running"), "")
        note = f' <span class="note">{status}</span>' if status else ""
        seconds = run.manifest.get("seconds", math.nan)
        staleness = DASH if run.algorithm == POOLED else str(run.largest_staleness)
        facts = run.manifest.get("availability") or {}
        theory = [DASH if facts.get(name) is None else str(facts[name]) for name in ("smallest_e", "staleness_bound")]
        cells = [number(run.late_accuracy), number(run.swing), number(run.final_accuracy), *theory, staleness]
        rows.append(
            f'<tr><th scope="row" title="{escape(str(run.path))}">{swatch(i, dashes[i])}{escape(names[i])}{note}</th>'
            + (f"<td>{escape(places[i])}</td>" if several else "")
            + "".join(f'<td class="number">{cell}</td>' for cell in [*cells, number(seconds, 1)])
            + "</tr>"
        )
    return _table(head, rows, text_columns=2 if several else 1, caption="Every run")


def claims_table(claims: Sequence[Claim]) -> str:
    """Claims by group, with the verdict in a word and a sign."""
    parts = []
    for group, members in groupby(sorted(claims, key=lambda claim: _first_of_group(claims, claim)), lambda c: c.group):
        rows = []
        for claim in members:
            style, words = VERDICTS[claim.holds]
            cells = "".join(f"<td>{escape(text)}</td>" for text in (claim.claim, claim.measured, claim.published))
            rows.append(f'<tr>{cells}<td><span class="verdict {style}">{words}</span></td></tr>')
        head = ["claim", "measured", "published", "verdict"]
        parts.append(f"<h3>{escape(group)}</h3>" + _table(head, rows, text_columns=4, caption=group))
    held, judged = sum(c.holds is True for c in claims), sum(c.holds is not None for c in claims)
    unjudged = f" {len(claims) - judged} not judged." if judged < len(claims) else ""
    return f"<p>{held} of {judged} judged claims hold.{unjudged}</p>" + "".join(parts)


def configurations(runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str]) -> str:
    """What each run was, folded up."""
    places = _places(runs, settings)
    parts = []
    for i in dict.fromkeys(i for setting in settings for i in setting.runs):
        manifest, where = runs[i].manifest, f" <small>{escape(places[i])}</small>" if places[i] else ""
        rows = [
            f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>' for key, value in _flat(manifest)
        ]
        rows.insert(0, f'<tr><th scope="row">folder</th><td>{escape(str(runs[i].path))}</td></tr>')
        table = f'<div class="wide"><table class="config"><tbody>{"".join(rows)}</tbody></table></div>'
        parts.append(f"<details><summary>{escape(names[i])}{where}</summary>{table}</details>")
    return "".join(parts)


def number(value: float, digits: int = 4) -> str:
    """A cell: a dash for what is not known."""
    return DASH if math.isnan(value) else f"{value:.{digits}f}"


def _places(runs: list[RunRecord], settings: Sequence[Setting]) -> list[str]:
    """The setting of each run; a pooled run stands in several."""
    homes = [[setting.label for setting in settings if i in setting.runs] for i in range(len(runs))]
    return [home[0] if len(home) == 1 else "pooled data" for home in homes]


def _first_of_group(claims: Sequence[Claim], claim: Claim) -> int:
    return next(i for i, other in enumerate(claims) if other.group == claim.group)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list) and not any(isinstance(item, dict) for item in value):
            yield name, ", ".join(map(str, value))
        else:
            yield name, str(value)


def _table(head: Sequence[str], rows: Sequence[str], *, text_columns: int, caption: str) -> str:
    cells = [
        f'<th scope="col"{"" if i < text_columns else " class=number"}>{escape(name)}</th>'
        for i, name in enumerate(head)
    ]
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{''.join(cells)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
