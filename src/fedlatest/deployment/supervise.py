"""Supervision of a deployed job until it is finished, while processes are restarted as necessary."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.availability import Availability
from fedlatest.deployment.fault_injection import FaultInjector
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.node import Node
from fedlatest.deployment.superlink import Run
from fedlatest.errors import DeploymentError
from fedlatest.ledger.event_log import Event, EventReader

MAX_LOST_APPS = 5  # new runs without a round in between
_POLL_SECONDS = 0.1
_RECHECK_SECONDS = 0.5  # the log of a run may end shortly before the loss of its SuperLink can be seen
_EXIT_TIMEOUT = 20.0  # for the app to exit after its last event


@dataclass
class JobStatus:
    """The state of a job, accumulated from its event log."""

    rounds: int | None = None  # of the whole job
    round: int | None = None  # the current one
    finished: bool = False
    stopped: str | None = None  # the error that the current run reported
    runs: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # in the current round
    last_round: dict[str, int] = field(default_factory=dict)  # client -> last round in which it took part
    num_applied: dict[str, int] = field(default_factory=dict)  # client -> rounds in which it took part
    last_merged: int = 0
    merged_rounds: int = 0
    seconds: float = 0.0  # duration of all merged rounds
    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None

    def update(self, event: Event) -> None:
        """Add one event; unknown events and facts are ignored."""
        match event["event"]:
            case "job":
                self.rounds, self.finished, self.stopped = event.get("rounds"), False, None
                self.runs.append(event.get("run", 0))
            case "round":
                self.round, self.asked = event["round"], []
            case "asked":
                self.asked = list(event["clients"])
            case "merged":
                self._add_merged(event)
            case "evaluated":
                self.test_loss, self.test_accuracy = event.get("test_loss"), event.get("test_accuracy")
            case "stopped":
                self.stopped = str(event.get("why", ""))
            case "finished":
                self.finished = True

    def _add_merged(self, event: Event) -> None:
        self.merged_rounds += 1
        self.seconds += event.get("seconds", 0.0)
        if event.get("train_loss") is not None:
            self.train_loss = event["train_loss"]
        self.last_merged = event["round"]
        for client in event.get("applied", []):
            self.num_applied[client] = self.num_applied.get(client, 0) + 1
            self.last_round[client] = event["round"]

    @property
    def staleness(self) -> dict[str, int]:
        """Rounds since each client last took part, of all clients that have."""
        return {client: self.last_merged - round for client, round in self.last_round.items()}


ProgressCallback = Callable[[JobStatus, list[Event]], None]


class NodeSchedule:
    """Takes nodes offline and brings them online according to an availability model.

    Args:
        table: Which nodes are available, as an array [rounds, N] in the order of the nodes.
    """

    def __init__(self, table: npt.NDArray[np.bool_]) -> None:
        self.table = table

    @classmethod
    def from_model(cls, availability: Availability, *, rounds: int, seed: int) -> "NodeSchedule":
        """Make the schedule of rounds 0 .. rounds - 1 from an availability model."""
        return cls(availability.table(rounds, seed))

    def apply(self, round: int, nodes: Sequence[Node]) -> None:
        """Bring nodes online and take others offline for a round; later rounds are like the last one of the table."""
        for node, available in zip(nodes, self.table[min(round, len(self.table) - 1)], strict=True):
            if available:
                node.bring_online()
            else:
                node.take_offline()


def supervise(
    federation: LocalFederation,
    config: Mapping[str, Any],
    *,
    schedule: NodeSchedule | None = None,
    faults: FaultInjector | None = None,
    on_progress: ProgressCallback | None = None,
) -> JobStatus:
    """Run a job until it is finished, and submit a new run each time the SuperLink or the ServerApp is killed.

    Earlier events of the job are read first, so an interrupted job continues.

    Args:
        federation: The processes.
        config: Values of the app's run config.
        schedule: Which nodes are online in which round; all of them by default.
        faults: Faults to inject.
        on_progress: Called several times per second with the status and the new events.

    Returns:
        The final status of the job.

    Raises:
        DeploymentError: The app failed while its SuperLink was running, or was killed more than `MAX_LOST_APPS` times
            without a round in between; the message has the end of its log.
    """
    reader, status = EventReader(federation.job / "events.jsonl"), JobStatus()
    faults = faults or FaultInjector()
    for event in reader.new():
        status.update(event)
    status.finished = False
    _apply_schedule(federation, schedule, status.round or 0)
    num_lost, merged_rounds = 0, status.merged_rounds
    while not status.finished:
        run = _current_run(federation, config)
        ended = run is not None and (run.ended or run.app_gone)  # checked first, so that its last events are read below
        events = reader.new()
        for event in events:
            status.update(event)
            if event["event"] == "round":
                _apply_schedule(federation, schedule, event["round"])
                faults.start_round(event["round"])
        if status.merged_rounds > merged_rounds:
            num_lost, merged_rounds = 0, status.merged_rounds
        if ended and not status.finished and _is_app_lost(federation, status):
            num_lost += 1
            _replace_run(federation, num_lost)
        faults.inject_due(federation)
        if on_progress:
            on_progress(status, events)
        time.sleep(_POLL_SECONDS)
    _wait_for_exit(federation)
    federation.log_event("finished", faults=len(faults.injected), faults_left=len(faults.pending))
    return status


def _current_run(federation: LocalFederation, config: Mapping[str, Any]) -> Run | None:
    """Return the run, a new one if the SuperLink has been restarted, or None while the SuperLink is not ready."""
    federation.ensure_running()
    if not federation.superlink.ready:
        federation.drop_run()
    elif federation.run is None:
        try:
            federation.submit(config)
        except DeploymentError:
            if federation.superlink.alive:
                raise
    return federation.run


def _apply_schedule(federation: LocalFederation, schedule: NodeSchedule | None, round: int) -> None:
    nodes = list(federation.nodes.values())
    if schedule:
        schedule.apply(round, nodes)
    else:
        for node in nodes:
            node.bring_online()


def _is_app_lost(federation: LocalFederation, job: JobStatus) -> bool:
    """Return whether the ServerApp of a run that seems to have ended was killed while its SuperLink runs.

    A run that continues although its log was cut off is still followed by its events.

    Raises:
        DeploymentError: The app failed, or its run was stopped.
    """
    time.sleep(_RECHECK_SECONDS)
    run = federation.run
    if run is None or not federation.superlink.alive:
        return False
    try:
        found = run.status()
    except DeploymentError:
        if not federation.superlink.alive:
            return False
        raise
    if job.stopped is not None or (found.finished and not found.lost):
        raise run.error(found.status if job.stopped is None else f"{found.status} ({job.stopped})")
    return found.lost or run.app_gone


def _replace_run(federation: LocalFederation, num_lost: int) -> None:
    """Let the next `_current_run` submit a new run in place of one whose ServerApp was killed."""
    assert federation.run is not None
    if num_lost > MAX_LOST_APPS:
        raise federation.run.error(f"the server app was killed {num_lost} times without a round in between")
    federation.log_event("restarted", who="serverapp", why="it was killed")
    federation.drop_run()


def _wait_for_exit(federation: LocalFederation) -> None:
    deadline = time.monotonic() + _EXIT_TIMEOUT
    while federation.run and not federation.run.ended and time.monotonic() < deadline:
        federation.ensure_running()
        time.sleep(_POLL_SECONDS)
