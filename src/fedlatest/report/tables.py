"""The tables of the page as HTML; they need no JavaScript."""

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
    """Return a sample of a run's line as SVG, with the colour and dashes of the charts."""
    return (
        f'<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true"><path d="M1 5H27" stroke="var(--run-{number})" '
        f'stroke-dasharray="{escape(dash)}"/></svg>'
    )


def summary_table(
    runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str], dashes: Sequence[str]
) -> str:
    """Return a table with one row per run; E is that of Assumption 4, I the bound of Lemma 1.

    Args:
        runs: The runs.
        settings: The runs grouped by setting.
        names: Name of each run.
        dashes: Dashes of each run's line.
    """
    several = len(settings) > 1
    labels = _setting_labels(runs, settings)
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
        if "clients_examined" in facts and facts["smallest_e"] is not None:
            theory[0] = f"at least {theory[0]}"
        cells = [number(run.late_accuracy), number(run.swing), number(run.final_accuracy), *theory, staleness]
        rows.append(
            f'<tr><th scope="row" title="{escape(str(run.path))}">{swatch(i, dashes[i])}{escape(names[i])}{note}</th>'
            + (f"<td>{escape(labels[i])}</td>" if several else "")
            + "".join(f'<td class="number">{cell}</td>' for cell in [*cells, number(seconds, 1)])
            + "</tr>"
        )
    return table(head, rows, text_columns=2 if several else 1, caption="All runs")


def claims_table(claims: Sequence[Claim]) -> str:
    """Return a table per group of claims, with each verdict as a symbol and in words."""
    parts = []
    for group, members in groupby(sorted(claims, key=lambda claim: _first_of_group(claims, claim)), lambda c: c.group):
        rows = []
        for claim in members:
            style, text = VERDICTS[claim.holds]
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in (claim.claim, claim.measured, claim.published))
            rows.append(f'<tr>{cells}<td><span class="verdict {style}">{text}</span></td></tr>')
        head = ["claim", "measured", "published", "verdict"]
        parts.append(f"<h3>{escape(group)}</h3>" + table(head, rows, text_columns=4, caption=group))
    holding, judged = sum(c.holds is True for c in claims), sum(c.holds is not None for c in claims)
    unjudged = f" {len(claims) - judged} not judged." if judged < len(claims) else ""
    return f"<p>{holding} of {judged} judged claims hold.{unjudged}</p>" + "".join(parts)


def configurations(runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str]) -> str:
    """Return the manifest of each run as a collapsed table.

    Args:
        runs: The runs.
        settings: The runs grouped by setting.
        names: Name of each run.
    """
    labels = _setting_labels(runs, settings)
    parts = []
    for i in dict.fromkeys(i for setting in settings for i in setting.runs):
        manifest, setting = runs[i].manifest, f" <small>{escape(labels[i])}</small>" if labels[i] else ""
        rows = [
            f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>' for key, value in _flat(manifest)
        ]
        rows.insert(0, f'<tr><th scope="row">folder</th><td>{escape(str(runs[i].path))}</td></tr>')
        table = f'<div class="wide"><table class="config"><tbody>{"".join(rows)}</tbody></table></div>'
        parts.append(f"<details><summary>{escape(names[i])}{setting}</summary>{table}</details>")
    return "".join(parts)


def number(value: float, digits: int = 4) -> str:
    """Format a number with a fixed number of digits; NaN as a dash."""
    return DASH if math.isnan(value) else f"{value:.{digits}f}"


def _setting_labels(runs: list[RunRecord], settings: Sequence[Setting]) -> list[str]:
    """Return the label of each run's setting; a pooled run can belong to several settings."""
    labels = [[setting.label for setting in settings if i in setting.runs] for i in range(len(runs))]
    return [found[0] if len(found) == 1 else "pooled data" for found in labels]


def _first_of_group(claims: Sequence[Claim], claim: Claim) -> int:
    return next(i for i, other in enumerate(claims) if other.group == claim.group)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested values as (dotted key, text) pairs."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list) and not any(isinstance(item, dict) for item in value):
            yield name, ", ".join(map(str, value))
        else:
            yield name, str(value)


def table(head: Sequence[str], rows: Sequence[str], *, text_columns: int, caption: str) -> str:
    """Return a table that scrolls sideways if it is wide.

    Args:
        head: names of the columns.
        rows: the rows as HTML.
        text_columns: number of columns, from the left, that hold text; the others hold numbers.
        caption: name of the table, for readers who cannot see it.
    """
    cells = [
        f'<th scope="col"{"" if i < text_columns else " class=number"}>{escape(name)}</th>'
        for i, name in enumerate(head)
    ]
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{''.join(cells)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
