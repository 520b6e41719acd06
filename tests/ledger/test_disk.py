"""A folder as a disk: the order in which a write becomes durable, and what a crash leaves behind."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedlatest.errors import FedlatestError, LedgerError
from fedlatest.ledger import ClientStore, Epoch, Folder, Ticket, durable_id
from fedlatest.ledger.client_store import Held


def test_a_write_is_forced_to_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path / "state")
    folder.put("job/state.json", b"old")
    done: list[str] = []
    real_fsync, real_replace, real_write = os.fsync, os.replace, Path.write_bytes

    def fsync(descriptor: int) -> None:
        done.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        real_fsync(descriptor)

    def replace(draft: Path, path: Path) -> Path:
        done.append(f"rename {draft.name} to {path.name}")
        real_replace(draft, path)
        return path

    def write(path: Path, content: bytes) -> int:
        done.append(f"write {path.name}")
        return real_write(path, content)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    monkeypatch.setattr(Path, "write_bytes", write)
    folder.put("job/state.json", b"new")
    assert done == [
        "write .state.json.draft",
        "fsync .state.json.draft",
        "rename .state.json.draft to state.json",
        "fsync job",
    ]
    done.clear()
    folder.put("other/state.json", b"new")
    assert done[0] == "fsync state"  # the new folder's own entry


def test_a_folder_gives_back_what_was_put(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "b")
    assert folder.get("job/x") is None
    assert folder.names("job") == []
    folder.put("job/x", b"1")
    folder.put("job/x", b"2")
    folder.put("job/y", b"")
    assert (folder.get("job/x"), folder.get("job/y")) == (b"2", b"")
    assert folder.names("job") == ["job/x", "job/y"]
    folder.drop("job/x")
    folder.drop("job/x")
    assert Folder(tmp_path / "a" / "b").names("job") == ["job/y"]


def test_what_a_crash_left_half_written_is_swept_away(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / ".1-a.value.draft").write_bytes(b"half")
    ClientStore(folder).keep("job", Held("me", "config", Epoch(1, "e")), Ticket(2, "b"), np.zeros(2, np.int32))
    assert sorted(path.name for path in (tmp_path / "job").iterdir()) == ["2-b.value", "state.json"]


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LedgerError, match="choose another state folder"):
        Folder(tmp_path / "file" / "state")
    folder = Folder(tmp_path)
    with pytest.raises(FedlatestError, match="file"):
        folder.put("file/state.json", b"new")
    with pytest.raises(LedgerError, match="cannot be read"):
        folder.get("file/state.json")


def test_a_client_names_itself_once(tmp_path: Path) -> None:
    name = durable_id(Folder(tmp_path / "a"))
    assert durable_id(Folder(tmp_path / "a")) == name
    assert durable_id(Folder(tmp_path / "b")) != name
