"""Only the user who runs a server or a client can read its files, whatever the umask is."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest.flower import FedLaAvg, to_record
from fedlatest.ledger import FolderStorage, load_or_create_client_id
from fedlatest.ledger.backup import back_up
from fedlatest.ledger.event_log import append_event
from tests.flower.small_job import INITIAL
from tests.ledger.job import Job


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def _modes(folder: Path) -> dict[str, str]:
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder.parent)): f"{path.stat().st_mode & 0o777:o}" for path in paths}


def test_files_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlatest.ledger.database.FILE_BYTES", 1)
    ledger = FedLaAvg(job=tmp_path / "job", cohort_size=1).open_ledger(to_record(INITIAL))
    append_event(tmp_path / "job/events.jsonl", "round")
    back_up(tmp_path / "job/ledger.sqlite", tmp_path / "job/copy")
    modes = _modes(tmp_path / "job")
    ledger.close()
    files = [modes.pop(name) for name in list(modes) if name.startswith("job/ledger.arrays/")]
    assert files == ["600", "600"]  # the model and the sum
    assert modes == {
        "job": "700",
        "job/copy": "600",
        "job/copy.sha256": "600",
        "job/events.jsonl": "600",
        "job/ledger.arrays": "700",
        "job/ledger.sqlite": "600",
        "job/ledger.sqlite-shm": "600",
        "job/ledger.sqlite-wal": "600",
    }


def test_files_of_a_client(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path / "state")
    client = load_or_create_client_id(storage)
    job = Job()
    job.storages[client] = storage  # type: ignore[assignment]
    job.exchange_hello(client)
    job.round({client: [1, 2]})
    modes = _modes(tmp_path / "state")
    assert len(modes) == 5  # the folder, the id, the folder of the job, its state and the update
    assert {modes.pop("state"), modes.pop(f"state/{job.ledger.job}")} == {"700"}
    assert set(modes.values()) == {"600"}
