"""Backup and restore of a ledger's file."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest.errors import LedgerError
from fedlatest.ledger import JobConfig, Ledger
from fedlatest.ledger.audit import audit
from fedlatest.ledger.backup import back_up, restore
from fedlatest.ledger.database import Database, create_job
from fedlatest.ledger.event_log import append_event
from fedlatest.ledger.job_folder import check_not_lost
from tests.ledger.job import ARRAYS, LAYOUT

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
    _create(path)
    return path


def _create(path: Path) -> None:
    """Create the ledger of a new job that is in round 7."""
    path.parent.mkdir(exist_ok=True)
    database = Database.open(path)
    create_job(database, JobConfig("fedlaavg"), LAYOUT, ARRAYS)
    with database.write():
        database.execute("UPDATE state SET round = 7")
    database.close()


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
    with pytest.raises(LedgerError, match="cannot be opened as a ledger"):
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


def test_only_the_owner_can_read_a_ledger_and_its_copies(ledger: Path, tmp_path: Path) -> None:
    assert ledger.stat().st_mode & 0o777 == 0o600
    ledger.chmod(0o644)
    back_up(ledger, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    restore(ledger, tmp_path / "copy")
    assert ledger.stat().st_mode & 0o777 == 0o600


def test_restore_is_refused_while_a_server_runs(ledger: Path, tmp_path: Path) -> None:
    """The server would go on writing to a file that has no name any more, and its rounds would be lost."""
    back_up(ledger, tmp_path / "copy")
    server = Ledger.open(ledger, config=JobConfig("fedlaavg"), layout=LAYOUT, arrays=lambda: ARRAYS)
    with pytest.raises(LedgerError, match="a server is using it; stop the server first"):
        restore(ledger, tmp_path / "copy")
    server.close_round(ARRAYS)
    server.close()
    assert rounds(ledger) == 8
    restore(ledger, tmp_path / "copy")
    assert rounds(ledger) == 7


def test_server_does_not_start_during_a_restore(ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back_up(ledger, tmp_path / "copy")
    copyfile, refused = shutil.copyfile, []

    def copy_while_a_server_starts(source: Path, target: Path) -> None:
        with pytest.raises(LedgerError, match="is being replaced") as error:
            Database.open(ledger)
        refused.append(error)
        copyfile(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy_while_a_server_starts)
    restore(ledger, tmp_path / "copy")
    assert refused


def test_backup_of_another_job_is_refused(ledger: Path, tmp_path: Path) -> None:
    """Also if the ledger is damaged or missing, but the event log names the job."""
    _create(tmp_path / "other" / "ledger.sqlite")
    back_up(tmp_path / "other" / "ledger.sqlite", tmp_path / "copy")
    with pytest.raises(LedgerError, match=r"is of the job .*, .* holds the job .*; choose its backup"):
        restore(ledger, tmp_path / "copy")
    append_event(tmp_path / "events.jsonl", "job", job="f" * 32, rounds=3)
    ledger.unlink()
    with pytest.raises(LedgerError, match=f"holds the job {'f' * 32}"):
        restore(ledger, tmp_path / "copy")


def test_damaged_ledger_is_replaced(ledger: Path, tmp_path: Path) -> None:
    back_up(ledger, tmp_path / "copy")
    ledger.write_bytes(b"damaged" * 1000)
    restore(ledger, tmp_path / "copy")
    assert rounds(ledger) == 7


def test_copy_contains_the_arrays_that_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the restore, a server reads them from the copy and writes files again."""
    monkeypatch.setattr("fedlatest.ledger.database.FILE_BYTES", 1)
    path = tmp_path / "job" / "ledger.sqlite"
    _create(path)
    back_up(path, tmp_path / "copy")
    shutil.rmtree(path.parent / "ledger.arrays")
    with pytest.raises(LedgerError, match=r"is missing; restore a backup"):
        audit(path)
    restore(path, tmp_path / "copy")
    server = Ledger.open(path, config=JobConfig("fedlaavg"), layout=LAYOUT, arrays=lambda: ARRAYS)
    assert server.arrays()["x"].tolist() == [0, 0]
    server.close_round(ARRAYS)
    server.close()
    assert [item.name for item in path.parent.glob("ledger.arrays/*")] != []


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that all users can reach, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_folder_that_cannot_be_written(ledger: Path, public_folder: Path) -> None:
    """A server was killed, so the newest rounds are only in the log; audit and backup read them all the same."""
    folder, target = public_folder / "read-only", public_folder / "target"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", WRITER, str(ledger)], env=os.environ, check=False)
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{ledger}{suffix}", folder / f"ledger.sqlite{suffix}")
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from fedlatest.ledger.audit import audit\n"
        "from fedlatest.ledger.backup import back_up\n"
        "if os.getuid() == 0:\n"
        "    Path.cwd().as_uri()  # imports a module, which the other user may not be allowed to read\n"
        "    os.setuid(65534)  # root may write everywhere\n"
        "print(audit(sys.argv[1]).round)\n"
        "back_up(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    target.mkdir()
    target.chmod(0o777)
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    command = [sys.executable, "-c", program, str(folder / "ledger.sqlite"), str(target / "copy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("10", "")
    assert rounds(target / "copy") == 10


@pytest.mark.parametrize("exists", [False, True])
def test_lost_ledger_does_not_start_a_new_job(exists: bool, tmp_path: Path) -> None:
    """The event log shows that the job has a past; the ledger is missing, or an empty file."""
    path = tmp_path / "ledger.sqlite"
    check_not_lost(path)
    append_event(tmp_path / "events.jsonl", "job", job="f" * 32, rounds=3)
    if exists:
        path.touch()
    with pytest.raises(LedgerError, match=rf"is missing or empty, but events\.jsonl .* records the job {'f' * 32}"):
        check_not_lost(path)
