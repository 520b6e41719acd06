"""After any history of messages and faults, no client of a private job has taken part too often or too soon."""

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest.ledger import ClientStore, Instruction, Reply, handle_instruction
from tests.ledger.history_actions import Action, History, run_history
from tests.ledger.test_histories import FAULTS, _names, action_lists, without_deadline


def _handle_without_counting(store: ClientStore, instruction: Instruction, **options: Any) -> Reply:
    """A client that does not count its uploads: the ledger alone has to refuse those above the limits."""
    with patch("fedlatest.ledger.client._count_participation", lambda state, _: state):
        return handle_instruction(store, instruction, **options)


jobs = st.fixed_dictionaries(
    {
        "memory": st.sampled_from(["none", "client", "server"]),
        "num_clients": st.integers(2, 3),
        "max_loss_backoff": st.sampled_from([0, 2, 512]),
        "participation": st.tuples(st.integers(1, 4), st.integers(1, 4)),
        "client_handler": st.sampled_from([handle_instruction, _handle_without_counting]),
    }
)


@settings(without_deadline, max_examples=100)
@given(job=jobs, actions=action_lists)
def test_no_client_takes_part_too_often_or_too_soon(job: dict[str, Any], actions: list[Action]) -> None:
    run_history(History(**job), actions)


def test_no_client_takes_part_too_often_or_too_soon_in_uniform_histories() -> None:
    """The histories must contain refusals by the ledger and by the clients, late replies, epochs and restores."""
    statistics = _uniform_histories(range(150))
    for event in ("upload refused: too many or too close", "declined: own count", "new epoch", "late reply accepted"):
        assert statistics[event] > 0, event
    assert sum(count for event, count in statistics.items() if event.startswith("ledger restored")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_private_histories(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    statistics = _uniform_histories(range(2_500 * part, 2_500 * (part + 1)))
    with capsys.disabled():
        print()
        for event, count in sorted(statistics.items()):
            print(f"{count:9d}  {event}")


def _uniform_histories(seeds: range) -> Counter[str]:
    """Run histories with uniformly drawn actions and return how often each event happened."""
    statistics: Counter[str] = Counter()
    for seed in seeds:
        draw = random.Random(seed)
        names = _names(draw.sample(sorted(FAULTS), draw.randint(1, 3)))
        actions = [(draw.choice(names), draw.randint(0, 63), draw.randint(0, 63)) for _ in range(draw.randint(20, 40))]
        job: dict[str, Any] = {
            "memory": draw.choice(["none", "client", "server"]),
            "num_clients": draw.randint(2, 3),
            "max_loss_backoff": draw.choice([0, 2, 512]),
            "participation": (draw.randint(1, 4), draw.randint(1, 4)),
            "client_handler": draw.choice([handle_instruction, _handle_without_counting]),
        }
        history = History(**job)
        try:
            run_history(history, actions)
        except AssertionError as error:
            error.add_note(f"seed {seed}: {job}, {actions}")
            raise
        statistics.update(history.statistics)
    statistics["histories"] = len(seeds)
    return statistics
