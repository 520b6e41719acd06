"""The command line: parses, calls, prints."""

import hashlib
import inspect
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import jax
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fedlatest import __version__
from fedlatest.data import Samples
from fedlatest.errors import ConfigError, FedlatestError, RunFolderError
from fedlatest.recipes import RECIPES, Experiment, Recipe
from fedlatest.recipes.settings import CHOICES, keywords
from fedlatest.report import RunRecord, draw_curves, read_runs, write_page
from fedlatest.report.page import TITLE
from fedlatest.runs import RunFolder
from fedlatest.simulation import Progress as Heard

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
out = Console()
err = Console(stderr=True)


def main() -> None:
    """Entry point: a user's mistake is one or two lines, never a traceback."""
    try:
        app()
    except FedlatestError as error:
        err.print(Text(f"error: {error}", style="red"), soft_wrap=True)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Federated learning for clients that come and go."""
    if version:
        out.print(f"fedlatest {__version__}")
        raise typer.Exit


@app.command("list")
def list_all() -> None:
    """What can be run: recipes, algorithms, availability models, and their keys."""
    recipes = [(recipe.name, _pairs(recipe.defaults), recipe.summary) for recipe in RECIPES.values()]
    _print_rows("recipe", recipes)
    for what, factories in CHOICES.items():
        _print_rows(f"{what}=", [(name, _keys(make), _first_line(make)) for name, make in factories.items()])


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="quickstart or mnist; see `fedlatest list`.")],
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    seed: Annotated[int | None, typer.Option(help="Run this one seed (default 0).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Run seeds 0 .. N-1 side by side.")] = None,
    to: Annotated[Path | None, typer.Option("--out", help="Where the run goes.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data (or FEDLATEST_DATA).")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or gpu; JAX's choice if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is there.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log for TensorBoard.")] = False,
) -> None:
    """Run a recipe and show what happened."""
    chosen = _recipe(recipe)
    overrides = [*(settings or []), *([f"rounds={rounds}"] if rounds is not None else [])]
    experiments = chosen.experiments(overrides)
    if resume and force:
        raise ConfigError("--resume, --force: go on with what is there or replace it, not both")
    numbers = _seeds(seed, seeds)
    _use_device(device)
    samples = chosen.load(data)
    for experiment in experiments:
        experiment.build(samples)  # complains about nonsense early
    root = to or Path("runs") / _folder_name(chosen.name, [*overrides, *([] if numbers == [0] else [f"{numbers}"])])
    folders = [root if len(experiments) == 1 else root / experiment.name for experiment in experiments]
    _refuse_what_is_in_the_way(root, folders, allowed=resume or force)
    options = {"seeds": numbers, "resume": resume, "force": force, "tensorboard": tensorboard}
    try:
        _run_all(experiments, folders, samples, options)
    except KeyboardInterrupt:
        again = "with --resume instead of --force" if force else "with --resume"
        err.print(f"stopped; the same command {again} goes on from the last checkpoint in {root}", soft_wrap=True)
        raise typer.Exit(130) from None
    _show(folders, root / "figure.png")


def _run_all(experiments: list[Experiment], folders: list[Path], samples: Samples, options: dict[str, Any]) -> None:
    """Run one experiment after the other, each with its progress bar and figure."""
    with _Stop() as stop, _Bars() as bars:
        for experiment, folder in zip(experiments, folders, strict=True):
            bars.begin(experiment)
            rest = folders[1:] if options["force"] and folder == folders[0] else []

            def listen(heard: Heard, rest: list[Path] = rest) -> None:
                while rest:  # the first run has passed all checks: what is old goes now, so that a cut can be resumed
                    RunFolder(rest.pop()).empty()
                bars.hear(heard)
                if stop.asked:
                    raise KeyboardInterrupt

            experiment.run(samples, out=folder, listener=listen, **options)
            draw_curves(read_runs([folder]), folder / "figure.png")


@app.command()
def plot(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.")],
    to: Annotated[Path, typer.Option("--out", help="The figure: .png or .pdf.")] = Path("figure.png"),
) -> None:
    """Draw training loss and test accuracy of runs in one figure."""
    _show(folders, to)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders of them.")],
    to: Annotated[Path, typer.Option("--out", help="The page: a name that ends in .html.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="What the page is about.")] = TITLE,
) -> None:
    """Make one web page of runs, with interactive charts; it needs no network and no server."""
    page = write_page(read_runs(folders), to, title=title)
    out.print(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)


def _show(folders: list[Path], figure: Path) -> None:
    """The runs as a figure and a table."""
    records = read_runs(folders)
    draw_curves(records, figure)
    out.print(_table(records))
    out.print(f"figure: {figure}", soft_wrap=True)


class _Stop:
    """A first Ctrl-C (or a polite kill) stops after the block at hand, with a checkpoint; a second one at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "_Stop":
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *problem: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        err.print("stopping at the next checkpoint; once more to stop at once")


