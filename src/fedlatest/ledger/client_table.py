"""The clients of a job: kept in memory, and written to the database with the transaction that changes them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.ledger.bitmaps import unpack
from fedlatest.ledger.database import Database
from fedlatest.ledger.messages import Ticket

NEVER = -1  # last_round of a client that has not trained yet
MAX_BACKOFF = 8  # rounds


_COLUMNS = (
    *("number", "client", "name", "member", "contributed", "weight", "last_round", "misses", "losses", "rest_until"),
    *("issued", "issued_nonce", "applied", "applied_nonce", "digest", "public_key", "participations"),
    *("last_participation", "checksum", "seen"),
)
_UPSERT = (  # an update, unlike a replacement, does not touch the index on `client`
    f"INSERT INTO clients ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _COLUMNS)}) "
    f"ON CONFLICT (number) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])}"
)


class ClientRow(NamedTuple):
    """A client of the job, as the ledger records it."""

    number: int  # never changes and is never reused; random choices depend on it
    id: str
    name: str = ""  # for people: the name of its registered key; empty without one
    member: bool = True  # False after it has left or was removed
    has_contributed: bool = False  # whether an update of it has counted since it joined, in any epoch
    weight: float = 0.0  # number of samples; 0 if not known yet
    last_round: int = NEVER  # the last round in which it took part, or NEVER
    misses: int = 0  # consecutive rounds in which it was asked and did not deliver
    losses: int = 0  # how often it reported that it or the ledger had lost data
    backoff_until: int = 0  # the first round in which it may be selected again
    issued: Ticket | None = None  # the last ticket issued to it
    applied: Ticket | None = None  # the ticket of its update that is in the sum
    digest: str = ""  # of its update that is in the sum
    public_key: str = ""  # in a secure job, in hexadecimal digits
    participations: int = 0  # rounds in which its data changed the sum, in all epochs; never reset
    last_participation: int | None = None  # the last of these rounds
    checksum: int | None = 0  # of its accepted differences in this epoch (`LinearChecksum`); None if not known


class ClientTable:
    """The clients of a job.

    Rows are never deleted: a client that leaves keeps its number and its ticket numbers. Changes are made in memory;
    `flush` writes them, and `reload` discards them.

    The time of a client's last contact is written only when the client is no longer reachable: for a reachable one, it
    is the time at which the last round was closed. So the size of a transaction does not grow with the number of
    clients.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reload()

    def reload(self) -> None:
        """Read the clients from the database."""
        rows = self._database.rows(f"SELECT {', '.join(_COLUMNS)} FROM clients ORDER BY number")
        query = "SELECT uptime, available, reachable FROM rounds ORDER BY round DESC LIMIT 1"
        last_round = self._database.rows(query)
        self._rows: dict[str, ClientRow] = {}
        self._last_contact: dict[str, float] = {}
        self._changed: set[str] = set()
        self._members: list[ClientRow] | None = None
        for *row, seen in rows:
            self._rows[row[1]] = _client_row(row)
            self._last_contact[row[1]] = seen
        self._reachable: set[str] = set()
        for uptime, available, reachable in last_round:
            count = len(self._rows)
            numbers = set(np.flatnonzero(unpack(available, count) ^ unpack(reachable, count)).tolist())
            self._reachable = {client for client, row in self._rows.items() if row.number in numbers}
            self._last_contact.update(dict.fromkeys(self._reachable, uptime))

    @property
    def num_rows(self) -> int:
        """The number of clients that have ever joined."""
        return len(self._rows)

    def all(self) -> list[ClientRow]:
        """Return the clients of the job, ordered by number."""
        if self._members is None:
            self._members = [row for row in self._rows.values() if row.member]
        return self._members

    def get(self, client: str) -> ClientRow | None:
        """Return a client of the job, or None if it has not joined or has left."""
        row = self._rows.get(client)
        return row if row is not None and row.member else None

    def get_former(self, client: str) -> ClientRow | None:
        """Return a client that is or was a client of the job."""
        return self._rows.get(client)

    def number_of(self, client: str) -> int | None:
        """Return the number of a client that is or was a client of the job."""
        row = self._rows.get(client)
        return None if row is None else row.number

    def last_contact(self, client: str) -> float:
        """Return the time of a client's last reply or confirmed presence, in seconds of uptime."""
        return self._last_contact[client]

    def add(self, client: str, weight: float, now: float) -> None:
        """Add a client to the job; one that had left keeps its number, and its ticket numbers continue."""
        former = self._rows.get(client)
        if former is None:
            self._put(ClientRow(len(self._rows), client, weight=weight))
        else:
            fresh: dict[str, Any] = {
                "has_contributed": False,
                "weight": weight,
                "last_round": NEVER,
                "misses": 0,
            }
            self._put(former._replace(member=True, **fresh))
        self._last_contact[client] = now

    def remove(self, client: str) -> None:
        """Remove a client whose update is no longer in the sum, and invalidate its last ticket."""
        row = self._rows[client]
        issued = None if row.issued is None else Ticket(row.issued.number + 1, "")
        self._put(row._replace(member=False, applied=None, digest="", checksum=0, issued=issued))

    def set_name(self, client: str, name: str) -> None:
        """Record the name of a client for people; the row is written only if the name is new."""
        if name != self._rows[client].name:
            self._change(client, name=name)

    def set_public_key(self, client: str, public_key: str) -> None:
        """Record the public key of a client; the row is written only if it is new."""
        if public_key != self._rows[client].public_key:
            self._change(client, public_key=public_key)

    def set_issued(self, client: str, ticket: Ticket) -> None:
        """Record the ticket that is issued to a client."""
        self._change(client, issued=ticket)

    def set_applied(
        self, client: str, ticket: Ticket, *, digest: str, weight: float, round: int | None, checksum: int | None = 0
    ) -> None:
        """Record which update of a client is in the sum.

        Args:
            client: id of the client.
            ticket: the ticket of the update.
            digest: the digest of the update.
            weight: the client's number of samples.
            round: the round in which it trained; None if the update was uploaded again without training.
            checksum: the checksum of its accepted differences.
        """
        trained: dict[str, Any] = {} if round is None else {"last_round": round}
        update: dict[str, Any] = {"applied": ticket, "digest": digest, "weight": weight, "checksum": checksum}
        row = self._rows[client]
        backoff_until = row.backoff_until if row.losses > 1 else 0  # an upload does not end the wait after losses
        self._change(client, has_contributed=True, misses=0, backoff_until=backoff_until, **update, **trained)

    def add_participation(self, client: str, round: int) -> None:
        """Count a round in which a client's data changed the sum."""
        self._change(client, participations=self._rows[client].participations + 1, last_participation=round)

    def back_off(self, client: str, round: int) -> None:
        """Do not select a client that did not deliver in `round` for the next 1, 2, 4, ... MAX_BACKOFF rounds."""
        misses = self._rows[client].misses
        until = round + 1 + min(1 << min(misses, 10), MAX_BACKOFF)
        self._change(client, misses=misses + 1, backoff_until=max(until, self._rows[client].backoff_until))

    def skip_next_round(self, client: str, round: int) -> None:
        """Do not select a client that declined in `round` for one round; it does not count as a miss."""
        self._change(client, backoff_until=max(round + 2, self._rows[client].backoff_until))

    def add_loss(self, client: str, round: int, *, max_backoff: int) -> None:
        """Record a reported loss; a client that reports several is not selected for 2, 8, 32, ... rounds."""
        losses = self._rows[client].losses + 1
        rest = min(2 ** min(2 * losses - 3, 30), max_backoff) if losses > 1 else 0
        until = max(round + 1 + rest, self._rows[client].backoff_until) if rest else self._rows[client].backoff_until
        self._change(client, losses=losses, backoff_until=until)

    def set_last_contact(self, clients: Iterable[str], now: float) -> None:
        """Record that clients were reachable at the time `now`, in memory only."""
        self._last_contact.update(dict.fromkeys(clients, now))

    def set_reachable(self, clients: Iterable[str], now: float) -> None:
        """Record which clients were reachable when a round was closed, at the time `now`."""
        reachable = set(clients) & self._rows.keys()
        self._changed |= self._reachable - reachable
        self._reachable = reachable
        self.set_last_contact(reachable, now)

    def clear_applied(self) -> None:
        """Record that no client's update is in the sum."""
        for row in list(self._rows.values()):
            if row.applied is not None:
                self._put(row._replace(applied=None, digest="", checksum=0))

    def bits(self, clients: Iterable[str]) -> bytes:
        """Return a set of clients as bits, by their numbers."""
        flags = np.zeros(len(self._rows), bool)
        flags[[self._rows[client].number for client in clients if client in self._rows]] = True
        return np.packbits(flags).tobytes()

    def flush(self) -> None:
        """Write the changed rows; called inside a transaction."""
        if not self._changed:
            return
        self._database.execute_many(
            _UPSERT,
            [self._values(self._rows[client]) for client in sorted(self._changed)],
        )
        self._changed = set()

    def _values(self, row: ClientRow) -> tuple[Any, ...]:
        issued, applied = row.issued or (None, None), row.applied or (None, None)
        counts = (row.last_round, row.misses, row.losses, row.backoff_until)
        identity = (row.number, row.id, row.name, row.member, row.has_contributed)
        facts = (*issued, *applied, row.digest, row.public_key, row.participations, row.last_participation)
        return (*identity, row.weight, *counts, *facts, row.checksum, self._last_contact[row.id])

    def _change(self, client: str, **values: Any) -> None:
        self._put(self._rows[client]._replace(**values))

    def _put(self, row: ClientRow) -> None:
        self._rows[row.id] = row
        self._changed.add(row.id)
        self._members = None


