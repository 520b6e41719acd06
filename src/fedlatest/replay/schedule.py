"""Who would have been asked and who would have answered, if another algorithm had run the recorded rounds.

A deployed server selects clients several times in a round: at its beginning, and whenever a client fails, declines or
goes offline and others can replace it. The record has every such selection: when, among whom, and for how many seats.
`make_schedule` calls the algorithm's `select` at the same moments with the facts that the server has: the clients'
numbers as ids, the rounds in which they last took part, the seed of the job. As long as the algorithm has asked the
same clients as the recorded one, candidates and seats are the recorded ones.

This needs a `select` that does not read the server's state. Axes: [R] rounds, [N] clients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.algorithms.base import Algorithm, Cohort, RoundFacts
from fedlatest.ledger.client_table import NEVER
from fedlatest.replay.recorded_fleet import Flags, RecordedFleet
from fedlatest.replay.recorded_outcomes import Outcomes


class Schedule(NamedTuple):
    """Who is asked in each round and who answers, and how long the rounds last."""

    asked: Flags
    """[R, N]"""
    answered: Flags
    """[R, N] whose upload counts in the round, also one that was asked for in an earlier one."""
    waited_for: Flags
    """[R, N] the clients on which the length of a round depends: those that are asked, and late answers. A round in
    which nobody answers has at least one of them."""
    seconds: npt.NDArray[np.float64]
    """[R, N] when they answer, or when the server stops waiting for them."""

    def first(self, rounds: int) -> "Schedule":
        """Return the schedule of the first rounds."""
        tables: list[Any] = [table[:rounds] for table in self]
        return Schedule(*tables)


def depends_on_server(algorithm: Algorithm) -> bool:
    """Return whether an algorithm selects clients by the state of the server, such as estimated rates."""
    facts = _facts(algorithm, jnp.int32(0), jnp.full(2, NEVER, jnp.int32), 0, 1)
    try:
        jax.eval_shape(lambda: algorithm.select(None, jnp.ones(2, bool), facts))
    except (AttributeError, TypeError):  # None has no fields and no items, and is no array
        return True
    return False


def make_schedule(algorithm: Algorithm, fleet: RecordedFleet, outcomes: Outcomes) -> Schedule:
    """Let an algorithm select clients in the recorded rounds.

    Args:
        algorithm: A synchronous algorithm whose selection does not depend on the server's state.
        fleet: The record.
        outcomes: What happens to each client if it is asked.
    """
    select = _compiled_select(algorithm, fleet)
    shape = (fleet.num_rounds, fleet.num_clients)
    asked, answered, waited_for = (np.zeros(shape, bool) for _ in range(3))
    seconds, last_round = outcomes.seconds.copy(), fleet.last_round.copy()
    left = _left(fleet)
    for position, record in enumerate(fleet.rounds):
        asked[position] = _ask(fleet, position, outcomes.fails[position], last_round, select)
        answered[position] = asked[position] & ~outcomes.fails[position]
        waited_for[position] = asked[position]
        for late in fleet.late.get(position, ()):
            if asked[late.asked_in, late.client]:
                answered[position, late.client] = waited_for[position, late.client] = True
                seconds[position, late.client] = max(0.0, late.answered - record.began)
        if not answered[position].any():
            _wait_until_the_end(fleet, position, asked[position], waited_for[position], seconds[position])
        last_round[answered[position]] = record.round
        last_round[left[position] & asked[position]] = NEVER
    return Schedule(asked, answered, waited_for, seconds)


Select = Callable[[Flags, int, npt.NDArray[np.int64], int], npt.NDArray[np.int64]]
"""(candidates [N], round, last rounds [N], number) -> the selected clients."""


def _compiled_select(algorithm: Algorithm, fleet: RecordedFleet) -> Select:
    def select(available: jax.Array, round: jax.Array, last_round: jax.Array, number: int) -> Cohort:
        return algorithm.select(None, available, _facts(algorithm, round, last_round, fleet.config.seed, number))

    compiled = jax.jit(select, static_argnums=3)

    def call(candidates: Flags, round: int, last_round: npt.NDArray[np.int64], number: int) -> npt.NDArray[np.int64]:
        clients, mask = compiled(candidates, np.int32(round), last_round.astype(np.int32), number)
        return np.asarray(clients)[np.asarray(mask)]

    return call


def _facts(
    algorithm: Algorithm, round: jax.Array, last_round: jax.Array, seed: int, cohort_size: int
) -> RoundFacts:  # fmt: skip
    """Return what the server of a deployment knows when it selects clients."""
    num_clients = last_round.shape[0]
    return RoundFacts(
        round=round,
        seed=jnp.uint32(seed),
        num_clients=num_clients,
        cohort_size=cohort_size,
        ids=jnp.arange(num_clients, dtype=jnp.int32),
        last_round=last_round,
        numbers=algorithm.numbers,
        total_weight=1.0,
    )


def _ask(fleet: RecordedFleet, position: int, fails: Flags, last_round: npt.NDArray[np.int64], select: Select) -> Flags:
    """Return [N] who is asked in a round, over all its selections."""
    record, recorded = fleet.rounds[position], fleet.asked_before(position)
    asked = np.zeros(fleet.num_clients, bool)
    for number, (room, candidates) in enumerate(zip(record.rooms, record.candidates, strict=True)):
        before = recorded[number]
        if not np.array_equal(asked, before):
            candidates = (candidates | before) & ~asked
            room = min(room, record.cohort_size - int((asked & ~fails).sum()))
        size = min(int(room), fleet.num_clients)
        if size >= 1 and candidates.any():
            asked[select(candidates, record.round, last_round, size)] = True
    return asked


def _wait_until_the_end(
    fleet: RecordedFleet, position: int, asked: Flags, waited_for: Flags, seconds: npt.NDArray[np.float64]
) -> None:
    """Let a round in which nobody answers last as long as it did, or until its deadline if others were asked."""
    same = np.array_equal(asked, fleet.asked[position])
    client = int(np.argmax(asked))  # any client, if nobody is asked
    waited_for[client] = True
    seconds[client] = fleet.lengths[position] if same else fleet.rounds[position].deadline


def _left(fleet: RecordedFleet) -> Flags:
    """Return [R, N] who left the job in a round: if it returns, it counts as new."""
    found = np.zeros(fleet.asked.shape, bool)
    chosen = fleet.tasks.have("left")
    found[fleet.task_rounds[chosen], fleet.tasks.client[chosen]] = True
    return found
