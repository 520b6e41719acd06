"""Clients that fail, in whatever way, do not prevent for long that rounds count.

The sessions of these tests have no cryptography: a session ends with the error that the real one raises.
"""

import math
import random
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import ProtocolError
from fedlatest.ledger import Limits, Reply
from fedlatest.ledger.cohort_choice import choose_cohort, choose_decryptors
from fedlatest.ledger.secure_settings import SecureAggregation
from fedlatest.secure import KeyPair
from tests.ledger.job import ARRAYS, LAYOUT, Job

KEY = KeyPair.from_private(bytes(range(32))).public.hex()
ROUNDS = 200


class Session:
    """A session without masks, which fails if one of some clients has uploaded."""

    requested = is_complete = True

    def __init__(self, replies: dict[str, Reply], spoilers: Collection[str]) -> None:
        self.replies, self._spoilers = replies, spoilers

    def unmask(self) -> Any:
        if any(client in self._spoilers for client in self.replies):
            raise ProtocolError("the sum is larger than its uploads can be")
        return np.zeros(LAYOUT.size, np.int64)


class Rounds:
    """Rounds of a job whose clients are c0, c1, ...; all of them are available in every round.

    Args:
        num_clients: number of clients.
        cohort_size: number of clients that are asked.
        min_cohort: the smallest cohort of a secure job; None for a job without masks.
        seed: of the random choices.
    """

    def __init__(self, num_clients: int, *, cohort_size: int, min_cohort: int | None = None, seed: int = 0) -> None:
        settings: Any = {} if min_cohort is None else {"secure": SecureAggregation(min_cohort).as_dict()}
        self.job, self.cohort_size = Job(memory="none", limits=Limits(max_loss_backoff=512), **settings), cohort_size
        self.clients = [f"c{number}" for number in range(num_clients)]
        self.ledger = self.job.ledger
        for client in self.clients:
            identity = (self.ledger.job, self.ledger.epoch, self.job.config.hash, LAYOUT.hash, client)
            assert self.ledger.handle_hello(Reply("hello", *identity, public_key=KEY)).outcome == "joined"
        if self.ledger.secure is not None:
            self.ledger.secure.draw = random.Random(seed)

    def oldest_first(self, clients: list[str], size: int) -> list[str]:
        """Return the clients that have not taken part for longest."""
        rows = [row for row in self.ledger.clients() if row.id in clients]
        return [row.id for row in sorted(rows, key=lambda row: (row.last_round, row.number))][: max(size, 0)]

    def run(self, *, silent: Collection[str] = (), spoilers: Collection[str] = ()) -> list[str]:
        """Run a round, and return the clients whose uploads count."""
        ledger = self.ledger
        cohort = choose_cohort(ledger, self.clients, size=self.cohort_size, select=self.oldest_first)
        assert len(set(cohort)) == len(cohort) <= self.cohort_size
        instructions = ledger.issue(cohort)
        identity = (ledger.job, ledger.epoch, self.job.config.hash, LAYOUT.hash)
        replies = {
            client: Reply("upload", *identity, client, ticket=instructions[client].ticket, weight=1.0)
            for client in cohort
            if client not in silent
        }
        counted = replies
        if ledger.secure is None:
            ledger.accept_sum(np.zeros(LAYOUT.size, np.int64), replies)
        elif len(replies) >= ledger.least_cohort:
            ledger.secure.session = Session(replies, spoilers)  # type: ignore[assignment]
            counted = dict(ledger.secure.end().replies)
        else:
            counted = {}
        ledger.close_round(ARRAYS, reachable=self.clients, missed=[client for client in cohort if client in silent])
        return list(counted)


def failures(rounds: Rounds, number: int, **faults: Collection[str]) -> int:
    """Run rounds and return in how many of them no upload counted."""
    return sum(not rounds.run(**faults) for _ in range(number))


