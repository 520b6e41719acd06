"""Leaderboards as Markdown, CSV and HTML."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fedlatest.files import write_csv, write_text
from fedlatest.report.leaderboard import FEWEST_SEEDS, Board, Entry, Leaderboard
from fedlatest.report.leaderboard_cells import accuracy_cell, bytes_cell, number_cell, plain_cell, step_cells
from fedlatest.report.leaderboard_shades import DISTANCES, shades
from fedlatest.report.leaderboard_shades import EXPLANATION as SHADES
from fedlatest.report.run_labels import listed
from fedlatest.report.tables import DASH, table
from fedlatest.report.timed_results import HOUR
from fedlatest.report.timed_tables import (
    IN_TIME_CSV_HEAD,
    IN_TIME_EXPLANATIONS,
    IN_TIME_HEAD,
    cells_in_time,
    main_cell,
    plain_in_time,
    traffic,
)

HEAD = (
    "method", "test accuracy", "swing", "rounds to target", "worst label", "MB up", "MB down", "client memory",
    "server memory", "client step", "server step",
)  # fmt: skip
EXPLANATIONS = {
    "bold": "the best of a case, and methods that do not differ significantly from it (paired t-test over seeds, 5%)",
    "test accuracy": "mean over the last quarter of the rounds and over seeds, with a 95% confidence interval",
    "swing": "the largest minus the smallest accuracy in the last quarter of the rounds, mean over seeds",
    "rounds to target": "the first round from which the accuracy stays at or above the target, median over seeds",
    "worst label": "test accuracy of the label with the lowest one",
    "MB up, MB down": "bytes of all clients in a run",
}
CSV_HEAD = (
    "case", "rank", "method", "accuracy", "accuracy_ci95_half_width", "diverged", "swing", "rounds_to_target", "target",
    "worst_label", "mb_up", "mb_down", "client_bytes", "server_bytes", "client_step", "server_step", "ties_best",
)  # fmt: skip


def write_leaderboard(board: Leaderboard, folder: Path) -> list[Path]:
    """Write leaderboard.md, leaderboard.csv and search.csv; return their paths."""
    paths = [folder / name for name in ("leaderboard.md", "leaderboard.csv", "search.csv")]
    write_text(paths[0], as_markdown(board))
    rows = [
        [*_plain(each, entry, number + 1), *plain_in_time(entry, is_used=board.in_time)]
        for each in board.boards
        for number, entry in enumerate(each.entries)
    ]
    write_csv(paths[1], [(*CSV_HEAD, *(IN_TIME_CSV_HEAD if board.in_time else ())), *rows])
    trials = [
        [*trial[:3], plain_cell(trial.server_step), plain_cell(trial.score), *trial[5:]] for trial in board.trials
    ]
    write_csv(paths[2], [("case", "method", "client_step", "server_step", "score", "best", "at_edge"), *trials])
    return paths


def _plain(board: Board, entry: Entry, number: int) -> list[object]:
    """Return the values of CSV_HEAD."""
    accuracy = (plain_cell(entry.mean), plain_cell(entry.interval), entry.diverged)
    numbers = (
        entry.swing, entry.rounds_to_target, board.target, entry.worst_label, *traffic(entry), entry.client_bytes,
        entry.server_bytes, entry.learning_rate, entry.server_step,
    )  # fmt: skip
    return [board.case, number, entry.method, *accuracy, *map(plain_cell, numbers), entry.ties_best]


class _Table(NamedTuple):
    """A table of a leaderboard; the best cells are bold in Markdown."""

    head: Sequence[str]
    measures: Sequence[str]  # what each column shows: the head, but not for columns named after cases
    rows: list[list[str]]


def as_markdown(board: Leaderboard) -> str:
    """Return the tables over all cases, and one table per case.

    A comment before each table says what columns named after cases show; the documentation's hook reads it.
    """
    lines = [f"## {_summary_title(board)}", "", _ranks_sentence(board), ""]
    for warning in warnings(board):
        lines += [f"> **Warning:** {warning}", ""]
    measure, summary = _summary(board)
    lines += _markdown_table(summary, measure)
    for measure, found in _further_summaries(board).items():
        lines += ["", f"## {_in_all_cases(measure)}", "", *_markdown_table(found, measure)]
    for each in board.boards:
        lines += ["", f"## {each.case}", "", f"`{_setting(each)}`; {_limits(each)}", ""]
        lines += _markdown_table(_detailed(board, each))
    lines += ["", *(f"- **{name}**: {text}." for name, text in _explanations(board).items()), ""]
    return "\n".join(lines)


def as_html(board: Leaderboard, diagram: str, curves: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the section of the report page.

    Args:
        board: the leaderboards.
        diagram: the critical-difference diagram as the source of an image, or "" if there is none.
        curves: by case, the figure of accuracy over time and bytes as the source of an image.
    """
    parts = ['<section id="leaderboard"><h2>Leaderboard</h2>', f"<p>{escape(_ranks_sentence(board))}</p>"]
    parts += [f'<p class="warning" role="note"><b>Warning:</b> {_code(text)}</p>' for text in warnings(board)]
    if diagram:
        alternative = "Mean ranks of the methods; bars connect methods that do not differ significantly"
        parts.append(_figure(diagram, alternative))
    _, summary = _summary(board)
    samples = "".join(f'<i class="near-{i}"></i>' for i in range(len(DISTANCES)))
    parts += [
        _html_table(summary, _summary_title(board), tag="h3"),
        f'<p class="caption"><span class="shades" aria-hidden="true">{samples}</span> {escape(SHADES)}</p>',
    ]
    for measure, found in _further_summaries(board).items():
        parts.append(_html_table(found, _in_all_cases(measure), tag="h3"))
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in _explanations(board).items())
    parts.append(f"<details><summary>What do the columns mean?</summary><dl>{terms}</dl></details>")
    for each in board.boards:
        if each.case in curves:
            alternative = f"Test accuracy of the methods in {each.case} over virtual time and over bytes"
            parts.append(_figure(curves[each.case], alternative, "broad"))
        content = _html_table(_detailed(board, each), f"{each.case} ({_setting(each)}); {_limits(each)}")
        parts.append(f"<details><summary>{escape(each.case)}</summary>{content}</details>")
    parts.append(f"<details><summary>Search for step sizes</summary>{_search_table(board)}</details>")
    return "\n".join([*parts, "</section>"])


