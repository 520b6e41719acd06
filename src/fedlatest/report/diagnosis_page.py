"""The page of a diagnosis: one self-contained HTML file, which makes no network requests."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from fedlatest.diagnosis.diagnosis import Diagnosis
from fedlatest.diagnosis.summary import summary
from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.files import write_text
from fedlatest.report.diagnosis_figure import diagnosis_figure_source
from fedlatest.report.page import asset, in_dark_mode
from fedlatest.report.tables import DASH, table

STYLE = ":root{--in-light:block;--in-dark:none}.figure img{width:100%;max-width:1200px}"
STYLE += ".figure .light{display:var(--in-light)}.figure .dark{display:var(--in-dark)}"
DARK = "--in-light:none;--in-dark:block"


def write_diagnosis_page(diagnosis: Diagnosis, path: Path, *, title: str | None = None) -> Path:
    """Write the page of a diagnosis.

    Args:
        diagnosis: The diagnosis.
        path: The file to write; its name ends in .html or .htm.
        title: Title of the page.

    Returns:
        `path`.

    Raises:
        ConfigError: If the file name has another ending.
        RunFolderError: If the file cannot be written.
    """
    if path.suffix not in (".html", ".htm"):
        raise ConfigError(f"{path}: the report is an HTML page; choose a name that ends in .html")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"{path}: the report could not be written ({error.strerror})") from error
    sections = {"rounds": _rates(diagnosis), "labels": _labels(diagnosis)}
    titles = {"rounds": "Rounds per day", "labels": "Labels"}
    text = Template(asset("diagnosis.html")).substitute(
        title=escape(title or f"Diagnosis of {diagnosis.source}"),
        style=asset("page.css") + STYLE + in_dark_mode(asset("dark.css") + DARK),
        links="".join(f'<a href="#{name}">{titles[name]}</a>' for name, content in sections.items() if content),
        recommendation=_recommendation(diagnosis),
        figure=_figure(diagnosis),
        facts="".join(
            f"<h3>{escape(group.title)}</h3>"
            + rows_as_table(("quantity", "value"), group.rows, group.title, text_columns=2)
            for group in summary(diagnosis)
        ),
        more="".join(
            f'<section id="{name}"><h2>{titles[name]}</h2>{content}</section>'
            for name, content in sections.items()
            if content
        ),
    )
    write_text(path, text)
    return path


def rows_as_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, text_columns: int = 1
) -> str:  # fmt: skip
    """Return rows of text as an HTML table.

    Args:
        head: Names of the columns.
        rows: The cells.
        caption: Name of the table, for readers who cannot see it.
        text_columns: Number of columns, from the left, that hold text.
    """
    body = [
        "<tr>"
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(
            f"<td{'' if number < text_columns else ' class=number'}>{escape(cell)}</td>"
            for number, cell in enumerate(row[1:], start=1)
        )
        + "</tr>"
        for row in rows
    ]
    return table(head, body, text_columns=text_columns, caption=caption)


def _recommendation(diagnosis: Diagnosis) -> str:
    found = diagnosis.recommendation
    cards = "".join(
        f'<div class="card"><span>{escape(advice.topic)}</span><b>{escape(advice.choice)}</b></div>'
        for advice in found.advice
    )
    rows = [(advice.topic, advice.choice, advice.reason, advice.evidence) for advice in found.advice]
    reasons = rows_as_table(("choice of", "use", "because", "evidence"), rows, "Reasons", text_columns=4)
    warnings = "".join(f"<li>{escape(warning)}</li>" for warning in found.warnings)
    assumed = " ".join(found.assumptions)
    return (
        f'<div class="cards">{cards}</div>{reasons}'
        + (f"<ul>{warnings}</ul>" if warnings else "")
        + f'<p class="caption">Confidence: {found.confidence} ({escape(found.confidence_reason)}). '
        f"Assumed: {escape(assumed)}</p>"
    )


def _figure(diagnosis: Diagnosis) -> str:
    text = "Availability of the clients over time, number available, weights of FedAvg, and rounds per day"
    images = "".join(
        f'<img class="{name}" alt="{text}" src="{diagnosis_figure_source(diagnosis, dark=name == "dark")}">'
        for name in ("light", "dark")
    )
    return f'<div class="figure">{images}</div>'


def _rates(diagnosis: Diagnosis) -> str:
    rows = [
        (
            f"{rate.cohort_size}", DASH if rate.deadline is None else f"{rate.deadline:g}",
            f"{rate.rounds_per_day:,.0f}", f"{rate.seconds:.1f}", f"{rate.answers:.1%}", f"{rate.possible:.1%}",
            f"{rate.num_excluded}",
        )
        for rate in diagnosis.rates
    ]  # fmt: skip
    head = ("cohort size", "deadline, s", "rounds per day", "seconds per round", "answers", "time possible", "too slow")
    if not rows:
        return ""
    note = (
        "A round needs a full cohort of available clients. Answers: share of the cohort that answers in time. Time "
        "possible: share of the time with enough clients. Too slow: clients whose delay is above the deadline."
    )
    return rows_as_table(head, rows, "Rounds per day") + f'<p class="caption">{note}</p>'


def _labels(diagnosis: Diagnosis) -> str:
    if not diagnosis.bias.labels:
        return ""
    rows = [
        (
            shift.label, f"{shift.clients:,}", f"{shift.fair:.1%}", f"{shift.fedavg:.1%}",
            f"{shift.lowest:.1%} to {shift.highest:.1%}",
        )
        for shift in diagnosis.bias.labels
    ]  # fmt: skip
    head = ("label", "clients", "fair weight", "FedAvg", f"FedAvg within the {diagnosis.bias.windows}")
    return rows_as_table(head, rows, "Weights of labels")
