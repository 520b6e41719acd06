"""Pictures of who is there: the availability chart, clients asleep, and one round of FedLaAvg."""

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

HERE, CHOSEN, AWAY, OLD = "#E69F00", "#D55E00", "#8A8F98", "#00224E"
ASLEEP, SENT = "#F3C766", "#00224E"
MOST_ROUNDS_SHOWN = 800
MOST_CLIENTS_SHOWN = 40


def draw_availability(runs: Mapping[str, RunRecord], path: Path, *, title: str = "") -> Path:
    """Who is available when, a row per label: light where its clients are here, dark where they are away."""
    with canvas(3.2 * len(runs), 3.0) as figure:
        if title:
            figure.suptitle(title)
        for axes, (name, run) in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs.items(), strict=True):
            clients = _clients(run)
            shares, rounds = _by_label(clients)
            axes.pcolormesh(rounds, np.arange(len(shares) + 1), 1 - shares, cmap="Greys", vmin=0, vmax=1.25)
            axes.set(title=name, xlabel="round", xlim=(0, min(MOST_ROUNDS_SHOWN, rounds[-1])))
            axes.set_yticks(np.arange(len(shares)) + 0.5, [str(label) for label in range(len(shares))])
            axes.invert_yaxis()
        figure.axes[0].set_ylabel("clients, by label")
        kinds = [
            Patch(facecolor="white", edgecolor="black", label="available"),
            Patch(facecolor="#404040", label="away"),
        ]
        figure.legend(handles=kinds, loc="outside lower center", ncols=2, frameon=False)
        return save(figure, path)


def has_sleep(run: RunRecord) -> bool:
    """Whether `draw_sleep` can draw a run."""
    clients = RunFolder(run.path).clients()
    return clients is not None and bool(clients.sent.size and clients.window.size)


def draw_sleep(run: RunRecord, path: Path, *, title: str = "") -> Path:
    """Clients' days, a row each, by the start of their windows: when their samples were made, and when they are here.

    Of many clients, some at equal steps of that order are shown.
    """
    clients = _clients(run)
    if not (clients.sent.size and clients.window.size):
        raise RunFolderError(f"{run.path}: its samples have no time of day, or its clients no daily window")
    order = np.argsort(clients.window[:, 0], kind="stable")
    shown = order[np.linspace(0, order.size - 1, min(order.size, MOST_CLIENTS_SHOWN)).round().astype(int)]
    with canvas(7.5, 1.4 + 0.11 * shown.size) as figure:
        [axes] = figure.subplots(1, 1, squeeze=False)[0]
        for row, (start, length) in enumerate(clients.window[shown].tolist()):
            axes.broken_barh(hours_of(start, length), (row - 0.4, 0.8), color=ASLEEP, linewidth=0)
        rows, quarters = np.nonzero(clients.sent[shown])
        counts = clients.sent[shown][rows, quarters]
        axes.scatter((quarters + 0.5) / 4, rows, s=_area(counts), color=SENT, alpha=0.7, linewidths=0, zorder=2)
        axes.set(xlim=(0, 24), ylim=(shown.size - 0.4, -0.6), xlabel="time of day")
        axes.set_ylabel(f"{shown.size} of {order.size} clients" if shown.size < order.size else "clients")
        axes.set_xticks(range(0, 25, 3), [f"{hour}:00" for hour in range(0, 25, 3)])
        axes.set_yticks([])
        axes.set_title(title or "When clients' samples were made, and when they are available", loc="left")
        figure.legend(handles=_sleep_legend(counts), loc="outside lower center", ncols=4, frameon=False)
        return save(figure, path)


def hours_of(start: float, length: float) -> list[tuple[float, float]]:
    """A daily window as (begin, length) within one day, in hours: two pieces where it runs across midnight.

    >>> hours_of(22, 8), hours_of(1, 8)
    ([(22, 2), (0, 6)], [(1, 8)])
    """
    before = min(length, 24 - start)
    return [(start, before)] if before == length else [(start, before), (0, length - before)]


def draw_round(run: RunRecord, path: Path, *, round: int | None = None, title: str = "") -> Path:
    """One round: each client a dot, in the row of its label; who took part, and whose latest update was reused.

    Reads the run's first seed. Without `round`, one near the end is shown.
    """
    clients, folder = _clients(run), RunFolder(run.path)
    who = folder.participation()
    round = int(0.97 * who.num_rounds) if round is None else round
    if not 0 <= round < who.num_rounds:
        raise RunFolderError(f"round={round}: {run.path} has rounds 0 .. {who.num_rounds - 1}")
    last = np.full(clients.labels.size, -1)
    for earlier in range(round):
        last[who.cohort(seed=0, round=earlier)] = earlier
    chosen = np.zeros(clients.labels.size, bool)
    chosen[who.cohort(seed=0, round=round)] = True
    here = _available(clients, round) | chosen
    with canvas(9, 3.9) as figure:
        [axes] = figure.subplots(1, 1, squeeze=False)[0]
        _dots(axes, clients, here, chosen, last, round)
        reused = (~chosen & (last >= 0)).sum()
        said = f"{chosen.sum()} clients send a new update; the latest updates of {reused} others count too"
        axes.set_title(title or f"{run.title}, round {round}: {said}", loc="left")
        return save(figure, path)


