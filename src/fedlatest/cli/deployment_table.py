"""A deployment as it goes: a live table on a terminal, a line a round elsewhere."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedlatest.cli.app import out
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.supervise import JobView
from fedlatest.ledger.job_folder import Event, EventReader

_TROUBLE = {"failed", "refused", "lost", "restored", "resync", "expired", "left", "stopped"}
_STYLES = {"here": "green", "coming": "yellow", "away": "dim", "killed": "bold red", "refused": "red"}


class Board:
    """Shows who is here, who was chosen, how stale each is, and how well the job does."""

    def __init__(self, federation: LocalFederation, rounds: int) -> None:
        self._federation, self._rounds = federation, rounds
        self._processes = EventReader(federation.log)
        self._told: set[tuple[Any, ...]] = set()
        self._live = Live("starting", console=out, auto_refresh=False) if out.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        else:
            out.print(f"starting the SuperLink and {len(self._federation.names)} nodes")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def hear(self, view: JobView, events: Sequence[Event]) -> None:
        """Show what is new."""
        if self._live:
            self._live.update(self._table(view), refresh=True)
        happened = [event for event in self._processes.new() if event["event"] == "chaos"]
        for event in [*happened, *events]:
            line = self._trouble(event) or ("" if self._live else _line(event, view))
            if line:
                out.print(line, soft_wrap=True, highlight=False)

    def _trouble(self, event: Event) -> str:
        """What went wrong, each thing once a client."""
        if event["event"] not in _TROUBLE or (event["event"], event.get("client"), event.get("why")) in self._told:
            return ""
        self._told.add((event["event"], event.get("client"), event.get("why")))
        return f"{event['event']}: {event.get('client', '')} {event.get('why', '')}"

    def _table(self, view: JobView) -> Group:
        table = Table("node", "is", "chosen", box=None, header_style="bold", pad_edge=False)
        table.add_column("staleness", justify="right")
        table.add_column("rounds taken part in", justify="right")
        for name, node in self._federation.nodes.items():
            presence = node.presence
            table.add_row(
                name,
                Text(presence, style=_STYLES[presence]),
                "yes" if name in view.asked else "",
                str(view.staleness.get(name, "-")),
                str(view.num_applied.get(name, 0)),
            )
        return Group(Text(self._title(view)), table)

    def _title(self, view: JobView) -> str:
        link = "" if self._federation.superlink.ready else ", the SuperLink is down"
        where = "starting" if view.round is None else f"round {view.round + 1}/{self._rounds}"
        return f"{where}{link}{_scores(view)}"


def _line(event: Event, view: JobView) -> str:
    """A line for a log that is no terminal, or nothing."""
    match event["event"]:
        case "chaos":
            return f"kill -9 of {event['target']}"
        case "job":
            return f"run {len(view.runs)} begins with round {event['round'] + 1}/{event['rounds']}"
        case "merged":
            applied, unanswered = event.get("applied", []), event.get("unanswered", [])
            silent = f", no answer from {' '.join(unanswered)}" if unanswered else ""
            took = f"{event.get('seconds', 0.0):.1f} s"
            loss = event.get("train_loss")
            learnt = "" if loss is None else f", train loss {loss:.4f}"
            return f"round {event['round'] + 1}: {' '.join(applied) or 'nobody'}{silent}, {took}{learnt}"
        case "evaluated" if event.get("test_accuracy") is not None:
            return f"  after round {event['round']}: accuracy {event['test_accuracy']:.4f}"
    return ""


def _scores(view: JobView) -> str:
    scores = {"train loss": view.train_loss, "test loss": view.test_loss, "accuracy": view.test_accuracy}
    return "".join(f", {name} {score:.4f}" for name, score in scores.items() if score is not None)
