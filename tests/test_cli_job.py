"""The commands on the ledger of a job: audit, expel, epoch, trace, backup and restore."""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedlatest import load_digits
from fedlatest.delays import read_delays
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.ledger import FolderStorage, JobConfig
from fedlatest.ledger.database import Database, create_job
from fedlatest.ledger.durations import RoundTasks, Task
from fedlatest.privacy import NoisePlan
from tests.command_line import fedlatest, fedlatest_here, next_command
from tests.ledger.faults import FaultyStorage
from tests.ledger.job import ARRAYS, LAYOUT, Job

SERVER = """
import sys
from tests.ledger.job import Job
from fedlatest.ledger.database import Database
job = Job("a", database=Database.open(sys.argv[1]))
job.round({"a": [1, 2]})
print("ready", flush=True)
sys.stdin.readline()
job.round({"a": [3, 4]})
print(job.ledger.round, flush=True)
job.ledger.close()
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """Return a job with the clients a, whose key is named [kitchen], and b; a has contributed [1, 2]."""
    (tmp_path / "job").mkdir()
    job = Job("a", "b", database=Database.open(tmp_path / "job/ledger.sqlite"), memory="server")
    job.ledger.handle_hello(job.hello("a"), name="[kitchen]")
    job.round({"a": [1, 2]})
    yield job
    job.database.close()


def test_restore_is_refused_while_a_server_process_runs(tmp_path: Path) -> None:
    """The server closes another round after the refusal; after its end, the copy of round 1 is restored."""
    folder = tmp_path / "job"
    folder.mkdir()
    command = [sys.executable, "-c", SERVER, str(folder / "ledger.sqlite")]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        assert fedlatest("backup", "job", "copy", cwd=tmp_path).returncode == 0
        refused = fedlatest("restore", "job", "copy", cwd=tmp_path)
        assert (refused.returncode, refused.stderr) == (
            1,
            "error: job/ledger.sqlite: a server is using it; stop the server first\n",
        )
        server.stdin.write("\n")
        server.stdin.flush()
        assert server.stdout.readline() == "2\n"
    restored = fedlatest_here("restore", "job", "copy", cwd=tmp_path)
    assert (restored.returncode, restored.stderr) == (0, "")
    database = Database.open(folder / "ledger.sqlite")
    assert database.rows("SELECT round FROM state") == [(1,)]
    database.close()


def test_missing_ledger_of_a_deployment_is_restored(job: Job, tmp_path: Path) -> None:
    """`restore` gets the folder of the deployment, which has no ledger any more."""
    assert fedlatest_here("backup", ".", "copy", cwd=tmp_path).returncode == 0
    job.ledger.close()
    (tmp_path / "job/ledger.sqlite").unlink()
    done = fedlatest_here("restore", ".", "copy", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert fedlatest_here("audit", ".", cwd=tmp_path).returncode == 0


def test_audit_lists_the_clients(job: Job, tmp_path: Path) -> None:
    """A name in brackets is not markup."""
    done = fedlatest_here("audit", "job", cwd=tmp_path)
    assert done.stdout == (
        "job/ledger.sqlite: 1 rounds, epoch 1, 2 clients\n"
        "  a ([kitchen]): weight 1, last took part in round 0\n"
        "  b: weight 1, has not contributed\n"
        "in the sum: 1 clients; read from the server's copies\n"
        "the sum equals the updates exactly\n"
    )
    assert done.returncode == 0
    (tmp_path / "job/run").mkdir()
    assert next_command(fedlatest_here("audit", "job", cwd=tmp_path)) == ["report", "job/run"]


def test_audit_prints_the_privacy_budget(tmp_path: Path) -> None:
    limits = {"rounds": 4, "min_separation": 2, "max_participations": 2}
    plan = NoisePlan(
        mechanism="independent", epsilon=2.0, delta=1e-5, clip_norm=9.0, sensitivity=1.4, noise_multiplier=3.0,
        coefficients=(1.0,), spent=((2, 1.25), (4, 2.0)), **limits,
    )  # fmt: skip
    database = Database.open(tmp_path / "ledger.sqlite")
    config = JobConfig("fedavg", memory="none", unit=1.0, clip_norm=9.0, privacy=limits)
    create_job(database, config, LAYOUT, ARRAYS, noise_plan=plan.as_dict())
    job = Job(database=database, memory="none", clip_norm=9.0, privacy=limits, algorithm="fedavg")
    job.storages["a"] = FaultyStorage()
    job.exchange_hello("a")
    job.round({"a": [1, 2]})
    database.close()
    done = fedlatest_here("audit", str(tmp_path), cwd=tmp_path)
    assert (
        "privacy: at most epsilon 1.25 of 2 is spent (delta 1e-05), after 1 of 4 rounds\n"
        "limits of a client: 2 rounds, at least 2 apart; the most that one has taken part in is 1\n"
    ) in done.stdout
    assert done.returncode == 0


def test_many_clients_are_listed_on_request(job: Job, tmp_path: Path) -> None:
    with job.ledger.batch():
        for number in range(30):
            job.ledger.table.add(f"client-{number}\x1b[2J", 1.0, 0.0)
    done = fedlatest_here("audit", "job", cwd=tmp_path)
    assert "client-7" not in done.stdout
    assert "  --clients lists the 32 clients\n" in done.stdout
    listed = fedlatest_here("audit", "job", "--clients", cwd=tmp_path).stdout
    assert "  client-7\\x1b[2J: weight 1, has not contributed\n" in listed
    assert "\x1b" not in listed


def test_audit_prints_wrong_weights(tmp_path: Path) -> None:
    job = Job("a", database=Database.open(tmp_path / "ledger.sqlite"))
    job.storages["a"] = FolderStorage(tmp_path / "state")  # type: ignore[assignment]
    job.round({"a": [1, 2]})
    with job.database.write():
        job.database.execute("UPDATE clients SET weight = 1000")
    job.database.close()
    done = fedlatest_here("audit", ".", "--store", "state", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "a: its update has another weight than in the ledger\n"


def test_expel_and_readmit_a_client(job: Job, tmp_path: Path) -> None:
    """By the name of its key; the server is running."""
    done = fedlatest_here("expel", "job", "[kitchen]", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "[kitchen] (a): is expelled; the server removes it after the current round, or when it starts\n",
    )
    assert job.ledger.remove_expelled() == ["a"]
    assert "  a: expelled\n" in fedlatest_here("audit", "job", cwd=tmp_path).stdout
    done = fedlatest_here("expel", "job", "a", "--undo", cwd=tmp_path)
    assert done.stdout == "a: is readmitted; it joins again when the server asks it\n"
    assert job.ledger.remove_expelled() == []
    assert job.exchange_hello("a").outcome == "joined"


def test_epoch_ends_after_the_round(job: Job, tmp_path: Path) -> None:
    """The server is running."""
    done = fedlatest_here("epoch", "job", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "epoch 1 ends: the server starts a new one after the current round, or when it starts\n",
    )
    assert job.ledger.end_epoch_if_requested()
    assert job.ledger.epoch.number == 2


def test_expel_of_an_unknown_client(job: Job, tmp_path: Path) -> None:
    done = fedlatest_here("expel", "job", "[attic]", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        "error: [attic]: no client of the job has this id or name; `fedlatest audit` lists the clients\n",
    )


def test_commands_that_read_work_in_a_folder_that_cannot_be_written(job: Job) -> None:
    """As another user than root, who may write everywhere."""
    job.close_round(available=["a"])
    job.ledger.close()
    assert job.database.path is not None
    with tempfile.TemporaryDirectory() as name:
        folder, target = Path(name, "job"), Path(name, "target")
        folder.mkdir()
        target.mkdir()
        shutil.copyfile(job.database.path, folder / "ledger.sqlite")
        for path, mode in ((folder / "ledger.sqlite", 0o444), (folder, 0o555), (target, 0o777), (Path(name), 0o755)):
            path.chmod(mode)
        program = (
            "import os, sys\n"
            "import fedlatest.flower.recorded_availability, fedlatest.ledger.audit, fedlatest.ledger.job_folder\n"
            "import fedlatest.availability.trace_files\n"
            "from fedlatest.cli import main\n"
            "from fedlatest.cli.app import out\n"
            "out.print('start')\n"
            "if os.getuid() == 0:\n"
            "    os.setuid(65534)\n"
            "main()\n"
        )
        for arguments in ("audit job", "trace job --out target/trace.csv", "backup job target/copy"):
            command = [sys.executable, "-c", program, *arguments.split()]
            done = subprocess.run(command, capture_output=True, text=True, cwd=name, check=False)
            assert (done.returncode, done.stderr) == (0, ""), arguments
        folder.chmod(0o755)


def test_empty_ledger_with_a_past_does_not_start_a_new_job(tmp_path: Path) -> None:
    """The server refuses before it touches the metrics of the rounds that the lost ledger had."""
    from fedlatest.errors import LedgerError
    from fedlatest.flower import FedLaAvg, LocalGrid, Timeouts, client_app, to_record
    from tests.flower.small_job import INITIAL, towards

    def start() -> None:
        grid = LocalGrid()
        grid.add(client_app(towards(1)), {"state-dir": str(tmp_path / "a"), "name": "a"})
        strategy = FedLaAvg(job=tmp_path / "job", cohort_size=1, timeouts=Timeouts(poll=0.001))
        strategy.start(grid, to_record(INITIAL), num_rounds=3)

    start()
    metrics, events = (tmp_path / "job" / name for name in ("run/metrics.csv", "events.jsonl"))
    before = metrics.read_bytes(), events.read_bytes()
    for lose in (lambda path: path.write_bytes(b""), Path.unlink):
        lose(tmp_path / "job/ledger.sqlite")
        with pytest.raises(LedgerError, match=r"is missing or empty, but events\.jsonl beside it records the job"):
            start()
        assert (metrics.read_bytes(), events.read_bytes()) == before


def test_trace_writes_delays(tmp_path: Path) -> None:
    """a takes 4 and 6 s, of which it trains for 1 and 3; b has no upload and gets the medians of a."""
    (tmp_path / "job").mkdir()
    job = Job("a", "b", database=Database.open(tmp_path / "job/ledger.sqlite"))
    refused = fedlatest_here("trace", "job", "--delays", "delays.csv", cwd=tmp_path)
    assert refused.returncode == 1
    assert "no client has been available in any round yet" in refused.stderr
    for round, (seconds, training) in enumerate([(4.0, 1.0), (6.0, 3.0)]):
        asked, job.time = job.time, job.time + 10.0
        task = Task(round, "a", asked, asked + seconds, training, "accepted")
        job.close_round(available=["a"], tasks=RoundTasks(asked, 1, 60.0, (), [task, Task(round, "b", asked)]))
    job.database.close()
    done = fedlatest_here("trace", "job", "--delays", "delays.csv", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    recipe, *options = next_command(done)[1:]
    with contextlib.chdir(tmp_path):
        for experiment in RECIPES[recipe].experiments(options[1::2]):
            experiment.spec(FederationBuilder(load_digits()))
    assert "delays: delays.csv (medians of 1 clients; the other 1 have the medians of these)" in done.stdout
    stages = read_delays(tmp_path / "delays.csv").stages(0, np.arange(2), 0)
    assert [stage.tolist() for stage in stages] == [[1.5, 1.5], [2.0, 2.0], [1.5, 1.5]]
