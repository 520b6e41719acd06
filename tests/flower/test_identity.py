"""Who a node is: its key, its name or the id that it made; and what happens when disks and ledgers go back in time."""

import shutil
from pathlib import Path

import pytest

from fedlatest.flower import Pace, client_app
from tests.flower.small import Small, lose, towards


def restart(job: Small, name: str, *, key: bytes = b"", node_config: dict[str, str] | None = None) -> None:
    """A node comes back under a new node id; the old one counts as online for a while, and answers nothing."""
    old = job.nodes[name]
    job.grid.mail = lambda node, message: None if node == old else message
    job.add(name, client_app(towards(5)), key=key, node_config=node_config)


@pytest.mark.parametrize("kind", ["name", "durable id", "key"])
def test_a_node_that_restarts_is_the_same_client(tmp_path: Path, kind: str) -> None:
    """It is asked again at once, though the message to its old node is not given up yet."""
    job = Small(tmp_path, clients="ab", pace=Pace(deadline=10, poll=1, patience=1e6))
    key = b"key of c" if kind == "key" else b""
    config = {"name": "" if kind == "durable id" else "c"}
    job.add("c", client_app(towards(3)), key=key, node_config=config)
    job.loop.wait_for(3, seconds=30)
    job.play()
    job.once(lose, of="c")
    assert len(job.play().missed) == 1
    restart(job, "c", key=key, node_config=config)
    taken = [len(job.play().taken) for _ in range(4)]
    assert 3 in taken
    assert len(job.ledger.clients()) == 3
    assert len(job.events("joined")) == 3
    assert not job.events("lost", "refused", "failed")
    assert job.audit().holds


def test_a_node_is_called_by_its_registered_name(tmp_path: Path) -> None:
    job = Small(tmp_path, clients="ab")
    job.add("c", client_app(towards(3)), key=b"key of c")
    job.play()
    [member] = [member for member in job.ledger.clients() if member.id.startswith("key-")]
    assert job.events("joined")[-1]["client"] == "c"
    assert len(member.id) == len("key-") + 16


def test_a_client_that_gets_a_key_later(tmp_path: Path) -> None:
    """Its folder belongs to the client without one: it is told so, once in a while, and does no harm."""
    job = Small(tmp_path)
    job.play()
    restart(job, "c", key=b"key of c")
    for _ in range(3):
        job.play("abc")
    failed = job.events("refused")
    assert "this is client c, not key-" in failed[0]["why"]
    assert len(failed) <= 3
    assert job.audit().holds


@pytest.mark.parametrize("memory", ["client", "server"])
def test_a_lost_disk(tmp_path: Path, memory: str) -> None:
    """With the server's copies it is as if nothing had happened; else all start anew, and send again what they have."""
    job = Small(tmp_path, clients="abcd", cohort_size=2, memory=memory)
    job.loop.wait_for(4, seconds=30)
    for _ in range(4):
        job.play()
    shutil.rmtree(tmp_path / "nodes/b/state")
    rounds = [job.play() for _ in range(6)]
    assert len(job.events("resync")) == (1 if memory == "client" else 0)
    assert job.ledger.epoch.number == (2 if memory == "client" else 1)
    assert job.audit().holds
    assert len(job.audit().in_sum) == 4
    if memory == "client":
        recalled = next(tally for tally in rounds if tally.recalled)
        assert recalled.back
        assert not recalled.missed
        assert len(recalled.taken) == 2
        assert job.events("lost")[0]["client"] == "b"


def test_a_newcomer_after_a_resync(tmp_path: Path) -> None:
    """It has nothing to send again, which is no reason to let it wait."""
    job = Small(tmp_path, cohort_size=1)
    job.loop.wait_for(3, seconds=30)
    for _ in range(3):
        job.play()
    job.ledger.resync()
    job.play()
    job.add("d", client_app(towards(9)))
    rounds = [job.play() for _ in range(4)]
    assert not any(tally.missed for tally in rounds)
    assert "d" in [client for tally in rounds for client in tally.taken]
    assert job.audit().holds


def test_an_older_ledger_is_put_back(tmp_path: Path) -> None:
    """Clients know tickets that it never issued; a new epoch begins, and the audit holds again."""
    job = Small(tmp_path)
    job.play()
    job.ledger.database.close()
    ledger = tmp_path / "job/ledger.sqlite"
    shutil.copy(ledger, tmp_path / "backup")
    job.reopen()
    for _ in range(2):
        job.play()
    job.ledger.database.close()
    for part in ("-wal", "-shm"):
        ledger.with_name(ledger.name + part).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup", ledger)
    job.reopen()
    for _ in range(5):
        job.play()
    assert job.events("restored")
    assert job.ledger.epoch.number == 2
    assert job.audit().holds
    assert len(job.audit().in_sum) == 3


def test_two_machines_with_one_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody copied a node's config: that is said, for the two would undo each other."""
    job = Small(tmp_path)
    job.play()
    job.grid.add(client_app(towards(5)), {"state-dir": str(tmp_path / "nodes/other/state"), "name": "b"})
    job.play()
    assert "b is at two nodes" in caplog.text
