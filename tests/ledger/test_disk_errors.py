"""Full disks, damaged pages, folders without write permission and shared state folders: an explanation of one line."""

import ctypes
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import LedgerError
from fedlatest.files import acquire_lock, release_lock
from fedlatest.flower import FedLaAvg, LocalGrid, Timeouts, client_app, to_record
from fedlatest.ledger import ClientStore, FolderStorage, JobConfig, Layout, Ledger, LocalUpdate, handle_instruction
from fedlatest.ledger.audit import audit
from fedlatest.ledger.backup import back_up
from fedlatest.ledger.database import Database
from fedlatest.ledger.event_log import append_event
from fedlatest.ledger.job_config import hash_of
from fedlatest.ledger.job_folder import check_not_lost, expel
from fedlatest.ledger.messages import Epoch, Instruction, Ticket
from tests.flower.small_job import INITIAL, towards
from tests.ledger.job import ARRAYS, Job


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Return a file system of 1 MiB."""
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as folder:
        if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=1m"):
            pytest.skip(f"no file system can be mounted ({os.strerror(ctypes.get_errno())})")
        try:
            yield Path(folder)
        finally:
            libc.umount2(folder.encode(), 2)


def _fill(disk: Path) -> Path:
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY)
    with suppress(OSError):
        while True:
            os.write(descriptor, b"x" * 4096)
    os.close(descriptor)
    return filler


def _one_line(error: pytest.ExceptionInfo[LedgerError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("file_bytes", [2**20, 1])
def test_full_disk_at_the_server(small_disk: Path, file_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round is refused as a whole; when there is space again, the same server goes on."""
    monkeypatch.setattr("fedlatest.ledger.database.FILE_BYTES", file_bytes)
    layout = Layout.of({"x": np.zeros(20_000, np.float32)})
    arrays = {"x": np.zeros(20_000, np.float32)}
    options: Any = {"config": JobConfig("fedlaavg", unit=1.0), "layout": layout, "arrays": lambda: arrays}
    ledger = Ledger.open(small_disk / "ledger.sqlite", **options)
    ledger.close_round(arrays)
    filler = _fill(small_disk)

    def close_rounds() -> None:
        for _ in range(20):
            ledger.close_round(arrays)

    with pytest.raises(LedgerError) as error:
        close_rounds()
    assert any(hint in _one_line(error) for hint in ("the disk is full; free some space", "No space left on device"))
    closed = ledger.round
    filler.unlink()
    ledger.close_round(arrays)
    assert ledger.round == closed + 1
    ledger.close()
    again = Ledger.open(small_disk / "ledger.sqlite", **options)
    assert again.round == closed + 1
    again.close()


def test_full_disk_during_a_backup_leaves_nothing(tmp_path: Path, small_disk: Path) -> None:
    job = Job("a", database=Database.open(tmp_path / "ledger.sqlite"))
    with job.database.write():
        job.database.put_arrays("server", {"x": np.zeros(2**18, np.float32)})
        job.database.put_arrays("other", {"x": np.zeros(2**18 - 1, np.float32)})
    with pytest.raises(LedgerError) as error:
        back_up(tmp_path / "ledger.sqlite", small_disk / "copy")
    assert "full" in _one_line(error)
    assert list(small_disk.iterdir()) == []


def test_full_disk_at_a_client(small_disk: Path) -> None:
    """The client replies that it failed, keeps its update in the sum, and takes part when there is space again."""
    job = Job()
    job.storages["a"] = FolderStorage(small_disk / "state")  # type: ignore[assignment]
    job.exchange_hello("a")
    assert job.round({"a": [1, 2]}) == ["accepted"]
    filler = _fill(small_disk)
    reply = job.reply(job.issue("a"), 3, 4)
    assert reply.kind == "failed"
    assert "No space left on device" in reply.why
    filler.unlink()
    assert job.round({"a": [5, 6]}) == ["accepted"]
    assert job.total == [5, 6]


def test_full_disk_ends_a_run_with_its_cause(small_disk: Path, tmp_path: Path) -> None:
    """The event log cannot be written either, which must not hide why the run ended."""
    grid = LocalGrid()
    grid.add(client_app(towards(1)), {"state-dir": str(tmp_path / "a"), "name": "a"})
    filled: list[Path] = []

    def fill() -> None:
        if not filled and (small_disk / "job/run/metrics.csv").exists():
            filled.append(_fill(small_disk))

    grid.before_pull = fill
    strategy = FedLaAvg(job=small_disk / "job", cohort_size=1, timeouts=Timeouts(poll=0.001))
    with pytest.raises(Exception, match=r"the disk is full|No space left") as error:
        strategy.start(grid, to_record(INITIAL), num_rounds=2000)
    assert not isinstance(error.value, OSError)
    filled[0].unlink()
    rounds = audit(small_disk / "job/ledger.sqlite", [ClientStore(FolderStorage(tmp_path / "a"))])
    assert rounds.holds


