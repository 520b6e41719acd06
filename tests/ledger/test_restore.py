"""A restore puts an intact backup in the place of the ledger, or changes nothing; also if it is killed at any step."""

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest import files
from fedlatest.errors import LedgerError
from fedlatest.ledger import backup
from fedlatest.ledger.backup import back_up, hash_file, restore
from fedlatest.ledger.database import Database
from tests.command_line import fedlatest, fedlatest_here
from tests.ledger.job import Job

NEXT_ROUND = """
import os, signal, sys
from tests.ledger.job import Job
from fedlatest.ledger import database
database.FILE_BYTES = 8
job = Job(database=database.Database.open(sys.argv[1]), memory="server")
job.ledger.close_round({"x": job.ledger.arrays()["x"] + 1})
os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED_RESTORES = """
import itertools, os, shutil, signal, sys
from pathlib import Path
from fedlatest.ledger import backup

template, copy, steps = map(Path, sys.argv[1:])
READ_ONLY = ("_check", "_job_of", "_num_releases", "_hash_of", "_size", "_user_of", "_explaining")

def restore(folder, num_lines):
    def trace(frame, event, argument):
        nonlocal num_lines
        if frame.f_code.co_filename != backup.__file__ or frame.f_code.co_name.startswith(READ_ONLY):
            return None
        num_lines -= event == "line"
        if num_lines < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    backup.restore(folder / "ledger.sqlite", copy)

