"""How a node is identified (by key, name or generated id), and recovery when disks or ledgers are lost or set back."""

import shutil
from pathlib import Path

import pytest

from fedlatest.flower import Timeouts, client_app
from tests.flower.small_job import SmallJob, lose, towards


def restart(job: SmallJob, name: str, *, key: bytes = b"", node_config: dict[str, str] | None = None) -> None:
    """Restart a node under a new node id; the old node still counts as online but does not reply."""
    old = job.nodes[name]
    job.grid.on_reply = lambda node, message: None if node == old else message
    job.add(name, client_app(towards(5)), key=key, node_config=node_config)


@pytest.mark.parametrize("kind", ["name", "durable id", "key"])
def test_a_node_that_restarts_is_the_same_client(tmp_path: Path, kind: str) -> None:
    """It is asked again at once, although the message to its old node has not expired."""
    job = SmallJob(tmp_path, clients="ab", timeouts=Timeouts(deadline=10, poll=1, late_reply=1e6))
    key = b"key of c" if kind == "key" else b""
    config = {"name": "" if kind == "durable id" else "c"}
    job.add("c", client_app(towards(3)), key=key, node_config=config)
    job.loop.wait_for_clients(3, timeout=30)
    job.run_round()
    job.change_next_upload(lose, of="c")
    assert len(job.run_round().missed) == 1
    restart(job, "c", key=key, node_config=config)
    taken = [len(job.run_round().accepted) for _ in range(4)]
    assert 3 in taken
    assert len(job.ledger.clients()) == 3
    assert len(job.events("joined")) == 3
    assert not job.events("lost", "refused", "failed")
    assert job.audit().holds


def test_the_event_log_shows_the_registered_name(tmp_path: Path) -> None:
    job = SmallJob(tmp_path, clients="ab")
    job.add("c", client_app(towards(3)), key=b"key of c")
    job.run_round()
    [member] = [member for member in job.ledger.clients() if member.id.startswith("key-")]
    assert job.events("joined")[-1]["client"] == "c"
    assert len(member.id) == len("key-") + 16


def test_a_client_that_registers_a_key_later_is_refused(tmp_path: Path) -> None:
    """Its state folder belongs to the client without a key; the refusal is logged at most once per round."""
    job = SmallJob(tmp_path)
    job.run_round()
    restart(job, "c", key=b"key of c")
    for _ in range(3):
        job.run_round("abc")
    refused = job.events("refused")
    assert "this is client c, not key-" in refused[0]["why"]
    assert len(refused) <= 3
    assert job.audit().holds


@pytest.mark.parametrize("memory", ["client", "server"])
def test_a_client_that_lost_its_disk(tmp_path: Path, memory: str) -> None:
    """With copies at the server nothing changes; otherwise a new epoch starts and clients resend their updates."""
    job = SmallJob(tmp_path, clients="abcd", cohort_size=2, memory=memory)
    job.loop.wait_for_clients(4, timeout=30)
    for _ in range(4):
        job.run_round()
    shutil.rmtree(tmp_path / "nodes/b/state")
    rounds = [job.run_round() for _ in range(6)]
    assert len(job.events("resync")) == (1 if memory == "client" else 0)
    assert job.ledger.epoch.number == (2 if memory == "client" else 1)
    assert job.audit().holds
    assert len(job.audit().in_sum) == 4
    if memory == "client":
        rebasing = next(outcome for outcome in rounds if outcome.rebase_asked)
        assert rebasing.rebased
        assert not rebasing.missed
        assert len(rebasing.accepted) == 2
        assert job.events("lost")[0]["client"] == "b"


def test_a_client_that_joins_after_a_resync(tmp_path: Path) -> None:
    """It has no stored update to resend, and is asked to train like the others."""
    job = SmallJob(tmp_path, cohort_size=1)
    job.loop.wait_for_clients(3, timeout=30)
    for _ in range(3):
        job.run_round()
    job.ledger.resync()
    job.run_round()
    job.add("d", client_app(towards(9)))
    rounds = [job.run_round() for _ in range(4)]
    assert not any(outcome.missed for outcome in rounds)
    assert "d" in [client for outcome in rounds for client in outcome.accepted]
    assert job.audit().holds


def test_a_ledger_restored_from_a_backup(tmp_path: Path) -> None:
    """Clients hold tickets that the restored ledger did not issue; a new epoch starts, and the audit holds."""
    job = SmallJob(tmp_path)
    job.run_round()
    job.ledger.database.close()
    ledger = tmp_path / "job/ledger.sqlite"
    shutil.copy(ledger, tmp_path / "backup")
    job.reopen()
    for _ in range(2):
        job.run_round()
    job.ledger.database.close()
    for part in ("-wal", "-shm"):
        ledger.with_name(ledger.name + part).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup", ledger)
    job.reopen()
    for _ in range(5):
        job.run_round()
    assert job.events("restored")
    assert job.ledger.epoch.number == 2
    assert job.audit().holds
    assert len(job.audit().in_sum) == 3


def test_two_nodes_with_one_name_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copied node config is reported, because the two nodes would overwrite each other's state."""
    job = SmallJob(tmp_path)
    job.run_round()
    job.grid.add(client_app(towards(5)), {"state-dir": str(tmp_path / "nodes/other/state"), "name": "b"})
    job.run_round()
    assert "client b is connected from two nodes" in caplog.text
