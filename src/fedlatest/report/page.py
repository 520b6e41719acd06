"""The report as one self-contained HTML file, which makes no network requests."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.files import write_text
from fedlatest.report.claims import Claim
from fedlatest.report.findings import findings, what_was_run
from fedlatest.report.grouping import LineStyle, Setting, find_settings, line_styles, name_runs
from fedlatest.report.leaderboard import Leaderboard
from fedlatest.report.leaderboard_tables import as_html
from fedlatest.report.page_data import MOST_EVALUATIONS, make_data
from fedlatest.report.published_curves import PublishedCurve
from fedlatest.report.rank_figures import rank_diagram_source
from fedlatest.report.run_records import RunRecord
from fedlatest.report.tables import claims_table, configurations, summary_table

TITLE = "Federated learning with clients that come and go"
SCRIPTS = ("elements.js", "scales.js", "chart.js", "heatmap.js", "runs.js", "curves.js", "clients.js", "page.js")
_NONE: Mapping[Path, PublishedCurve] = {}


def write_page(
    runs: list[RunRecord],
    path: Path,
    *,
    claims: Sequence[Claim] = (),
    published: Mapping[Path, PublishedCurve] = _NONE,
    title: str = TITLE,
    leaderboard: Leaderboard | None = None,
) -> Path:
    """Write the report on some runs.

    Args:
        runs: The runs, as `read_runs` returns them.
        path: The file to write; its name ends in .html or .htm.
        claims: Claims to list with their verdicts.
        published: Published curves to draw, by the folder of the run that they belong to.
        title: Title of the page.
        leaderboard: The leaderboards of an arena, whose final runs are `runs`.

    Returns:
        `path`.

    Raises:
        RunFolderError: If no runs are given or the file cannot be written.
        ConfigError: If the file name has another ending.
    """
    if not runs:
        raise RunFolderError("nothing to report: no runs were given")
    if path.suffix not in (".html", ".htm"):
        raise ConfigError(f"{path}: the report is an HTML page; choose a name that ends in .html")
    text = _page(runs, claims, published, title, leaderboard)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path}: the report could not be written ({error.strerror})") from error
    write_text(path, text)
    return path


def _page(
    runs: list[RunRecord],
    claims: Sequence[Claim],
    published: Mapping[Path, PublishedCurve],
    title: str,
    leaderboard: Leaderboard | None,
) -> str:
    settings = find_settings(runs) if leaderboard is None else _cases(runs, leaderboard)
    lines = line_styles(runs, settings)
    names = name_runs(runs, settings) if leaderboard is None else _titles(runs, leaderboard)
    data = make_data(runs, settings, names, lines, published)
    found = findings(runs, settings, names) if leaderboard is None else []  # the leaderboards say what was found
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in found)
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        style=_asset("page.css") + _colours(lines),
        chooser=_chooser(settings),
        leaderboard_link="" if leaderboard is None else '<a href="#leaderboard">Leaderboard</a>',
        leaderboard="" if leaderboard is None else as_html(leaderboard, rank_diagram_source(leaderboard)),
        claims_link='<a href="#claims">Claims</a>' if claims else "",
        what=escape(what_was_run(runs, settings)),
        findings=f"<ul>{sentences}</ul>" if sentences else "",
        summary=summary_table(runs, settings, names, [line.dash for line in lines]),
        claims=f'<section id="claims"><h2>Claims</h2>{claims_table(claims)}</section>' if claims else "",
        configurations=configurations(runs, settings, names),
        thinned=_thinned(runs),
        data=embed(data),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )


def _cases(runs: list[RunRecord], leaderboard: Leaderboard) -> list[Setting]:
    """Return one setting per availability case, with its runs in the order of the leaderboard."""
    position = {run.path: i for i, run in enumerate(runs)}
    return [Setting(board.case, [position[entry.run.path] for entry in board.entries]) for board in leaderboard.boards]


def _titles(runs: list[RunRecord], leaderboard: Leaderboard) -> list[str]:
    entries = {entry.run.path: entry for board in leaderboard.boards for entry in board.entries}
    return [entries[run.path].title for run in runs]


def embed(data: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside a script element: `<` is escaped, so no text can close the element.

    >>> embed({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _thinned(runs: list[RunRecord]) -> str:
    most = max(run.metrics.rounds.size for run in runs)
    return (
        f"Runs have up to {most:,} evaluations; {MOST_EVALUATIONS} of each are drawn."
        if most > MOST_EVALUATIONS
        else ""
    )


def _chooser(settings: Sequence[Setting]) -> str:
    """Return a list to select the setting that all charts show; the one with most runs is selected first."""
    if len(settings) < 2:
        return ""
    first = max(range(len(settings)), key=lambda i: len(settings[i].runs))
    options = "".join(
        f'<option value="{i}"{" selected" if i == first else ""}>{escape(setting.label)}</option>'
        for i, setting in enumerate(settings)
    )
    return f'<label class="chooser">Setting <select id="setting" autocomplete="off">{options}</select></label>'


def _colours(lines: Sequence[LineStyle]) -> str:
    """Return one CSS variable per run, so that charts change between light and dark mode without being redrawn."""
    light = "".join(f"--run-{i}:{line.light};" for i, line in enumerate(lines))
    dark = "".join(f"--run-{i}:{line.dark};" for i, line in enumerate(lines))
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def _asset(name: str) -> str:
    return files("fedlatest.report").joinpath("assets", name).read_text(encoding="utf-8")