for number in itertools.count():
    folder = steps / f"{number:04d}"
    if template.exists():
        shutil.copytree(template, folder)
    child = os.fork()
    if child == 0:
        restore(folder, number)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job in round 2, and `tmp_path / "copy"`, its backup of round 1.

    The sum of a and b is [11, 22] in the backup and [33, 44] now; the sum and the copies of the updates are files.
    """
    monkeypatch.setattr("fedlatest.ledger.database.FILE_BYTES", 9)
    job = Job("a", "b", database=Database.open(tmp_path / "job" / "ledger.sqlite"), memory="server")
    job.round({"a": [1, 2], "b": [10, 20]})
    back_up(ledger_of(tmp_path), tmp_path / "copy")
    job.round({"a": [3, 4], "b": [30, 40]})
    job.ledger.close()
    return job


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()


def ledger_of(folder: Path) -> Path:
    return folder / "job" / "ledger.sqlite"


def content(ledger: Path) -> dict[str, Any]:
    """Return everything that a ledger stores, except the number of the releases and the names of files."""
    with Database.open_for_reading(ledger) as database:
        tables = ("job", "clients", "expelled", "rounds", "tasks")
        rows = {table: database.rows(f"SELECT * FROM {table} ORDER BY 1") for table in tables}
        return {
            "arrays": arrays_in(database),
            **rows,
            "state": database.rows("SELECT round, epoch, token, uptime FROM state"),
        }


def arrays_in(database: Database) -> dict[str, Any]:
    owners = sorted({owner for (owner,) in database.rows("SELECT owner FROM arrays")})
    return {owner: {name: part.tolist() for name, part in database.get_arrays(owner).items()} for owner in owners}


def with_bit(content: bytes, bit: int) -> bytes:
    """Return the content with one bit flipped."""
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(ledger: Path, copy: Path) -> str:
    with pytest.raises(LedgerError) as error:
        restore(ledger, copy)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_damaged_backup_is_refused(job: Job, tmp_path: Path) -> None:
    """Truncated at 40 lengths, and with each of 300 random bits flipped: the ledger stays, and no file is left."""
    ledger, copy = ledger_of(tmp_path), tmp_path / "copy"
    whole, before, rng = copy.read_bytes(), content(ledger), random.Random(0)
    damaged = [whole[: len(whole) * number // 40] for number in range(40)]
    damaged += [with_bit(whole, rng.randrange(8 * len(whole))) for _ in range(300)]
    for version in damaged:
        copy.write_bytes(version)
        assert "copy: is damaged (its SHA-256 is not the one in copy.sha256); choose another" in refused(ledger, copy)
    assert content(ledger) == before
    assert [path.name for path in ledger.parent.glob("*replaced*")] == []
    assert not (ledger.parent / ".restore").exists()
    copy.write_bytes(whole)
    restore(ledger, copy)
    assert content(ledger)["arrays"]["sum"] == {"total": [11, 22]}


def test_damaged_hash_is_refused(job: Job, tmp_path: Path) -> None:
    """Each bit of the 64 digits, and every truncation of them."""
    hashed = hash_file(tmp_path / "copy")
    whole = hashed.read_bytes()
    for version in [*(with_bit(whole, bit) for bit in range(0, 64 * 8, 7)), *(whole[:length] for length in range(64))]:
        hashed.write_bytes(version)
        assert "is damaged" in refused(ledger_of(tmp_path), tmp_path / "copy")


def test_hash_is_the_one_of_sha256sum(job: Job, tmp_path: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", "copy.sha256"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "copy: OK\n")


def test_damage_of_a_backup_without_a_hash(job: Job, tmp_path: Path) -> None:
    """Earlier versions wrote no hash. Truncation and damage of arrays and of the structure are refused all the same.

    A changed number in a table is not noticed: the old ledger is there to return to.
    """
    ledger, copy = ledger_of(tmp_path), tmp_path / "copy"
    hash_file(copy).unlink()
    whole, before, rng = copy.read_bytes(), content(ledger), random.Random(1)
    for length in range(0, len(whole), len(whole) // 40):
        copy.write_bytes(whole[:length])
        refused(ledger, copy)
    restore_to, num_refused = tmp_path / "other" / "ledger.sqlite", 0
    for _ in range(150):
        copy.write_bytes(with_bit(whole, rng.randrange(8 * len(whole))))
        try:
            restored = restore(restore_to, copy)
        except LedgerError:
            num_refused += 1
            continue
        assert not restored.has_hash
        with Database.open_for_reading(restore_to) as database:
            assert arrays_in(database) == before["arrays"] | {
                "sum": {"total": [11, 22]}, "client 0": {"value": [1, 2]}, "client 1": {"value": [10, 20]}
            }  # fmt: skip
        restore_to.unlink()
    assert num_refused > 0
    assert content(ledger) == before


def test_backup_without_a_hash_is_restored_with_a_warning(job: Job, tmp_path: Path) -> None:
    hash_file(tmp_path / "copy").unlink()
    done = fedlatest_here("restore", "job", "copy", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ("copy: there is no copy.sha256 beside it, so changes of single numbers remain unnoticed\n")
    assert content(ledger_of(tmp_path))["arrays"]["sum"] == {"total": [11, 22]}


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_file_that_was_copied_by_hand_is_refused(suffix: str, job: Job, tmp_path: Path) -> None:
    """Its newest rounds are in the log beside it, and its arrays in another folder."""
    ledger = ledger_of(tmp_path)
    shutil.copyfile(ledger, tmp_path / "by-hand")
    assert "it lacks the files of its arrays" in refused(ledger, tmp_path / "by-hand")
    (tmp_path / f"by-hand{suffix}").write_bytes(b"log")
    assert "SQLite's log is beside it" in refused(ledger, tmp_path / "by-hand")


def test_old_ledger_is_kept_and_can_be_restored(job: Job, tmp_path: Path) -> None:
    """Also its array files and the rounds that are only in its log."""
    subprocess.run([sys.executable, "-c", NEXT_ROUND, str(ledger_of(tmp_path))], check=False)
    assert (tmp_path / "job/ledger.sqlite-wal").stat().st_size > 0
    before = content(ledger_of(tmp_path))
    done = fedlatest_here("restore", "job", "copy", cwd=tmp_path)
    [kept] = (tmp_path / "job").glob("replaced-*")
    assert done.stdout == (
        "job/ledger.sqlite: restored; the next run continues from it\n"
        f"the old ledger is in job/{kept.name}; delete this folder when you do not need it any more\n"
    )
    age = time.time() - time.mktime(time.strptime(kept.name, "replaced-%Y%m%dT%H%M%SZ")) + time.timezone
    assert -2 <= age < 600
    job.database = Database.open(ledger_of(tmp_path))
    assert job.open().round == 1  # a server deletes array files that the new ledger does not need
    job.database.close()
    assert content(kept / "ledger.sqlite") == before
    assert fedlatest_here("backup", f"job/{kept.name}", "newer", cwd=tmp_path).returncode == 0
    assert fedlatest_here("restore", "job", "newer", cwd=tmp_path).returncode == 0
    assert content(ledger_of(tmp_path)) == before
    assert len(list((tmp_path / "job").glob("replaced-*"))) == 2


@pytest.mark.parametrize("exists", [True, False])
def test_restore_that_is_killed_at_any_step(exists: bool, job: Job, tmp_path: Path) -> None:
    """The ledger is then the old one, with the round that is only in its log, or the new one; a second try succeeds."""
    template, copy, steps = tmp_path / "job", tmp_path / "copy", tmp_path / "steps"
    subprocess.run([sys.executable, "-c", NEXT_ROUND, str(ledger_of(tmp_path))], check=False)
    old = content(ledger_of(tmp_path))
    assert old["state"][0][0] == 3
    if not exists:
        template = tmp_path / "none"
    steps.mkdir()
    subprocess.run([sys.executable, "-c", KILLED_RESTORES, str(template), str(copy), str(steps)], check=True)
    restore(tmp_path / "intact" / "ledger.sqlite", copy)
    new = content(tmp_path / "intact" / "ledger.sqlite")
    found, folders = [], sorted(steps.iterdir())
    for folder in folders:
        ledger = folder / "ledger.sqlite"
        assert exists or not ledger.exists() or content(ledger) == new
        found.append(ledger.exists() and content(ledger) == new)
        assert found[-1] or not exists or content(ledger) == old
        restore(ledger, copy)
        assert content(ledger) == new
        kept = [content(path / "ledger.sqlite") for path in folder.glob("replaced-*")]
        assert all(version in (old, new) for version in kept)
        assert (old in kept) == exists
        assert not (folder / ".restore").exists()
    assert len(found) > (45 if exists else 25)
    assert (found[0], found[-1], found == sorted(found)) == (False, True, True)


def test_draft_is_synced_before_it_replaces_the_ledger(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    replace = Path.replace

    def synced(path: Path) -> None:
        calls.append(("sync", path.name))
        files.sync(path)

    def replaced(path: Path, target: Path) -> Path:
        calls.append(("replace", target.name))
        return replace(path, target)

    monkeypatch.setattr("fedlatest.ledger.backup.sync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    restore(ledger_of(tmp_path), tmp_path / "copy")
    assert calls[0] == ("sync", "ledger.sqlite")
    assert calls[-3:] == [("sync", "job"), ("replace", "ledger.sqlite"), ("sync", "job")]


def test_restore_into_a_folder_that_does_not_exist(job: Job, tmp_path: Path) -> None:
    done = fedlatest_here("restore", "new/folder", "copy", cwd=tmp_path)
    assert (done.returncode, done.stderr, done.stdout) == (
        0, "", "new/folder/ledger.sqlite: restored; the next run continues from it\n"
    )  # fmt: skip
    assert content(tmp_path / "new/folder/ledger.sqlite")["arrays"]["sum"] == {"total": [11, 22]}
    assert (tmp_path / "new/folder").stat().st_mode & 0o777 == 0o700
    (tmp_path / "damaged").write_bytes(b"damaged")
    assert fedlatest_here("restore", "other", "damaged", cwd=tmp_path).returncode == 1
    assert not (tmp_path / "other").exists()


def test_overlapping_restores(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message must not send the operator to look for a server that does not run."""
    second: list[str] = []
    keep = backup._keep

    def keep_while_another_starts(ledger: Path, draft: Path) -> Path | None:
        second.append(fedlatest("restore", "job", "copy", cwd=tmp_path).stderr)
        return keep(ledger, draft)

    monkeypatch.setattr(backup, "_keep", keep_while_another_starts)
    restore(ledger_of(tmp_path), tmp_path / "copy")
    assert second == ["error: job/ledger.sqlite: another `fedlatest restore` is replacing it; wait until it is done\n"]


