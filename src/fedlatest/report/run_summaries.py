"""Numbers that summarise a run, one per seed, and the values in which runs differ: the columns of the page's table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.report.run_records import RunRecord
from fedlatest.runs import Participation

SUMMARIES = {  # name: title
    "late_accuracy": "late accuracy",
    "swing": "swing",
    "final_accuracy": "final accuracy",
    "final_train_loss": "final training loss",
    "megabytes": "MB",
    "seconds": "seconds",
}
_NOT_COMPARED = {"evaluate_every", "partition_seed", "name", "title", "recipe"}

Values = npt.NDArray[np.float64]


def run_values(run: RunRecord) -> dict[str, Any]:
    """Return the values of a run's recipe, or else of its configuration and algorithm; nested ones are left out."""
    config = run.manifest["config"]
    source = config.get("recipe") or {**config, **config["algorithm"]}
    plain = {
        key: value
        for key, value in source.items()
        if key not in _NOT_COMPARED and isinstance(value, str | int | float | bool)
    }
    data = run.manifest.get("data", {}).get("name", "")
    return {"algorithm": run.title, "data": data, **{key: plain[key] for key in plain if key != "algorithm"}}


def varying_keys(values: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that have at least two different values; a run that lacks a key does not count.

    >>> varying_keys([{"period": 4, "rounds": 9}, {"period": 8, "rounds": 9, "mu": 1}])
    ['period']
    """
    keys = dict.fromkeys(key for each in values for key in each)
    return [key for key in keys if len({each[key] for each in values if key in each}) > 1]


def summarise(run: RunRecord, took_part: Participation | None) -> dict[str, Values]:
    """Return each number of SUMMARIES as [seeds]; NaN where it is not known.

    Args:
        run: The run.
        took_part: The cohorts of a finished run; None if they are not known.
    """
    metrics = run.metrics
    late = metrics.late("test_accuracy")
    unknown = np.full(len(metrics.seeds), np.nan)
    swing = np.ptp(late, axis=1) if late.shape[1] > 1 else unknown
    traffic = megabytes(run, took_part)
    seconds = run.manifest.get("seconds")
    return {
        "late_accuracy": late.mean(axis=1),
        "swing": swing,
        "final_accuracy": metrics.column("test_accuracy")[:, -1],
        "final_train_loss": metrics.column("train_loss")[:, -1],
        "megabytes": unknown if traffic is None else traffic[:, -1],
        "seconds": metrics.column("seconds")[:, -1] if seconds is None else np.full(unknown.shape, float(seconds)),
    }


def megabytes(run: RunRecord, took_part: Participation | None) -> Values | None:
    """Return the megabytes sent and received by all clients up to each evaluation, [seeds, evaluations].

    In a run with virtual time, clients that failed have received the model, and updates that were too late have been
    sent. None if the costs of a participation or the cohorts are not known, as in a run that is not finished.
    """
    costs, traffic = run.manifest.get("costs"), counted_traffic(run)
    if costs and traffic is not None:
        downloads, uploads = traffic
        return (uploads * costs["up"] + downloads * costs["down"]) / 1e6
    if not costs or took_part is None:
        return None
    rounds = np.minimum(run.metrics.rounds, took_part.num_rounds)
    participations = took_part.offsets[:, rounds] - took_part.offsets[:, :1]
    return participations * (costs["up"] + costs["down"]) / 1e6


def counted_traffic(run: RunRecord) -> tuple[Values, Values] | None:
    """Return how often clients received the model and sent an update up to each evaluation, each [seeds, evaluations].

    None if the run did not count them: it has no virtual time.
    """
    downloads, uploads = run.metrics.column("downloads"), run.metrics.column("uploads")
    return (downloads, uploads) if np.isfinite(downloads).all() else None


def virtual_time(run: RunRecord) -> Values | None:
    """Return the column `time` of the metrics, [seeds, evaluations]; None if they have none."""
    time = run.metrics.column("time")
    return time if np.isfinite(time).all() else None
