"""Which clients are asked after failures: no client can prevent for long that rounds count.

A client that failed rests for 1, 2, 4, ... rounds (`rest_rounds`, the only back-off of a deployment). Two rules bound
what it costs others, whatever it does:

- After a round in which no upload counted, clients that have not failed come first. Only if they are too few for a
  round that counts, others fill the cohort, also those that rest.
- If the sum of a secure session is not possible, some client used other masks than it shared, and nobody knows which.
  All of the session that are not proven are suspects then. Later sessions have at most half of the suspects that do not
  rest, in random order, among clients that are not; so each failed session halves the suspects of one culprit. If only
  suspects are left, the smallest cohort is drawn from all of them at random.
"""

import math
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from fedlatest.ledger.client_table import ClientRow, rest_rounds

if TYPE_CHECKING:
    from fedlatest.ledger.ledger import Ledger

Select = Callable[[list[str], int], list[str]]
"""Returns at most so many of some clients, first choice first: the rule of the algorithm."""
MAX_REST = 512  # rounds, of a client that spoiled secure sessions


class RestingClients:
    """Clients that failed, and how long they rest; in memory, since the server was started.

    Args:
        longest: the longest rest in rounds.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._failures: dict[str, tuple[int, int]] = {}  # how often, and the first round after the rest

    def __contains__(self, client: str) -> bool:
        return client in self._failures

    def add(self, clients: Iterable[str], round: int) -> None:
        """Record that clients failed in a round."""
        for client in clients:
            failures, _ = self._failures.get(client, (0, 0))
            self._failures[client] = (failures + 1, round + 1 + rest_rounds(failures, self._longest))

    def clear(self, clients: Iterable[str]) -> None:
        """Record that clients did not fail; they start again from the shortest rest."""
        for client in clients:
            self._failures.pop(client, None)

    def is_resting(self, client: str, round: int) -> bool:
        """Return whether a client rests in a round."""
        return client in self._failures and round < self._failures[client][1]


_NOBODY = RestingClients(0)


def choose_cohort(ledger: "Ledger", available: Collection[str], *, size: int, select: Select) -> list[str]:
    """Return the clients to ask in the open round.

    Args:
        ledger: knows the clients, and which of them have failed.
        available: the clients that can be asked.
        size: the largest number of clients to ask.
        select: the rule of the algorithm.
    """
    rows = [row for row in ledger.clients() if row.id in available and ledger.may_take_part(row)]
    round, suspected, drawn = ledger.round, _NOBODY if ledger.secure is None else ledger.secure.suspects, []
    others = [row for row in rows if row.id not in suspected]
    suspects = [row.id for row in rows if row.id in suspected]
    if not ledger.rounds_without_upload:
        tried = [client for client in suspects if not suspected.is_resting(client, round)]
        if ledger.secure is not None:
            drawn = ledger.secure.draw.sample(tried, min(math.ceil(len(tried) / 2), math.ceil(size / 2)))
        ready = [row.id for row in others if row.backoff_until <= round]
        return select(ready, size - len(drawn)) + select(drawn, len(drawn))
    chosen = select([row.id for row in others if row.misses == 0 and row.backoff_until <= round], size)
    missing = ledger.least_cohort - len(chosen)
    if missing <= 0:
        return chosen
    if ledger.secure is not None:
        drawn = ledger.secure.draw.sample(suspects, min(missing, len(suspects)))
    chosen += select(drawn, len(drawn))
    return chosen + select([row.id for row in others if _has_failed(row)], size - len(chosen))


def choose_decryptors(ledger: "Ledger", available: Collection[str], *, number: int, busy: Collection[str]) -> list[str]:
    """Draw the clients that help to unmask the sum of a session; idle ones come first.

    Those that did not answer as a decryptor rest, unless fewer than `MIN_DECRYPTORS` others are available.

    Args:
        ledger: the ledger of a secure job.
        available: the clients that can be asked.
        number: the largest number of decryptors.
        busy: the clients that have another message to answer.
    """
    from fedlatest.ledger.secure_settings import MIN_DECRYPTORS

    assert ledger.secure is not None
    silent = ledger.secure.silent_decryptors
    if ledger.rounds_without_upload:
        reliable = [client for client in sorted(available) if client not in silent]
    else:
        reliable = [client for client in sorted(available) if not silent.is_resting(client, ledger.round)]
    chosen: list[str] = []
    clients = reliable if len(reliable) >= MIN_DECRYPTORS else sorted(available)
    for group in ([c for c in clients if c not in busy], [c for c in clients if c in busy]):
        chosen += ledger.secure.draw.sample(group, min(number - len(chosen), len(group)))
    return chosen


def _has_failed(row: ClientRow) -> bool:
    """Return whether a client missed a round or reports losses again and again; one that only declined has not."""
    return row.misses > 0 or row.losses > 1
