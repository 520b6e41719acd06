"""Figures of availability: over rounds, over the hours of a day, and in one round of FedLaAvg."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedlatest.errors import RunFolderError
from fedlatest.report.figures import canvas, save
from fedlatest.report.run_records import RunRecord
from fedlatest.runs import ClientRecord, RunFolder

AVAILABLE, CHOSEN, UNSEEN, REUSED = "#E69F00", "#D55E00", "#8A8F98", "#00224E"
WINDOW, SAMPLES = "#F3C766", "#00224E"
MOST_ROUNDS_SHOWN = 800
MOST_CLIENTS_SHOWN = 40
MOST_MARKERS_PER_LABEL = 400


def draw_availability(runs: Mapping[str, RunRecord], path: Path, *, title: str = "") -> Path:
    """Draw availability over rounds, one row per label: light where its clients are available, dark where not.

    A panel whose picture was made from a sample of the clients or rounds says so.

    Args:
        runs: One run per panel, by the panel's title.
        path: The file to write, .png or .pdf.
        title: Title of the figure.

    Returns:
        `path`.
    """
    with canvas(3.2 * len(runs), 3.0) as figure:
        if title:
            figure.suptitle(title)
        for axes, (name, run) in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs.items(), strict=True):
            clients = _clients(run)
            shares, rounds = _by_label(clients)
            axes.pcolormesh(rounds, np.arange(len(shares) + 1), 1 - shares, cmap="Greys", vmin=0, vmax=1.25)
            axes.set(title=name, xlabel=_with_note("round", clients), xlim=(0, min(MOST_ROUNDS_SHOWN, rounds[-1])))
            axes.set_yticks(np.arange(len(shares)) + 0.5, [str(label) for label in range(len(shares))])
            axes.invert_yaxis()
        figure.axes[0].set_ylabel("clients, by label")
        kinds = [
            Patch(facecolor="white", edgecolor="black", label="available"),
            Patch(facecolor="#404040", label="not available"),
        ]
        figure.legend(handles=kinds, loc="outside lower center", ncols=2, frameon=False)
        return save(figure, path)


def has_sleep(run: RunRecord) -> bool:
    """Return whether `draw_sleep` can draw a run: its samples have a time of day, its clients a daily window."""
    clients = RunFolder(run.path).clients()
    return clients is not None and bool(clients.sent.size and clients.window.size)


def draw_sleep(run: RunRecord, path: Path, *, title: str = "") -> Path:
    """Draw the day of each client as a row: the times of its samples and the window in which it is available.

    Rows are sorted by the start of the window. Of more than MOST_CLIENTS_SHOWN clients, evenly spaced ones are shown.

    Args:
        run: The run.
        path: The file to write, .png or .pdf.
        title: Title of the figure; a default if empty.

    Returns:
        `path`.
    """
    clients = _clients(run)
    if not (clients.sent.size and clients.window.size):
        raise RunFolderError(f"{run.path}: its samples have no time of day or its clients no daily window")
    order = np.argsort(clients.window[:, 0], kind="stable")
    shown = _thinned(order, MOST_CLIENTS_SHOWN)
    with canvas(7.5, 1.4 + 0.11 * shown.size) as figure:
        [axes] = figure.subplots(1, 1, squeeze=False)[0]
        for row, (start, length) in enumerate(clients.window[shown].tolist()):
            axes.broken_barh(hours_of(start, length), (row - 0.4, 0.8), color=WINDOW, linewidth=0)
        rows, quarters = np.nonzero(clients.sent[shown])
        counts = clients.sent[shown][rows, quarters]
        axes.scatter((quarters + 0.5) / 4, rows, s=_area(counts), color=SAMPLES, alpha=0.7, linewidths=0, zorder=2)
        axes.set(xlim=(0, 24), ylim=(shown.size - 0.4, -0.6), xlabel="time of day")
        axes.set_ylabel(f"{shown.size} of {order.size} clients" if shown.size < order.size else "clients")
        axes.set_xticks(range(0, 25, 3), [f"{hour}:00" for hour in range(0, 25, 3)])
        axes.set_yticks([])
        axes.set_title(title or "Times of the clients' samples, and when the clients are available", loc="left")
        figure.legend(handles=_sleep_legend(counts), loc="outside lower center", ncols=4, frameon=False)
        return save(figure, path)


def hours_of(start: float, length: float) -> list[tuple[float, float]]:
    """Return a daily window as (start, length) intervals in hours: two intervals if it contains midnight.

    >>> hours_of(22, 8), hours_of(1, 8)
    ([(22, 2), (0, 6)], [(1, 8)])
    """
    before_midnight = min(length, 24 - start)
    if before_midnight == length:
        return [(start, length)]
    return [(start, before_midnight), (0, length - before_midnight)]


def draw_round(run: RunRecord, path: Path, *, round: int | None = None, title: str = "") -> Path:
    """Draw one round of the run's first seed: which clients take part, and whose latest updates are reused.

    Each client is a marker in the row of its label. Of a label with more than MOST_MARKERS_PER_LABEL clients, evenly
    spaced ones are shown, and as many of those that take part.

    Args:
        run: The run.
        path: The file to write, .png or .pdf.
        round: The round, from 0; one near the end if None.
        title: Title of the figure; a default if empty.

    Returns:
        `path`.
    """
    clients, participation = _clients(run), RunFolder(run.path).participation()
    num_rounds = participation.num_rounds
    round = int(0.97 * num_rounds) if round is None else round
    if not 0 <= round < num_rounds:
        raise RunFolderError(f"round={round}: {run.path} has rounds 0 .. {num_rounds - 1}")
    last_round, ends = np.full(clients.labels.size, -1), participation.offsets[0, : round + 1]
    earlier = participation.clients[ends[0] : ends[-1]]
    last_round[earlier] = np.repeat(np.arange(round), np.diff(ends))  # the last of a client's rounds is assigned last
    chosen = np.zeros(clients.labels.size, bool)
    chosen[participation.cohort(seed=0, round=round)] = True
    available = _available(clients, round) | chosen
    with canvas(9, 3.9) as figure:
        [axes] = figure.subplots(1, 1, squeeze=False)[0]
        kinds = _draw_markers(axes, clients, available, chosen, last_round, round)
        figure.legend(handles=kinds, loc="outside lower center", ncols=4, frameon=False)
        reused = (~chosen & (last_round >= 0)).sum()
        summary = f"{chosen.sum()} clients upload a new update; the latest updates of {reused} others are reused"
        axes.set_title(title or f"{run.title}, round {round}: {summary}", loc="left")
        return save(figure, path)


def _area(counts: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the area of a dot in square points; it grows with the number of samples, up to the height of two rows."""
    return np.minimum(4.0 * np.asarray(counts), 80)


