"""After faults, rounds of a deployed job count again: outages, lost keys, clients that leave or never answer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, Message

from fedlatest.flower import SecureAggregation, Timeouts
from fedlatest.flower.message_records import PROTOCOL, VECTOR
from fedlatest.ledger.hashing import checksum_of
from tests.flower.small_job import SmallJob, lose
from tests.flower.test_secure_job import kind_of

SECURE = SecureAggregation(min_cohort=3, num_decryptors=5)
JOBS: dict[str, dict[str, Any]] = {"plain": {}, "secure": {"secure": SECURE}}
TIMEOUTS = Timeouts(deadline=10, poll=1, late_reply=10)


def job_of(folder: Path, **options: Any) -> SmallJob:
    return SmallJob(folder, **{"clients": "abcde", "cohort_size": 4, "timeouts": TIMEOUTS, **options})


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("restarts", [False, True])
def test_rounds_count_after_all_clients_missed_several(kind: str, restarts: bool, tmp_path: Path) -> None:
    """All nodes are connected, but none replies, for six rounds: each client has missed two or more in a row."""
    job = job_of(tmp_path, **JOBS[kind])
    job.run_round()
    job.grid.on_reply = lose
    for _ in range(6):
        assert job.run_round().accepted == []
    assert all(client.misses >= 2 for client in job.ledger.clients())
    job.grid.on_reply = lambda node, message: message
    if restarts:
        job.ledger.close()
        job.reopen()
    outcomes = [job.run_round() for _ in range(4)]
    assert sum(len(outcome.accepted) >= 3 for outcome in outcomes) >= 2
    assert job.audit().holds


@pytest.mark.parametrize("kind", JOBS)
def test_slow_clients_count_although_they_missed_twice(kind: str, tmp_path: Path) -> None:
    """Replies take 4 s. A round that has no upload yet stays open for clients that missed two rounds in a row."""
    job = job_of(tmp_path, **JOBS[kind])
    job.run_round()
    job.grid.on_reply = lose
    for _ in range(4):
        job.run_round()
    waiting: dict[str, float] = {}

    def wait(identifiers: list[str]) -> list[str]:
        return [each for each in identifiers if job.now - waiting.setdefault(each, job.now) >= 4]

    pull = job.grid.pull_messages
    job.grid.pull_messages = lambda identifiers: pull(wait(list(identifiers)))  # type: ignore[method-assign, assignment]
    job.grid.on_reply = lambda node, message: message
    outcomes = [job.run_round() for _ in range(4)]
    assert sum(len(outcome.accepted) >= 1 for outcome in outcomes) >= 2
    assert max(len(outcome.accepted) for outcome in outcomes) >= 4, "one reply ended the silence of its client"
    assert job.audit().holds


def _delete(path: Path) -> None:
    path.unlink()


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("change", [_delete, _flip_a_bit])
def test_client_that_lost_its_key_reports_the_new_one(change: Callable[[Path], None], tmp_path: Path) -> None:
    """It stays connected. The session goes on without it, and the next one has its new key."""
    job = job_of(tmp_path, cohort_size=5, secure=SECURE)
    job.run_round()
    key = job.member("a").public_key
    change(tmp_path / f"nodes/a/state/secure-{job.ledger.job}.json")
    outcome = job.run_round()
    assert sorted(outcome.accepted) == ["b", "c", "d", "e"]
    assert outcome.reported == ["a"]
    assert outcome.missed == []
    assert job.member("a").public_key != key
    assert "a" in job.run_round().accepted
    assert not job.events("session_failed")
    assert job.audit().holds


def test_all_clients_that_lost_their_keys_report_the_new_ones(tmp_path: Path) -> None:
    job = job_of(tmp_path, secure=SECURE)
    job.run_round()
    for path in (tmp_path / "nodes").glob("*/state/secure-*.json"):
        path.unlink()
    counted = [len(job.run_round().accepted) for _ in range(4)]
    assert counted[2:] == [4, 4]
    assert job.audit().holds


def test_decryptor_that_lost_its_key_reports_the_new_one(tmp_path: Path) -> None:
    """Its upload has arrived, but it cannot answer as a decryptor any more; all three must."""
    job = job_of(tmp_path, clients="abc", cohort_size=3, secure=SecureAggregation(min_cohort=3, num_decryptors=3))
    job.run_round()

    def lose_the_key(node: int, message: Message) -> Message:
        (tmp_path / f"nodes/a/state/secure-{job.ledger.job}.json").unlink()
        return message

    job.change_next_upload(lose_the_key, of="a")
    assert job.run_round().accepted == []
    assert len(job.run_round().accepted) == 3
    assert job.audit().holds


@pytest.mark.parametrize("kind", JOBS)
def test_clients_that_leave_while_connected_do_not_block_the_job(kind: str, tmp_path: Path) -> None:
    """Two of five have taken part least recently, so that they are selected in each round, and reply with a goodbye."""
    job = job_of(tmp_path, **JOBS[kind])
    for online in ("abcde", "cde", "cde"):
        job.run_round(online)
    for name in "ab":
        assert job.store(name).leave(job.ledger.job)
    outcomes = [job.run_round("abcde") for _ in range(6)]
    assert sum(len(outcome.accepted) >= 3 for outcome in outcomes) >= 4
    assert sorted(client for outcome in outcomes for client in outcome.left) == ["a", "b"]
    assert sorted(job.audit().in_sum) == ["c", "d", "e"]
    assert job.audit().holds


def test_client_that_cancels_its_goodbye_trains_again(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.run_round()
    assert job.store("a").leave(job.ledger.job)
    job.messages.forget("a")
    job.change_next_upload(lose, of="a")
    job.run_round()
    assert job.store("a").cancel_leave(job.ledger.job)
    for _ in range(6):
        job.run_round()
    assert job.loop.leaving == set()
    assert "a" in [client for _ in range(3) for client in job.run_round().accepted]


@pytest.mark.parametrize("kind", JOBS)
def test_clients_that_never_answer_do_not_block_the_job(kind: str, tmp_path: Path) -> None:
    """Two of five are connected and silent, also as decryptors; more than two thirds of these must answer."""
    job = job_of(tmp_path, cohort_size=3, **JOBS[kind])
    job.run_round()
    silent = [job.nodes[name] for name in "ab"]
    job.grid.on_reply = lambda node, message: None if node in silent else message
    counted = [len(job.run_round().accepted) >= 3 for _ in range(24)]
    assert sum(counted) >= 12
    assert all(map(any, zip(counted[4:], counted[5:], counted[6:], strict=False)))
    assert job.audit().holds


def test_client_with_wrong_masks_costs_few_sessions(tmp_path: Path) -> None:
    """It uses wrong masks in every session; nobody can see that it was this one."""
    job = job_of(tmp_path, secure=SECURE)
    job.run_round()

    def change(node: int, message: Message) -> Message:
        return spoil(message) if node == job.nodes["a"] and kind_of(message) == "upload" else message

    job.grid.on_reply = change
    counted = [len(job.run_round().accepted) >= 3 for _ in range(40)]
    assert sum(counted) >= 25
    assert all("a" not in event["applied"] for event in job.events("merged")[1:])
    assert job.audit().holds


def spoil(message: Message) -> Message:
    """Change a masked upload, as if its client had used other masks than it shares, and its checksum."""
    record, vector = (cast(Any, message.content[name]) for name in (PROTOCOL, VECTOR))
    old = vector[VECTOR].numpy()
    new = old + np.uint64(2**62)
    header, before = str(record["header"]), checksum_of(old.view("<i4"))
    assert before in header
    record["header"] = header.replace(before, checksum_of(new.view("<i4")))
    vector[VECTOR] = Array(new)
    return message