def _figure(source: str, alternative: str, style: str = "") -> str:
    return f'<p class="diagram"><img class="{style}" src="{source}" alt="{escape(alternative)}"></p>'


def _explanations(board: Leaderboard) -> dict[str, str]:
    """Return the meaning of bold cells and of columns, by name."""
    found = IN_TIME_EXPLANATIONS if board.in_time else EXPLANATIONS
    return {name: text for name, text in found.items() if name != "bold" or board.has_tests}


def _summary_title(board: Leaderboard) -> str:
    return _in_all_cases("hours to target" if board.in_time else "test accuracy")


def _in_all_cases(measure: str) -> str:
    return f"{measure.capitalize()} in all cases"


def _summary(board: Leaderboard) -> tuple[str, _Table]:
    """Return what methods are ranked by, and a table of it with one row per method and one column per case."""
    mean_rank = dict(zip(board.methods, board.ranking.mean, strict=True))
    rows = [
        [
            board.titles[method],
            f"{mean_rank[method]:.1f}",
            *(main_cell(board.entry(c, method), bold="**{}**") for c in board.cases),
        ]
        for method in board.by_rank
    ]
    measure = "hours to target" if board.in_time else "test accuracy"
    head = ["method", "mean rank", *board.cases]
    return measure, _Table(head, [*head[:2], *[measure] * len(board.cases)], rows)


def _further_summaries(board: Leaderboard) -> dict[str, _Table]:
    """Return tables of other numbers, by what they show, in the order of `_summary`."""

    def make(measure: str, show: Callable[[Entry], str]) -> _Table:
        rows = [
            [board.titles[method], *(show(board.entry(case, method)) for case in board.cases)]
            for method in board.by_rank
        ]
        return _Table(["method", *board.cases], ["method", *[measure] * len(board.cases)], rows)

    found: dict[str, Callable[[Entry], str]] = {"swing": lambda entry: number_cell(entry.swing, 3)}
    if board.in_time:
        found = {"test accuracy": lambda entry: accuracy_cell(entry, bold="{}", interval=False), **found}
    return {measure: make(measure, show) for measure, show in found.items()}


def _detailed(board: Leaderboard, each: Board) -> _Table:
    """Return the table of one case."""
    if board.in_time:
        return _Table(IN_TIME_HEAD, IN_TIME_HEAD, [cells_in_time(entry, bold="**{}**") for entry in each.entries])
    return _Table(HEAD, HEAD, [_cells(entry, bold="**{}**") for entry in each.entries])


def _setting(each: Board) -> str:
    """Return the overrides of a case without its time limit, which `--hours` may have changed."""
    return " ".join(override for override in each.overrides.split() if not override.startswith("until="))


