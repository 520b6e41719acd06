"""The commands `run` and `plot`."""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from rich.table import Table

from fedlatest.cli.app import app, err, out, print_next, show_notes
from fedlatest.cli.cluster import check_cluster, run_on_cluster
from fedlatest.cli.device_options import use_devices
from fedlatest.cli.progress import ExperimentBars, GracefulStop, LoadingBars
from fedlatest.errors import ConfigError, DivergedError, RunFolderError
from fedlatest.suggestions import did_you_mean

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fedlatest.experiments import Recipe
    from fedlatest.report import RunRecord
    from fedlatest.simulation import ExperimentSpec, Progress
    from fedlatest.simulation.row_storage import ClientRows


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="quickstart, digits, mnist, cifar10, tweets or sentiment140.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key: learning_rate=0.1; repeatable."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds (default: the recipe's).")] = None,
    seed: Annotated[int | None, typer.Option(help="Run this one seed (default 0).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Run seeds 0 .. N-1 side by side.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Folder for the results (default: runs/RECIPE).")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu (default: JAX's choice).")] = None,
    devices: Annotated[str | None, typer.Option(help="Divide the work among N devices or CPU cores, or all.")] = None,
    hosts: Annotated[str | None, typer.Option(help="Number of hosts that share the work; auto under Slurm.")] = None,
    host_id: Annotated[int | None, typer.Option(help="Number of this host, from 0 on.")] = None,
    coordinator: Annotated[str | None, typer.Option(help="ADDRESS:PORT of host 0, for --hosts.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run in the folder.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run in the folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="The same as --log tensorboard.")] = False,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also log to tensorboard, mlflow or wandb; repeatable."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="A Dask scheduler's address, or local; see docs/cluster.md.")
    ] = None,
    client_rows: Annotated[
        str, typer.Option(help="Where clients' states are stored: auto, all, seen, host or disk; see docs/simulate.md.")
    ] = "auto",
) -> None:
    """Run a recipe, print a table of results and draw a figure."""
    from fedlatest.experiments import FederationBuilder
    from fedlatest.runs.loggers import make_logger
    from fedlatest.simulation.processes import from_first, is_first

    chosen = find_recipe(recipe)
    overrides = with_rounds(settings, rounds)
    experiments = chosen.experiments(overrides)
    if resume and force:
        raise ConfigError("--resume, --force: resume the run or replace it, not both")
    loggers = list(dict.fromkeys([*(["tensorboard"] if tensorboard else []), *(log or [])]))
    for name in loggers:
        make_logger(name)  # raises ConfigError or MissingExtraError before any work
    numbers = _seeds(seed, seeds)
    check_cluster(cluster)
    if cluster and (devices is not None or hosts is not None or client_rows != "auto"):
        raise ConfigError("--devices, --hosts, --client-rows: not with --cluster; its workers use one device each")
    num_devices = use_devices(
        "cpu" if cluster else device, devices, hosts=hosts, host_id=host_id, coordinator=coordinator
    )
    with LoadingBars() as loading:
        builder = FederationBuilder(chosen.load(data, on_progress=loading.update))
    specs = [  # checks all values before any work
        experiment.spec(builder, numbers, client_rows=cast("ClientRows", client_rows)) for experiment in experiments
    ]
    show_notes(builder.notes)
    root = to or Path("runs") / _folder_name(chosen.name, [*overrides, *([] if numbers == [0] else [f"{numbers}"])])
    folders = [root if len(experiments) == 1 else root / experiment.name for experiment in experiments]
    from_first(lambda: _check_folders(root, folders, replace_or_resume=resume or force))
    options = {"resume": resume, "force": force, "log": loggers, "devices": num_devices}
    try:
        if cluster:
            from fedlatest.experiments.parallel_runs import default_workers

            for spec in specs:
                spec.blocks()  # raises ConfigError before runs are replaced
            run_on_cluster(
                cluster, experiments, folders, builder, chosen.name, data, numbers,
                num_workers=default_workers(), device=device, replace=force, log=loggers,
            )  # fmt: skip
            diverged = [error for folder in folders if (error := _divergence(folder)) is not None]
            for folder in folders:
                if _divergence(folder) is None:
                    _draw(folder)
        else:
            diverged = run_specs([experiment.name for experiment in experiments], specs, folders, options)
    except KeyboardInterrupt:
        option = "with --resume instead of --force" if force else "with --resume"
        err.print(f"stopped; to resume from the last checkpoint in {root}, repeat the command {option}", soft_wrap=True)
        raise typer.Exit(130) from None
    if diverged and len(folders) == 1:
        raise diverged[0]
    if is_first():
        _show(folders, root / "figure.png")
        print_next("report", root)
    if diverged:
        others = f" ({len(diverged)} of {len(folders)} runs diverged)" if len(diverged) > 1 else ""
        raise DivergedError(f"{diverged[0]}{others}")


@app.command()
def plot(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold run folders.")],
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("figure.png"),
    over: Annotated[
        Literal["rounds", "time"], typer.Option(help="The horizontal axis; time is in virtual seconds.")
    ] = "rounds",
) -> None:
    """Draw training loss and test accuracy of runs in a figure."""
    _show(folders, to, over=over)
    print_next("report", *folders)


def with_rounds(settings: list[str] | None, rounds: int | None) -> list[str]:
    """Return the KEY=VALUE overrides of the options --set and --rounds.

    >>> with_rounds(["period=50"], 100)
    ['period=50', 'rounds=100']
    """
    return [*(settings or []), *([f"rounds={rounds}"] if rounds is not None else [])]


def find_recipe(name: str) -> "Recipe":
    """Return a recipe by name; raise ConfigError if there is none of that name."""
    from fedlatest.experiments import RECIPES

    if name not in RECIPES:
        raise ConfigError(f"recipe {name}: unknown{did_you_mean(name, RECIPES)}")
    return RECIPES[name]


def check_is_no_run(root: Path, command: str) -> None:
    """Raise RunFolderError if a folder that will hold several run folders is a run folder itself."""
    from fedlatest.runs import RunFolder

    if RunFolder(root).exists:
        raise RunFolderError(f"{root}: is itself a run folder, and {command} writes several; choose another --out")


def run_specs(
    names: list[str], specs: "list[ExperimentSpec]", folders: list[Path], options: Mapping[str, Any]
) -> list[DivergedError]:
    """Run one experiment after the other, each with its own progress bar and figure.

    Args:
        names: The names of the experiments.
        specs: The experiments.
        folders: A run folder for each.
        options: Options of `simulate_spec`, at least `force`.

    Returns:
        The errors of the runs that diverged, which do not stop the others.
    """
    from fedlatest.runs import RunFolder
    from fedlatest.simulation import simulate_spec
    from fedlatest.simulation.processes import is_first

    diverged: list[DivergedError] = []
    with GracefulStop() as stop, ExperimentBars() as bars:
        for name, spec, folder in zip(names, specs, folders, strict=True):
            bars.start(name, spec.rounds)
            replaced = folders[1:] if options["force"] and folder == folders[0] and is_first() else []

            def on_progress(progress: "Progress", replaced: list[Path] = replaced) -> None:
                # The first run has passed all checks: remove the old runs now, so that --resume works after a stop.
                while replaced:
                    RunFolder(replaced.pop()).remove_run()
                bars.update(progress)
                if stop.requested:
                    raise KeyboardInterrupt

            try:
                simulate_spec(spec, folder, on_progress=on_progress, **options)
            except DivergedError as error:
                diverged.append(DivergedError(f"{name}: {error}" if len(names) > 1 else str(error)))
                continue
            if is_first():
                _draw(folder)
    return diverged


def _divergence(folder: Path) -> DivergedError | None:
    from fedlatest.runs import RunFolder

    reason = RunFolder(folder).manifest.get("diverged")
    return DivergedError(reason) if reason else None


def _draw(folder: Path) -> None:
    """Draw the figures of one run."""
    from fedlatest.report import draw_curves, draw_sleep, has_sleep, read_runs

    [record] = read_runs([folder])
    draw_curves([record], folder / "figure.png")
    if has_sleep(record):
        draw_sleep(record, folder / "sleep.png")


def _check_folders(root: Path, folders: list[Path], *, replace_or_resume: bool) -> None:
    """Raise RunFolderError if the run folders hold runs; with --resume or --force they may."""
    from fedlatest.runs import RunFolder

    if len(folders) > 1:
        check_is_no_run(root, "this recipe")
    for folder in map(RunFolder, folders):
        if folder.exists and not replace_or_resume:
            folder.raise_exists()


def _show(folders: list[Path], figure: Path, *, over: Literal["rounds", "time"] = "rounds") -> None:
    """Draw a figure of runs and print their table."""
    from fedlatest.report import draw_curves, read_runs

    records = read_runs(folders)
    draw_curves(records, figure, over=over)
    out.print(_table(records))
    out.print(f"figure: {figure}", soft_wrap=True)


def _table(records: "list[RunRecord]") -> Table:
    from fedlatest.report import label_runs
    from fedlatest.report.statistics import interval_note

    has_seeds = any(len(record.metrics.seeds) > 1 for record in records)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("algorithm", overflow="fold")
    for column in ("final test accuracy", "mean of the last quarter", "swing in the last quarter", "largest staleness"):
        table.add_column(column, justify="right", min_width=15 if has_seeds and "staleness" not in column else None)
    for label, record in zip(label_runs(records), records, strict=True):
        if record.diverged:
            table.add_row(label, "diverged", "-", "-", "-")
            continue
        late = record.late("test_accuracy")
        swings = late.max(axis=1) - late.min(axis=1)
        table.add_row(
            label,
            _mean_and_interval(record.metrics.column("test_accuracy")[:, -1]),
            _mean_and_interval(late.mean(axis=1)),
            "-" if math.isnan(record.swing) else _mean_and_interval(swings),
            str(record.largest_staleness),
        )
    if has_seeds:
        note = interval_note([len(record.metrics.seeds) for record in records])
        table.caption, table.caption_justify = f"mean {note}", "left"
    return table


def _mean_and_interval(values: "npt.NDArray[np.float64]") -> str:
    """Format [seeds] values as their mean and, if there are several, its 95% confidence interval."""
    from fedlatest.report.statistics import half_width, with_interval

    return with_interval(float(values.mean()), half_width(values))


def _seeds(seed: int | None, seeds: int | None) -> list[int]:
    if seed is not None and seeds is not None:
        raise ConfigError("--seed, --seeds: give one seed or a number of seeds, not both")
    if seeds is not None and seeds < 1:
        raise ConfigError(f"--seeds {seeds}: must be at least 1")
    return [seed or 0] if seeds is None else list(range(seeds))


def _folder_name(recipe: str, overrides: list[str]) -> str:
    """Return the recipe's name, followed by a hash of the overrides if there are any."""
    if not overrides:
        return recipe
    return f"{recipe}-{hashlib.sha256(' '.join(sorted(overrides)).encode()).hexdigest()[:8]}"
