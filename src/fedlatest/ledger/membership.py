"""The clients of a job, a row each: whether it belongs, what it weighs, and its tickets. Callers open transactions."""

from typing import Any, NamedTuple

from fedlatest.ledger.database import Database
from fedlatest.ledger.messages import Ticket

NEVER = -1
MOST_REST = 8  # rounds that a client is left alone at most after it did not work
_COLUMNS = "number, client, weight, last_round, rest_until, digest, seen, issued, issued_nonce, applied, applied_nonce"


class Member(NamedTuple):
    """What the server knows of a client that belongs to the job."""

    number: int  # stable: random draws hang on it
    client: str
    weight: float
    last_round: int  # in which its value was last applied, or NEVER
    rest_until: int  # the first round in which it is asked again
    digest: str  # of the value that is in the sum
    seen: float  # when it was last heard of
    issued: Ticket | None
    applied: Ticket | None


class Roster:
    """The table of clients."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def members(self) -> list[Member]:
        """Who belongs to the job, by number."""
        return [_member(row) for row in self._select("member = 1 ORDER BY number")]

    def member(self, client: str) -> Member | None:
        """A client, if it belongs to the job."""
        found = self._select("client = ? AND member = 1", client)
        return _member(found[0]) if found else None

    def admit(self, client: str, weight: float, now: float) -> None:
        """Let a client in; one that had left keeps its number, and its tickets go on."""
        self._database.execute(
            "INSERT INTO clients "
            "SELECT COALESCE(MAX(number), -1) + 1, ?, 1, ?, ?, ?, ?, 0, 0, NULL, NULL, NULL, NULL, '' FROM clients "
            "WHERE true "  # so that SQLite does not read ON as that of a join
            "ON CONFLICT (client) DO UPDATE SET member = 1, weight = excluded.weight, joined = excluded.joined, "
            "seen = excluded.seen, last_round = excluded.last_round, misses = 0, rest_until = 0",
            client, weight, now, now, NEVER,
        )  # fmt: skip

    def dismiss(self, client: str) -> None:
        """A client no longer belongs, and nothing of it is in the sum; the ticket that it has is void."""
        self._change(
            "member = 0, applied = NULL, applied_nonce = NULL, digest = '', issued = issued + 1, issued_nonce = ''",
            client=client,
        )

    def issue(self, client: str, ticket: Ticket) -> None:
        """Note the ticket that a client is handed."""
        self._change("issued = ?, issued_nonce = ?", *ticket, client=client)

    def apply(self, client: str, ticket: Ticket, *, digest: str, weight: float, round: int | None) -> None:
        """A client's value is in the sum; `round` is None if it was not trained anew."""
        self._change(
            "applied = ?, applied_nonce = ?, digest = ?, weight = ?, misses = 0, rest_until = 0, "
            "last_round = COALESCE(?, last_round)",
            *ticket, digest, weight, round, client=client,
        )  # fmt: skip

    def miss(self, client: str, round: int) -> None:
        """A client was asked and did not work: it is left alone for 1, 2, 4, ... rounds."""
        self._change(
            "misses = misses + 1, rest_until = ? + MIN(1 << MIN(misses, 10), ?)", round + 1, MOST_REST, client=client
        )

    def rest(self, client: str, round: int) -> None:
        """A client said that it may not work now: it is left alone for one round, and nothing is held against it."""
        self._change("rest_until = ?", round + 2, client=client)

    def hear(self, client: str, now: float) -> None:
        """A client was there."""
        self._change("seen = ?", now, client=client)

    def forget_applied(self) -> None:
        """Nothing of anybody is in the sum."""
        self._database.execute("UPDATE clients SET applied = NULL, applied_nonce = NULL, digest = ''")

    def _select(self, where: str, *values: Any) -> list[Any]:
        return self._database.rows(f"SELECT {_COLUMNS} FROM clients WHERE {where}", *values)

    def _change(self, what: str, *values: Any, client: str) -> None:
        changed = self._database.execute(f"UPDATE clients SET {what} WHERE client = ?", *values, client)
        assert changed == 1, f"{client} has a row"


def _member(row: Any) -> Member:
    number, client, weight, last_round, rest_until, digest, seen, *tickets = row
    known = (number, client, weight, last_round, rest_until, digest, seen)
    return Member(*known, _ticket(*tickets[:2]), _ticket(*tickets[2:]))


def _ticket(number: int | None, nonce: str | None) -> Ticket | None:
    return None if number is None or nonce is None else Ticket(number, nonce)
