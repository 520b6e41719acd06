"""Harm on purpose: kill -9 of nodes and of the SuperLink at moments that a seed decides."""

import random
import time
from collections.abc import Sequence
from typing import NamedTuple

from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.errors import ConfigError

SUPERLINK = "superlink"
_LATEST = 6.0  # seconds into a round: about what a round lasts
_LONGEST_DOWN = 3.0


class Act(NamedTuple):
    """A kill -9: in which round, how many seconds after its begin, of whom, and how long it stays down at least."""

    round: int
    after: float
    target: str
    down: float


def plan_chaos(
    nodes: Sequence[str], *, rounds: int, node_kills: int, superlink_kills: int, seed: int
) -> tuple[Act, ...]:
    """A plan with just so many kills, in time order. The first and the last round are left in peace.

    >>> plan_chaos(["node0", "node1"], rounds=9, node_kills=2, superlink_kills=1, seed=7) == plan_chaos(
    ...     ["node0", "node1"], rounds=9, node_kills=2, superlink_kills=1, seed=7
    ... )
    True
    """
    for name, kills in (("node_kills", node_kills), ("superlink_kills", superlink_kills)):
        if kills < 0:
            raise ConfigError(f"{name}={kills}: must be at least 0")
    if rounds < 3 and node_kills + superlink_kills:
        raise ConfigError(f"rounds={rounds}: chaos needs at least 3, the first and the last being left in peace")
    draw = random.Random(seed)
    targets = [draw.choice(nodes) for _ in range(node_kills)] + [SUPERLINK] * superlink_kills
    return tuple(sorted(_act(target, rounds, draw) for target in targets))


def _act(target: str, rounds: int, draw: random.Random) -> Act:
    after, down = round(draw.uniform(0, _LATEST), 1), round(draw.uniform(0, _LONGEST_DOWN), 1)
    return Act(draw.randrange(1, rounds - 1), after, target, down)


class Chaos:
    """Carries out a plan. An act waits until its target is there to be killed; one that never could be is left over."""

    def __init__(self, plan: Sequence[Act] = ()) -> None:
        self.left = list(plan)
        self.done: list[Act] = []
        self._due: list[tuple[float, Act]] = []

    def begin(self, round: int) -> None:
        """A round begins, or begins again after the SuperLink's death: its acts get their time."""
        now, known = time.monotonic(), [act for _, act in self._due]
        self._due += [(now + act.after, act) for act in self.left if act.round == round and act not in known]

    def act(self, federation: LocalFederation) -> None:
        """Carry out what is due."""
        now = time.monotonic()
        for due, act in list(self._due):
            if now >= due and _there(act.target, federation):
                federation.note("chaos", **act._asdict())
                _kill(act, federation)
                self._due.remove((due, act))
                self.left.remove(act)
                self.done.append(act)


def _there(target: str, federation: LocalFederation) -> bool:
    if target == SUPERLINK:
        return federation.superlink.ready and federation.run is not None
    return federation.nodes[target].presence == "here"


def _kill(act: Act, federation: LocalFederation) -> None:
    if act.target == SUPERLINK:
        federation.kill_superlink(down=act.down)
    else:
        federation.nodes[act.target].kill(down=act.down)
