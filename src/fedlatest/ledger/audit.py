"""The audit: checks that the sum equals the updates that the ledger says are in it, exactly."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlatest.errors import LedgerError
from fedlatest.ledger.client_store import ClientStore
from fedlatest.ledger.database import ClientRow, ClientTable, Database
from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.messages import Ticket


class Audit(NamedTuple):
    """The result of an audit."""

    round: int
    epoch: int
    memory: str  # where the updates are stored, as in `JobConfig`
    num_clients: int
    in_sum: list[str]  # clients whose updates are in the sum, according to the ledger
    unreached: list[str]  # those of them whose update was not found in any store
    damaged: list[str]  # those of them whose update does not have the digest in the ledger
    max_difference: int | None  # in units, between the sum and the updates; None if updates were not found

    @property
    def holds(self) -> bool:
        """Whether the sum was shown to equal the updates."""
        return self.max_difference == 0 and not self.damaged


def audit(path: Path | str, stores: Iterable[ClientStore] = ()) -> Audit:
    """Compare a ledger's sum with the updates it consists of.

    The audit reads one snapshot of the ledger, also while a server is running.

    Args:
        path: the ledger's file.
        stores: the stores of the clients; unused if the server stores the updates.

    Raises:
        LedgerError: `path` is not a ledger.
    """
    if not Path(path).is_file():
        raise LedgerError(f"{path}: there is no ledger")
    database = Database.open(path)
    try:
        if database.is_new:
            raise LedgerError(f"{path}: there is no ledger")
        with database.read():
            [(job,)] = database.rows("SELECT id FROM job")
            [(memory,)] = database.rows("SELECT json_extract(config, '$.memory') FROM job")
            [(round, epoch)] = database.rows("SELECT round, epoch FROM state")
            clients = ClientTable(database).all()
            in_sum = [client for client in clients if client.applied is not None]
            if memory == "server":
                updates = {c.id: database.get_arrays(f"client {c.number}").get("value") for c in in_sum}
            else:
                updates = _find_in_stores(job, in_sum, stores)
            rest = database.get_arrays("sum")["total"].copy()
    finally:
        database.close()
    if memory == "none":
        return Audit(round, epoch, memory, len(clients), [], [], [], int(np.abs(rest).max(initial=0)))
    damaged = [c.id for c in in_sum if (u := updates.get(c.id)) is not None and digest_of(u) != c.digest]
    unreached = [client.id for client in in_sum if updates.get(client.id) is None]
    for update in updates.values():
        rest -= 0 if update is None else update
    difference = None if unreached else int(np.abs(rest).max(initial=0))
    return Audit(round, epoch, memory, len(clients), [c.id for c in in_sum], unreached, damaged, difference)


def _find_in_stores(job: str, in_sum: list[ClientRow], stores: Iterable[ClientStore]) -> dict[str, FixedPoint | None]:
    applied: dict[str, Ticket | None] = {client.id: client.applied for client in in_sum}
    found: dict[str, FixedPoint | None] = {}
    for store in stores:
        state = store.load(job)
        ticket = applied.get(state.client) if state else None
        if state and ticket is not None and ticket in state.tickets:
            found[state.client] = store.load_update(job, ticket)
    return found
