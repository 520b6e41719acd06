"""`reproduce`: every figure of a paper, with one command."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.table import Table
from rich.text import Text

from fedlatest.cli.app import app, err, out, use_device
from fedlatest.cli.progress import BatchBars, GracefulStop, LoadingBars, format_duration
from fedlatest.cli.report import write_report
from fedlatest.cli.run import check_is_no_run, show_notes
from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.experiments import Experiment, FederationBuilder
from fedlatest.experiments.parallel_runs import (
    Batch,
    BatchProgress,
    default_workers,
    group_by_program,
    run_batches,
    run_batches_in_processes,
)
from fedlatest.report import Claim, PublishedCurve, RunRecord, read_published, read_runs, write_claims
from fedlatest.reproduction.figure import Figure
from fedlatest.reproduction.papers import REPRODUCTIONS, Reproduction, draw, experiments_of, judge
from fedlatest.runs import RunFolder


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="mnist: the paper's convex task; sentiment140: the other.")],
    figure: Annotated[list[str] | None, typer.Option(help="Only this figure; may be given several times.")] = None,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 .. N-1.")] = 1,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds; the paper's if not given.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    published: Annotated[Path | None, typer.Option(help="The published histories (CSV), to draw and compare.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Where runs, figures and report go.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu; JAX's choice if not given.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes on a CPU; one a core if not given.")] = None,
) -> None:
    """Run what a paper's figures need, draw them, and judge its claims.

    What is finished is reused, what was cut goes on where it was.
    """
    if paper not in REPRODUCTIONS:
        raise ConfigError(f"{paper}: unknown; choose one of {', '.join(REPRODUCTIONS)}")
    for name, number in (("seeds", seeds), ("rounds", rounds), ("workers", workers)):
        if number is not None and number < 1:
            raise ConfigError(f"--{name} {number}: must be at least 1")
    reproduction = REPRODUCTIONS[paper]
    figures = reproduction.chosen(figure or [])
    histories = read_published(published) if published else {}
    experiments = experiments_of(figures, rounds=rounds)
    root = to or Path("runs") / f"reproduce-{paper}-{experiments[0].values['rounds']}x{seeds}"
    check_is_no_run(root, "a reproduction")
    begun, numbers = time.monotonic(), list(range(seeds))
    missing = [experiment for experiment in experiments if not _finished(experiment, root / experiment.name, numbers)]
    if missing:
        use_device(device)
        _run(reproduction, missing, root, numbers, data, workers or default_workers())
    runs = {record.path.name: record for record in _finished_runs([root / each.name for each in experiments])}
    judged = judge(runs.values(), histories)
    drawn = _draw(figures, runs, root / "figures", judged.published)
    show_claims(judged.claims)
    if not judged.claims:
        out.print("claims: none could be judged; they are about runs of the paper's number of rounds")
    write_claims(judged.claims, root / "claims.md")
    out.print(f"claims: {write_claims(judged.claims, root / 'claims.csv')}", soft_wrap=True)
    out.print(f"{len(drawn)} figures, each as PNG and PDF: {root / 'figures'}", soft_wrap=True)
    write_report(list(runs.values()), root / "report.html", judged, title=reproduction.title)
    took = format_duration(time.monotonic() - begun)
    out.print(f"{len(missing)} of {len(experiments)} runs were made now; all in {took}", highlight=False)


def show_claims(claims: Sequence[Claim]) -> None:
    """Claims as tables, a group each."""
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


def _run(
    reproduction: Reproduction,
    experiments: Sequence[Experiment],
    root: Path,
    seeds: list[int],
    data: Path | None,
    num_workers: int,
) -> None:
    """Run what is missing: side by side on an accelerator, in processes on a CPU."""
    with LoadingBars() as loading:
        builder = FederationBuilder(reproduction.load(data, on_progress=loading.update))
    for experiment in experiments:
        builder.build(experiment.values)
    show_notes(builder.notes)
    folders = [root / experiment.name for experiment in experiments]
    accelerated = jax.default_backend() != "cpu"
    if accelerated:
        jobs = group_by_program(experiments, folders, builder)
    else:
        jobs = [Batch((experiment,), (folder,)) for experiment, folder in zip(experiments, folders, strict=True)]
    with GracefulStop() as stop, BatchBars(jobs) as bars:

        def hear(news: BatchProgress) -> None:
            bars.update(news)
            for name, reason in news.diverged.items():
                err.print(Text(f"{name}: {reason}", style="yellow"), soft_wrap=True)
            if stop.requested:
                raise KeyboardInterrupt

        try:
            if accelerated:
                run_batches(jobs, builder, seeds, hear)
            else:
                run_batches_in_processes(jobs, partial(reproduction.load, data), seeds, hear, num_workers=num_workers)
        except KeyboardInterrupt:
            err.print(f"stopped; the same command goes on from there ({root})", soft_wrap=True)
            raise typer.Exit(130) from None


def _draw(
    figures: Sequence[Figure], runs: Mapping[str, RunRecord], folder: Path, published: Mapping[Path, PublishedCurve]
) -> set[str]:
    """Draw what can be drawn; says which pictures there are now."""
    drawn: set[str] = set()
    for figure in figures:
        try:
            drawn |= {path.stem for path in draw(figure, runs, folder, published)}
        except RunFolderError as error:
            err.print(Text(f"{figure.name}: not drawn ({error})", style="yellow"), soft_wrap=True)
    return drawn


def _finished(experiment: Experiment, path: Path, seeds: list[int]) -> bool:
    """Whether a run is there already; another one in its place is an error."""
    folder = RunFolder(path)
    if not folder.exists:
        return False
    manifest = folder.manifest
    there = {**manifest["config"]["recipe"], "seeds": manifest["seeds"]}
    wanted = {**experiment.values, "seeds": seeds}
    for key in wanted:
        if there.get(key) != wanted[key]:
            raise RunFolderError(
                f"{path}: holds a run of another configuration ({key} was {there.get(key)!r}, now {wanted[key]!r}); "
                "choose another --out"
            )
    return manifest["status"] in ("finished", "diverged")


def _finished_runs(folders: Sequence[Path]) -> list[RunRecord]:
    finished = [path for path in folders if RunFolder(path).finished]
    if not finished:
        raise RunFolderError("every run diverged; there is nothing to draw")
    return read_runs(finished)
