"""A folder as durable storage: the order of the system calls of a write, leftovers of a crash, and errors."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger import (
    ClientStore,
    Epoch,
    FolderStorage,
    LocalUpdate,
    Ticket,
    handle_instruction,
    load_or_create_client_id,
)
from fedlatest.ledger.client_store import ClientState, StoredUpdate
from tests.ledger.job import Job


def test_write_is_synced_before_it_replaces_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = FolderStorage(tmp_path / "state")
    folder.put("job/state.json", b"old")
    calls: list[str] = []
    real_fsync, real_replace, real_write = os.fsync, os.replace, Path.write_bytes

    def fsync(descriptor: int) -> None:
        calls.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        real_fsync(descriptor)

    def replace(draft: Path, path: Path) -> Path:
        calls.append(f"rename {draft.name} to {path.name}")
        real_replace(draft, path)
        return path

    def write(path: Path, content: bytes) -> int:
        calls.append(f"write {path.name}")
        return real_write(path, content)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "write_bytes", write)
    folder.put("job/state.json", b"new")
    assert calls == [
        "write .state.json.draft",
        "fsync .state.json.draft",
        "rename .state.json.draft to state.json",
        "fsync job",
    ]
    calls.clear()
    folder.put("other/state.json", b"new")
    assert calls[0] == "fsync state"  # the entry of the new folder


def test_put_get_delete_and_names(tmp_path: Path) -> None:
    folder = FolderStorage(tmp_path / "a" / "b")
    assert folder.get("job/x") is None
    assert folder.names("job") == []
    folder.put("job/x", b"1")
    folder.put("job/x", b"2")
    folder.put("job/y", b"")
    assert (folder.get("job/x"), folder.get("job/y")) == (b"2", b"")
    assert folder.names("job") == ["job/x", "job/y"]
    folder.delete("job/x")
    folder.delete("job/x")
    assert FolderStorage(tmp_path / "a" / "b").names("job") == ["job/y"]


def test_temporary_file_of_a_crash_is_deleted(tmp_path: Path) -> None:
    folder = FolderStorage(tmp_path)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / ".1-a.value.draft").write_bytes(b"half")
    stored = StoredUpdate(Ticket(2, "b"), "digest", 1.0)
    ClientStore(folder).save_update("job", ClientState("me", "config", Epoch(1, "e")), stored, np.zeros(2, np.int32))
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == ["2-b.value", "state.json"]


def test_errors_of_the_file_system_raise_ledger_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LedgerError, match="choose another state folder"):
        FolderStorage(tmp_path / "file" / "state")
    folder = FolderStorage(tmp_path)
    with pytest.raises(LedgerError, match="file"):
        folder.put("file/state.json", b"new")
    with pytest.raises(LedgerError, match="cannot be read"):
        folder.get("file/state.json")
    (tmp_path / "job/state.json").mkdir(parents=True)
    with pytest.raises(LedgerError, match=r"state\.json: could not be written"):
        folder.put("job/state.json", b"new")
    with pytest.raises(LedgerError, match=r"state\.json: cannot be deleted"):
        folder.delete("job/state.json")
    missing = FolderStorage(tmp_path / "missing")
    missing.path.rmdir()
    with pytest.raises(LedgerError, match="missing: cannot be locked"), missing.lock():
        pass


def test_full_disk_raises_a_ledger_error_and_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = FolderStorage(tmp_path)
    folder.put("job/state.json", b"old")
    monkeypatch.setattr(Path, "write_bytes", _raise_disk_full)
    with pytest.raises(LedgerError, match=r"state\.json: could not be written \(.*No space left"):
        folder.put("job/state.json", b"new")
    assert (folder.get("job/state.json"), folder.names("job")) == (b"old", ["job/state.json"])


def test_client_with_a_full_disk_replies_that_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("a")
    store = ClientStore(FolderStorage(tmp_path))
    instruction = job.issue("a")
    monkeypatch.setattr(Path, "write_bytes", _raise_disk_full)
    reply = handle_instruction(store, instruction, train=lambda: LocalUpdate(np.zeros(2, np.int32), 1.0, {}))
    assert reply.kind == "failed"
    assert "No space left" in reply.why
    assert job.ledger.handle_reply(reply).outcome == "failed"


def _raise_disk_full(path: Path, content: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def test_client_id_is_created_once(tmp_path: Path) -> None:
    name = load_or_create_client_id(FolderStorage(tmp_path / "a"))
    assert load_or_create_client_id(FolderStorage(tmp_path / "a")) == name
    assert load_or_create_client_id(FolderStorage(tmp_path / "b")) != name