@pytest.mark.parametrize("min_cohort", [None, 3])
def test_a_round_counts_at_once_after_all_clients_were_silent(min_cohort: int | None) -> None:
    """All of them rest for up to 8 rounds then; nobody else could make a round count."""
    rounds = Rounds(5, cohort_size=4, min_cohort=min_cohort)
    assert failures(rounds, 12, silent=rounds.clients) == 12
    assert rounds.run()


@pytest.mark.parametrize(("size", "least"), [(3, None), (3, 3), (6, 4)])
@pytest.mark.parametrize("num_silent", [2, 20])
def test_clients_that_never_answer_do_not_block_the_job(size: int, least: int | None, num_silent: int) -> None:
    """They have not taken part for longest, so that the algorithm prefers them in each round.

    With K clients asked, of whom m must answer, K - m + 1 silent clients can spoil a round. After it, they come after
    all clients that have not failed. So at most every other round is spoiled, once each silent client was asked.
    """
    rounds = Rounds(num_silent + 5, cohort_size=size, min_cohort=least)
    silent = rounds.clients[:num_silent]
    first = math.ceil(num_silent / (size - (least or 1) + 1))
    counted = [bool(rounds.run(silent=silent)) for _ in range(ROUNDS)]
    assert any(counted[: first + 1])
    assert all(map(any, zip(counted[first:], counted[first + 1 :], strict=False)))


def expected_failures(num_clients: int, least: int, num_spoilers: int, size: int) -> float:
    """Return the bound in docs/guarantees.md on the expected number of failed sessions in `ROUNDS` rounds."""
    chance = math.comb(num_clients - num_spoilers, least) / math.comb(num_clients, least)
    return 1 / chance + num_spoilers * (math.log2(size) + math.log2(ROUNDS) + 1)


@pytest.mark.parametrize(
    ("num_clients", "size", "least", "num_spoilers"),
    [(5, 4, 3, 1), (5, 5, 3, 2), (6, 4, 4, 1), (10, 5, 3, 3), (30, 10, 5, 3), (100, 10, 5, 10), (100, 20, 10, 2)],
)
def test_clients_with_wrong_masks_spoil_a_bounded_number_of_sessions(
    num_clients: int, size: int, least: int, num_spoilers: int
) -> None:
    """They use wrong masks in every session that they are in; nobody can know which clients did."""
    found = []
    for seed in range(5):
        rounds = Rounds(num_clients, cohort_size=size, min_cohort=least, seed=seed)
        spoilers = random.Random(seed).sample(rounds.clients, num_spoilers)
        found.append(failures(rounds, ROUNDS, spoilers=spoilers))
        waiting = [row.id for row in rounds.ledger.clients() if row.last_round < 0]
        assert set(waiting) == set(spoilers), "a client that did nothing wrong never took part"
    assert np.mean(found) <= expected_failures(num_clients, least, num_spoilers, size)


@pytest.mark.parametrize(("num_good", "num_silent"), [(3, 2), (5, 30), (10, 10)])
def test_decryptors_that_never_answer_do_not_block_the_job(num_good: int, num_silent: int) -> None:
    """More than two thirds of the decryptors of a session must answer. After a round without an upload, only those are
    drawn that have not failed; so at most every other round is spoiled, once each silent one was asked."""
    rounds = Rounds(num_good + num_silent, cohort_size=3, min_cohort=3)
    good, ledger = rounds.clients[:num_good], rounds.ledger
    secure = ledger.secure
    assert secure is not None
    counted = []
    for _ in range(60):
        drawn = choose_decryptors(ledger, rounds.clients, number=10, busy=[])
        secure.silent_decryptors.clear([client for client in drawn if client in good])
        secure.silent_decryptors.add([client for client in drawn if client not in good], ledger.round)
        answered = len([client for client in drawn if client in good]) > 2 * len(drawn) // 3
        counted.append(bool(rounds.run(silent=[] if answered else rounds.clients)))
    first = num_silent // 3 + 2
    assert any(counted[:first])
    assert all(map(any, zip(counted[first:], counted[first + 1 :], strict=False)))