def _area(counts: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Of a dot, in square points: more samples are a larger dot, up to the height of two rows."""
    return np.minimum(4.0 * np.asarray(counts), 80)


def _sleep_legend(counts: npt.NDArray[np.uint16]) -> list[Patch | Line2D]:
    most = int(counts.max(initial=1))
    sizes = sorted({1, round(most**0.5), most})
    dots = [
        Line2D([], [], marker="o", linestyle="", color=SENT, alpha=0.7, markeredgewidth=0, label=f"{size}",
               markersize=float(np.sqrt(_area(size))))
        for size in sizes
    ]  # fmt: skip
    dots[-1].set_label(f"{sizes[-1]} samples within a quarter of an hour")
    return [Patch(facecolor=ASLEEP, label="available"), *dots]


def _dots(
    axes: Axes,
    clients: ClientRecord,
    here: npt.NDArray[np.bool_],
    chosen: npt.NDArray[np.bool_],
    last: npt.NDArray[np.int64],
    round: int,
) -> None:
    column = np.zeros(clients.labels.size)
    for label in np.unique(clients.labels):
        own = np.flatnonzero(clients.labels == label)
        column[own] = np.arange(own.size)
    unseen = ~chosen & (last < 0)
    reused = ~chosen & ~unseen
    shade = axes.scatter(
        column[reused], clients.labels[reused], c=round - last[reused], cmap="cividis_r", s=14, linewidths=0, zorder=2
    )
    waiting = here & ~chosen
    axes.scatter(column[waiting], clients.labels[waiting], s=34, facecolors="none", edgecolors=HERE, linewidths=1.0)
    axes.scatter(column[unseen], clients.labels[unseen], s=8, color=AWAY, marker="x", linewidths=0.8)
    axes.scatter(column[chosen], clients.labels[chosen], s=26, color=CHOSEN, marker="D", linewidths=0, zorder=3)
    bar = axes.figure.colorbar(shade, ax=axes, pad=0.01, fraction=0.03)
    bar.set_label("rounds since the update was made")
    axes.set(xlabel="client", ylabel="label")
    axes.set_yticks(np.unique(clients.labels))
    axes.invert_yaxis()
    kinds = [
        _entry(f"takes part: new update ({chosen.sum()})", CHOSEN, "D"),
        _entry(f"here, not chosen ({waiting.sum()})", HERE, "o", hollow=True),
        _entry(f"latest update reused ({reused.sum()})", OLD, "o"),
    ]
    if unseen.any():
        kinds.append(_entry(f"not seen yet ({unseen.sum()})", AWAY, "x"))
    axes.legend(handles=kinds, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)


def _entry(label: str, colour: str, marker: str, *, hollow: bool = False) -> Line2D:
    fill = "none" if hollow else colour
    return Line2D([], [], marker=marker, linestyle="", color=colour, markerfacecolor=fill, label=label)


def _clients(run: RunRecord) -> ClientRecord:
    clients = RunFolder(run.path).clients()
    if clients is None:
        raise RunFolderError(f"{run.path}: does not say who the clients are (no clients.npz)")
    return clients


def _by_label(clients: ClientRecord) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """[labels, columns] share of a label's clients that are available, and the columns' edges in rounds."""
    labels = clients.labels[clients.order]
    rows = np.repeat(np.arange(len(clients.row_edges) - 1), np.diff(clients.row_edges))
    shares = np.zeros((labels.max() + 1, clients.available.shape[1]))
    for label in np.unique(labels):
        shares[label] = clients.available[rows[labels == label]].mean(axis=0) / 255
    return shares, clients.column_edges


def _available(clients: ClientRecord, round: int) -> npt.NDArray[np.bool_]:
    """[N] who is available, as far as the picture tells: rows and columns that are mostly so."""
    column = int(np.searchsorted(clients.column_edges, round, side="right")) - 1
    here = np.zeros(clients.labels.size, bool)
    here[clients.order] = np.repeat(clients.available[:, column] > 127, np.diff(clients.row_edges))
    return here
