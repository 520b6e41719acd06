"""The numbers behind the page's charts, as plain lists and texts that go into it as JSON."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.report import staleness as attendance
from fedlatest.report.grouping import POOLED, Look, Setting
from fedlatest.report.published_curves import PublishedCurve
from fedlatest.report.run_records import RunRecord
from fedlatest.runs import ClientRecord, LabelAccuracy, Participation, RunFolder

CURVES = ("test_accuracy", "train_loss", "test_loss", "train_accuracy")
MOST_EVALUATIONS = 800  # drawn per line: more than a chart has pixels for
MOST_POINTS = 300  # of a curve over clients or over staleness
MOST_LABEL_VALUES = 4000  # per run: evaluations x labels
LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"  # a cell of a picture is one character
DIGITS = 5

Json = dict[str, Any]


class PageData:
    """The content of the page's JSON: `content` once all runs are added."""

    def __init__(self, settings: Sequence[Setting]) -> None:
        self._maps: dict[str, int] = {}
        self.content: Json = {
            "levels": LEVELS,
            "settings": [setting._asdict() for setting in settings],
            "maps": [],
            "runs": [],
        }

    def add(self, run: RunRecord, name: str, look: Look, published: PublishedCurve | None) -> None:
        """Add the next run."""
        folder = RunFolder(run.path)
        pooled = run.algorithm == POOLED
        took_part = None if pooled else read_participation(run)
        clients = None if pooled else folder.clients()
        labels = folder.labels()
        self.content["runs"].append(
            {
                "label": name,
                "dash": look.dash,
                "status": run.manifest.get("status", "running"),
                "front": run.algorithm == "fedlaavg",
                "seeds": run.metrics.seeds,
                **curves(run),
                "published": published_curve(published),
                "staleness": None if pooled else staleness(run, took_part, clients),
                "participation": participation(run, took_part, clients),
                "map": self._map(clients, took_part),
                "labels": None if labels is None else label_curves(labels),
            }
        )

    def _map(self, clients: ClientRecord | None, took_part: Participation | None) -> Json | None:
        """Pictures of one run; who was available when is often the same for many runs and is kept once."""
        if clients is None:
            return None
        shown = None if took_part is None else attendance.picture(took_part, clients)
        most = 0.0 if shown is None else float(shown.max())
        available = availability_map(clients)
        number = self._maps.setdefault(str(available), len(self._maps))
        if number == len(self.content["maps"]):
            self.content["maps"].append(available)
        cells = None if shown is None else encode(shown / (most or 1))
        return {"number": number, "took_part": cells, "most": rounded([most])[0]}


def read_participation(run: RunRecord) -> Participation | None:
    """Who took part; known when a run is finished."""
    return RunFolder(run.path).participation() if run.manifest.get("status") == "finished" else None


def curves(run: RunRecord) -> Json:
    """Every curve of every seed."""
    kept = thinned(run.metrics.rounds.size, MOST_EVALUATIONS)
    return {
        "rounds": run.metrics.rounds[kept].tolist(),
        "curves": {name: [rounded(row[kept]) for row in run.metrics.column(name)] for name in CURVES},
    }


def published_curve(curve: PublishedCurve | None) -> Json | None:
    """A published curve, in the form of our own."""
    if curve is None:
        return None
    kept = thinned(len(curve.rounds), MOST_EVALUATIONS)
    return {
        "rounds": np.asarray(curve.rounds)[kept].tolist(),
        "train_loss": rounded(np.asarray(curve.train_loss)[kept]),
        "test_accuracy": rounded(np.asarray(curve.test_accuracy)[kept]),
    }


def staleness(run: RunRecord, took_part: Participation | None, clients: ClientRecord | None) -> Json:
    """Mean and largest over time (mean and largest over seeds), and the share of pairs at least so stale."""
    rounds, about = run.metrics.rounds, {name: run.metrics.column(f"{name}_staleness") for name in ("mean", "max")}
    known = np.flatnonzero(np.isfinite(about["mean"]).all(axis=0))
    known = known[thinned(known.size, MOST_EVALUATIONS)]
    facts: Json = run.manifest.get("availability") or {}
    content: Json = {
        "rounds": rounds[known].tolist(),
        "mean": rounded(about["mean"][:, known].mean(axis=0)),
        "max": rounded(about["max"][:, known].max(axis=0, initial=0)),
        "bound": facts.get("staleness_bound"),
    }
    if took_part is not None:
        counts = attendance.staleness_counts(took_part, num_clients(run, clients))
        at_least = np.cumsum(counts[::-1])[::-1] / counts.sum()
        kept = thinned(counts.size, MOST_POINTS)
        content |= {"ages": np.arange(counts.size)[kept].tolist(), "at_least": rounded(at_least[kept])}
    return content


