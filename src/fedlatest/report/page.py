"""The report: one HTML file that holds everything it shows and asks the network for nothing."""

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
from fedlatest.report.grouping import Look, Setting, find_settings, look_of, name_runs
from fedlatest.report.page_data import MOST_EVALUATIONS, make_data
from fedlatest.report.published_curves import PublishedCurve
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
) -> Path:
    """Write the report on some runs; `published` curves go by a run's folder."""
    if not runs:
        raise RunFolderError("nothing to report: no runs were given")
    if path.suffix not in (".html", ".htm"):
        raise ConfigError(f"{path}: the report is a web page; choose a name that ends in .html")
    text = _page(runs, claims, published, title)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path}: the report could not be written ({error.strerror})") from error
    write_text(path, text)
    return path


def _page(runs: list[RunRecord], claims: Sequence[Claim], published: Mapping[Path, PublishedCurve], title: str) -> str:
    settings = find_settings(runs)
    names, looks = name_runs(runs, settings), look_of(runs, settings)
    data = make_data(runs, settings, names, looks, published)
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in findings(runs, settings, names))
    return Template(_asset("page.html")).substitute(
        title=escape(title),
        style=_asset("page.css") + _colours(looks),
        chooser=_chooser(settings),
        claims_link='<a href="#claims">Claims</a>' if claims else "",
        what=escape(what_was_run(runs, settings)),
        findings=f"<ul>{said}</ul>" if said else "",
        summary=summary_table(runs, settings, names, [look.dash for look in looks]),
        claims=f'<section id="claims"><h2>Claims</h2>{claims_table(claims)}</section>' if claims else "",
        configurations=configurations(runs, settings, names),
        thinned=_thinned(runs),
        data=embed(data),
        script="\n".join(_asset(name) for name in SCRIPTS),
    )


def embed(data: Mapping[str, Any]) -> str:
    """JSON that nothing in it can end: `<` is written as an escape, in names as elsewhere.

    >>> embed({"name": "</script>"})
    '{"name":"\\\\u003c/script>"}'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _thinned(runs: list[RunRecord]) -> str:
    most = max(run.metrics.rounds.size for run in runs)
    return f"Of up to {most:,} evaluations a run, {MOST_EVALUATIONS} are drawn." if most > MOST_EVALUATIONS else ""


def _chooser(settings: Sequence[Setting]) -> str:
    """The setting that all charts show; the largest at first."""
    if len(settings) < 2:
        return ""
    first = max(range(len(settings)), key=lambda i: len(settings[i].runs))
    options = "".join(
        f'<option value="{i}"{" selected" if i == first else ""}>{escape(setting.label)}</option>'
        for i, setting in enumerate(settings)
    )
    return f'<label class="chooser">Setting <select id="setting" autocomplete="off">{options}</select></label>'


def _colours(looks: Sequence[Look]) -> str:
    """A variable per run: the charts follow light and dark without redrawing."""
    light = "".join(f"--run-{i}:{look.light};" for i, look in enumerate(looks))
    dark = "".join(f"--run-{i}:{look.dark};" for i, look in enumerate(looks))
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def _asset(name: str) -> str:
    return files("fedlatest.report").joinpath("assets", name).read_text(encoding="utf-8")
