"""Reproducing a paper: its figures, what they need to have been run, and how they are drawn."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Experiment, Load
from fedlatest.experiments.mnist import mnist
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
from fedlatest.reproduction.judging import Key
from fedlatest.reproduction.mnist_claims import MNIST, mnist_claims
from fedlatest.reproduction.mnist_figures import FIGURES as MNIST_FIGURES
from fedlatest.reproduction.sentiment140_claims import SENTIMENT140, sentiment140_claims
from fedlatest.reproduction.sentiment140_figures import FIGURES as SENTIMENT140_FIGURES

Published = Mapping[Key, PublishedCurve]


@dataclass(frozen=True)
class Reproduction:
    """The figures of a paper on one data set, and its claims."""

    name: str
    title: str
    load: Load
    figures: Mapping[str, Callable[[], Figure]]
    recognise: Callable[[Iterable[RunRecord]], dict[str, RunRecord]]
    """Which of some runs are experiments of the paper, by the experiment's name."""
    claims: Callable[[Mapping[str, RunRecord], Published], list[Claim]]
    behind: Callable[[Published], dict[str, PublishedCurve]]
    """Published curves by the name of the experiment."""

    def chosen(self, names: list[str]) -> list[Figure]:
        """The figures of some names; all of them if none is named."""
        for name in names:
            if name not in self.figures:
                raise ConfigError(f"--figure {name}: unknown; choose one of {', '.join(self.figures)}")
        return [self.figures[name]() for name in names or self.figures]


REPRODUCTIONS = {
    reproduction.name: reproduction
    for reproduction in (
        Reproduction(
            "mnist",
            "MNIST under intermittent availability",
            mnist.load,
            MNIST_FIGURES,
            MNIST.recognise,
            mnist_claims,
            MNIST.published.behind,
        ),
        Reproduction(
            "sentiment140",
            "Sentiment140 under intermittent availability",
            sentiment140.load,
            SENTIMENT140_FIGURES,
            SENTIMENT140.recognise,
            sentiment140_claims,
            SENTIMENT140.published.behind,
        ),
    )
}


class Judged(NamedTuple):
    """What the papers' claims are found to be, and the published curves by the run that they belong behind."""

    claims: list[Claim]
    published: dict[Path, PublishedCurve]


def judge(runs: Iterable[RunRecord], histories: Published) -> Judged:
    """Put the claims of every paper to some runs, whatever their folders are called."""
    runs, claims = list(runs), list[Claim]()
    published: dict[Path, PublishedCurve] = {}
    for reproduction in REPRODUCTIONS.values():
        known, behind = reproduction.recognise(runs), reproduction.behind(histories)
        claims += reproduction.claims(known, histories)
        published |= {run.path: behind[name] for name, run in known.items() if name in behind}
    return Judged(claims, published)


def experiments_of(figures: Iterable[Figure], *, rounds: int | None = None) -> list[Experiment]:
    """What the figures need to have been run, the longest first."""
    needed = unique(experiment for figure in figures for experiment in figure.experiments)
    if rounds is not None:
        needed = [experiment.with_values(rounds=rounds) for experiment in needed]
    return sorted(needed, key=lambda experiment: -work(experiment))


def work(experiment: Experiment) -> float:
    """How long an experiment takes, roughly, in samples of its task trained on: an evaluation is worth 30,000."""
    values = experiment.values
    steps = 1 if values["algorithm"] == "fedsgd" else values["local_steps"]
    trained = values["participation"] * values["num_clients"] * steps * values["batch_size"]
    return float(values["rounds"] * (trained + 30_000 / values["evaluate_every"]))


def draw(
    figure: Figure, runs: Mapping[str, RunRecord], folder: Path, published: Mapping[Path, PublishedCurve]
) -> list[Path]:
    """Draw a figure from its runs (by name) as PNG and PDF; lines whose runs diverged or are missing are left out."""
    panels = {
        panel.title: [line for curve in panel.curves if (line := _line(curve, runs, published)) is not None]
        for panel in figure.panels
    }
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        return []
    return [path for ending in ("png", "pdf") for path in _draw_as(figure, panels, folder, ending)]


def _draw_as(figure: Figure, panels: Mapping[str, list[Line]], folder: Path, ending: str) -> list[Path]:
    path = folder / f"{figure.name}.{ending}"
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
        draw_panels(panels, metric, folder / f"{figure.name}-{metric.split('_')[1]}.{ending}", title=figure.title)
        for metric in METRICS
    ]


def _line(curve: Curve, runs: Mapping[str, RunRecord], published: Mapping[Path, PublishedCurve]) -> Line | None:
    there = [runs[experiment.name] for experiment in curve.candidates if experiment.name in runs]
    if not there:
        return None
    best = min(there, key=lambda run: float(run.late("train_loss").mean()))
    searched = len(curve.candidates) > 1
    label = f"{curve.label} (best of {len(there)})" if searched else curve.label
    return Line(label, best, published.get(best.path))
