"""The command `report`: one HTML page about some runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlatest.cli.app import app, out
from fedlatest.errors import ConfigError

if TYPE_CHECKING:
    from fedlatest.report import RunRecord
    from fedlatest.report.leaderboard import Leaderboard
    from fedlatest.reproduction.papers import Judgement


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Run folders, folders of run folders, an arena's folder, or a diagnosis.")
    ],
    to: Annotated[Path, typer.Option("--out", help="File to write; its name ends in .html.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the page (default: the folder's name).")] = None,
    published: Annotated[Path | None, typer.Option(help="Published histories (CSV) to draw and compare.")] = None,
) -> None:
    """Write an HTML page with interactive charts of runs.

    The page is one file and needs neither network nor server.
    """
    from fedlatest.diagnosis.diagnosis import DIAGNOSIS
    from fedlatest.report import read_published, read_runs
    from fedlatest.report.leaderboard import ARENA, Leaderboard
    from fedlatest.report.run_labels import folder_title

    if len(folders) == 1 and (folders[0] / ARENA).is_file():
        if published:
            raise ConfigError("--published: an arena has no published histories; omit it")
        write_arena_report(Leaderboard(folders[0]), to, title=title)
        return
    if len(folders) == 1 and (folders[0] / DIAGNOSIS).is_file():
        if published:
            raise ConfigError("--published: a diagnosis has no published histories; omit it")
        _write_diagnosis_report(folders[0], to, title=title)
        return
    runs = read_runs(folders)
    histories = read_published(published) if published else {}
    judged: Judgement | None = None
    if any(map(_is_on_data_of_the_paper, runs)):
        from fedlatest.reproduction.papers import judge  # imports JAX, through the definitions of the experiments

        judged = judge(runs, histories)
    write_report(runs, to, judged, title=title or folder_title(folders))


def _write_diagnosis_report(folder: Path, to: Path, *, title: str | None) -> None:
    """Write the page of a diagnosis and print its path and size."""
    from fedlatest.diagnosis import read_diagnosis
    from fedlatest.report.diagnosis_page import write_diagnosis_page

    page = write_diagnosis_page(read_diagnosis(folder), to, title=title)
    out.print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)


def write_arena_report(board: "Leaderboard", to: Path, *, title: str | None = None) -> None:
    """Write the page of an arena and print its path and size.

    Args:
        board: The leaderboards.
        to: The file to write.
        title: Title of the page; by default the name of the data set.
    """
    from fedlatest.report import write_page

    page = write_page(board.runs, to, title=title or f"Arena: {board.about['dataset']}", leaderboard=board)
    out.print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)


def write_report(runs: "Sequence[RunRecord]", to: Path, judged: "Judgement | None", *, title: str) -> None:
    """Write the page and print its path and size.

    Args:
        runs: The runs.
        to: The file to write.
        judged: The judged claims and the published curves of these runs; None if no run is one of the paper's.
        title: Title of the page.
    """
    from fedlatest.report import write_page

    claims, published = ([], {}) if judged is None else judged
    page = write_page(list(runs), to, claims=claims, published=published, title=title)
    out.print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)


def _is_on_data_of_the_paper(run: "RunRecord") -> bool:
    """Return whether a run may be one of the paper's: a recipe on MNIST, or on tweets split by account."""
    return bool(run.recipe) and (run.manifest["data"]["name"] == "mnist" or run.recipe.get("partition") == "account")
