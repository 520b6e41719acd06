"""Plans of faults follow from their seed and respect their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.deployment.fault_injection import APP, SUPERLINK, Fault, plan_faults
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


def test_other_kinds_of_faults_do_not_change_the_kills_of_nodes_and_the_superlink() -> None:
    kills = plan_faults(NODES, rounds=20, node_kills=3, superlink_kills=1, seed=0)
    plan = plan_faults(NODES, rounds=20, node_kills=3, superlink_kills=1, app_kills=2, node_pauses=2, pause=9.0, seed=0)
    assert tuple(fault for fault in plan if fault.kind == "kill" and fault.target != APP) == kills
    assert sum(fault.target == APP for fault in plan) == 2
    pauses = [fault for fault in plan if fault.kind == "pause"]
    assert len(pauses) == 2
    assert all(fault.target in NODES and 9 <= fault.down <= 12 for fault in pauses)


def test_the_plan_of_a_seed_is_the_same_in_all_versions() -> None:
    plan = plan_faults(NODES, rounds=20, node_kills=1, superlink_kills=1, seed=0)
    assert plan == (Fault(9, 4.5, "node1", 1.3), Fault(10, 5.8, SUPERLINK, 1.5))


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="node_kills=-1: must be at least 0"):
        plan_faults(NODES, rounds=9, node_kills=-1, superlink_kills=0, seed=0)
    with pytest.raises(ConfigError, match="rounds=2: chaos needs at least 3"):
        plan_faults(NODES, rounds=2, node_kills=1, superlink_kills=0, seed=0)
    assert plan_faults(NODES, rounds=1, node_kills=0, superlink_kills=0, seed=0) == ()