def _sleep_legend(counts: npt.NDArray[np.uint16]) -> list[Patch | Line2D]:
    most = int(counts.max(initial=1))
    sizes = sorted({1, round(most**0.5), most})
    dots = [
        Line2D([], [], marker="o", linestyle="", color=SAMPLES, alpha=0.7, markeredgewidth=0, label=f"{size}",
               markersize=float(np.sqrt(_area(size))))
        for size in sizes
    ]  # fmt: skip
    dots[-1].set_label(f"{sizes[-1]} samples in a quarter hour")
    return [Patch(facecolor=WINDOW, label="available"), *dots]


def _draw_markers(
    axes: Axes,
    clients: ClientRecord,
    available: npt.NDArray[np.bool_],
    chosen: npt.NDArray[np.bool_],
    last_round: npt.NDArray[np.int64],
    round: int,
) -> list[Line2D]:
    """Draw one marker per client that is shown and return the entries of the legend, which count all clients."""
    column = _columns(clients.labels, chosen)
    unseen = ~chosen & (last_round < 0)
    reused = ~chosen & ~unseen
    waiting = available & ~chosen

    def place(which: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        drawn = which & (column >= 0)
        return column[drawn], clients.labels[drawn]

    staleness = (round - last_round)[reused & (column >= 0)]
    shades = axes.scatter(*place(reused), c=staleness, cmap="cividis_r", s=14, linewidths=0, zorder=2)
    axes.scatter(*place(waiting), s=34, facecolors="none", edgecolors=AVAILABLE, linewidths=1.0)
    axes.scatter(*place(unseen), s=8, color=UNSEEN, marker="x", linewidths=0.8)
    axes.scatter(*place(chosen), s=26, color=CHOSEN, marker="D", linewidths=0, zorder=3)
    bar = axes.figure.colorbar(shades, ax=axes, pad=0.01, fraction=0.03)
    bar.set_label("staleness of the update (rounds)")
    shown = int((column >= 0).sum())
    some = "" if shown == column.size else f" ({shown:,} of {column.size:,} are shown)"
    axes.set(xlabel=f"client{some}", ylabel="label")
    axes.set_yticks(np.unique(clients.labels))
    axes.invert_yaxis()
    kinds = [
        _entry(f"new update ({chosen.sum()})", CHOSEN, "D"),
        _entry(f"available, not chosen ({waiting.sum()})", AVAILABLE, "o", hollow=True),
        _entry(f"latest update reused ({reused.sum()})", REUSED, "o"),
    ]
    if unseen.any():
        kinds.append(_entry(f"has not taken part yet ({unseen.sum()})", UNSEEN, "x"))
    return kinds


def _columns(labels: npt.NDArray[np.int32], chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the column of each client in the row of its label, [N]; -1 for clients that are not shown."""
    column = np.full(labels.size, -1)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        if own.size > MOST_MARKERS_PER_LABEL:
            some = [_thinned(each, MOST_MARKERS_PER_LABEL) for each in (own, own[chosen[own]])]
            own = np.unique(np.concatenate(some))
        column[own] = np.arange(own.size)
    return column


def _thinned(positions: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    return positions[np.linspace(0, positions.size - 1, min(positions.size, most)).round().astype(int)]


def _with_note(label: str, clients: ClientRecord) -> str:
    return f"{label} ({clients.sample_note})" if clients.sample_note else label


def _entry(label: str, colour: str, marker: str, *, hollow: bool = False) -> Line2D:
    fill = "none" if hollow else colour
    return Line2D([], [], marker=marker, linestyle="", color=colour, markerfacecolor=fill, label=label)


def _clients(run: RunRecord) -> ClientRecord:
    clients = RunFolder(run.path).clients()
    if clients is None:
        raise RunFolderError(f"{run.path}: has no record of its clients (no clients.npz)")
    return clients


def _by_label(clients: ClientRecord) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the share of each label's clients that are available, [labels, columns], and the columns' edges."""
    labels = clients.labels[clients.order]
    num_labels, num_rows = int(labels.max()) + 1, len(clients.row_edges) - 1
    rows = np.repeat(np.arange(num_rows), np.diff(clients.row_edges))
    counts = np.bincount(labels * num_rows + rows, minlength=num_labels * num_rows).reshape(num_labels, num_rows)
    weights = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # of the rows in a label
    return weights @ (clients.available / 255), clients.column_edges


def _available(clients: ClientRecord, round: int) -> npt.NDArray[np.bool_]:
    """Return which clients are available in a round, [N], as precisely as the availability picture shows it.

    A client counts as available if more than half of the (client, round) pairs of its cell are.
    """
    column = int(np.searchsorted(clients.column_edges, round, side="right")) - 1
    available = np.zeros(clients.labels.size, bool)
    available[clients.order] = np.repeat(clients.available[:, column] > 127, np.diff(clients.row_edges))
    return available