class _RoundsPerSecond(ProgressColumn):
    """Speed in rounds per second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:,.0f} rounds/s")


class _Bars:
    """A progress bar per experiment, and an estimate before the long part."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:>6.0f}/{task.total:.0f}"),
            _RoundsPerSecond(),
            TimeRemainingColumn(),
            console=err,
            speed_estimate_period=20,
        )

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def begin(self, experiment: Experiment) -> None:
        self._task = self._progress.add_task(experiment.name, total=experiment.values["rounds"])
        self._estimated, self._fresh = False, True

    def hear(self, heard: Heard) -> None:
        if self._fresh:  # a resumed run begins where it was, not at a great speed from 0
            self._progress.reset(self._task, completed=heard.round)
            self._fresh = False
        self._progress.update(self._task, completed=heard.round)
        if not self._estimated and heard.seconds_left is not None:
            self._estimated = True
            if heard.seconds_left > 10:
                self._progress.console.print(
                    f"about {_duration(heard.seconds_left)} to go, {heard.bytes_needed / 2**30:.2f} GiB of memory"
                )


def _table(records: list[RunRecord]) -> Table:
    table = Table("algorithm", box=None, header_style="bold", pad_edge=False)
    for column in ("final test accuracy", "swing over the last rounds", "largest staleness"):
        table.add_column(column, justify="right")
    for record in records:
        table.add_row(
            record.title,
            f"{record.final_accuracy:.4f}",
            "-" if math.isnan(record.swing) else f"{record.swing:.4f}",
            str(record.largest_staleness),
        )
    return table


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise ConfigError(f"recipe {name}: unknown; choose one of {', '.join(RECIPES)}")
    return RECIPES[name]


def _seeds(seed: int | None, seeds: int | None) -> list[int]:
    if seed is not None and seeds is not None:
        raise ConfigError("--seed, --seeds: give one seed or a number of seeds, not both")
    if seeds is not None and seeds < 1:
        raise ConfigError(f"--seeds {seeds}: must be at least 1")
    return [seed or 0] if seeds is None else list(range(seeds))


def _refuse_what_is_in_the_way(root: Path, folders: list[Path], *, allowed: bool) -> None:
    """Before any work; with --resume or --force only a run where several should go is in the way."""
    if len(folders) > 1 and RunFolder(root).exists:
        raise RunFolderError(f"{root}: is itself a run; this recipe makes several, so choose another --out")
    for folder in map(RunFolder, folders):
        if folder.exists and not allowed:
            folder.refuse()


def _use_device(device: str | None) -> None:
    if device not in (None, "cpu", "gpu"):
        raise ConfigError(f"--device {device}: choose cpu or gpu")
    if device == "cpu" or not entry_points(group="jax_plugins"):  # where accelerators plug in
        # One thread trains the small models of a cohort faster than several: XLA would split every little product, and
        # the threads would wait for each other. Read when JAX first starts; a user's own value stands.
        os.environ.setdefault("NPROC", "1")
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if device == "gpu" and jax.default_backend() != "gpu":
        raise ConfigError("--device gpu: JAX finds no GPU here; pip install 'fedlatest[gpu]' on a machine with one")


def _folder_name(recipe: str, overrides: list[str]) -> str:
    """A name that says the recipe and, when keys were changed, tells one choice of keys from another."""
    if not overrides:
        return recipe
    return f"{recipe}-{hashlib.sha256(' '.join(sorted(overrides)).encode()).hexdigest()[:8]}"


def _print_rows(title: str, rows: list[tuple[str, str, str]]) -> None:
    table = Table(title, "keys (default)", "what it is", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table, "")


def _pairs(values: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def _keys(factory: Callable[..., Any]) -> str:
    defaults = {name: key.default for name, key in keywords(factory).items()}
    return _pairs({name: "..." if value is inspect.Parameter.empty else value for name, value in defaults.items()})


def _first_line(factory: Callable[..., Any]) -> str:
    return (factory.__doc__ or "").strip().splitlines()[0]


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
