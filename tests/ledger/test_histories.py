"""After any history of messages and faults, the ledger's sum equals the updates that counted, each exactly once."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis import strategies as st

from tests.ledger.history_actions import Action, History, run_history
from tests.ledger.naive_protocol import NaiveLedger, naive_handle_instruction

# The frequency of each action; hypothesis shrinks to the first one. A history has the normal actions and one to three
# groups of faults. With all groups at once, few histories would get far enough for the rare combinations.
NORMAL = {
    "wait": 1,
    "exchange_hello": 5,
    "send_hello": 1,
    "issue": 5,
    "deliver_instruction": 9,
    "deliver_reply": 9,
    "close_round": 5,
    "whole_round": 5,
}
FAULTS = {
    "outage": {"outage": 5},
    "losses": {"lose_all_disks": 3, "outage": 1},
    "network": {"lose_instruction": 3, "lose_reply": 4},
    "epochs": {"resync": 4, "expire": 2},
    "leaving": {"leave": 6, "expire": 3},
    "server": {"kill_server": 2, "arm_server_crash": 6, "second_server": 1},
    "client": {"arm_client_crash": 8},
    "disk": {"copy_disk": 3, "restore_disk": 4, "lose_disk": 1, "damage_disk": 3},
    "ledger": {"backup": 3, "restore": 4, "restore_while_running": 1},
    "strangers": {"hostile_hello": 5, "kill_server": 1},
    "goodbyes": {"hostile_goodbye": 4, "leave": 3},
    "clock": {"step_clock": 4, "kill_server": 2, "expire": 2},
}
numbers = st.integers(0, 63)


def _action_lists(groups: set[str]) -> st.SearchStrategy[list[Action]]:
    return st.lists(st.tuples(st.sampled_from(_names(sorted(groups))), numbers, numbers), min_size=20, max_size=40)


def _names(groups: Sequence[str]) -> list[str]:
    """Return the names of the normal actions and of those in some groups, each as often as its frequency says."""
    frequencies = [NORMAL, *(FAULTS[group] for group in groups)]
    return [name for group in frequencies for name, frequency in group.items() for _ in range(frequency)]


action_lists = st.sets(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=3).flatmap(_action_lists)
jobs = st.fixed_dictionaries(
    {
        "memory": st.sampled_from(["client", "server"]),
        "num_clients": st.integers(2, 4),
        "max_loss_backoff": st.sampled_from([0, 2, 512]),
    }
)
without_deadline = settings(deadline=None, suppress_health_check=list(HealthCheck))
# After a restore, an instruction of the server before the restore reaches a client that has an update in transit.
INSTRUCTION_FROM_BEFORE_A_RESTORE: list[Action] = [
    ("exchange_hello", 0, 2),
    ("issue", 1, 1),
    ("issue", 1, 1),
    ("restore", 0, 0),
    ("deliver_reply", 0, 1),
    ("issue", 1, 1),
    ("deliver_instruction", 1, 0),
    ("deliver_instruction", 2, 0),
    ("deliver_reply", 0, 0),
    ("close_round", 0, 0),
]
# The first update of a client counts without training, and a new epoch starts in the same round.
NEW_EPOCH_AFTER_A_STORED_UPDATE: list[Action] = [
    ("exchange_hello", 0, 0),
    ("issue", 1, 1),
    ("issue", 1, 0),
    ("deliver_instruction", 0, 0),
    ("deliver_instruction", 1, 0),
    ("deliver_reply", 1, 0),
    ("hostile_hello", 1, 0),
]
# The client stores two updates with different weights, the newer one is damaged, and the older one is sent again.
OLDER_UPDATE_SENT_AGAIN: list[Action] = [
    ("exchange_hello", 0, 0),
    ("whole_round", 1, 1),
    ("whole_round", 1, 1),
    ("damage_disk", 0, 1),
    ("exchange_hello", 0, 0),
    ("close_round", 0, 0),
    ("issue", 1, 0),
    ("deliver_instruction", 1, 1),
    ("deliver_reply", 1, 1),
    ("close_round", 0, 0),
]


@example(job={"memory": "client", "num_clients": 2}, actions=INSTRUCTION_FROM_BEFORE_A_RESTORE)
@example(job={"memory": "client", "num_clients": 2}, actions=OLDER_UPDATE_SENT_AGAIN)
@example(job={"memory": "client", "num_clients": 2}, actions=NEW_EPOCH_AFTER_A_STORED_UPDATE)
@settings(without_deadline, max_examples=150)
@given(job=jobs, actions=action_lists)
def test_every_difference_counts_exactly_once(job: dict[str, Any], actions: list[Action]) -> None:
    run_history(History(**job), actions)


def test_every_difference_counts_exactly_once_in_uniform_histories() -> None:
    """hypothesis prefers small and equal numbers; some combinations are several times as frequent in uniform draws."""
    for number in range(100):
        draw = random.Random(number)
        groups = draw.sample(sorted(FAULTS), draw.randint(1, 3))
        names = _names(groups)
        actions = [(draw.choice(names), draw.randint(0, 63), draw.randint(0, 63)) for _ in range(draw.randint(20, 40))]
        job = {
            "memory": draw.choice(["client", "client", "server"]),
            "num_clients": draw.randint(2, 4),
            "max_loss_backoff": draw.choice([0, 2, 512]),
        }
        try:
            run_history(History(**job), actions)
        except AssertionError as error:
            error.add_note(f"seed {number}: {job}, {actions}")
            raise


def test_every_difference_counts_exactly_once_on_a_real_file(tmp_path: Path) -> None:
    num = 0

    @settings(without_deadline, max_examples=15)
    @given(job=jobs, actions=action_lists)
    def run(job: dict[str, Any], actions: list[Action]) -> None:
        nonlocal num
        num += 1
        run_history(History(**job, path=tmp_path / f"{num}.db"), actions)

    run()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_histories(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Print how often each event happened, so that a reader can see that the rare ones are covered."""
    statistics: Counter[str] = Counter()

    @seed(part)
    @settings(without_deadline, max_examples=2_500, database=None)
    @given(job=jobs, actions=action_lists)
    def run(job: dict[str, Any], actions: list[Action]) -> None:
        history = History(**job)
        run_history(history, actions)
        statistics.update(history.statistics)
        statistics["histories"] += 1
        statistics["actions"] += len(actions)

    run()
    with capsys.disabled():
        print()
        for event, count in sorted(statistics.items()):
            print(f"{count:9d}  {event}")
    assert statistics["histories"] >= 2_500


def _run_naive_protocol(histories: st.SearchStrategy[list[Action]]) -> None:
    """Run the control: subtract the update that was sent last, accept every upload with an unused ticket."""

    @settings(without_deadline, max_examples=100, database=None, derandomize=True, phases=[Phase.generate])
    @given(actions=histories)
    def run(actions: list[Action]) -> None:
        protocol: Any = {"ledger_class": NaiveLedger, "client_handler": naive_handle_instruction}
        run_history(History(memory="client", num_clients=2, **protocol), actions)

    run()


def test_naive_protocol_passes_without_faults() -> None:
    names = ["wait", "exchange_hello", "whole_round", "copy_disk", "backup"]
    _run_naive_protocol(st.lists(st.tuples(st.sampled_from(names), numbers, st.just(3)), max_size=20))


def test_naive_protocol_fails_with_faults() -> None:
    with pytest.raises(AssertionError, match="the sum differs from the updates that counted"):
        _run_naive_protocol(action_lists)
