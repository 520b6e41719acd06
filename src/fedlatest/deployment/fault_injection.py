"""Fault injection: kill -9 of nodes, the SuperLink and the ServerApp, and pauses of nodes, as a seed determines."""

import random
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.errors import ConfigError

SUPERLINK, APP = "superlink", "serverapp"
_MAX_AFTER = 6.0  # seconds into a round; about the duration of a round
_MAX_DOWN = 3.0  # seconds


class Fault(NamedTuple):
    """A kill -9 of a node, the SuperLink or the ServerApp alone, or a pause (SIGSTOP) of a node."""

    round: int
    after: float  # seconds after the start of the round
    target: str  # name of a node, SUPERLINK or APP
    down: float  # seconds before it is started again, at least, or for which it is paused
    kind: Literal["kill", "pause"] = "kill"


def plan_faults(
    nodes: Sequence[str],
    *,
    rounds: int,
    node_kills: int = 0,
    superlink_kills: int = 0,
    app_kills: int = 0,
    node_pauses: int = 0,
    pause: float = 30.0,
    seed: int,
) -> tuple[Fault, ...]:
    """Draw a plan with the given numbers of faults, in the order of rounds and times.

    Args:
        nodes: Names of the nodes.
        rounds: Number of rounds of the job; there are no faults in the first and the last one.
        node_kills: Number of kills of nodes.
        superlink_kills: Number of kills of the SuperLink.
        app_kills: Number of kills of the ServerApp alone.
        node_pauses: Number of pauses of nodes.
        pause: Shortest duration of a pause, in seconds, such as the deadline of a round; the longest is a few more.
        seed: Equal seeds give equal plans. Kills of nodes and of the SuperLink do not depend on the other numbers.

    >>> plan_faults(["node0", "node1"], rounds=9, node_kills=2, superlink_kills=1, seed=7) == plan_faults(
    ...     ["node0", "node1"], rounds=9, node_kills=2, superlink_kills=1, seed=7
    ... )
    True
    """
    numbers = {
        "node_kills": node_kills, "superlink_kills": superlink_kills, "app_kills": app_kills,
        "node_pauses": node_pauses,
    }  # fmt: skip
    for name, number in numbers.items():
        if number < 0:
            raise ConfigError(f"{name}={number}: must be at least 0")
    if rounds < 3 and any(numbers.values()):
        raise ConfigError(f"rounds={rounds}: chaos needs at least 3, because the first and the last have no faults")
    draw = random.Random(seed)
    targets = [draw.choice(nodes) for _ in range(node_kills)] + [SUPERLINK] * superlink_kills
    faults = [_draw_fault(target, rounds, draw) for target in targets]
    faults += [_draw_fault(APP, rounds, draw) for _ in range(app_kills)]
    pauses = [_draw_fault(draw.choice(nodes), rounds, draw) for _ in range(node_pauses)]
    faults += [fault._replace(kind="pause", down=round(pause + fault.down, 1)) for fault in pauses]
    return tuple(sorted(faults))


class FaultInjector:
    """Injects the faults of a plan.

    A fault whose target is not running waits until it is; a fault that never becomes possible stays in `pending`.
    """

    def __init__(self, plan: Sequence[Fault] = ()) -> None:
        self.pending = list(plan)
        self.injected: list[Fault] = []
        self._due: list[tuple[float, Fault]] = []

    def start_round(self, round: int) -> None:
        """Schedule the faults of a round; a round that starts again after a kill of the SuperLink has no new ones."""
        now, known = time.monotonic(), [fault for _, fault in self._due]
        self._due += [
            (now + fault.after, fault) for fault in self.pending if fault.round == round and fault not in known
        ]

    def inject_due(self, federation: LocalFederation) -> None:
        """Inject the faults whose time has come."""
        now = time.monotonic()
        for due, fault in list(self._due):
            if now >= due and _is_running(fault.target, federation):
                federation.log_event("chaos", **fault._asdict())
                _inject(fault, federation)
                self._due.remove((due, fault))
                self.pending.remove(fault)
                self.injected.append(fault)


def _draw_fault(target: str, rounds: int, draw: random.Random) -> Fault:
    after, down = round(draw.uniform(0, _MAX_AFTER), 1), round(draw.uniform(0, _MAX_DOWN), 1)
    return Fault(draw.randrange(1, rounds - 1), after, target, down)


def _is_running(target: str, federation: LocalFederation) -> bool:
    if target == SUPERLINK:
        return federation.superlink.ready and federation.run is not None
    if target == APP:
        return federation.run is not None and bool(federation.app_processes)
    return federation.nodes[target].state == "online"


def _inject(fault: Fault, federation: LocalFederation) -> None:
    if fault.target == SUPERLINK:
        federation.kill_superlink(down=fault.down)
    elif fault.target == APP:
        federation.kill_app()
    elif fault.kind == "pause":
        federation.nodes[fault.target].pause(fault.down)
    else:
        federation.nodes[fault.target].kill(down=fault.down)
