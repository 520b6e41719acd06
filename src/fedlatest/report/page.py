"""The report as one self-contained HTML file, which makes no network requests."""

import json
import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.files import write_text
from fedlatest.report.claims import Claim
from fedlatest.report.findings import findings, what_was_run
from fedlatest.report.grouping import LineStyle, Setting, find_settings, line_styles, name_in_page, name_runs
from fedlatest.report.leaderboard import Leaderboard
from fedlatest.report.leaderboard_tables import as_html
from fedlatest.report.page_data import MOST_EVALUATIONS, Json, RunNames, make_data
from fedlatest.report.published_curves import PublishedCurve
from fedlatest.report.rank_figures import rank_diagram_source
from fedlatest.report.run_diagnosis import diagnosis_table
from fedlatest.report.run_labels import folder_title
from fedlatest.report.run_records import RunRecord
from fedlatest.report.tables import claims_table, configurations, summary_table
from fedlatest.report.time_figures import curve_sources

MOST_OPEN_FINDINGS = 4  # a longer list is collapsed
SCRIPTS = (
    "elements.js", "state.js", "scales.js", "chart.js", "downloads.js", "heatmap.js", "runs.js", "curves.js",
    "labels.js", "parameters.js", "clients.js", "table.js", "page.js",
)  # fmt: skip
_NONE: Mapping[Path, PublishedCurve] = {}


def write_page(
    runs: list[RunRecord],
    path: Path,
    *,
    claims: Sequence[Claim] = (),
    published: Mapping[Path, PublishedCurve] = _NONE,
    title: str | None = None,
    leaderboard: Leaderboard | None = None,
) -> Path:
    """Write the report on some runs.

    Args:
        runs: The runs, as `read_runs` returns them.
        path: The file to write; its name ends in .html or .htm.
        claims: Claims to list with their verdicts.
        published: Published curves to draw, by the folder of the run that they belong to.
        title: Title of the page; the names of the runs' folders if it is not given.
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
    parts = make_parts(runs, published=published, leaderboard=leaderboard)
    text = render(
        parts, title=title or folder_title([run.path for run in runs]), claims=claims, leaderboard=leaderboard
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path}: the report could not be written ({error.strerror})") from error
    write_text(path, text)
    return path


class PageParts(NamedTuple):
    """The parts of a page that depend on the runs; all but `data` are HTML or CSS."""

    colours: str
    what: str
    findings: str
    summary: str
    configurations: str
    thinned: str
    diagnosis: str
    data: Json


def make_parts(
    runs: list[RunRecord],
    *,
    published: Mapping[Path, PublishedCurve] = _NONE,
    leaderboard: Leaderboard | None = None,
    contents: Sequence[Json] | None = None,
) -> PageParts:
    """Return the parts of the page about some runs.

    Args:
        runs: The runs; at least one.
        published: Published curves, by the folder of the run that they belong to.
        leaderboard: The leaderboards of an arena, whose final runs are `runs`.
        contents: What `page_data.run_data` returns for each run; computed if it is not given.
    """
    settings = find_settings(runs) if leaderboard is None else _cases(runs, leaderboard)
    lines = line_styles(runs, settings)
    names = name_runs(runs, settings) if leaderboard is None else _titles(runs, leaderboard)
    full = name_in_page(runs, settings, names)
    in_time = leaderboard is not None and leaderboard.in_time  # rounds of different methods cannot be compared
    data = make_data(
        runs, settings, list(map(RunNames, _ids(runs), names, full)), lines, published, contents=contents,
        x="time" if in_time else "round",
    )  # fmt: skip
    found = findings(runs, settings, names) if leaderboard is None else []  # the leaderboards say what was found
    return PageParts(
        colours=_colours(lines),
        what=escape(what_was_run(runs, settings)),
        findings=_listed(found),
        summary=summary_table(runs, settings, full, [line.dash for line in lines], data),
        configurations=configurations(runs, settings, names),
        thinned=_thinned(runs),
        diagnosis=diagnosis_table(runs, full),
        data=data,
    )


def render(
    parts: PageParts,
    *,
    title: str,
    claims: Sequence[Claim] = (),
    leaderboard: Leaderboard | None = None,
    live: str | None = None,
    status: str = "",
) -> str:
    """Return the page as HTML.

    Args:
        parts: What `make_parts` returns.
        title: Title of the page.
        claims: Claims to list with their verdicts.
        leaderboard: The leaderboards of an arena.
        live: For a page that a server keeps up to date: the version of its content. The page then requests changes from
            the server that it came from.
        status: The state of what a live page shows.
    """
    dark = asset("dark.css")
    scripts = SCRIPTS if live is None else (*SCRIPTS, "live.js")
    return Template(asset("page.html")).substitute(
        {**parts._asdict(), "data": embed(parts.data)},
        title=escape(title),
        style=asset("page.css") + in_dark_mode(dark),
        connect="" if live is None else "; connect-src 'self'",
        live=""
        if live is None
        else f'<span id="live" class="{"" if status.startswith("live") else "finished"}" role="status" '
        f'data-version="{escape(live)}">{escape(status)}</span>',
        leaderboard_link="" if leaderboard is None else '<a href="#leaderboard">Leaderboard</a>',
        leaderboard=""
        if leaderboard is None
        else as_html(leaderboard, rank_diagram_source(leaderboard), curve_sources(leaderboard)),
        claims_link='<a href="#claims">Claims</a>' if claims else "",
        claims=f'<section id="claims"><h2>Claims</h2>{claims_table(claims)}</section>' if claims else "",
        script="\n".join(asset(name) for name in scripts),
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


def _listed(sentences: Sequence[str]) -> str:
    """Return sentences as a list, which is collapsed if it is long."""
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    is_open = "" if len(sentences) > MOST_OPEN_FINDINGS else " open"
    return f"<details{is_open}><summary>Findings about all runs ({len(sentences)})</summary><ul>{items}</ul></details>"


def _ids(runs: list[RunRecord]) -> list[str]:
    """Return the path of each run below the folder that contains all of them, or its name if there is one run."""
    paths = [run.path.absolute() for run in runs]
    common = Path(os.path.commonpath([path.parent for path in paths]))
    return [path.relative_to(common).as_posix() for path in paths]


def _colours(lines: Sequence[LineStyle]) -> str:
    """Return one CSS variable per run, so that charts change between light and dark mode without being redrawn."""
    light = "".join(f"--run-{i}:{line.light};" for i, line in enumerate(lines))
    dark = "".join(f"--run-{i}:{line.dark};" for i, line in enumerate(lines))
    return f":root{{{light}}}\n{in_dark_mode(dark)}"


def in_dark_mode(declarations: str) -> str:
    """Return CSS that applies if the reader selected dark mode, or the system uses it and no mode was selected."""
    by_system = f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{declarations}}}}}"
    return f"@media screen{{{by_system}\n:root[data-theme=dark]{{{declarations}}}}}\n"


def asset(name: str) -> str:
    """Return the text of a file of this package's folder `assets`."""
    return files("fedlatest.report").joinpath("assets", name).read_text(encoding="utf-8")
