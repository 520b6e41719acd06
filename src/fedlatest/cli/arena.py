"""`arena`: compare methods under several availability cases, each with step sizes found by a search."""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedlatest.cli.app import app, configure_device, err, out, print_next
from fedlatest.cli.many_runs import ManyRuns, Resources, check_at_least_one
from fedlatest.cli.report import write_arena_report
from fedlatest.errors import ConfigError, RunFolderError

if TYPE_CHECKING:
    from fedlatest.experiments import Experiment
    from fedlatest.experiments.arena import Arena
    from fedlatest.report.leaderboard import Leaderboard


@app.command()
def arena(
    dataset: Annotated[str, typer.Option(help="quickstart, mnist, cifar10, tweets or sentiment140.")] = "quickstart",
    availability: Annotated[
        list[str] | None,
        typer.Option(help="Cases, separated by commas: names, or MODEL:KEY=VALUE:... (default: see docs/arena.md)."),
    ] = None,
    algorithms: Annotated[
        list[str] | None,
        typer.Option(help="Methods, separated by commas: NAME or NAME:KEY=VALUE:... (default: see docs/arena.md)."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of the final runs.")] = 5,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds (default: the recipe's).")] = None,
    hours: Annotated[float | None, typer.Option(help="Virtual hours of the cases in time (default: 24).")] = None,
    trials: Annotated[int, typer.Option(help="Trials of the step-size search for each method and case.")] = 9,
    search_seeds: Annotated[int, typer.Option(help="Seeds of each trial of the search.")] = 1,
    target: Annotated[
        float | None, typer.Option(help="Accuracy for the rounds or hours to a target (default: 95% of the best).")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key for all runs; repeatable.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Folder for runs, tables and report.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu (default: JAX's choice).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes on a CPU (default: one per core, at most 8).")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="A Dask scheduler's address, or local; see docs/cluster.md.")
    ] = None,
) -> None:
    """Compare methods fairly, each with tuned step sizes.

    For each method and each availability case, search for the best step sizes, then run them on fresh seeds.
    Run the same command again to continue after a stop; finished runs are reused.
    """
    from fedlatest.cli.progress import format_duration
    from fedlatest.cli.run import check_is_no_run, find_recipe, with_rounds
    from fedlatest.experiments.arena import Arena, run_winners, search
    from fedlatest.experiments.arena_choices import (
        default_cases,
        default_methods,
        ends_at_a_time,
        has_delays,
        named_cases,
        parse_cases,
        parse_methods,
    )
    from fedlatest.report.leaderboard import read_arena, write_arena

    check_at_least_one(seeds=seeds, rounds=rounds, trials=trials, search_seeds=search_seeds, workers=workers)
    if target is not None and not 0 < target < 1:
        raise ConfigError(f"--target {target}: must be an accuracy between 0 and 1")
    configure_device("cpu" if cluster else device)  # before the keys are checked, which makes delays with JAX
    recipe = find_recipe(dataset)
    cases = parse_cases(split_list(availability) or default_cases(recipe), named_cases(recipe))
    overrides = tuple(with_hours(with_rounds(settings, rounds), hours))
    all_overrides = [*overrides, *(override for case in cases for override in case.overrides)]
    if hours is not None and not has_delays(*all_overrides):
        raise ConfigError(f"--hours {hours:g}: no case that is compared is in time; use --rounds")
    methods = parse_methods(split_list(algorithms) or default_methods(in_time=ends_at_a_time(*all_overrides)))
    plan = Arena(recipe, cases, methods, overrides, trials, search_seeds, seeds, to or Path())
    if to is None:
        plan = plan.in_folder(Path("runs") / f"arena-{dataset}-{_digest(plan)}")
    plan.check_keys()
    check_is_no_run(plan.root, "an arena")
    _check_same(plan)
    started = time.monotonic()
    many = ManyRuns(recipe.name, recipe.load, data, plan.root, Resources(device, workers, cluster))
    if plan.in_time:
        plan = plan.with_paces(many.builder)
    work = _WorkLeft(plan)

    def run_all(experiments: Sequence["Experiment"], folders: Sequence[Path], numbers: Sequence[int]) -> None:
        work.begin(experiments, numbers)
        work.executed += many.run(experiments, folders, numbers, later_work=work.later, brief=True)

    if read_arena(plan.root) is None:
        write_arena(plan.root, plan.description())
    scores = search(plan, run_all)
    run_winners(plan, scores, run_all)
    write_arena(plan.root, plan.description() | {"search": plan.trials_table(scores), "target": target})
    best = _write_results(plan.root)
    algorithm = next(method.component for method in methods if method.name == best)
    elapsed = format_duration(time.monotonic() - started)
    out.print(f"{work.executed} of {work.total_runs} runs were executed now; total time {elapsed}", highlight=False)
    print_next("list", "algorithms", algorithm)


def split_list(texts: list[str] | None) -> list[str]:
    """Return the items of options that may be repeated and may each hold several items, separated by commas.

    >>> split_list(["a,b", "c"])
    ['a', 'b', 'c']
    """
    return [item.strip() for text in texts or [] for item in text.split(",") if item.strip()]


def with_hours(overrides: list[str], hours: float | None) -> list[str]:
    """Return the overrides with the time limit that `--hours` gives.

    >>> with_hours(["rounds=9"], 0.5)
    ['rounds=9', 'until=1800']
    """
    if hours is None:
        return overrides
    if not 0 < hours < math.inf:
        raise ConfigError(f"--hours {hours:g}: must be above 0")
    return [*overrides, f"until={3600 * hours:g}"]


class _WorkLeft:
    """The work that follows the current stage, so that the remaining time covers the whole arena."""

    def __init__(self, plan: "Arena") -> None:
        from fedlatest.experiments.parallel_runs import work
        from fedlatest.experiments.step_search import Point

        self._work = work
        one_trial_each = sum(work(plan.trial(pair, Point())) for pair in plan.pairs)
        self.later = one_trial_each * (plan.num_trials * plan.num_search_seeds + plan.num_seeds)
        self.total_runs = len(plan.pairs) * (plan.num_trials + 1)
        self.executed, self.stage, self.num_stages = 0, 0, len(plan.stages)

    def begin(self, experiments: Sequence["Experiment"], seeds: Sequence[int]) -> None:
        """Announce the stage that begins, and subtract its work."""
        self.stage += 1
        what = f"search, stage {self.stage} of {self.num_stages}" if self.stage <= self.num_stages else "final runs"
        err.print(f"{what}: {len(experiments)} runs with {len(seeds)} seed{'s' if len(seeds) > 1 else ''} each")
        self.later -= len(seeds) * sum(map(self._work, experiments))


def _digest(plan: "Arena") -> str:
    return hashlib.sha256(json.dumps(plan.description(), sort_keys=True).encode()).hexdigest()[:8]


def _check_same(plan: "Arena") -> None:
    """Raise RunFolderError if the folder holds an arena with another configuration."""
    from fedlatest.report.leaderboard import read_arena

    existing = read_arena(plan.root)
    if existing is None:
        return
    for key, value in plan.description().items():
        if existing.get(key) != value:
            raise RunFolderError(
                f"{plan.root}: holds an arena with another configuration ({key} was {existing.get(key)!r}, now "
                f"{value!r}); choose another --out"
            )


def _write_results(root: Path) -> str:
    """Print the leaderboard over all cases, write tables, figures and the report; return the best method's name."""
    from fedlatest.report.leaderboard import Leaderboard
    from fedlatest.report.leaderboard_tables import warnings, write_leaderboard
    from fedlatest.report.rank_figures import draw_ranks
    from fedlatest.report.time_figures import draw_time_and_bytes

    board = Leaderboard(root)
    out.print(_summary(board), width=max(out.width, 40 + 14 * len(board.cases)), crop=False)
    for warning in warnings(board):
        out.print(f"warning: {warning}", highlight=False)
    paths = write_leaderboard(board, root)
    for each in board.boards if board.in_time else []:
        paths += [draw_time_and_bytes(each, root / f"time-{each.case}.{suffix}") for suffix in ("png", "pdf")]
    if len(board.methods) > 1:
        paths += [draw_ranks(board, root / f"ranks.{suffix}") for suffix in ("png", "pdf")]
    for path in paths:
        out.print(f"{path.stem}: {path}", soft_wrap=True)
    write_arena_report(board, root / "report.html")
    return board.by_rank[0]


def _summary(board: "Leaderboard") -> Table:
    from fedlatest.report.timed_tables import main_cell

    table = Table("method", box=None, header_style="bold", pad_edge=False)
    for name in ("mean rank", *board.cases):
        table.add_column(name, justify="right")
    mean = dict(zip(board.methods, board.ranking.mean, strict=True))
    for method in board.by_rank:
        entries = [board.entry(case, method) for case in board.cases]
        cells = [main_cell(entry, bold="{}*") + ("" if entry.ties_best else " ") for entry in entries]
        table.add_row(board.titles[method], f"{mean[method]:.1f}", *cells)
    what = "virtual hours to the target accuracy" if board.in_time else "late mean test accuracy"
    marks = "; * the best of a case, or not significantly different from it" if board.has_tests else ""
    table.caption = what + marks
    table.caption_justify = "left"
    return table
