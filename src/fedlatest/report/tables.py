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
from fedlatest.report.run_summaries import SUMMARIES
from fedlatest.report.statistics import half_width, interval_note, with_interval

DASH = "\N{EN DASH}"
VERDICTS = {True: ("holds", "✓ holds"), False: ("fails", "✗ does not hold"), None: ("open", f"{DASH} not judged")}
DIGITS = {"megabytes": 1, "seconds": 1}  # after the decimal point; 4 for other numbers
STATUS = {"finished": "", "diverged": "diverged", "running": "still running"}
THEORY = {"smallest_e": "E", "bound": "bound I"}  # columns: hidden until the reader selects them
HELP = {
    "late_accuracy": "test accuracy, mean over the last quarter of the rounds",
    "swing": "largest minus smallest test accuracy in the last quarter of the rounds",
    "final_accuracy": "test accuracy at the last evaluation",
    "final_train_loss": "training loss at the last evaluation",
    "megabytes": "megabytes sent and received by all clients, of one seed",
    "seconds": "wall time of the run",
    "staleness": "largest number of rounds since a client last took part, over all clients, rounds and seeds",
    "smallest_e": "theory: the smallest E for which Assumption 4 of the FedLaAvg paper holds, that is, every client is "
    "available at least once in any E consecutive rounds",
    "bound": "theory: the bound I of Lemma 1 on the staleness of FedLaAvg, which follows from E",
}

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
    """Return a table with one row per run, and below it what ± and the columns mean.

    The attribute `data-value` of a cell is what a script sorts by, `data-interval` half of its confidence interval.

    Args:
        runs: The runs.
        settings: The runs grouped by setting.
        names: Name of each run, unique among all runs.
        dashes: Dashes of each run's line.
        data: What the page's charts show: `make_data`.
    """
    keys = [key for key in data["keys"] if key != "algorithm"]
    head = ["run", *SUMMARIES.values(), *keys, "largest staleness", *THEORY.values()]
    columns = ["run", *SUMMARIES, *(f"value-{key}" for key in keys), "staleness", *THEORY]
    rows = []
    for i in dict.fromkeys(i for setting in settings for i in setting.runs):
        run, content = runs[i], data["runs"][i]
        status = STATUS.get(run.manifest.get("status", "running"), "")
        note = f' <span class="note">{status}</span>' if status else ""
        cells = [_mean_and_interval(content["summary"][name], DIGITS.get(name, 4)) for name in SUMMARIES]
        cells += [_value_cell(content["values"].get(key)) for key in keys]
        title = f'title="{escape(str(run.path))}"'
        rows.append(
            f'<tr data-run="{i}"><th scope="row" {title} data-value="{escape(names[i])}">{swatch(i, dashes[i])}'
            f"{escape(names[i])}{note}</th>{''.join(cells)}{''.join(_staleness_cells(run))}</tr>"
        )
    meanings = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(HELP[column])}</dd>"
        for name, column in zip(head, columns, strict=True)
        if column in HELP
    )
    return (
        table(head, rows, text_columns=1, caption="All runs", columns=columns)
        + f'<p class="caption">{escape(_means_note(runs))}</p>'
        + f"<details><summary>What do the columns mean?</summary><dl>{meanings}</dl></details>"
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


def _means_note(runs: Sequence[RunRecord]) -> str:
    """Return what the numbers of the table and the number after ± are."""
    note = interval_note([len(run.metrics.seeds) for run in runs])
    return f"Numbers are means over seeds {note} (Student's t)." if note else "Each run has one seed, so there is no ±."


def _mean_and_interval(values: Sequence[float | None], digits: int) -> str:
    """Return a cell with the mean over seeds and its confidence interval."""
    found = np.array([math.nan if value is None else value for value in values], np.float64)
    mean, half = float(found.mean()), half_width(found)
    if math.isnan(mean):
        return f'<td class="number" data-value="">{DASH}</td>'
    about = f' data-interval="{half:.9g}" title="{interval_note([found.size])}"' if half > 0 else ""
    return f'<td class="number" data-value="{mean:.9g}"{about}>{with_interval(mean, half, digits)}</td>'


def _value_cell(value: Any) -> str:
    if value is None:
        return f'<td class="number" data-value="">{DASH}</td>'
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f'<td class="number" data-value="{escape(str(value))}">{escape(text)}</td>'


def _staleness_cells(run: RunRecord) -> list[str]:
    """Return the cells of the largest staleness and of THEORY."""
    facts = run.manifest.get("availability") or {}
    numbers = [None if run.algorithm == POOLED else run.largest_staleness]
    numbers += [facts.get(name) for name in ("smallest_e", "staleness_bound")]
    texts = [DASH if found is None else str(found) for found in numbers]
    if "clients_examined" in facts and numbers[1] is not None:
        texts[1] = f"at least {texts[1]}"
    return [
        f'<td class="number" data-value="{"" if found is None else escape(str(found))}">{escape(text)}</td>'
        for found, text in zip(numbers, texts, strict=True)
    ]


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
    identifiers = [""] * len(head)
    if columns is not None:
        identifiers = [f' data-column="{escape(name)}" title="{escape(HELP.get(name, ""))}"' for name in columns]
    cells = [
        f'<th scope="col"{"" if i < text_columns else " class=number"}{identifier}>{escape(name)}</th>'
        for i, (name, identifier) in enumerate(zip(head, identifiers, strict=True))
    ]
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{''.join(cells)}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
