"""The tasks of the paper: their figures, the experiments these need, how to draw them, and judging of runs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Experiment, Load
from fedlatest.experiments.mnist import mnist
from fedlatest.experiments.parallel_runs import work
from fedlatest.experiments.sentiment140 import sentiment140
from fedlatest.report import (
    METRICS,
    Claim,
    Line,
    PublishedCurve,
    RunRecord,
    draw_availability,
    draw_loss_and_accuracy,
    draw_panels,
    draw_round,
    draw_sleep,
)
from fedlatest.reproduction.figure import Curve, Figure, unique
from fedlatest.reproduction.judging import PaperTask, PublishedCurves
from fedlatest.reproduction.mnist_claims import MNIST, mnist_claims
from fedlatest.reproduction.mnist_figures import FIGURES as MNIST_FIGURES
from fedlatest.reproduction.sentiment140_claims import SENTIMENT140, sentiment140_claims
from fedlatest.reproduction.sentiment140_figures import FIGURES as SENTIMENT140_FIGURES
from fedlatest.suggestions import did_you_mean


@dataclass(frozen=True)
class Reproduction:
    """The figures and the claims of the paper for one task."""

    name: str
    title: str
    load: Load
    """Loads the data set."""
    figures: Mapping[str, Callable[[], Figure]]
    task: PaperTask
    claims: Callable[[Mapping[str, RunRecord], PublishedCurves], list[Claim]]
    """(runs by experiment name, published histories) -> claims."""

    def select_figures(self, names: list[str]) -> list[Figure]:
        """Return the named figures, or all of them if no name is given.

        Raises:
            ConfigError: If a name is unknown.
        """
        for name in names:
            if name not in self.figures:
                raise ConfigError(f"--figure {name}: unknown{did_you_mean(name, self.figures)}")
        return [self.figures[name]() for name in names or self.figures]


REPRODUCTIONS = {
    reproduction.name: reproduction
    for reproduction in (
        Reproduction(
            "mnist",
            "MNIST under intermittent availability",
            mnist.load,
            MNIST_FIGURES,
            MNIST,
            mnist_claims,
        ),
        Reproduction(
            "sentiment140",
            "Sentiment140 under intermittent availability",
            sentiment140.load,
            SENTIMENT140_FIGURES,
            SENTIMENT140,
            sentiment140_claims,
        ),
    )
}


class Judgement(NamedTuple):
    """The claims with their verdicts, and the published curve to draw behind each run (by the run's path)."""

    claims: list[Claim]
    published: dict[Path, PublishedCurve]


def judge(runs: Iterable[RunRecord], histories: PublishedCurves) -> Judgement:
    """Evaluate the claims of every task on some runs; runs are recognised by their values, not by their folders."""
    runs, claims = list(runs), list[Claim]()
    published: dict[Path, PublishedCurve] = {}
    for reproduction in REPRODUCTIONS.values():
        known = reproduction.task.recognise(runs)
        curves = reproduction.task.published.curves_by_experiment(histories)
        claims += reproduction.claims(known, histories)
        published |= {run.path: curves[name] for name, run in known.items() if name in curves}
    return Judgement(claims, published)


def experiments_for(figures: Iterable[Figure], *, rounds: int | None = None) -> list[Experiment]:
    """Return the experiments that the figures need, the longest first; `rounds` replaces the paper's number."""
    needed = unique(experiment for figure in figures for experiment in figure.experiments)
    if rounds is not None:
        needed = [experiment.with_values(rounds=rounds) for experiment in needed]
    return sorted(needed, key=lambda experiment: -work(experiment))


def draw(
    figure: Figure, runs: Mapping[str, RunRecord], folder: Path, published: Mapping[Path, PublishedCurve]
) -> list[Path]:
    """Draw a figure as PNG and PDF; curves whose runs are missing or diverged are left out.

    Args:
        figure: The figure to draw.
        runs: The finished runs, by experiment name.
        folder: Where the files are written.
        published: The published curve to draw behind a run, by the run's path.

    Returns:
        The paths of the files; empty if none of the runs is available.
    """
    panels = {
        panel.title: [line for curve in panel.curves if (line := _line(curve, runs, published)) is not None]
        for panel in figure.panels
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        return []
    return [path for suffix in ("png", "pdf") for path in _draw_as(figure, panels, folder, suffix)]


def _draw_as(figure: Figure, panels: Mapping[str, list[Line]], folder: Path, suffix: str) -> list[Path]:
    path = folder / f"{figure.name}.{suffix}"
    first = next(iter(panels.values()))
    if figure.kind == "availability":
        return [draw_availability({title: lines[0].run for title, lines in panels.items()}, path, title=figure.title)]
    if figure.kind == "round":
        return [draw_round(first[0].run, path)]
    if figure.kind == "sleep":
        return [draw_sleep(first[0].run, path, title=figure.title)]
    if len(panels) == 1:
        return [draw_loss_and_accuracy(first, path, title=figure.title)]
    return [
        draw_panels(panels, metric, folder / f"{figure.name}-{metric.split('_')[1]}.{suffix}", title=figure.title)
        for metric in METRICS
    ]


def _line(curve: Curve, runs: Mapping[str, RunRecord], published: Mapping[Path, PublishedCurve]) -> Line | None:
    candidates = [runs[experiment.name] for experiment in curve.candidates if experiment.name in runs]
    if not candidates:
        return None
    best = min(candidates, key=lambda run: float(run.late("train_loss").mean()))
    label = f"{curve.label} (best of {len(candidates)})" if len(curve.candidates) > 1 else curve.label
    return Line(label, best, published.get(best.path))
