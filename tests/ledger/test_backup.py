"""Backup and restore of a ledger's file."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger.database import Database
from fedlatest.ledger.job_folder import back_up, restore

WRITER = """
import os, signal, sys
from fedlatest.ledger.database import Database
database = Database.open(sys.argv[1])
for number in range(3):
    with database.write():
        database.execute("UPDATE state SET round = round + 1")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    database = Database.open(path)
    with database.write():
        database.execute("CREATE TABLE state (round INTEGER)")
        database.execute("INSERT INTO state VALUES (7)")
    database.close()
    return path


def rounds(path: Path) -> int:
    database = Database.open(path)
    [(round,)] = database.rows("SELECT round FROM state")
    database.close()
    return int(round)


def test_restore_after_the_server_was_killed(ledger: Path, tmp_path: Path) -> None:
    """The killed server leaves a write-ahead log, which SQLite would apply to the restored file."""
    back_up(ledger, tmp_path / "copy")
    killed = subprocess.run([sys.executable, "-c", WRITER, str(ledger)], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "ledger.sqlite-wal").stat().st_size > 0
    restore(ledger, tmp_path / "copy")
    assert rounds(ledger) == 7


def test_backup_of_an_open_ledger_and_no_overwriting(ledger: Path, tmp_path: Path) -> None:
    database = Database.open(ledger)
    with database.write():
        database.execute("UPDATE state SET round = 8")
    back_up(ledger, tmp_path / "copy")
    database.close()
    assert rounds(tmp_path / "copy") == 8
    with pytest.raises(LedgerError, match="already exists"):
        back_up(ledger, tmp_path / "copy")


def test_restore_rejects_a_file_that_is_not_a_ledger(ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a ledger, but long enough to be read")
    for name, why in (("text", "is not a copy of a ledger"), ("none", "there is no such copy")):
        with pytest.raises(LedgerError, match=why):
            restore(ledger, tmp_path / name)
    assert rounds(ledger) == 7


def test_failed_backup_leaves_no_file(ledger: Path, tmp_path: Path) -> None:
    ledger.write_bytes(b"not a database, but long enough to be read" * 20)
    with pytest.raises(LedgerError, match="could not be copied"):
        back_up(ledger, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == [ledger.name]


def test_failed_restore_keeps_the_ledger_and_its_log(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while the copy is written: the ledger keeps the rounds that are only in its log."""

    def raise_disk_full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    back_up(ledger, tmp_path / "copy")
    subprocess.run([sys.executable, "-c", WRITER, str(ledger)], env=os.environ, check=False)
    monkeypatch.setattr(shutil, "copyfile", raise_disk_full)
    with pytest.raises(LedgerError, match="No space left"):
        restore(ledger, tmp_path / "copy")
    assert rounds(ledger) == 10


def test_backup_and_restore_keep_the_permissions(ledger: Path, tmp_path: Path) -> None:
    ledger.chmod(0o600)
    back_up(ledger, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    restore(ledger, tmp_path / "copy")
    assert ledger.stat().st_mode & 0o777 == 0o600