def participation(run: RunRecord, took_part: Participation | None, clients: ClientRecord | None) -> Json | None:
    """How evenly clients took part: each one's share times N, from the least to the most, mean over seeds."""
    if took_part is None:
        return None
    counts = attendance.times_chosen(took_part, num_clients(run, clients))
    size = counts.shape[1]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ordered = size * np.sort(shares, axis=1).mean(axis=0)
    kept = thinned(size, MOST_POINTS)
    content: Json = {
        "clients": size,
        "rank": rounded((kept + 0.5) / size),
        "times_fair": rounded(ordered[kept]),
        "jain": rounded([np.mean([attendance.jain_index(row) for row in counts])])[0],
    }
    if clients is not None and clients.labels.any():
        labels = np.unique(clients.labels)
        mine = clients.labels == labels[:, None]
        content["by_label"] = {
            "labels": labels.tolist(),
            "clients": rounded(mine.mean(axis=1)),
            "took_part": rounded((mine @ shares.T).mean(axis=1)),
        }
    return content


def availability_map(clients: ClientRecord) -> Json:
    """The availability picture, its bins, and where each label's clients begin."""
    labels = clients.labels[clients.order]
    first = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    return {
        "rows": clients.row_edges.tolist(),
        "columns": clients.column_edges.tolist(),
        "labels": [[int(labels[i]), int(i)] for i in first] if clients.labels.any() else [],
        "available": encode(clients.available / 255),
    }


def label_curves(labels: LabelAccuracy) -> Json:
    """Accuracy per label over time, mean over seeds; labels that the test set lacks are left out."""
    held = np.flatnonzero(np.isfinite(labels.accuracy).any(axis=(0, 1)))
    kept = thinned(labels.rounds.size, max(2, MOST_LABEL_VALUES // max(1, held.size)))
    mean = labels.accuracy[:, kept][:, :, held].mean(axis=0)
    return {
        "rounds": labels.rounds[kept].tolist(),
        "names": held.tolist(),
        "accuracy": [rounded(column) for column in mean.T],
    }


def num_clients(run: RunRecord, clients: ClientRecord | None) -> int:
    """N."""
    return int(run.manifest["config"]["num_clients"]) if clients is None else clients.labels.size


def thinned(length: int, most: int) -> npt.NDArray[np.int64]:
    """At most `most` positions out of range(length), evenly, the first and the last among them.

    >>> thinned(10, 4).tolist(), thinned(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.round(np.linspace(0, length - 1, min(length, most))).astype(np.int64)


def encode(shares: npt.NDArray[np.float64]) -> str:
    """A picture of values in [0, 1], row by row, one of 64 levels a cell.

    >>> encode(np.array([[0, 1], [0.5, 1 / 63]]))
    'A_gB'
    """
    letters = np.frombuffer(LEVELS.encode(), np.uint8)
    return letters[np.round(63 * shares).astype(np.int64)].tobytes().decode()


def rounded(values: npt.ArrayLike) -> list[float | None]:
    """Five significant digits; null for what is no number, which JSON has no word for.

    >>> rounded([0.123456, 2.0, float("nan")])
    [0.12346, 2, None]
    """
    return [_short(float(value)) for value in np.asarray(values, np.float64)]


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short


def make_data(
    runs: list[RunRecord],
    settings: Sequence[Setting],
    names: Sequence[str],
    looks: Sequence[Look],
    published: Mapping[Path, PublishedCurve],
) -> Json:
    """All that the charts need."""
    data = PageData(settings)
    for run, name, look in zip(runs, names, looks, strict=True):
        data.add(run, name, look, published.get(run.path))
    return data.content
