"""`reproduce`: run the experiments behind the paper's figures, draw the figures and judge the paper's claims."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedlatest.cli.app import app, err, out, print_next
from fedlatest.cli.many_runs import ManyRuns, Resources, check_at_least_one
from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.suggestions import did_you_mean

if TYPE_CHECKING:
    from fedlatest.report import Claim, PublishedCurve, RunRecord
    from fedlatest.reproduction.figure import Figure
    from fedlatest.reproduction.papers import Judgement, Reproduction

FIGURE_NAMES = (  # written out, so that the help starts without JAX; a test compares them
    "mnist: availability, chart, illustration, clients, participation, more, sequential. "
    "sentiment140: availability, sleep, clients, participation."
)


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="mnist (the convex task) or sentiment140 (the non-convex task).")],
    figure: Annotated[
        list[str] | None, typer.Option(help=f"Only this figure; can be given several times. {FIGURE_NAMES}")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 .. N-1.")] = 1,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds (default: the paper's).")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    published: Annotated[Path | None, typer.Option(help="CSV of the published histories, to draw and compare.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Folder for runs, figures and report.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu (default: JAX's choice).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes on a CPU (default: one per core, at most 8).")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="A Dask scheduler's address, or local; see docs/cluster.md.")
    ] = None,
) -> None:
    """Run the paper's experiments and check its claims.

    The figures are drawn, too. Finished runs are reused, and interrupted runs continue from their last checkpoint.
    """
    from fedlatest.cli.progress import format_duration
    from fedlatest.cli.run import check_is_no_run
    from fedlatest.report import read_published
    from fedlatest.reproduction.papers import REPRODUCTIONS, experiments_for, judge

    if paper not in REPRODUCTIONS:
        raise ConfigError(f"{paper}: unknown{did_you_mean(paper, REPRODUCTIONS)}")
    check_at_least_one(seeds=seeds, rounds=rounds, workers=workers)
    reproduction = REPRODUCTIONS[paper]
    figures = reproduction.select_figures(figure or [])
    histories = read_published(published) if published else {}
    experiments = experiments_for(figures, rounds=rounds)
    root = to or Path("runs") / f"reproduce-{paper}-{experiments[0].values['rounds']}x{seeds}"
    check_is_no_run(root, "a reproduction")
    started = time.monotonic()
    many = ManyRuns(reproduction.name, reproduction.load, data, root, Resources(device, workers, cluster))
    num_executed = many.run(experiments, [root / each.name for each in experiments], range(seeds))
    runs = {record.path.name: record for record in _finished_runs([root / each.name for each in experiments])}
    judgement = judge(runs.values(), histories)
    _write_results(reproduction, figures, runs, judgement, root)
    elapsed = format_duration(time.monotonic() - started)
    out.print(f"{num_executed} of {len(experiments)} runs were executed now; total time {elapsed}", highlight=False)
    print_next("watch", root)


def show_claims(claims: Sequence["Claim"]) -> None:
    """Print the claims, one table per group."""
    colours = {True: "green", False: "bold red", None: "dim"}
    for group in dict.fromkeys(claim.group for claim in claims):
        table = Table(
            "claim", "measured", "published", "verdict", title=group, title_justify="left", title_style="bold",
            box=None, header_style="dim", pad_edge=False,
        )  # fmt: skip
        for claim in (claim for claim in claims if claim.group == group):
            verdict = Text(claim.verdict, style=colours[claim.holds])
            table.add_row(Text(claim.claim), Text(claim.measured), Text(claim.published), verdict)
        out.print(table, "")


def _write_results(
    reproduction: "Reproduction",
    figures: Sequence["Figure"],
    runs: Mapping[str, "RunRecord"],
    judgement: "Judgement",
    root: Path,
) -> None:
    """Draw the figures, print and write the claims, and write the report."""
    from fedlatest.cli.report import write_report
    from fedlatest.report import write_claims

    drawn = _draw(figures, runs, root / "figures", judgement.published)
    show_claims(judgement.claims)
    if not judgement.claims:
        out.print("claims: none could be judged; they need runs with the paper's number of rounds")
    write_claims(judgement.claims, root / "claims.md")
    out.print(f"claims: {write_claims(judgement.claims, root / 'claims.csv')}", soft_wrap=True)
    out.print(f"{len(drawn)} figures, each as PNG and PDF: {root / 'figures'}", soft_wrap=True)
    write_report(list(runs.values()), root / "report.html", judgement, title=reproduction.title)


def _draw(
    figures: Sequence["Figure"],
    runs: Mapping[str, "RunRecord"],
    folder: Path,
    published: Mapping[Path, "PublishedCurve"],
) -> set[str]:
    """Draw the figures that can be drawn; return the names of the files without suffix."""
    from fedlatest.reproduction.papers import draw

    drawn: set[str] = set()
    for figure in figures:
        try:
            drawn |= {path.stem for path in draw(figure, runs, folder, published)}
        except RunFolderError as error:
            err.print(Text(f"{figure.name}: not drawn ({error})", style="yellow"), soft_wrap=True)
    return drawn


def _finished_runs(folders: Sequence[Path]) -> list["RunRecord"]:
    from fedlatest.report import read_runs
    from fedlatest.runs import RunFolder

    finished = [path for path in folders if RunFolder(path).finished]
    if not finished:
        raise RunFolderError("all runs diverged; there is nothing to draw")
    return read_runs(finished)
