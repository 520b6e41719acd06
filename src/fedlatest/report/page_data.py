"""The numbers in the page's charts, as lists and texts to be embedded as JSON."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.report.grouping import POOLED, LineStyle, Setting
from fedlatest.report.participation_statistics import (
    jain_index,
    participation_counts,
    participation_picture,
    staleness_counts,
)
from fedlatest.report.published_curves import PublishedCurve
from fedlatest.report.run_records import RunRecord
from fedlatest.report.run_summaries import SUMMARIES, megabytes, run_values, summarise, varying_keys, virtual_time
from fedlatest.runs import ClientRecord, LabelAccuracy, Participation, RunFolder

AXES = ("seconds", "megabytes", "time")  # besides rounds
CURVES = ("test_accuracy", "train_loss", "test_loss", "train_accuracy")
MOST_EVALUATIONS = 800  # per line; a chart does not have more pixels
MOST_PICTURES = 60  # runs; a page with more shows only who was available, not who took part
MOST_POINTS = 300  # per curve over clients or over staleness
MOST_LABEL_VALUES = 4000  # per run: evaluations x labels
LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"  # one character per cell of a picture
DIGITS = 6

Json = dict[str, Any]


class RunNames(NamedTuple):
    """How the page calls a run."""

    id: str  # the same as long as the run exists
    label: str  # within its setting
    full: str  # among all runs


def make_data(
    runs: list[RunRecord],
    settings: Sequence[Setting],
    names: Sequence[RunNames],
    lines: Sequence[LineStyle],
    published: Mapping[Path, PublishedCurve],
    *,
    contents: Sequence[Json] | None = None,
    x: str = "round",
) -> Json:
    """Return the content of the page's JSON.

    Args:
        runs: The runs.
        settings: The runs grouped by setting.
        names: Names of each run.
        lines: Line style of each run.
        published: Published curves by the folder of their run.
        contents: What `run_data` returns for each run; computed if it is not given.
        x: What curves are drawn over until the reader selects something else: "round" or one of AXES.
    """
    if contents is None:
        contents = [run_data(run) for run in runs]
    maps: list[Json] = []  # availability pictures; many runs have the same one, which is stored once
    values = [run_values(run) for run in runs]
    keys = varying_keys(values)
    found = []
    for run, name, line, content, own in zip(runs, names, lines, contents, values, strict=True):
        more = {
            **name._asdict(),
            "dash": line.dash,
            "published": published_curve(published.get(run.path)),
            "values": {key: own[key] for key in keys if key in own},
            "map": _with_shared_picture(content["map"], maps, with_picture=len(runs) <= MOST_PICTURES),
        }
        found.append({**content, **more})
    return {
        "levels": LEVELS,
        "settings": [setting._asdict() for setting in settings],
        "keys": keys,
        "summaries": SUMMARIES,
        "axes": [axis for axis in AXES if any(run["axes"].get(axis) for run in found)],
        "x": x,
        "maps": maps,
        "runs": found,
    }


def run_data(run: RunRecord) -> Json:
    """Return what the page shows of one run and what does not depend on the other runs."""
    folder = RunFolder(run.path)
    pooled = run.algorithm == POOLED
    took_part = None if pooled else read_participation(run)
    clients = None if pooled else folder.clients()
    labels = folder.labels()
    return {
        "algorithm": run.title,
        "status": run.manifest.get("status", "running"),
        "pooled": pooled,
        "front": run.algorithm == "fedlaavg",
        "folder": run.path.name,
        "seeds": run.metrics.seeds,
        **curves(run),
        "axes": axes(run, took_part),
        "summary": {name: rounded(found) for name, found in summarise(run, took_part).items()},
        "staleness": None if pooled else staleness(run, took_part, clients),
        "participation": participation(run, took_part, clients),
        "map": None if clients is None else pictures(run, clients, took_part),
        "labels": None if labels is None else label_curves(labels),
    }


def axes(run: RunRecord, took_part: Participation | None) -> Json:
    """Return what a curve can be drawn over besides rounds, mean over seeds; a quantity that is not known is None."""
    kept = thinned(run.metrics.rounds.size, MOST_EVALUATIONS)
    known = {
        "seconds": run.metrics.column("seconds"),
        "megabytes": megabytes(run, took_part),
        "time": virtual_time(run),
    }
    return {name: None if found is None else rounded(found.mean(axis=0)[kept]) for name, found in known.items()}


def pictures(run: RunRecord, clients: ClientRecord, took_part: Participation | None) -> Json:
    """Return the availability picture and the participation picture of a run."""
    shares = None
    if took_part is not None:
        shares = participation_picture(took_part, clients, model_rounds=model_rounds(run, took_part.num_rounds))
    most = 0.0 if shares is None else float(shares.max())
    cells = None if shares is None else encode(shares / (most or 1))
    return {"available": availability_map(clients), "took_part": cells, "most": rounded([most])[0]}


def model_rounds(run: RunRecord, num_rounds: int) -> npt.NDArray[np.int64] | None:
    """Return [rounds] the round of the availability model in which each round of the first seed took place.

    Between evaluations, rounds are taken to be equally long. None if availability did not follow the time.
    """
    length = (run.manifest["config"].get("timing") or {}).get("seconds_per_round")
    times = virtual_time(run)
    if length is None or times is None:
        return None
    return (np.interp(np.arange(num_rounds), run.metrics.rounds, times[0]) // length).astype(np.int64)


def _with_shared_picture(own: Json | None, maps: list[Json], *, with_picture: bool) -> Json | None:
    """Replace the availability picture by its position in `maps`; it is added to them if it is not there yet.

    Args:
        own: What `pictures` returns.
        maps: The availability pictures of all runs.
        with_picture: Whether to keep the picture of who took part, which is the largest part of a run.
    """
    if own is None:
        return None
    if own["available"] not in maps:
        maps.append(own["available"])
    took_part = own["took_part"] if with_picture else None
    return {"number": maps.index(own["available"]), "took_part": took_part, "most": own["most"]}


def read_participation(run: RunRecord) -> Participation | None:
    """Return the cohorts of a finished run, or None."""
    return RunFolder(run.path).participation() if run.manifest.get("status") == "finished" else None


def curves(run: RunRecord) -> Json:
    """Return the metrics of every seed over rounds."""
    kept = thinned(run.metrics.rounds.size, MOST_EVALUATIONS)
    return {
        "rounds": run.metrics.rounds[kept].tolist(),
        "curves": {name: [rounded(row[kept]) for row in run.metrics.column(name)] for name in CURVES},
    }


def published_curve(curve: PublishedCurve | None) -> Json | None:
    """Return a published curve in the form of `curves`."""
    if curve is None:
        return None
    kept = thinned(len(curve.rounds), MOST_EVALUATIONS)
    return {
        "rounds": np.asarray(curve.rounds)[kept].tolist(),
        "train_loss": rounded(np.asarray(curve.train_loss)[kept]),
        "test_accuracy": rounded(np.asarray(curve.test_accuracy)[kept]),
    }


def staleness(run: RunRecord, took_part: Participation | None, clients: ClientRecord | None) -> Json:
    """Return mean and largest staleness over rounds, and the share of (client, round) pairs of at least a staleness.

    Over seeds, the mean of the mean and the largest of the largest staleness are taken.
    """
    rounds, mean, largest = run.metrics.rounds, *map(run.metrics.column, ("mean_staleness", "max_staleness"))
    known = np.flatnonzero(np.isfinite(mean).all(axis=0))
    known = known[thinned(known.size, MOST_EVALUATIONS)]
    facts: Json = run.manifest.get("availability") or {}
    content: Json = {
        "rounds": rounds[known].tolist(),
        "mean": rounded(mean[:, known].mean(axis=0)),
        "max": rounded(largest[:, known].max(axis=0, initial=0)),
        "bound": facts.get("staleness_bound"),
    }
    if took_part is not None:
        counts = staleness_counts(took_part, num_clients(run, clients))
        at_least = np.cumsum(counts[::-1])[::-1] / counts.sum()
        kept = thinned(counts.size, MOST_POINTS)
        content |= {"values": np.arange(counts.size)[kept].tolist(), "at_least": rounded(at_least[kept])}
    return content


def participation(run: RunRecord, took_part: Participation | None, clients: ClientRecord | None) -> Json | None:
    """Return how evenly clients took part: N times the share of each client, ascending, mean over seeds.

    None if the cohorts are not known.
    """
    if took_part is None:
        return None
    counts = participation_counts(took_part, num_clients(run, clients))
    size = counts.shape[1]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ordered = size * np.sort(shares, axis=1).mean(axis=0)
    kept = thinned(size, MOST_POINTS)
    content: Json = {
        "clients": size,
        "rank": rounded((kept + 0.5) / size),
        "times_fair": rounded(ordered[kept]),
        "jain": rounded([np.mean([jain_index(row) for row in counts])])[0],
    }
    if clients is not None and clients.labels.any():
        labels, held, counts_of_label = np.unique(clients.labels, return_inverse=True, return_counts=True)
        content["by_label"] = {
            "labels": labels.tolist(),
            "clients": rounded(counts_of_label / size),
            "took_part": rounded(np.bincount(held, weights=shares.mean(axis=0))),
        }
    return content


def availability_map(clients: ClientRecord) -> Json:
    """Return the availability picture, its bins, the first client of each label, and what it is a sample of."""
    labels = clients.labels[clients.order]
    first = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    return {
        "rows": clients.row_edges.tolist(),
        "columns": clients.column_edges.tolist(),
        "labels": [[int(labels[i]), int(i)] for i in first] if clients.labels.any() else [],
        "available": encode(clients.available / 255),
        "sample": clients.sample_note,
    }


def label_curves(labels: LabelAccuracy) -> Json:
    """Return the accuracy per label over rounds, mean over seeds, without labels that the test set does not contain."""
    present = np.flatnonzero(np.isfinite(labels.accuracy).any(axis=(0, 1)))
    kept = thinned(labels.rounds.size, max(2, MOST_LABEL_VALUES // max(1, present.size)))
    mean = labels.accuracy[:, kept][:, :, present].mean(axis=0)
    return {
        "rounds": labels.rounds[kept].tolist(),
        "names": present.tolist(),
        "accuracy": [rounded(column) for column in mean.T],
    }


def num_clients(run: RunRecord, clients: ClientRecord | None) -> int:
    """Return the number of clients, N."""
    return int(run.manifest["config"]["num_clients"]) if clients is None else clients.labels.size


def thinned(length: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most `most` evenly spaced positions of range(length), including the first and the last.

    >>> thinned(10, 4).tolist(), thinned(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.round(np.linspace(0, length - 1, min(length, most))).astype(np.int64)


def encode(shares: npt.NDArray[np.float64]) -> str:
    """Encode values in [0, 1] row by row, as one character (64 levels) per cell.

    >>> encode(np.array([[0, 1], [0.5, 1 / 63]]))
    'A_gB'
    """
    letters = np.frombuffer(LEVELS.encode(), np.uint8)
    return letters[np.round(63 * shares).astype(np.int64)].tobytes().decode()


def rounded(values: npt.ArrayLike) -> list[float | None]:
    """Round to six significant digits; NaN and infinity become None, since JSON cannot represent them.

    >>> rounded([0.1234567, 2.0, float("nan")])
    [0.123457, 2, None]
    """
    return [_round(float(value)) for value in np.asarray(values, np.float64)]


def _round(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() else short