def test_restore_while_another_program_reads(job: Job, tmp_path: Path) -> None:
    """A long audit holds a snapshot; nothing changes until it has ended."""
    ledger = ledger_of(tmp_path)
    subprocess.run([sys.executable, "-c", NEXT_ROUND, str(ledger)], check=False)
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    with Database.open_for_reading(ledger) as reader, pytest.MonkeyPatch.context() as patch, reader.read():
        before = reader.rows("SELECT round FROM state")
        patch.setattr(sqlite3, "connect", lambda *arguments, **more: connect(*arguments, **{**more, "timeout": 0.0}))
        assert "could not be replaced, and is as it was (database is locked)" in refused(ledger, tmp_path / "copy")
        assert before == reader.rows("SELECT round FROM state") == [(3,)]
    assert content(ledger)["state"][0][0] == 3


def test_overlapping_backups(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one says what the matter is, and leaves the file of the first one alone."""
    second: list[str] = []
    hash_of = backup._hash_of

    def hash_while_another_starts(path: Path) -> str:
        second.append(fedlatest("backup", "job", "twice", cwd=tmp_path).stderr)
        return hash_of(path)

    monkeypatch.setattr(backup, "_hash_of", hash_while_another_starts)
    back_up(ledger_of(tmp_path), tmp_path / "twice")
    assert second == [
        "error: twice: another `fedlatest backup` is writing it; wait until it is done, or choose another name\n"
    ]
    monkeypatch.undo()
    restore(ledger_of(tmp_path), tmp_path / "twice")


def test_many_backups_to_one_file_at_once(job: Job, tmp_path: Path) -> None:
    """One of eight processes writes it; the draft that a killed process has left does not matter."""
    (tmp_path / ".many.backup").mkdir()
    (tmp_path / ".many.backup" / "copy-journal").write_bytes(b"journal of a killed process")
    program = (
        "import sys\nfrom pathlib import Path\nfrom fedlatest.ledger.backup import back_up\nsys.stdin.readline()\n"
        "try:\n    back_up(Path('job/ledger.sqlite'), Path('many'))\n    print('done')\n"
        "except Exception as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", program]
    processes = [
        subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    found = sorted(process.communicate(timeout=240)[0].strip() for process in processes)
    assert found.count("done") == 1
    assert all("already exists" in text or "is writing it" in text for text in found if text != "done"), found
    assert restore(ledger_of(tmp_path), tmp_path / "many").has_hash
    assert sorted(path.name for path in tmp_path.glob("*many*")) == ["many", "many.sha256"]


def test_backup_of_a_damaged_ledger_is_refused(tmp_path: Path) -> None:
    """A flipped bit in an array, which SQLite does not notice; the older backups are better than this one."""
    ledger = ledger_of(tmp_path)
    job = Job("a", database=Database.open(ledger))
    job.round({"a": [777777, 2]})
    job.ledger.close()
    stored, damaged = (np.array([number, 2], "<i8").tobytes() for number in (777777, 777776))
    ledger.write_bytes(ledger.read_bytes().replace(stored, damaged))
    with pytest.raises(LedgerError, match=r"ledger.sqlite: is damaged \(the array 'total' of 'sum' has another checks"):
        back_up(ledger, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_missing_part_of_an_array_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part has a checksum of its own, so the others are not enough."""
    monkeypatch.setattr("fedlatest.ledger.database.CHUNK", 8)
    ledger, hashed = ledger_of(tmp_path), hash_file(tmp_path / "copy")
    job = Job("a", database=Database.open(ledger))
    job.round({"a": [7, 2]})
    job.ledger.close()
    back_up(ledger, tmp_path / "copy")
    hashed.unlink()
    for chunk in (8, 0):
        shutil.copyfile(tmp_path / "copy", tmp_path / "cut")
        with closing(sqlite3.connect(tmp_path / "cut", isolation_level=None)) as connection:
            connection.execute("DELETE FROM arrays WHERE owner = 'sum' AND chunk = ?", (chunk,))
            with pytest.raises(LedgerError, match="is incomplete"):
                Database(connection).get_arrays("sum")
        assert "the array 'total' of 'sum'" in refused(ledger, tmp_path / "cut")


def test_interrupted_restore_leaves_no_files(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(ledger: Path) -> None:
        raise KeyboardInterrupt

    before = content(ledger_of(tmp_path))
    monkeypatch.setattr(backup, "_write_log_into_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        restore(ledger_of(tmp_path), tmp_path / "copy")
    assert content(ledger_of(tmp_path)) == before
    assert not (tmp_path / "job/.restore").exists()
    job.database = Database.open(ledger_of(tmp_path))  # it is not locked any more
    job.database.close()
