"""Leaderboards as Markdown, CSV and HTML."""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from fedlatest.files import write_csv, write_text
from fedlatest.report.leaderboard import Entry, Leaderboard
from fedlatest.report.tables import DASH, table

HEAD = (
    "method", "test accuracy", "swing", "rounds to target", "worst label", "MB up", "MB down", "client memory",
    "server memory", "client step", "server step",
)  # fmt: skip
EXPLANATION = (
    "Test accuracy is the mean over the last quarter of the rounds and over seeds, with a 95% confidence interval. "
    "Bold: the best of a case, and methods that do not differ significantly from it (paired t-test over seeds, 5%). "
    "The swing is the largest minus the smallest accuracy in the last quarter. Rounds to target: the first round from "
    "which the accuracy stays at or above the target, median over seeds. Bytes are those of all clients in a run."
)


def write_leaderboard(board: Leaderboard, folder: Path) -> list[Path]:
    """Write leaderboard.md, leaderboard.csv and search.csv; return their paths."""
    paths = [folder / name for name in ("leaderboard.md", "leaderboard.csv", "search.csv")]
    write_text(paths[0], as_markdown(board))
    header = ["case", "rank", *(name.replace(" ", "_") for name in HEAD[:1]), "accuracy", "interval", "diverged"]
    header += ["swing", "rounds_to_target", "target", "worst_label", "mb_up", "mb_down", "client_bytes"]
    header += ["server_bytes", "client_step", "server_step", "ties_best"]
    rows = [
        [
            each.case, number + 1, entry.method, _plain(entry.mean), _plain(entry.interval), entry.diverged,
            _plain(entry.swing), _plain(entry.rounds_to_target), _plain(each.target), _plain(entry.worst_label),
            _plain(entry.megabytes_up), _plain(entry.megabytes_down), _plain(entry.client_bytes),
            _plain(entry.server_bytes), _plain(entry.learning_rate), _plain(entry.server_step), entry.ties_best,
        ]
        for each in board.boards
        for number, entry in enumerate(each.entries)
    ]  # fmt: skip
    write_csv(paths[1], [header, *rows])
    trials = [[*trial[:3], _plain(trial.server_step), _plain(trial.score), *trial[5:]] for trial in board.trials]
    write_csv(paths[2], [("case", "method", "client_step", "server_step", "score", "best", "at_edge"), *trials])
    return paths


def as_markdown(board: Leaderboard) -> str:
    """Return the table over all cases, and one table per case."""
    lines = ["## All cases", "", _ranks_sentence(board), ""]
    lines += _markdown_table(["method", "mean rank", *board.cases], _summary(board, bold="**{}**"))
    lines += ["", "## Swing in all cases", ""]
    lines += _markdown_table(["method", *board.cases], _swings(board))
    for each in board.boards:
        lines += ["", f"## {each.case}", "", f"`{each.overrides}`; target accuracy {each.target:.2f}", ""]
        lines += _markdown_table(HEAD, [_cells(entry, bold="**{}**") for entry in each.entries])
    return "\n".join([*lines, "", EXPLANATION, ""])


def as_html(board: Leaderboard, diagram: str) -> str:
    """Return the section of the report page.

    Args:
        board: the leaderboards.
        diagram: the critical-difference diagram as the source of an image, or "" if there is none.
    """
    parts = ['<section id="leaderboard"><h2>Leaderboard</h2>', f"<p>{escape(_ranks_sentence(board))}</p>"]
    if diagram:
        alternative = "Mean ranks of the methods; bars connect methods that do not differ significantly"
        parts.append(f'<p class="diagram"><img src="{diagram}" alt="{alternative}"></p>')
    bold = "<strong>{}</strong>"
    parts.append(_html_table(["method", "mean rank", *board.cases], _summary(board, bold=bold), "All cases"))
    parts.append(_html_table(["method", *board.cases], _swings(board), "Swing in all cases"))
    parts.append(f'<p class="caption">{escape(EXPLANATION)}</p>')
    for each in board.boards:
        caption = f"{each.case} ({each.overrides}); target accuracy {each.target:.2f}"
        content = _html_table(HEAD, [_cells(entry, bold=bold) for entry in each.entries], caption)
        parts.append(f"<details><summary>{escape(each.case)}</summary>{content}</details>")
    parts.append(f"<details><summary>Search for step sizes</summary>{_search_table(board)}</details>")
    return "\n".join([*parts, "</section>"])


