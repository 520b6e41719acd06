"""The audit: checks that the sum equals the updates that the ledger says are in it, exactly."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedlatest.ledger.client_store import ClientStore
from fedlatest.ledger.client_table import ClientRow, ClientTable
from fedlatest.ledger.database import Database, read_noise_plan
from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.linear_checksum import LinearChecksum


class Audit(NamedTuple):
    """The result of an audit."""

    round: int
    epoch: int
    memory: str  # where the updates are stored, as in `JobConfig`
    num_clients: int
    in_sum: list[str]  # clients whose updates are in the sum, according to the ledger
    unreached: list[str]  # those of them whose update was not found in any store
    damaged: list[str]  # those of them whose update is not the one that they have added, by digest or checksum
    wrong_weight: list[str]  # those of them whose update has another weight in their store than in the ledger
    max_difference: int | None  # in units, between the sum and the updates; None if updates were not found
    clients: list[ClientRow]  # all clients of the job
    expelled: list[str]  # clients that an operator has expelled
    releases: int = 0  # rounds that were released, including those that a restore has undone
    noise_plan: Mapping[str, Any] | None = None  # of a private job
    largest_count: int = 0  # participations of the client that took part most often, former clients included

    @property
    def holds(self) -> bool:
        """Whether the sum was shown to equal the updates, and the weights in the ledger those of the updates."""
        return self.max_difference == 0 and not self.damaged and not self.wrong_weight


def audit(path: Path | str, stores: Iterable[ClientStore] = ()) -> Audit:
    """Compare a ledger's sum with the updates it consists of.

    The audit reads one snapshot of the ledger, also while a server is running.

    Args:
        path: the ledger's file.
        stores: the stores of the clients; unused if the server stores the updates.

    Raises:
        LedgerError: `path` is not a ledger.
    """
    with Database.open_for_reading(path) as database:
        return database.snapshot(lambda: _with_budget(_audit(database, stores), database))


def _with_budget(found: Audit, database: Database) -> Audit:
    """Add what was spent of the privacy budget."""
    [(releases,)] = database.rows("SELECT releases FROM state")
    [(largest,)] = database.rows("SELECT COALESCE(MAX(participations), 0) FROM clients")
    return found._replace(releases=releases, noise_plan=read_noise_plan(database), largest_count=largest)


def _audit(database: Database, stores: Iterable[ClientStore]) -> Audit:
    [(job,)] = database.rows("SELECT id FROM job")
    [(memory,)] = database.rows("SELECT json_extract(config, '$.memory') FROM job")
    [(round, epoch)] = database.rows("SELECT round, epoch FROM state")
    clients = ClientTable(database).all()
    expelled = [client for (client,) in database.rows("SELECT client FROM expelled ORDER BY client")]
    in_sum = [client for client in clients if client.applied is not None]
    if memory == "none":
        total = database.get_arrays("sum")["total"]
        difference = int(np.abs(total).max(initial=0))
        return Audit(round, epoch, memory, len(clients), [], [], [], [], difference, clients, expelled)
    stored = _updates_at_server(database, in_sum) if memory == "server" else _updates_in_stores(job, in_sum, stores)
    rest = database.get_arrays("sum")["total"]
    [(seed,)] = database.rows("SELECT checksum_seed FROM job")
    [(secure,)] = database.rows("SELECT json_extract(config, '$.secure') IS NOT NULL FROM job")
    checksum, verifies = LinearChecksum(seed), memory == "client" and not secure
    rows = {client.id: client for client in in_sum}
    weights: dict[str, float] = {}  # of the clients whose update was found
    others = set()  # clients whose update is not the one that they have added
    for client, update, weight, salt in stored:  # one at a time: all of them may not fit into memory
        if client not in weights:
            rest -= update
            weights[client] = weight
            row = rows[client]
            # A digest is a claim; the checksum is of what was added.
            has_other_checksum = verifies and row.checksum not in (None, checksum.of(update))
            if digest_of(update, salt) != row.digest or has_other_checksum:
                others.add(client)
    damaged = [client.id for client in in_sum if client.id in others]
    wrong_weight = [client.id for client in in_sum if weights.get(client.id, client.weight) != client.weight]
    unreached = [client.id for client in in_sum if client.id not in weights]
    largest = None if unreached else int(np.abs(rest).max(initial=0))
    names = [client.id for client in in_sum]
    problems = (unreached, damaged, wrong_weight)
    return Audit(round, epoch, memory, len(clients), names, *problems, largest, clients, expelled)


_Stored = Iterator[tuple[str, FixedPoint, float, str]]  # a client, its update, its weight and the salt of the digest


def _updates_at_server(database: Database, in_sum: list[ClientRow]) -> _Stored:
    for client in in_sum:
        update = database.get_arrays(f"client {client.number}").get("value")
        if update is not None:
            yield client.id, update, client.weight, ""


def _updates_in_stores(job: str, in_sum: list[ClientRow], stores: Iterable[ClientStore]) -> _Stored:
    """Yield the updates in the sum, as the clients store them."""
    applied = {client.id: client.applied for client in in_sum}
    for store in stores:
        state = store.load(job, verify=False)
        for stored in state.updates if state else ():
            assert state is not None
            if stored.ticket == applied.get(state.client):
                update = store.read_update(job, stored)
                if update is not None:
                    yield state.client, update, stored.weight, stored.salt
