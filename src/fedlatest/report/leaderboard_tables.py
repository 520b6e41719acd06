"""Leaderboards as Markdown, CSV and HTML."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType

from fedlatest.files import write_csv, write_text
from fedlatest.report.leaderboard import Board, Entry, Leaderboard
from fedlatest.report.leaderboard_cells import accuracy_cell, bytes_cell, number_cell, plain_cell, step_cells
from fedlatest.report.tables import DASH, table
from fedlatest.report.timed_results import HOUR
from fedlatest.report.timed_tables import (
    IN_TIME_CSV_HEAD,
    IN_TIME_EXPLANATION,
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
EXPLANATION = (
    "Test accuracy is the mean over the last quarter of the rounds and over seeds, with a 95% confidence interval. "
    "Bold: the best of a case, and methods that do not differ significantly from it (paired t-test over seeds, 5%). "
    "The swing is the largest minus the smallest accuracy in the last quarter. Rounds to target: the first round from "
    "which the accuracy stays at or above the target, median over seeds. Bytes are those of all clients in a run."
)


CSV_HEAD = (
    "case", "rank", "method", "accuracy", "interval", "diverged", "swing", "rounds_to_target", "target", "worst_label",
    "mb_up", "mb_down", "client_bytes", "server_bytes", "client_step", "server_step", "ties_best",
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


def as_markdown(board: Leaderboard) -> str:
    """Return the table over all cases, and one table per case."""
    lines = [f"## {_summary_title(board)}", "", _ranks_sentence(board), ""]
    lines += _markdown_table(["method", "mean rank", *board.cases], _summary(board, bold="**{}**"))
    for title, rows in _further_summaries(board).items():
        lines += ["", f"## {title} in all cases", "", *_markdown_table(["method", *board.cases], rows)]
    for each in board.boards:
        lines += ["", f"## {each.case}", "", f"`{_setting(each)}`; {_limits(each)}", ""]
        lines += _markdown_table(*_detailed(board, each, bold="**{}**"))
    return "\n".join([*lines, "", _explanation(board), ""])


def as_html(board: Leaderboard, diagram: str, curves: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the section of the report page.

    Args:
        board: the leaderboards.
        diagram: the critical-difference diagram as the source of an image, or "" if there is none.
        curves: by case, the figure of accuracy over time and bytes as the source of an image.
    """
    parts = ['<section id="leaderboard"><h2>Leaderboard</h2>', f"<p>{escape(_ranks_sentence(board))}</p>"]
    if diagram:
        alternative = "Mean ranks of the methods; bars connect methods that do not differ significantly"
        parts.append(f'<p class="diagram"><img src="{diagram}" alt="{alternative}"></p>')
    bold = "<strong>{}</strong>"
    head = ["method", "mean rank", *board.cases]
    parts.append(_html_table(head, _summary(board, bold=bold), _summary_title(board)))
    for title, rows in _further_summaries(board).items():
        parts.append(_html_table(["method", *board.cases], rows, f"{title} in all cases"))
    parts.append(f'<p class="caption">{escape(_explanation(board))}</p>')
    for each in board.boards:
        if each.case in curves:
            alternative = f"Test accuracy of the methods in {each.case} over virtual time and over bytes"
            parts.append(f'<p class="diagram"><img src="{curves[each.case]}" alt="{escape(alternative)}"></p>')
        content = _html_table(*_detailed(board, each, bold=bold), f"{each.case} ({_setting(each)}); {_limits(each)}")
        parts.append(f"<details><summary>{escape(each.case)}</summary>{content}</details>")
    parts.append(f"<details><summary>Search for step sizes</summary>{_search_table(board)}</details>")
    return "\n".join([*parts, "</section>"])


def _explanation(board: Leaderboard) -> str:
    return IN_TIME_EXPLANATION if board.in_time else EXPLANATION


def _summary_title(board: Leaderboard) -> str:
    return "Hours to the target accuracy in all cases" if board.in_time else "All cases"


def _summary(board: Leaderboard, *, bold: str) -> list[list[str]]:
    """Return one row per method with its mean rank and its accuracy or time to the target in every case."""
    mean_rank = dict(zip(board.methods, board.ranking.mean, strict=True))
    return [
        [
            board.titles[method],
            f"{mean_rank[method]:.1f}",
            *(main_cell(board.entry(c, method), bold=bold) for c in board.cases),
        ]
        for method in board.by_rank
    ]


def _further_summaries(board: Leaderboard) -> dict[str, list[list[str]]]:
    """Return tables by title with one number per method and case, in the order of `_summary`."""

    def rows(show: Callable[[Entry], str]) -> list[list[str]]:
        return [
            [board.titles[method], *(show(board.entry(case, method)) for case in board.cases)]
            for method in board.by_rank
        ]

    swings = {"Swing": rows(lambda entry: number_cell(entry.swing, 4))}
    if not board.in_time:
        return swings
    return {"Test accuracy": rows(lambda entry: accuracy_cell(entry, bold="{}", interval=False)), **swings}


def _detailed(board: Leaderboard, each: Board, *, bold: str) -> tuple[Sequence[str], list[list[str]]]:
    """Return the head and the rows of the table of one case."""
    if board.in_time:
        return IN_TIME_HEAD, [cells_in_time(entry, bold=bold) for entry in each.entries]
    return HEAD, [_cells(entry, bold=bold) for entry in each.entries]


def _setting(each: Board) -> str:
    """Return the overrides of a case without its time limit, which `--hours` may have changed."""
    return " ".join(override for override in each.overrides.split() if not override.startswith("until="))


def _limits(each: Board) -> str:
    text = f"target accuracy {each.target:.2f}"
    if each.until is None:
        return text
    early = [entry.title for entry in each.entries if entry.timed is not None and entry.timed.ends_early]
    more = f"; reached its largest number of rounds before the time limit: {', '.join(early)}" if early else ""
    return f"{text}, within {each.until / HOUR:g} hours{more}"


def _cells(entry: Entry, *, bold: str) -> list[str]:
    return [
        entry.title,
        accuracy_cell(entry, bold=bold),
        number_cell(entry.swing, 4),
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
    return _html_table(
        head,
        rows,
        "All trials; the score is the mean training accuracy over the last quarter of the run",
        text_columns=2,
    )


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