def test_limited_file_size_is_explained(tmp_path: Path) -> None:
    """A quota, which SQLite reports as an error of input or output."""
    program = (
        "import resource, signal, sys\n"
        "from fedlatest.errors import LedgerError\n"
        "from tests.ledger.job import ARRAYS, Job\n"
        "from fedlatest.ledger.database import Database\n"
        "job = Job(database=Database.open(sys.argv[1]))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17))\n"
        "try:\n"
        "    while True:\n"
        "        job.ledger.close_round(ARRAYS)\n"
        "except LedgerError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "ledger.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    assert "all closed rounds are saved" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_damaged_pages_are_reported(tmp_path: Path) -> None:
    """Random bytes over each page but the first: the server does not start, and every command says what to do."""
    path = tmp_path / "ledger.sqlite"
    job = Job(*(f"client-{number}" for number in range(60)), database=Database.open(path))
    for _ in range(5):
        job.close_round()
    job.ledger.close()
    content, noise = path.read_bytes(), random.Random(0)
    for page in range(1, len(content) // 4096):
        start = 4096 * page
        damaged = content[:start] + noise.randbytes(4096) + content[start + 4096 :]
        path.write_bytes(damaged)
        job.database = Database.open(path)
        with pytest.raises(LedgerError, match="restore a backup with `fedlatest restore`") as error:
            job.open()
        _one_line(error)
        job.database.close()


def test_damaged_header_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Job(database=Database.open(path)).ledger.close()
    path.write_bytes(b"x" * 100 + path.read_bytes()[100:])
    for command in (audit, Database.open, lambda path: back_up(path, tmp_path / "copy"), lambda path: expel(path, "a")):
        with pytest.raises(LedgerError, match=r"cannot be opened as a ledger \(file is not a database\)") as error:
            command(path)
        _one_line(error)


def test_database_without_a_job_but_with_a_past_is_refused(tmp_path: Path) -> None:
    """Some tool has opened the empty file with SQLite, so it is no longer empty."""
    path = tmp_path / "ledger.sqlite"
    Database.open(path).close()
    assert path.stat().st_size > 0
    check_not_lost(path)
    append_event(tmp_path / "events.jsonl", "round", round=7, job="f" * 32)
    with pytest.raises(LedgerError, match=f"records the job {'f' * 32}"):
        check_not_lost(path)


def test_many_threads_with_one_state_folder(tmp_path: Path) -> None:
    """8 threads answer 3000 instructions on one folder at the same time: all give a reply, nothing is raised."""
    num_threads = 8
    identity = ("a" * 32, Epoch(1, "e"), hash_of({"memory": "client"}), "layout", "me")
    settings = {"memory": "client", "size": 2}
    numbers, lock = iter(range(1, 10**6)), threading.Lock()
    kinds: Counter[str] = Counter()

    def answer(seed: int) -> None:
        store, choose = ClientStore(FolderStorage(tmp_path)), random.Random(seed)
        for _ in range(375):
            with lock:
                number = next(numbers)
            hello = choose.random() < 0.3
            instruction = Instruction(
                "hello" if hello else "train", *identity, round=number,
                ticket=None if hello else Ticket(number, f"{number:x}"), settings=settings,
            )  # fmt: skip
            update = LocalUpdate(np.array([number, 0], np.int32), 1.0, {})
            reply = handle_instruction(store, instruction, train=partial(copy, update))
            with lock:
                kinds[reply.kind] += 1
                if reply.kind == "failed":
                    assert "another instruction was handled in the meantime" in reply.why, reply.why

    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(answer, range(num_threads)))
    assert sum(kinds.values()) == 375 * num_threads
    assert set(kinds) <= {"hello", "upload", "failed", "ahead", "lost"}
    assert kinds["upload"] > 100
    state = ClientStore(FolderStorage(tmp_path)).load("a" * 32)
    assert state is not None
    assert len(state.updates) == 1
    assert sorted(path.suffix for path in (tmp_path / ("a" * 32)).iterdir()) == [".json", ".value"]


def test_unreadable_state_gives_a_reply(tmp_path: Path) -> None:
    """The state is a folder instead of a file."""
    job = Job()
    job.storages["a"] = FolderStorage(tmp_path)  # type: ignore[assignment]
    (tmp_path / job.ledger.job / "state.json").mkdir(parents=True)
    reply = job.hello("a")
    assert reply.kind == "failed"
    assert "state.json: cannot be read (Is a directory)" in reply.why


def test_ledger_that_could_not_be_opened_is_unlocked(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    job = Job(database=Database.open(path))
    job.ledger.close()
    with pytest.raises(LedgerError, match="use another job folder"):
        Ledger.open(path, config=JobConfig("other"), layout=job.ledger.layout, arrays=lambda: ARRAYS)
    release_lock(acquire_lock(tmp_path))  # raises BlockingIOError if it is locked
