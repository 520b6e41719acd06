"""What the availability of runs does to FedAvg, computed from the recorded pictures: a view of the report.

The picture of many clients or rounds holds means over groups of clients and ranges of rounds. The weights of groups are
then exact up to the change of the number available within a column, and distances between them are lower bounds of
those between clients.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.diagnosis.fedavg_bias import WINDOWS, fedavg_weights, total_variation
from fedlatest.report.run_labels import listed
from fedlatest.report.run_records import RunRecord, Values
from fedlatest.report.tables import DASH, table
from fedlatest.runs import ClientRecord, RunFolder

HEAD = (
    "availability of", "share of time", "fewest available", "most", "never available", "E",
    "weight at wrong clients", "at wrong labels", "labels, eighth of the rounds",
)  # fmt: skip


class RunAvailability(NamedTuple):
    """What is known about the availability of a run."""

    mean_share: float
    fewest: float
    most: float
    client_distance: float
    """Total variation between the weights of groups of clients in FedAvg's limit and fair ones."""
    label_distance: float | None
    """The same for labels; None if there is one label."""
    label_swing: float | None
    """Total variation between the labels' weights in an eighth of the rounds and in all, mean over the eighths."""


def run_availability(clients: ClientRecord) -> RunAvailability | None:
    """Return what FedAvg would do with small steps under the availability of a run; None if nobody was available.

    See `fedlatest.diagnosis.fedavg_bias` for the weights.
    """
    shares = clients.available / 255  # [rows, columns]
    members, lengths = np.diff(clients.row_edges), np.diff(clients.column_edges)
    counts = members @ shares  # [columns]
    if not counts.any():
        return None
    labels, in_label = _weights_by_row(clients)
    fair = in_label.sum(axis=1) / in_label.sum()

    def limit(chosen: npt.NDArray[np.bool_]) -> Values:
        return fedavg_weights(shares.T[chosen], fair, members=members, lengths=lengths[chosen])

    def of_labels(rows: Values) -> Values:
        return np.asarray((rows / np.maximum(fair, 1e-300)) @ in_label / in_label.sum())

    whole = limit(np.ones(lengths.size, bool))
    number = (clients.column_edges[:-1] * WINDOWS // clients.column_edges[-1]).astype(int)
    parts = [number == window for window in range(WINDOWS)]
    swings = [total_variation(of_labels(limit(part)), of_labels(whole)) for part in parts if counts[part].any()]
    return RunAvailability(
        mean_share=float(members @ shares @ lengths / members.sum() / lengths.sum()),
        fewest=float(counts.min()),
        most=float(counts.max()),
        client_distance=total_variation(whole, fair),
        label_distance=total_variation(of_labels(whole), of_labels(fair)) if labels > 1 else None,
        label_swing=float(np.mean(swings)) if labels > 1 else None,
    )


def diagnosis_table(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """Return a table with one row for each different availability of some runs; empty if none was recorded.

    Args:
        runs: The runs.
        names: Name of each run.
    """
    rows: dict[tuple[str, ...], list[str]] = {}
    for run, name in zip(runs, names, strict=True):
        clients = RunFolder(run.path).clients()
        found = None if clients is None or not clients.available.size else run_availability(clients)
        if found is not None:
            rows.setdefault(_cells(run, found), []).append(name)
    if not rows:
        return ""
    body = [
        f'<tr><th scope="row">{escape(_joined(own))}</th>'
        + "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for cells, own in rows.items()
    ]
    note = (
        "What FedAvg would do under this availability, with small steps: the share of the weight that is at the wrong "
        "clients (a lower bound if a row of the picture is a group of clients), at the wrong labels, and how far the "
        "labels' weights in an eighth of the rounds differ from those of all rounds. "
        "<code>fedlatest diagnose</code> says more about a trace or a deployed job."
    )
    caption = "What the availability does to FedAvg"
    return f'<h3>{caption}</h3>{table(HEAD, body, text_columns=1, caption=caption)}<p class="caption">{note}</p>'


def _cells(run: RunRecord, found: RunAvailability) -> tuple[str, ...]:
    facts = run.manifest.get("availability") or {}
    smallest, never = facts.get("smallest_e"), facts.get("num_never_available")
    return (
        f"{found.mean_share:.1%}", f"{found.fewest:,.0f}", f"{found.most:,.0f}",
        DASH if never is None else f"{never:,}", DASH if smallest is None else f"{smallest:,}",
        f"{found.client_distance:.1%}",
        DASH if found.label_distance is None else f"{found.label_distance:.1%}",
        DASH if found.label_swing is None else f"{found.label_swing:.1%}",
    )  # fmt: skip


def _weights_by_row(clients: ClientRecord) -> tuple[int, Values]:
    """Return the number of labels, and the weight of each label in each row of the picture, [rows, labels]."""
    labels, numbers = np.unique(clients.labels[clients.order], return_inverse=True)
    rows = np.repeat(np.arange(len(clients.row_edges) - 1), np.diff(clients.row_edges))
    sizes = clients.sizes[clients.order].astype(float)
    weights = sizes if sizes.any() else np.ones(sizes.size)
    shape = (len(clients.row_edges) - 1, labels.size)
    flat = np.bincount(rows * labels.size + numbers, weights, shape[0] * shape[1])
    return labels.size, np.asarray(flat, float).reshape(shape)


def _joined(names: Sequence[str]) -> str:
    return listed([*names[:3], f"{len(names) - 3} others"] if len(names) > 4 else names)
