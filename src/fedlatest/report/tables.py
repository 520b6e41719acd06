"""The tables of the page as HTML; they need no JavaScript."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

import numpy as np

from fedlatest.report.claims import Claim
from fedlatest.report.grouping import POOLED, Setting
from fedlatest.report.run_records import RunRecord
from fedlatest.report.run_summaries import SUMMARIES, Values, spread

DASH = "\N{EN DASH}"
VERDICTS = {True: ("holds", "✓ holds"), False: ("fails", "✗ does not hold"), None: ("open", f"{DASH} not judged")}
DIGITS = {"megabytes": 1, "seconds": 1}  # after the decimal point; 4 for other numbers
STATUS = {"finished": "", "diverged": "diverged", "running": "still running"}

Json = dict[str, Any]


def swatch(number: int, dash: str) -> str:
    """Return a sample of a run's line as SVG, with the colour and dashes of the charts."""
    return (
        f'<svg class="swatch" viewBox="0 0 28 10" aria-hidden="true"><path d="M1 5H27" stroke="var(--run-{number})" '
        f'stroke-dasharray="{escape(dash)}"/></svg>'
    )


def summary_table(
    runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str], dashes: Sequence[str], data: Json
) -> str:
    """Return a table with one row per run; E is that of Assumption 4, I the bound of Lemma 1.

    The attribute `data-value` of a cell is what a script sorts by.

    Args:
        runs: The runs.
        settings: The runs grouped by setting.
        names: Name of each run, unique among all runs.
        dashes: Dashes of each run's line.
        data: What the page's charts show: `make_data`.
    """
    keys = [key for key in data["keys"] if key != "algorithm"]
    head = ["run", *SUMMARIES.values(), *keys, "E", "bound I", "largest staleness"]
    columns = ["run", *SUMMARIES, *(f"value-{key}" for key in keys), "smallest_e", "bound", "staleness"]
    rows = []
    for i in dict.fromkeys(i for setting in settings for i in setting.runs):
        run, content = runs[i], data["runs"][i]
        status = STATUS.get(run.manifest.get("status", "running"), "")
        note = f' <span class="note">{status}</span>' if status else ""
        cells = [_mean_and_spread(content["summary"][name], DIGITS.get(name, 4)) for name in SUMMARIES]
        cells += [_value_cell(content["values"].get(key)) for key in keys]
        title = f'title="{escape(str(run.path))}"'
        rows.append(
            f'<tr data-run="{i}"><th scope="row" {title} data-value="{escape(names[i])}">{swatch(i, dashes[i])}'
            f"{escape(names[i])}{note}</th>{''.join(cells)}{''.join(_theory_cells(run))}</tr>"
        )
    return table(head, rows, text_columns=1, caption="All runs", columns=columns)


def headline(runs: list[RunRecord], names: Sequence[str]) -> str:
    """Return the most important numbers of some runs: best accuracy, smallest swing, largest staleness."""
    known = [
        i for i, run in enumerate(runs) if run.algorithm != POOLED and not math.isnan(run.late_accuracy)
    ]  # a run that is not finished counts with what it has reached
    cards = []
    if known:
        best = max(known, key=lambda i: runs[i].late_accuracy)
        late = runs[best].late("test_accuracy").mean(axis=1)
        cards.append(("best late accuracy" if len(known) > 1 else "late accuracy", _with_spread(late, 4), names[best]))
    steady = [i for i in known if not math.isnan(runs[i].swing)]
    if steady:
        least = min(steady, key=lambda i: runs[i].swing)
        cards.append(("smallest swing" if len(steady) > 1 else "swing", number(runs[least].swing), names[least]))
        stalest = max(known, key=lambda i: runs[i].largest_staleness)
        cards.append(("largest staleness", f"{runs[stalest].largest_staleness:,} rounds", names[stalest]))
    running = sum(run.manifest.get("status") == "running" for run in runs)
    progress = [
        f"{running} running" if running else "",
        f"{_num_diverged(runs)} diverged" if _num_diverged(runs) else "",
    ]
    cards.append(("runs", str(len(runs)), ", ".join(filter(None, progress)) or "all finished"))
    return "".join(
        f'<div class="card"><span>{escape(title)}</span><b>{escape(value)}</b><small>{escape(detail)}</small></div>'
        for title, value, detail in cards
    )


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


def _mean_and_spread(values: Sequence[float | None], digits: int) -> str:
    """Return a cell with the mean and the standard deviation over seeds."""
    found = np.array([math.nan if value is None else value for value in values], np.float64)
    mean = float(found.mean())
    return f'<td class="number" data-value="{_sort_value(mean)}">{_with_spread(found, digits)}</td>'


def _with_spread(values: Values, digits: int) -> str:
    """Return mean ± standard deviation; the mean alone for one seed or if all seeds have the same value.

    >>> _with_spread(np.array([0.25, 0.75]), 2)
    '0.50 ± 0.35'
    """
    deviation = spread(values)
    text = number(float(values.mean()), digits)
    return text if math.isnan(deviation) or np.ptp(values) == 0 else f"{text} ± {number(deviation, digits)}"


def _value_cell(value: Any) -> str:
    if value is None:
        return f'<td class="number" data-value="">{DASH}</td>'
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f'<td class="number" data-value="{escape(str(value))}">{escape(text)}</td>'


def _theory_cells(run: RunRecord) -> list[str]:
    """Return the cells of E, the bound and the largest staleness."""
    facts = run.manifest.get("availability") or {}
    numbers = [facts.get(name) for name in ("smallest_e", "staleness_bound")]
    numbers.append(None if run.algorithm == POOLED else run.largest_staleness)
    texts = [DASH if found is None else str(found) for found in numbers]
    if "clients_examined" in facts and numbers[0] is not None:
        texts[0] = f"at least {texts[0]}"
    return [
        f'<td class="number" data-value="{"" if found is None else escape(str(found))}">{escape(text)}</td>'
        for found, text in zip(numbers, texts, strict=True)
    ]


def _sort_value(value: float) -> str:
    return f"{value:.9g}" if math.isfinite(value) else ""


def _num_diverged(runs: list[RunRecord]) -> int:
    return sum(run.manifest.get("status") == "diverged" for run in runs)


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


def table(
    head: Sequence[str],
    rows: Sequence[str],
    *,
    text_columns: int,
    caption: str,
    columns: Sequence[str] | None = None,
) -> str:
    """Return a table that scrolls sideways if it is wide.

    Args:
        head: names of the columns.
        rows: the rows as HTML.
        text_columns: number of columns, from the left, that hold text; the others hold numbers.
        caption: name of the table, for readers who cannot see it.
        columns: identifiers of the columns, for a table that a script sorts.
    """
    identifiers = [""] * len(head) if columns is None else [f' data-column="{escape(name)}"' for name in columns]
    cells = [
        f'<th scope="col"{"" if i < text_columns else " class=number"}{identifier}>{escape(name)}</th>'
        for i, (name, identifier) in enumerate(zip(head, identifiers, strict=True))
    ]
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{''.join(cells)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
