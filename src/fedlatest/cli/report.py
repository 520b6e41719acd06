"""`report`: one web page of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedlatest.cli.app import app, out
from fedlatest.report import RunRecord, read_published, read_runs, write_page
from fedlatest.report.page import TITLE
from fedlatest.reproduction.papers import Judgement, judge


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.")],
    to: Annotated[Path, typer.Option("--out", help="The page: a name that ends in .html.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="What the page is about.")] = TITLE,
    published: Annotated[Path | None, typer.Option(help="Published histories (CSV), to draw and compare.")] = None,
) -> None:
    """Make one web page of runs, with interactive charts; it needs no network and no server."""
    runs = read_runs(folders)
    write_report(runs, to, judge(runs, read_published(published) if published else {}), title=title)


def write_report(runs: Sequence[RunRecord], to: Path, judged: Judgement, *, title: str) -> None:
    """Write the page with the claims that the runs bear on, and say where it is."""
    page = write_page(list(runs), to, claims=judged.claims, published=judged.published, title=title)
    out.print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
