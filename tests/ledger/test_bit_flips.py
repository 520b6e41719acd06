"""A flipped bit on a client's disk is a loss that the protocol repairs; it never locks the client out."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest.ledger import ClientStore, FolderStorage, Limits, load_or_create_client_id
from tests.ledger.job import Job


def flips(content: bytes) -> Iterator[bytes]:
    """Return the content with one flipped bit, for every bit."""
    for position in range(8 * len(content)):
        changed = bytearray(content)
        changed[position // 8] ^= 1 << position % 8
        yield bytes(changed)


def _job() -> tuple[Job, str]:
    """Return a job in which the client a stores two updates, and the name of the file of a's state."""
    job = Job("a", "b", limits=Limits(max_loss_backoff=0))
    job.round({"a": [1, 2], "b": [10, 20]})
    job.round({"a": [3, 4]})
    return job, f"{job.ledger.job}/state.json"


def test_no_flip_of_the_state_is_believed() -> None:
    """Each is detected by the checksum, or by JSON; the client then has no state."""
    job, name = _job()
    content = job.storages["a"].files[name]
    assert len(content) > 200
    for changed in flips(content):
        job.storages["a"].files[name] = changed
        assert job.store("a").load(job.ledger.job) is None, changed


def _check_recovery(step: int) -> None:
    """Flip every `step`-th bit of the state of a, each in a fresh copy of the same ledger and disks."""
    job, name = _job()
    ledger = job.database.connection.serialize()
    disks = {client: dict(storage.files) for client, storage in job.storages.items()}
    for changed in itertools.islice(flips(disks["a"][name]), 0, None, step):
        job.database.connection.deserialize(ledger)
        job.ledger = job.open()
        job.storages["a"].files, job.storages["b"].files = {**disks["a"], name: changed}, dict(disks["b"])
        assert job.exchange_hello("a").outcome in ("lost", "hello")
        outcomes = [outcome for _ in range(3) for outcome in job.round({"a": [5, 6]})]
        assert "accepted" in outcomes, f"the client is locked out: {outcomes}"
        job.round({"b": [10, 20]})
        assert job.total == [15, 26]


def test_client_takes_part_again_after_a_flip_of_its_state() -> None:
    """Every 41st bit; `test_client_takes_part_again_after_every_flip_of_its_state` tests all."""
    _check_recovery(41)


@pytest.mark.slow
def test_client_takes_part_again_after_every_flip_of_its_state() -> None:
    _check_recovery(1)


def test_no_flip_of_the_client_id_changes_the_client(tmp_path: Path) -> None:
    """A flip may give another valid id, such as 1 instead of 0; the state of the job has the right one."""
    storage = FolderStorage(tmp_path)
    client = load_or_create_client_id(storage)
    job = Job()
    job.storages[client] = storage  # type: ignore[assignment]
    job.exchange_hello(client)
    assert ClientStore(storage).load(job.ledger.job) is not None
    path = tmp_path / "client-id"
    content = path.read_bytes()
    for changed in [*flips(content), b""]:
        path.write_bytes(changed)
        assert load_or_create_client_id(storage) == client, changed
        assert path.read_bytes() == content
    path.unlink()
    assert load_or_create_client_id(storage) == client
