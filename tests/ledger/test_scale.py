"""What a round writes depends on the cohort, not on the number of clients."""

import logging
import random
from pathlib import Path

import jax
import pytest

from fedlatest.flower.server_algorithm import select
from fedlatest.ledger import ClientStore
from fedlatest.ledger.checks import MAX_ID_LENGTH
from fedlatest.ledger.client import handle_instruction
from fedlatest.ledger.database import Database
from fedlatest.ledger.durations import RoundTasks, Selection
from tests.flower.small_job import SmallJob
from tests.ledger.faults import FaultyStorage
from tests.ledger.job import Job

COHORT = 5


def _job(path: Path, num_clients: int) -> Job:
    job = Job(database=Database.open(path))
    job.database.connection.execute("PRAGMA wal_autocheckpoint = 0")  # the log then has all that was written
    job.storages = {f"{number:0{MAX_ID_LENGTH // 4}}": FaultyStorage() for number in range(num_clients)}
    with job.ledger.batch():
        for client in job.storages:
            job.exchange_hello(client)
    return job


def _bytes_of_a_round(job: Job, path: Path) -> int:
    """Run rounds with all clients reachable, and return what each of the later ones adds to the log, on average."""
    clients = list(job.storages)
    sizes = []
    for round in range(6):
        sizes.append(path.with_name(path.name + "-wal").stat().st_size)
        for client in clients[COHORT * round : COHORT * (round + 1)]:
            assert job.upload(client, round, 1).outcome == "accepted"
        job.close_round(available=clients, reachable=clients)
    return (sizes[-1] - sizes[1]) // (len(sizes) - 2)


def test_log_of_a_round_does_not_grow_with_the_number_of_clients(tmp_path: Path) -> None:
    written = {}
    for num_clients in (50, 2000):
        path = tmp_path / f"{num_clients}.sqlite"
        job = _job(path, num_clients)
        written[num_clients] = _bytes_of_a_round(job, path)
        job.ledger.close()
    assert 0 < written[2000] < 3 * written[50], written


def _events_of_a_round(folder: Path, num_clients: int) -> int:
    """Return the bytes of the events of a round with a, b, c and `num_clients` clients that do not reply."""
    job = SmallJob(folder, cohort_size=COHORT)
    job.loop.wait_for_clients(3, timeout=30)
    with job.ledger.batch():
        for number in range(num_clients):
            hello = job.ledger.instruction(f"other-{number}", "hello")
            job.ledger.handle_hello(handle_instruction(ClientStore(FaultyStorage()), hello, train=pytest.fail))
            job.messages.identify(number, f"other-{number}")
    nodes = set(range(num_clients))
    refresh = job.messages.refresh_nodes

    def refresh_nodes() -> list[tuple[int, str]]:
        found = refresh()
        job.messages.online |= nodes
        return found

    job.messages.refresh_nodes = refresh_nodes  # type: ignore[method-assign]
    path = folder / "job/events.jsonl"
    before = path.stat().st_size
    job.run_round()
    return path.stat().st_size - before


def test_events_of_a_round_do_not_grow_with_the_number_of_clients(tmp_path: Path) -> None:
    few, many = (_events_of_a_round(tmp_path / str(number), number) for number in (50, 2000))
    assert 0 < many < 3 * few, (few, many)


def test_sets_of_clients_of_a_round_take_at_most_a_bit_per_client(tmp_path: Path) -> None:
    """A random half of 4000 clients is available: 500 bytes, and few for contacts, cohort and candidates."""
    path, draw = tmp_path / "ledger.sqlite", random.Random(0)
    job = _job(path, 4000)
    clients = list(job.storages)
    available = draw.sample(clients, 2000)
    reachable = [*available, *draw.sample(clients, 20)]
    selection = Selection(job.ledger.uptime, COHORT, available[:-20])
    job.upload(available[0], 1, 2)
    job.close_round(available=available, reachable=reachable, tasks=RoundTasks(0.0, COHORT, 60.0, (selection,)))
    query = "SELECT LENGTH(available), LENGTH(took_part) + LENGTH(reachable) + LENGTH(selections) FROM rounds, tasks"
    [(of_the_available, of_the_others)] = job.database.rows(query)
    assert of_the_available < 4000 / 8 + 20
    assert of_the_others < 200


def test_clients_that_join_do_not_make_jax_compile_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A cohort is selected from 20 to 40 clients: the same programs for up to 32 of them, and others for more."""
    jax.clear_caches()
    job = SmallJob(tmp_path, cohort_size=COHORT)
    compiled = []
    for number in range(40):
        hello = job.ledger.instruction(f"c{number}", "hello")
        job.ledger.handle_hello(handle_instruction(ClientStore(FaultyStorage()), hello, train=pytest.fail))
        if number < 19:
            continue
        everyone = [client.id for client in job.ledger.clients()]
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            selected = select(job.strategy.algorithm, job.ledger, job.loop.arrays, everyone, cohort_size=COHORT)
        assert len(set(selected)) == COHORT
        if any("Finished XLA compilation" in record.message for record in caplog.records):
            compiled.append(len(everyone))
    assert compiled == [20, 33]