class Attendance(NamedTuple):
    """Which clients were available, took part and were in contact, as arrays [rounds, clients] by client number."""

    available: npt.NDArray[np.bool_]
    took_part: npt.NDArray[np.bool_]
    reachable: npt.NDArray[np.bool_]


def read_attendance(database: Database) -> Attendance:
    """Return the attendance of all closed rounds."""
    [(num_clients,)] = database.rows("SELECT COUNT(*) FROM clients")
    rows = database.rows("SELECT available, took_part, reachable FROM rounds ORDER BY round")
    tables = [np.zeros((len(rows), num_clients), bool) for _ in range(3)]
    for round, contents in enumerate(rows):
        for table, content in zip(tables, contents, strict=True):
            table[round] = unpack(content, num_clients)
    available, took_part, differs = tables
    return Attendance(available, took_part, np.logical_xor(available, differs, out=differs))


def _client_row(row: list[Any]) -> ClientRow:
    number, client, name, member, contributed, weight, *counts = row[:10]
    issued, applied = _ticket(*row[10:12]), _ticket(*row[12:14])
    tickets = (issued, applied, row[14])
    facts: tuple[Any, ...] = (*counts, *tickets, *row[15:])
    return ClientRow(number, client, name, bool(member), bool(contributed), weight, *facts)


def _ticket(number: int | None, nonce: str | None) -> Ticket | None:
    return None if number is None or nonce is None else Ticket(number, nonce)