def _limits(each: Board) -> str:
    text = f"target accuracy {each.target:.2f}"
    if each.until is None:
        return text
    early = [entry.title for entry in each.entries if entry.timed is not None and entry.timed.ends_early]
    more = f"; reached its largest number of rounds before the time limit: {listed(early)}" if early else ""
    return f"{text}, within {each.until / HOUR:g} hours{more}"


def _cells(entry: Entry, *, bold: str) -> list[str]:
    return [
        entry.title,
        accuracy_cell(entry, bold=bold),
        number_cell(entry.swing, 3),
        DASH if math.isinf(entry.rounds_to_target) else f"{entry.rounds_to_target:.0f}",
        number_cell(entry.worst_label, 3),
        number_cell(entry.megabytes_up, 0),
        number_cell(entry.megabytes_down, 0),
        bytes_cell(entry.client_bytes),
        bytes_cell(entry.server_bytes),
        *step_cells(entry),
    ]


def _ranks_sentence(board: Leaderboard) -> str:
    ranking, count = board.ranking, len(board.cases)
    text = f"{len(board.methods)} methods in {count} availability case{'s' if count > 1 else ''}."
    if not math.isnan(ranking.p_value):
        text += f" Friedman's test that all are equally good: p = {ranking.p_value:.2g}."
    if not math.isnan(ranking.critical_difference):
        text += (
            f" Mean ranks that differ by less than {ranking.critical_difference:.1f} do not differ significantly "
            "(Nemenyi, 5%)."
        )
    return text


def warnings(board: Leaderboard) -> list[str]:
    """Return what a reader must know before trusting the order of the methods, and what to do about it."""
    found = []
    edges, searches = sum(trial.best and trial.at_edge for trial in board.trials), len(board.methods) * len(board.cases)
    if edges:
        found.append(
            f"In {edges} of {searches} searches the best step is the smallest or largest that was tried, so that a "
            "better one may lie beyond and the order of the methods may change. Compare again with more `--trials`; "
            'the table of the search marks these steps as "at the edge".'
        )
    if not board.has_tests:
        found.append(
            f"No method is marked as not significantly different from the best: the test over seeds needs at least "
            f"{FEWEST_SEEDS} seeds, and each method ran on {board.num_seeds}. Compare again with more `--seeds`."
        )
    return found


def _search_table(board: Leaderboard) -> str:
    head = ["method", "case", "client step", "server step", "training accuracy", ""]
    rows = [
        [
            board.titles[trial.method],
            trial.case,
            f"{trial.learning_rate:g}",
            DASH if trial.server_step is None else f"{trial.server_step:g}",
            "diverged" if math.isinf(trial.score) else f"{trial.score:.3f}",
            ("best, at the edge" if trial.at_edge else "best") if trial.best else "",
        ]
        for trial in board.trials
    ]
    caption = "All trials; the score is the mean training accuracy over the last quarter of the run"
    return _html_table(_Table(head, head, rows), caption, text_columns=2)


def _markdown_table(found: _Table, measure: str = "") -> list[str]:
    """Return the lines of a table, after a comment that names what columns named after cases show."""
    lines = [f"<!-- leaderboard{measure and f': {measure}'} -->", ""]
    lines += [f"| {' | '.join(found.head)} |", f"|---|{'---:|' * (len(found.head) - 1)}"]
    return [*lines, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in found.rows)]


def _html_table(found: _Table, caption: str, *, text_columns: int = 1, tag: str = "p") -> str:
    body = []
    for row, levels in zip(found.rows, shades(found.measures, found.rows), strict=True):
        cells = [f'<th scope="row">{_bold(cell)}</th>' for cell in row[:text_columns]]
        for cell, level in zip(row[text_columns:], levels[text_columns:], strict=True):
            cells.append(f'<td class="number{"" if level is None else f" near-{level}"}">{_bold(cell)}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<{tag}>{escape(caption)}</{tag}>" + table(found.head, body, text_columns=text_columns, caption=caption)


def _code(text: str) -> str:
    """Return a text as HTML; what is between backticks is code.

    >>> _code("a<b with `--x`")
    'a&lt;b with <code>--x</code>'
    """
    return re.sub(r"`(.*?)`", r"<code>\1</code>", escape(text, quote=False))


def _bold(cell: str) -> str:
    """Return a cell as HTML; a cell that is bold in Markdown is bold.

    >>> _bold("**0.9**"), _bold("a<b")
    ('<strong>0.9</strong>', 'a&lt;b')
    """
    inner = cell.removeprefix("**").removesuffix("**")
    return escape(cell) if inner == cell else f"<strong>{escape(inner)}</strong>"
