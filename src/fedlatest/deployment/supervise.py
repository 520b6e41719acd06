"""A job from its first round to its last, whatever happens to the processes."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.deployment.fault_injection import Chaos
from fedlatest.deployment.flwr_cli import Run
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.node import Node
from fedlatest.errors import DeploymentError
from fedlatest.ledger.job_folder import Event, EventReader


@dataclass
class JobView:
    """A job as seen from outside, event by event; see `fedlatest.flower` for the events."""

    rounds: int | None = None
    round: int | None = None
    finished: bool = False
    runs: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # in the present round
    staleness: dict[str, int] = field(default_factory=dict)
    num_applied: dict[str, int] = field(default_factory=dict)
    merged_rounds: int = 0
    seconds: float = 0.0  # that merged rounds took, together
    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None

    def hear(self, event: Event) -> None:
        """Take in one event; events and facts that it does not know are left alone."""
        match event["event"]:
            case "job":
                self.rounds, self.finished = event.get("rounds"), False
                self.runs.append(event.get("run", 0))
            case "round":
                self.round, self.asked = event["round"], []
            case "asked":
                self.asked = list(event["clients"])
            case "merged":
                self._merged(event)
            case "evaluated":
                self.test_loss, self.test_accuracy = event.get("test_loss"), event.get("test_accuracy")
            case "finished":
                self.finished = True

    def _merged(self, event: Event) -> None:
        self.merged_rounds += 1
        self.seconds += event.get("seconds", 0.0)
        if event.get("train_loss") is not None:
            self.train_loss = event["train_loss"]
        self.staleness.update(event.get("staleness", {}))
        for client in event.get("applied", []):
            self.num_applied[client] = self.num_applied.get(client, 0) + 1


class Attendance:
    """Who should be here in each round of a job; nodes are in the order of the model's clients."""

    def __init__(self, table: npt.NDArray[np.bool_]) -> None:
        self.table = table  # [rounds, N]

    @classmethod
    def of(cls, availability: Availability, *, rounds: int, seed: int) -> "Attendance":
        """What the model says of rounds 0 .. rounds - 1."""
        return cls(availability.table(rounds, seed))

    def apply(self, round: int, nodes: Sequence[Node]) -> None:
        """Ask nodes to be here or away as the model has it; after its last round as in its last round."""
        for node, here in zip(nodes, self.table[min(round, len(self.table) - 1)], strict=True):
            if here:
                node.here()
            else:
                node.away()


ProgressCallback = Callable[[JobView, list[Event]], None]
_TICK = 0.1
_SECOND_LOOK = 0.5  # seconds: the log of a run may end a moment before its SuperLink is seen to be dead
_FAREWELL = 20.0  # seconds for the app to end after its last event


def conduct(
    federation: LocalFederation,
    config: Mapping[str, Any],
    *,
    attendance: Attendance | None = None,
    chaos: Chaos | None = None,
    on_progress: ProgressCallback | None = None,
) -> JobView:
    """Run the job until it is finished: in a new run each time that the SuperLink has died.

    Events from before are taken in first, so a job that was cut goes on. `on_progress` hears what is new, several times
    a second. An app that fails while its SuperLink is well raises `DeploymentError`, with the end of its log.
    """
    reader, view, chaos = EventReader(federation.job / "events.jsonl"), JobView(), chaos or Chaos()
    for event in reader.new():
        view.hear(event)
    view.finished = False
    _call_nodes(federation, attendance, view.round or 0)
    while not view.finished:
        run = _run_to_watch(federation, config)
        ended = run is not None and run.ended  # before the events are read: its last ones are then among them
        events = reader.new()
        for event in events:
            view.hear(event)
            if event["event"] == "round":
                _call_nodes(federation, attendance, event["round"])
                chaos.begin(event["round"])
        if ended and not view.finished:
            _find_out_why(federation)
        chaos.act(federation)
        if on_progress:
            on_progress(view, events)
        time.sleep(_TICK)
    _let_it_end(federation)
    federation.note("finished", kills=len(chaos.done), kills_left=len(chaos.left))
    return view


def _run_to_watch(federation: LocalFederation, config: Mapping[str, Any]) -> Run | None:
    """The run, a new one if the SuperLink was lost and is back, or none while it is away."""
    federation.look_after()
    if not federation.superlink.ready:
        federation.drop_run()
    elif federation.run is None:
        try:
            federation.submit(config)
        except DeploymentError:
            if federation.superlink.alive:
                raise
    return federation.run


def _call_nodes(federation: LocalFederation, attendance: Attendance | None, round: int) -> None:
    nodes = list(federation.nodes.values())
    if attendance:
        attendance.apply(round, nodes)
    else:
        for node in nodes:
            node.here()


def _find_out_why(federation: LocalFederation) -> None:
    """The run's log ended before the job: its SuperLink died, which is nothing, or it failed, which is an error.

    A run that goes on though its log was cut off is watched by its events.
    """
    time.sleep(_SECOND_LOOK)
    run = federation.run
    if run is None or not federation.superlink.alive:
        return
    try:
        status = run.status()
    except DeploymentError:
        if not federation.superlink.alive:
            return
        raise
    if status.startswith("finished") or status == "not accepted":
        raise run.complaint(status)


def _let_it_end(federation: LocalFederation) -> None:
    deadline = time.monotonic() + _FAREWELL
    while federation.run and not federation.run.ended and time.monotonic() < deadline:
        federation.look_after()
        time.sleep(_TICK)
