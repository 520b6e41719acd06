"""`replay`: simulate other algorithms under the availability and the delays that a deployed job has recorded."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from fedlatest.cli.app import app, err, out, print_next, print_prose, use_device
from fedlatest.errors import ConfigError, DivergedError, FedlatestError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fedlatest.replay import Replay
    from fedlatest.report.replay_results import ReplayRow

Curve = tuple["npt.NDArray[np.float64]", "npt.NDArray[np.float64]"]


@app.command()
def replay(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    algorithms: Annotated[
        list[str] | None,
        typer.Option(help="Separated by commas: NAME or NAME:KEY=VALUE:... (default: the job's own, and fedavg)."),
    ] = None,
    dataset: Annotated[str, typer.Option(help="Data in place of the fleet's: digits, mnist or cifar10.")] = "digits",
    seeds: Annotated[int, typer.Option(help="Number of seeds of initial models and batches.")] = 1,
    rounds: Annotated[int | None, typer.Option(help="Replay only the first rounds.")] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy for the time to a target (default: 95% of the best).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key for all algorithms; repeatable."),
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Folder for runs, table, figure and report.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu (default: JAX's choice).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the runs of these algorithms in the folder.")] = False,
) -> None:
    """Simulate other algorithms on the record of a job.

    They train with the clients and the delays that a deployed job has recorded.
    Run the same command again to continue after a stop; finished runs are reused.
    """
    from fedlatest.cli.arena import split_list
    from fedlatest.cli.many_runs import check_at_least_one
    from fedlatest.cli.progress import LoadingBars
    from fedlatest.cli.run import check_is_no_run, find_recipe, run_specs
    from fedlatest.ledger.job_folder import find_ledger
    from fedlatest.replay import plan_replay, read_recorded_fleet

    check_at_least_one(seeds=seeds, rounds=rounds)
    if target is not None and not 0 < target < 1:
        raise ConfigError(f"--target {target}: must be an accuracy between 0 and 1")
    ledger, recipe = find_ledger(job), find_recipe(dataset)
    fleet = read_recorded_fleet(ledger)
    use_device(device)
    with LoadingBars() as loading:
        samples = recipe.load(data, on_progress=loading.update)
    chosen = split_list(algorithms) or list(dict.fromkeys([fleet.config.algorithm, "fedavg"]))
    plan = plan_replay(
        fleet, samples, recipe.defaults, algorithms=chosen, settings=settings or [],
        training=_training(ledger, dataset), num_seeds=seeds, rounds=rounds,
    )  # fmt: skip
    root = to or Path("runs") / f"replay-{fleet.job[:8]}"
    check_is_no_run(root, "a replay")
    _state(plan)
    names = [run.name for run in plan.runs]
    options = {"resume": not force, "force": force}
    try:
        diverged = run_specs(names, [run.spec for run in plan.runs], [root / name for name in names], options)
    except KeyboardInterrupt:
        err.print(f"stopped; run the same command again to continue (runs are in {root})", soft_wrap=True)
        raise typer.Exit(130) from None
    _write(plan, root, target, _measured(ledger, plan))
    if diverged:
        raise DivergedError(f"{diverged[0]} ({len(diverged)} of {len(names)} runs diverged)")
    print_next("diagnose", job)


def _training(ledger: Path, dataset: str) -> dict[str, Any]:
    """Return how the clients train, where it is known.

    The app of a local deployment says it, if it can be read. Otherwise, digits are trained as by the digits app.
    """
    from fedlatest.deployment.deployment_folder import read_app_config
    from fedlatest.deployment.scaffold import TEMPLATE, app_config
    from fedlatest.replay.replay_plan import TRAINING_KEYS

    try:
        config = read_app_config(ledger.parent.parent)
    except FedlatestError:
        config = None
    if config is None:
        config = app_config(Path(str(TEMPLATE))) if dataset == "digits" else {}
    known = {key: config.get(key.replace("_", "-")) for key in TRAINING_KEYS}
    return {key: value for key, value in known.items() if isinstance(value, int | float)}


def _state(plan: "Replay") -> None:
    """Print what is recorded and what is assumed."""
    for title, facts in (("recorded", plan.recorded), ("assumed", plan.assumed)):
        for fact in facts:
            print_prose(f"{title}: {fact}")


def _measured(ledger: Path, plan: "Replay") -> "Curve | None":
    """Return the times and test accuracies that the job itself has measured; None if it has none."""
    import numpy as np

    from fedlatest.errors import RunFolderError
    from fedlatest.runs import RunFolder

    folder = RunFolder(ledger.parent / "run")
    try:
        metrics = folder.metrics()
    except RunFolderError:
        return None
    if not metrics.rows:
        return None
    done = metrics.rounds - plan.fleet.rounds[0].round  # rounds of the record before each evaluation
    accuracy = metrics.column("test_accuracy")[0]
    times = np.concatenate([[0.0], plan.fleet.ends])
    shown = np.isfinite(accuracy) & (done >= 0) & (done <= plan.rounds)
    return (times[done[shown]], accuracy[shown]) if shown.any() else None


def _write(plan: "Replay", root: Path, target: float | None, measured: "Curve | None") -> None:
    """Print the table and the agreement with the record; write the table, the figure and the report."""
    from fedlatest.cli.report import write_report
    from fedlatest.replay import agreement_of_run
    from fedlatest.report import read_runs
    from fedlatest.report.replay_results import default_target, draw_replay, replay_rows, write_results

    fleet, ends = plan.fleet, plan.fleet.ends[: plan.rounds]
    runs = read_runs([root / run.name for run in plan.runs])
    goal = default_target(runs) if target is None else target
    rows = replay_rows(runs, recorded_seconds=float(ends[-1]), target=goal)
    compared = {run.name: agreement_of_run(fleet, run, root / run.name) for run in plan.runs}
    agreements = {name: found for name, found in compared.items() if found is not None}
    out.print(_table(rows, goal))
    for name, found in agreements.items():
        print_prose(
            f"{name}, the job's own algorithm: the same clients were asked in {found.asked:.1%} and answered in "
            f"{found.answered:.1%} of the {found.rounds} recorded rounds"
        )
    about = {
        "job": fleet.job, "rounds": plan.rounds, "num_clients": fleet.num_clients, "target": goal,
        "recorded_seconds": float(ends[-1]), "recorded": list(plan.recorded), "assumed": list(plan.assumed),
        "agreement": {name: found._asdict() for name, found in agreements.items()},
        **({} if measured is None else {"measured_accuracy": float(measured[1][-1])}),
    }  # fmt: skip
    paths = write_results(root, rows, about)
    available = fleet.available[: plan.rounds]
    figure = draw_replay(runs, root / "replay.png", available=available, ends=ends, recorded_accuracy=measured)
    for kind, path in (("table", paths[0]), ("facts", paths[1]), ("figure", figure)):
        out.print(f"{kind}: {path}", soft_wrap=True)
    write_report(runs, root / "report.html", None, title=f"Replay of job {fleet.job[:8]}")


def _table(rows: "Sequence[ReplayRow]", target: float) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("algorithm", overflow="fold")
    columns: Mapping[str, str] = {
        "rounds": "d", "virtual s": ".1f", "final accuracy": ".4f", "at recorded end": ".4f",
        f"s to {target:.4f}": ".1f", "clients": ".0%", "uploads": ".0f", "MB": ".2f",
    }  # fmt: skip
    for name in columns:
        table.add_column(name, justify="right")
    for name, *values in rows:
        shown = zip(values, columns.values(), strict=True)
        table.add_row(name, *("-" if math.isnan(value) else format(value, style) for value, style in shown))
    return table