def _summary(board: Leaderboard, *, bold: str) -> list[list[str]]:
    """Return one row per method with its mean rank and its accuracy in every case."""
    mean_rank = dict(zip(board.methods, board.ranking.mean, strict=True))
    return [
        [
            board.titles[method],
            f"{mean_rank[method]:.1f}",
            *(_accuracy(board.entry(case, method), bold=bold, interval=False) for case in board.cases),
        ]
        for method in board.by_rank
    ]


def _swings(board: Leaderboard) -> list[list[str]]:
    """Return one row per method with its swing in every case, in the order of `_summary`."""
    return [
        [board.titles[method], *(_number(board.entry(case, method).swing, 4) for case in board.cases)]
        for method in board.by_rank
    ]


def _cells(entry: Entry, *, bold: str) -> list[str]:
    return [
        entry.title,
        _accuracy(entry, bold=bold),
        _number(entry.swing, 4),
        DASH if math.isinf(entry.rounds_to_target) else f"{entry.rounds_to_target:.0f}",
        _number(entry.worst_label, 3),
        _number(entry.megabytes_up, 0),
        _number(entry.megabytes_down, 0),
        _bytes(entry.client_bytes),
        _bytes(entry.server_bytes),
        f"{entry.learning_rate:g}",
        DASH if entry.server_step is None else f"{entry.server_step:g}",
    ]


def _accuracy(entry: Entry, *, bold: str, interval: bool = True) -> str:
    if entry.diverged:
        return "diverged"
    text = f"{entry.mean:.4f}"
    if interval and not math.isnan(entry.interval):
        text += f" ± {entry.interval:.4f}"
    return bold.format(text) if entry.ties_best else text


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
    edges = sum(trial.best and trial.at_edge for trial in board.trials)
    if edges:
        text += f" In {edges} of {len(board.methods) * count} searches the best step is the smallest or largest tried."
    return text


def _search_table(board: Leaderboard) -> str:
    rows = [
        [
            trial.case,
            board.titles[trial.method],
            f"{trial.learning_rate:g}",
            DASH if trial.server_step is None else f"{trial.server_step:g}",
            "diverged" if math.isinf(trial.score) else f"{trial.score:.4f}",
            ("best, at the edge" if trial.at_edge else "best") if trial.best else "",
        ]
        for trial in board.trials
    ]
    head = ["case", "method", "client step", "server step", "training accuracy", ""]
    return _html_table(head, rows, "All trials; the score is the late mean training accuracy", text_columns=2)


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [*lines, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)]


def _html_table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, text_columns: int = 1) -> str:
    body = [
        "<tr>"
        + "".join(f'<th scope="row">{_escaped(cell)}</th>' for cell in row[:text_columns])
        + "".join(f'<td class="number">{_escaped(cell)}</td>' for cell in row[text_columns:])
        + "</tr>"
        for row in rows
    ]
    return f"<p>{escape(caption)}</p>" + table(head, body, text_columns=text_columns, caption=caption)


def _escaped(cell: str) -> str:
    """Escape a cell, except the element that `bold` adds."""
    inner = cell.removeprefix("<strong>").removesuffix("</strong>")
    return escape(cell) if inner == cell else f"<strong>{escape(inner)}</strong>"


def _number(value: float, digits: int) -> str:
    return DASH if not math.isfinite(value) else f"{value:,.{digits}f}"


def _bytes(value: float) -> str:
    if not math.isfinite(value):
        return DASH
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def _plain(value: float | None) -> str:
    """Return a number for a CSV file; empty if it is unknown or infinite."""
    return "" if value is None or not math.isfinite(value) else f"{value:.9g}"
