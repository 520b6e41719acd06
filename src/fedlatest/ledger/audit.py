"""The proof: the sum equals the values that the ledger says are in it, to the last bit."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedlatest.errors import LedgerError
from fedlatest.ledger.client_store import ClientStore
from fedlatest.ledger.database import Database
from fedlatest.ledger.fixed_point import Vector
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.membership import Member, Roster
from fedlatest.ledger.messages import Ticket


class Audit(NamedTuple):
    """What an audit found. `off` is the largest difference in units; None if a value could not be looked at."""

    round: int
    epoch: int
    memory: str
    num_members: int
    in_sum: list[str]  # clients whose values the ledger says are in the sum
    unreached: list[str]  # of these, whose value was not at hand
    damaged: list[str]  # whose value is not the one that the ledger names
    off: int | None

    @property
    def holds(self) -> bool:
        """Whether the sum was proved equal to the values."""
        return self.off == 0 and not self.damaged


def audit(path: Path | str, stores: Iterable[ClientStore] = ()) -> Audit:
    """Compare a ledger's sum with the values it is made of: its own copies, or those in clients' stores."""
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
            members = Roster(database).members()
            counted = [member for member in members if member.applied is not None]
            if memory == "server":
                values = {m.client: database.get_arrays(f"client {m.number}").get("value") for m in counted}
            else:
                values = _from_stores(job, counted, stores)
            rest = database.get_arrays("sum")["total"].copy()
    finally:
        database.close()
    if memory == "none":
        return Audit(round, epoch, memory, len(members), [], [], [], int(np.abs(rest).max(initial=0)))
    damaged = [m.client for m in counted if (v := values.get(m.client)) is not None and digest_of(v) != m.digest]
    unreached = [member.client for member in counted if values.get(member.client) is None]
    for value in values.values():
        rest -= 0 if value is None else value
    off = None if unreached else int(np.abs(rest).max(initial=0))
    return Audit(round, epoch, memory, len(members), [m.client for m in counted], unreached, damaged, off)


def _from_stores(job: str, counted: list[Member], stores: Iterable[ClientStore]) -> dict[str, Vector | None]:
    wanted: dict[str, Ticket | None] = {member.client: member.applied for member in counted}
    found: dict[str, Vector | None] = {}
    for store in stores:
        held = store.load(job)
        ticket = wanted.get(held.client) if held else None
        if held and ticket is not None and ticket in held.tickets:
            found[held.client] = store.value(job, ticket)
    return found
