"""Copies of a ledger: whole ones, and nothing of the old one beside them when they are put back."""

import os
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


def test_a_copy_replaces_a_ledger_whose_server_was_killed(ledger: Path, tmp_path: Path) -> None:
    """The killed server leaves a write-ahead log, which SQLite would play into whatever lies beside it."""
    back_up(ledger, tmp_path / "copy")
    killed = subprocess.run([sys.executable, "-c", WRITER, str(ledger)], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "ledger.sqlite-wal").stat().st_size > 0
    restore(ledger, tmp_path / "copy")
    assert rounds(ledger) == 7


def test_a_copy_is_of_one_moment_and_overwrites_nothing(ledger: Path, tmp_path: Path) -> None:
    database = Database.open(ledger)
    with database.write():
        database.execute("UPDATE state SET round = 8")
    back_up(ledger, tmp_path / "copy")
    database.close()
    assert rounds(tmp_path / "copy") == 8
    with pytest.raises(LedgerError, match="is there already"):
        back_up(ledger, tmp_path / "copy")


def test_only_a_ledger_is_put_back(ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a ledger, though long enough to look at")
    for name, why in (("text", "is not a copy of a ledger"), ("none", "there is no such copy")):
        with pytest.raises(LedgerError, match=why):
            restore(ledger, tmp_path / name)
    assert rounds(ledger) == 7
