"""`sweep`: run a recipe for every combination of some values, with a table, a figure and a report."""

import hashlib
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedlatest.cli.app import app, out, print_next
from fedlatest.cli.many_runs import ManyRuns, Resources, check_at_least_one
from fedlatest.errors import ConfigError

if TYPE_CHECKING:
    from fedlatest.experiments import Experiment, Recipe
    from fedlatest.report.sweep_figures import SweepPoint


@app.command()
def sweep(
    recipe: Annotated[str, typer.Argument(help="A recipe; `fedlatest list recipes` shows all.")],
    over: Annotated[
        list[str], typer.Option(metavar="KEY=V1,V2,...", help="A key and its values; several keys are combined.")
    ],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key for all runs; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 .. N-1.")] = 1,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds (default: the recipe's).")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Folder for runs, table, figure and report.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu (default: JAX's choice).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes on a CPU (default: one per core, at most 8).")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="A Dask scheduler's address, or local; see docs/cluster.md.")
    ] = None,
) -> None:
    """Run a recipe for every combination of some values.

    Run the same command again to continue after a stop; finished runs are reused.
    """
    from fedlatest.cli.progress import format_duration
    from fedlatest.cli.report import write_report
    from fedlatest.cli.run import check_is_no_run, find_recipe, with_rounds
    from fedlatest.report import read_runs
    from fedlatest.report.run_labels import folder_title
    from fedlatest.report.sweep_figures import draw_sweep, read_points, write_points
    from fedlatest.runs import RunFolder

    check_at_least_one(seeds=seeds, rounds=rounds, workers=workers)
    chosen, values = find_recipe(recipe), parse_over(over)
    overrides = with_rounds(settings, rounds)
    experiments = combinations(chosen, overrides, values)
    identity = hashlib.sha256(repr((sorted(overrides), values, seeds)).encode()).hexdigest()[:8]
    root = to or Path("runs") / f"sweep-{recipe}-{identity}"
    check_is_no_run(root, "a sweep")
    started = time.monotonic()
    many = ManyRuns(chosen.name, chosen.load, data, root, Resources(device, workers, cluster))
    folders = [root / experiment.name for experiment in experiments]
    executed = many.run(experiments, folders, range(seeds))
    points = read_points(folders, list(values))
    out.print(_table(points, list(values)))
    out.print(f"table: {write_points(points, root / 'sweep.csv')}", soft_wrap=True)
    finished = [folder for folder in folders if RunFolder(folder).finished]
    if finished:
        out.print(f"figure: {draw_sweep(points, list(values), root / 'figure.png')}", soft_wrap=True)
        write_report(read_runs(finished), root / "report.html", None, title=folder_title([root]))
    elapsed = format_duration(time.monotonic() - started)
    out.print(f"{executed} of {len(experiments)} runs were executed now; total time {elapsed}", highlight=False)
    if finished:
        print_next("watch", root)


def parse_over(texts: list[str]) -> dict[str, list[str]]:
    """Return the values of each key of `--over KEY=V1,V2,...`.

    >>> parse_over(["period=50,100", "algorithm=fedavg"])
    {'period': ['50', '100'], 'algorithm': ['fedavg']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        listed = [value.strip() for value in values.split(",")]
        if not equals or not key.strip() or not all(listed):
            raise ConfigError(f"--over {text}: expected KEY=V1,V2,..., such as --over period=50,100,200")
        if key.strip() in found:
            raise ConfigError(f"--over {text}: the key was given before; list all its values in one --over")
        found[key.strip()] = list(dict.fromkeys(listed))
    return found


def combinations(recipe: "Recipe", overrides: list[str], over: dict[str, list[str]]) -> list["Experiment"]:
    """Return one experiment per combination of values, named after them.

    A key that belongs only to other algorithms or availability models than those of a combination is left out of it.

    Args:
        recipe: the recipe.
        overrides: KEY=VALUE changes for all experiments.
        over: values of each key.
    """
    from fedlatest.experiments import Experiment
    from fedlatest.experiments.settings import applicable, key_of, resolve, split_pair

    for override in overrides:
        if key_of(override) in over:
            raise ConfigError(f"--set {override}: the key is also given with --over")
    defaults = {"algorithm": "fedlaavg", **recipe.defaults}
    found: dict[str, Experiment] = {}
    for combination in product(*over.values()):
        changes = [f"{key}={value}" for key, value in zip(over, combination, strict=True)]
        texts = dict(map(split_pair, [*overrides, *changes]))
        names = {key: texts.get(key, defaults[key]) for key in ("algorithm", "availability")}
        resolve(defaults, [f"{key}={name}" for key, name in names.items()])  # raises ConfigError if one is unknown
        own = applicable(changes, **names)
        values = resolve(defaults, [*applicable([*recipe.shared_overrides, *overrides], **names), *own])
        name = "-".join(own).replace("/", "_")
        found[name] = Experiment(name, values, tabulated=True)
    for change in [f"{key}={value}" for key, values in over.items() for value in values] + overrides:
        if not any(key_of(change) in experiment.values for experiment in found.values()):
            raise ConfigError(f"{change}: no algorithm and no availability model of this sweep has this key")
    return list(found.values())


def _table(points: list["SweepPoint"], keys: list[str]) -> Table:
    from fedlatest.report.statistics import interval_note

    table = Table(*keys, box=None, header_style="bold", pad_edge=False)
    table.caption, table.caption_justify = interval_note([point.seeds for point in points]) or None, "left"
    for name in ("late test accuracy", "swing", "largest staleness"):
        table.add_column(name, justify="right")
    for point in points:
        table.add_row(*point.values, *point.cells)
    return table
