"""After any history of a secure job, the sum equals the updates that counted, and sessions count completely or not."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from fedlatest.ledger import Ledger, Reply
from fedlatest.ledger.secure_rounds import SecureRounds
from fedlatest.ledger.secure_session import SecureSession
from fedlatest.secure import KeyPair
from fedlatest.secure.decryptor import AnsweredSessions
from tests.ledger.history_actions import Action, run_history
from tests.ledger.secure_history import SecureHistory, agree

NORMAL = {
    "exchange_hello": 6,
    "open_session": 1,
    "deliver_instruction": 4,
    "deliver_all": 4,
    "deliver_reply": 4,
    "request_shares": 1,
    "end_session": 1,
    "advance": 24,
    "close_round": 3,
    "whole_session": 5,
}
FAULTS = {
    "outage": {"outage": 5},
    "losses": {"lose_all_disks": 3, "outage": 1},
    "network": {"lose_instruction": 4, "lose_reply": 4},
    "masks": {"spoiled_session": 5},
    "keys": {"lose_keys": 6},
    "lies": {"change_reply": 8, "change_request": 4},
    "epochs": {"resync": 4, "expire": 2},
    "leaving": {"leave": 6, "expire": 3},
    "server": {"kill_server": 3, "arm_server_crash": 6, "second_server": 2},
    "client": {"arm_client_crash": 8},
    "disk": {"copy_disk": 3, "restore_disk": 4, "lose_disk": 1, "damage_disk": 3, "lose_keys": 3},
    "ledger": {"backup": 3, "restore": 4},
    "strangers": {"hostile_hello": 5, "kill_server": 1, "issue": 3},
}


def _accept_all_but_one(self: Ledger, upload: Any, replies: Mapping[str, Reply]) -> None:
    self._delta = upload
    self._accepted.update(list(replies.items())[1:])


def _note_keys_in_hellos_only(
    self: SecureRounds, reply: Reply, note: Callable[[SecureRounds, Reply], bool] = SecureRounds.note_facts
) -> bool:
    return reply.kind in ("hello", "ahead") and note(self, reply)


def random_history(seed: int) -> tuple[SecureHistory, list[Action]]:
    """Return a new job with three to six clients, and random actions with one to three kinds of faults."""
    draw = random.Random(seed)
    num_clients = draw.choice([3, 4, 4, 4, 5, 6])
    history = SecureHistory(
        memory=draw.choice(["client", "client", "none"]),
        num_clients=num_clients,
        min_cohort=draw.randint(2, min(4, num_clients)),
        max_loss_backoff=draw.choice([0, 2, 512]),
    )
    names = _names(draw.sample(sorted(FAULTS), draw.randint(1, 3)))
    joining = [("exchange_hello", client, 0) for client in range(num_clients)]
    numbers = [(draw.choice(names), draw.randint(0, 63), draw.randint(0, 63)) for _ in range(draw.randint(15, 30))]
    return history, joining + numbers


def _names(groups: Sequence[str]) -> list[str]:
    frequencies = [NORMAL, *(FAULTS[group] for group in groups)]
    return [name for group in frequencies for name, frequency in group.items() for _ in range(frequency)]


@mock.patch.object(KeyPair, "agree", agree)
def run_histories(seeds: range) -> Counter[str]:
    """Run one history per seed and return how often each event happened."""
    statistics: Counter[str] = Counter()
    for seed in seeds:
        history, actions = random_history(seed)
        try:
            run_history(history, actions)
        except BaseException as error:
            error.add_note(f"seed {seed}: {actions}")
            raise
        statistics.update(history.statistics)
        statistics["histories"] += 1
        statistics["actions"] += len(actions)
    return statistics


def test_sessions_count_completely_or_not_at_all() -> None:
    statistics = run_histories(range(120))
    for event in ("session: unmasked", "session: unmasked with dropouts", "session: too few decryptors answered"):
        assert statistics[event] >= 10, f"the histories do not cover {event!r}"


@pytest.mark.parametrize(
    ("owner", "name", "broken", "violation"),
    [
        (AnsweredSessions, "add", lambda self, request: self, "two different requests of a session"),
        (SecureSession, "is_complete", property(lambda self: self.requested), "0, 0"),
        (Ledger, "accept_sum", _accept_all_but_one, "other tickets are in the sum"),
        (Ledger, "rounds_without_upload", property(lambda self: 0), "no round counts"),
        (SecureRounds, "note_facts", _note_keys_in_hellos_only, "no round counts"),
    ],
    ids=["answers-twice", "counts-without-shares", "counts-partly", "waits-for-everybody", "ignores-new-keys"],
)
def test_a_broken_protocol_is_found(
    owner: type, name: str, broken: Any, violation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, KeyError), match=violation):
        run_histories(range(300))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_ten_thousand_secure_histories(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Print how often each event happened, so that a reader can see that the rare ones are covered."""
    statistics = run_histories(range(1000 + 2500 * part, 3500 + 2500 * part))
    with capsys.disabled():
        print()
        for event, count in sorted(statistics.items()):
            print(f"{count:9d}  {event}")
    assert statistics["histories"] == 2500
