"""Plans of faults follow from their seed and respect their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.deployment.fault_injection import SUPERLINK, plan_faults
from fedlatest.errors import ConfigError

NODES = ["node0", "node1", "node2"]


def test_a_plan_depends_on_its_seed_only() -> None:
    plans = [plan_faults(NODES, rounds=20, node_kills=5, superlink_kills=2, seed=seed) for seed in (3, 3, 4)]
    assert plans[0] == plans[1] != plans[2]


@given(st.integers(3, 40), st.integers(0, 9), st.integers(0, 4), st.integers(0, 2**32))
def test_a_plan_has_the_requested_kills_and_none_in_the_first_and_last_round(
    rounds: int, node_kills: int, superlink_kills: int, seed: int
) -> None:
    plan = plan_faults(NODES, rounds=rounds, node_kills=node_kills, superlink_kills=superlink_kills, seed=seed)
    targets = [fault.target for fault in plan]
    assert targets.count(SUPERLINK) == superlink_kills
    assert sum(target in NODES for target in targets) == node_kills == len(plan) - superlink_kills
    assert all(1 <= fault.round <= rounds - 2 and 0 <= fault.after <= 6 and 0 <= fault.down <= 3 for fault in plan)
    assert list(plan) == sorted(plan)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="node_kills=-1: must be at least 0"):
        plan_faults(NODES, rounds=9, node_kills=-1, superlink_kills=0, seed=0)
    with pytest.raises(ConfigError, match="rounds=2: chaos needs at least 3"):
        plan_faults(NODES, rounds=2, node_kills=1, superlink_kills=0, seed=0)
    assert plan_faults(NODES, rounds=1, node_kills=0, superlink_kills=0, seed=0) == ()
