"""Atomic writes and locks."""

import errno
import os
from pathlib import Path

import pytest

from fedlatest import files
from fedlatest.errors import DeploymentError, FedlatestError, LedgerError, RunFolderError
from fedlatest.files import acquire_lock, release_lock, write_atomically, write_csv, write_text


@pytest.mark.parametrize("error", [RunFolderError, LedgerError, DeploymentError])
def test_failed_write_raises_the_chosen_error_and_keeps_the_file(tmp_path: Path, error: type[FedlatestError]) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write(draft: Path) -> None:
        draft.write_text("half of the new cont")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(error, match=r"file: could not be written .*No space left.*; its previous content is unchanged"):
        write_atomically(path, write, error=error)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "old")]


def test_failed_sync_of_the_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file was replaced already; the message must not say that it is unchanged."""
    real = files.sync

    def sync(path: Path) -> None:
        if path == tmp_path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(path)

    monkeypatch.setattr(files, "sync", sync)
    with pytest.raises(RunFolderError, match="it has its new content, which a power failure may undo"):
        write_text(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_every_writer_raises_the_chosen_error(tmp_path: Path) -> None:
    """The folder does not exist."""
    path = tmp_path / "missing" / "file"
    with pytest.raises(LedgerError):
        write_text(path, "text", error=LedgerError)
    with pytest.raises(LedgerError):
        write_csv(path, [], error=LedgerError)
    with pytest.raises(RunFolderError):
        write_text(path, "text")


def test_other_exceptions_of_the_writer_pass_through(tmp_path: Path) -> None:
    def write(draft: Path) -> None:
        draft.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", write)
    assert list(tmp_path.iterdir()) == []


def test_permissions_of_the_new_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", lambda draft: draft.touch(), mode=0o600)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_lock_excludes_a_second_holder_until_it_is_released(tmp_path: Path) -> None:
    descriptor = acquire_lock(tmp_path)
    with pytest.raises(BlockingIOError):
        acquire_lock(tmp_path)
    release_lock(descriptor)
    release_lock(acquire_lock(tmp_path))
