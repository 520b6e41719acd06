"""The progress of a deployment: a live table on a terminal, otherwise one line per round."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedlatest.cli.app import out
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.supervise import JobStatus
from fedlatest.ledger.event_log import Event, EventReader

_PROBLEMS = {"failed", "refused", "lost", "restored", "resync", "expired", "left", "stopped"}
NEVER_CONNECTED = "never connected"
_STYLES = {
    "online": "green", "connecting": "yellow", "offline": "dim", "killed": "bold red", "refused": "red",
    "paused": "magenta", NEVER_CONNECTED: "dim",
}  # fmt: skip


class ProgressTable:
    """Shows the state, selection and staleness of each node, and the loss and accuracy of the job."""

    def __init__(self, federation: LocalFederation, rounds: int) -> None:
        self._federation, self._rounds = federation, rounds
        self.connected: set[str] = set()  # nodes that were online at any time, also in an earlier command
        self._processes = EventReader(federation.log)
        self._new_processes()  # those of an earlier command are not shown again
        self._shown: set[tuple[Any, ...]] = set()
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

    def update(self, status: JobStatus, events: Sequence[Event]) -> None:
        """Show the status and the new events."""
        processes = [event for event in self._new_processes() if event["event"] in ("chaos", "restarted")]
        for event in [*processes, *events]:
            line = self._problem(event) or ("" if self._live else _line(event, status))
            if line:
                out.print(line, soft_wrap=True, highlight=False)
        if self._live:
            self._live.update(self._table(status), refresh=True)

    def _new_processes(self) -> list[Event]:
        """Return the new events of the processes, and note which nodes are online."""
        events = self._processes.new()
        self.connected |= {event["who"] for event in events if event.get("presence") == "online"}
        return events

    def _problem(self, event: Event) -> str:
        """Return a line for an event that reports a problem, once per client and reason; otherwise an empty string."""
        if event["event"] not in _PROBLEMS or (event["event"], event.get("client"), event.get("why")) in self._shown:
            return ""
        self._shown.add((event["event"], event.get("client"), event.get("why")))
        about = " ".join(f"{event.get('client', '')} {event.get('why', '')}".split())  # a client's error may have lines
        return f"{event['event']}: {about}"

    def _table(self, status: JobStatus) -> Group:
        table = Table("node", "state", "selected", box=None, header_style="bold", pad_edge=False)
        table.add_column("staleness", justify="right")
        table.add_column("rounds", justify="right")
        for name, node in self._federation.nodes.items():
            is_new = node.state == "offline" and name not in self.connected
            state = NEVER_CONNECTED if is_new else node.state
            table.add_row(
                name,
                Text(state, style=_STYLES[state]),
                "yes" if name in status.asked else "",
                str(status.staleness.get(name, "-")),
                str(status.num_applied.get(name, 0)),
            )
        return Group(Text(self._title(status)), table)

    def _title(self, status: JobStatus) -> str:
        link = "" if self._federation.superlink.ready else ", the SuperLink is down"
        where = "starting" if status.round is None else f"round {status.round + 1}/{self._rounds}"
        return f"{where}{link}{_metrics(status)}"


def _line(event: Event, status: JobStatus) -> str:
    """Return the line that is printed for an event where there is no terminal; empty for most events."""
    match event["event"]:
        case "chaos":
            return _fault(event)
        case "restarted":
            return f"{event['who']}: {event['why']}; it is started again"
        case "job":
            return f"run {len(status.runs)} starts with round {event['round'] + 1}/{event['rounds']}"
        case "merged":
            applied, unanswered = event.get("applied", []), event.get("unanswered", [])
            missing = f", no reply from {' '.join(unanswered)}" if unanswered else ""
            took = f"{event.get('seconds', 0.0):.1f} s"
            loss = event.get("train_loss")
            train_loss = "" if loss is None else f", train loss {loss:.4f}"
            return f"round {event['round'] + 1}: {' '.join(applied) or 'no client'}{missing}, {took}{train_loss}"
        case "evaluated" if event.get("test_accuracy") is not None:
            return f"  after round {event['round']}: accuracy {event['test_accuracy']:.4f}"
    return ""


def _fault(event: Event) -> str:
    if event.get("kind") == "pause":
        return f"pause of {event['target']} for {event['down']:.0f} s"
    return f"kill -9 of {event['target']}"


def _metrics(status: JobStatus) -> str:
    metrics = {"train loss": status.train_loss, "test loss": status.test_loss, "accuracy": status.test_accuracy}
    return "".join(f", {name} {value:.4f}" for name, value in metrics.items() if value is not None)
