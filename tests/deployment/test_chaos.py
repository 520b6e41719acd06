"""The plan of harm: decided by the seed, within its bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.deployment.fault_injection import SUPERLINK, plan_chaos
from fedlatest.errors import ConfigError

NODES = ["node0", "node1", "node2"]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    plans = [plan_chaos(NODES, rounds=20, node_kills=5, superlink_kills=2, seed=seed) for seed in (3, 3, 4)]
    assert plans[0] == plans[1] != plans[2]


@given(st.integers(3, 40), st.integers(0, 9), st.integers(0, 4), st.integers(0, 2**32))
def test_a_plan_has_as_many_kills_as_asked_for_and_leaves_the_ends_in_peace(
    rounds: int, node_kills: int, superlink_kills: int, seed: int
) -> None:
    plan = plan_chaos(NODES, rounds=rounds, node_kills=node_kills, superlink_kills=superlink_kills, seed=seed)
    targets = [act.target for act in plan]
    assert targets.count(SUPERLINK) == superlink_kills
    assert sum(target in NODES for target in targets) == node_kills == len(plan) - superlink_kills
    assert all(1 <= act.round <= rounds - 2 and 0 <= act.after <= 6 and 0 <= act.down <= 3 for act in plan)
    assert list(plan) == sorted(plan)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError, match="node_kills=-1: must be at least 0"):
        plan_chaos(NODES, rounds=9, node_kills=-1, superlink_kills=0, seed=0)
    with pytest.raises(ConfigError, match="rounds=2: chaos needs at least 3"):
        plan_chaos(NODES, rounds=2, node_kills=1, superlink_kills=0, seed=0)
    assert plan_chaos(NODES, rounds=1, node_kills=0, superlink_kills=0, seed=0) == ()
