"""The virtual time of synchronous rounds: when they end, whose updates count, and that nothing else changes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest import ConfigError, Result, RunFolder, always, fedavg, fedlaavg, sequential, simulate, simulate_together
from fedlatest.algorithms import ALGORITHMS
from fedlatest.algorithms.base import Cohort
from fedlatest.availability import Interval, trace
from fedlatest.delays import Delays, Timing, Work, constant, lognormal
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.clock import Finish, Now, clock_program, close_round, finish_times, later, trial_clock
from fedlatest.simulation.program import Record, State
from tests.problems import MODEL, coins, small_federation
from tests.simulation.test_resume import assert_identical, interrupt_at

FEDERATION = small_federation(6)
PATTERN = coins([0.5, 0.5, 0.6, 0.7, 0.8, 0.9])
RATES = (0.25, 0.5, 0.75, 0.5, 1.0, 0.25)
NOTHING = Timing(Delays())


def run_engine(algorithm: Any, timing: Timing | None, rounds: int = 12) -> tuple[State, Record]:
    spec = ExperimentSpec(
        FEDERATION, MODEL, algorithm, PATTERN, 3, num_local_steps=4, batch_size=3, learning_rate=0.3, seeds=[3],
        rates=RATES if "rates" in algorithm.requires else None, timing=timing,
    )  # fmt: skip
    engine = Engine([spec], clients_at_once=2)
    states, record = engine.advance(engine.start(), rounds)
    return states[0], record


def assert_same_arrays(left: Any, right: Any) -> None:
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(one, other)


QUICK = {"fedavg", "fedlaavg", "fedlaavg_fresh", "scaffold", "fedawe"}  # the others take half a minute


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(set(ALGORITHMS) - {"sequential"})
    ],
)
def test_without_delays_every_algorithm_gives_the_same_bits(name: str) -> None:
    """With zero delays and no deadline all of a cohort answer at once, so that the clock changes nothing."""
    plain, plain_record = run_engine(ALGORITHMS[name](), None)
    clocked, record = run_engine(ALGORITHMS[name](), NOTHING)
    assert clocked.now is not None
    assert [int(clocked.now.seconds[0]), int(clocked.now.milliseconds[0])] == [0, 0]
    assert_same_arrays(plain, clocked._replace(now=None, traffic=None))
    assert_same_arrays(plain_record, record._replace(time=None, traffic=None))


def closed(times: Sequence[int], mask: Sequence[bool], *, fails: Sequence[bool] = (), **limits: Any) -> tuple[Any, int]:
    trial = trial_clock(Timing(Delays(), **limits), Work())
    finish = Finish(jnp.array(times), jnp.array(fails or [False] * len(times)))
    cohort, elapsed = close_round(trial, Cohort(jnp.arange(len(times)), jnp.array(mask)), finish)
    return cohort.mask.tolist(), int(elapsed)


def test_a_round_ends_when_the_last_client_has_answered() -> None:
    assert closed([5000, 2000, 9000], [True, True, False]) == ([True, True, False], 5000)


def test_a_deadline_drops_those_that_are_late() -> None:
    """An update that arrives exactly at the deadline counts; the round ends at the deadline only if someone is late."""
    assert closed([4000, 4001, 1000], [True] * 3, deadline=4) == ([True, False, True], 4000)
    assert closed([3000, 2000, 1000], [True] * 3, deadline=4) == ([True] * 3, 3000)


def test_the_first_answers_end_a_round() -> None:
    """The first two of four; equal times count in the order of the slots."""
    assert closed([4000, 1000, 3000, 3000], [True] * 4, answers=2) == ([False, True, True, False], 3000)
    assert closed([4000, 1000, 3000, 3000], [True, True, False, False], answers=3) == ([True, True, False, False], 4000)
    assert closed([4000, 1000, 3000], [True] * 3, answers=3, deadline=3.5) == ([False, True, True], 3500)


def test_clients_that_fail_do_not_answer_but_are_waited_for() -> None:
    """The server learns at 6 s that the first client failed; with two answers needed it has closed the round at 5 s."""
    times, fails = [6000, 2000, 5000], [True, False, False]
    assert closed(times, [True] * 3, fails=fails) == ([False, True, True], 6000)
    assert closed(times, [True] * 3, fails=fails, answers=2) == ([False, True, True], 5000)


def closed_by_hand(
    times: list[int], mask: list[bool], fails: list[bool], deadline: int | None, answers: int | None
) -> tuple[list[bool], int]:
    """Go through the clients in the order in which they answer or fail, and stop where the round ends."""
    kept, now = [False] * len(times), 0
    for time, slot in sorted((time, slot) for slot, time in enumerate(times) if mask[slot]):
        if deadline is not None and time > deadline:
            return kept, deadline
        now = time
        kept[slot] = not fails[slot]
        if sum(kept) == answers:
            return kept, now
    return kept, now


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 6),
)
def test_rounds_end_as_in_a_loop_over_the_answers(
    seconds: list[int], mask: list[bool], fails: list[bool], deadline: int | None, answers: int | None
) -> None:
    times = [1000 * each for each in seconds]
    limit = None if deadline is None else 1000 * deadline
    found = closed(times, mask, fails=fails, deadline=deadline, answers=answers)
    assert found == closed_by_hand(times, mask, fails, limit, answers)


def finish(interruption: Any, now: tuple[int, int] = (0, 0)) -> list[tuple[int, bool]]:
    """Return when three clients finish that need 25 s; rounds last 10 s, and the trace repeats after 8 of them.

    Client 0 is available all the time, client 1 in rounds 0, 1, 4 and 5, client 2 in round 0 alone.
    """
    intervals = [Interval(0, 0, 8), Interval(1, 0, 2), Interval(1, 4, 6), Interval(2, 0, 1)]
    availability = trace(intervals, num_clients=3, wrap=True)
    timing = Timing(Delays(training=25), seconds_per_round=10, interruption=interruption)
    found = finish_times(
        clock_program(timing), trial_clock(timing, Work()), availability,
        Now(*map(jnp.int32, now)), seed=jnp.uint32(0), event=jnp.int32(0), clients=jnp.arange(3), ids=jnp.arange(3),
        mask=jnp.ones(3, bool),
    )  # fmt: skip
    return list(zip(found.milliseconds.tolist(), found.fails.tolist(), strict=True))


def test_clients_that_become_unavailable() -> None:
    """Client 1 is available until 20 s and again from 40 s: after a pause it finishes at 45 s, otherwise it fails.

    Client 2 works 10 s at a time, in seconds 0 to 10, 80 to 90 and 160 to 165.
    """
    assert finish("finish") == [(25_000, False)] * 3
    assert finish("fail") == [(25_000, False), (20_000, True), (10_000, True)]
    assert finish("pause") == [(25_000, False), (45_000, False), (165_000, False)]


def test_clients_that_start_within_a_round() -> None:
    """From 8.5 s on, client 2 works 1.5 s, 10 s and 10 s until 170 s, and 3.5 s from 240 s on."""
    assert finish("fail", (8, 500)) == [(25_000, False), (11_500, True), (1_500, True)]
    assert finish("pause", (8, 500))[2] == (240_000 + 3_500 - 8_500, False)


def test_time_is_exact() -> None:
    """A thousand times 1.7 s, from 999 ms on."""
    now = Now(jnp.int32(0), jnp.int32(999))
    for _ in range(1000):
        now = later(now, jnp.int32(1700))
    assert (int(now.seconds), int(now.milliseconds)) == (1700, 999)


def run_small(algorithm: Any = None, availability: Any = None, **options: Any) -> Result:
    defaults: dict[str, Any] = {
        "rounds": 10, "cohort_size": 3, "num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2,
        "evaluate_every": 5, "timing": Timing(Delays(training=lognormal(10, sigma=0.5)), deadline=12),
    }  # fmt: skip
    return simulate(FEDERATION, MODEL, algorithm or fedlaavg(), availability or PATTERN, **(defaults | options))


def test_the_time_is_recorded() -> None:
    """All six clients take part in every round, and the slowest takes 6 seconds."""
    timing = Timing(Delays(training=constant([1, 2, 3, 4, 5, 6])))
    result = run_small(availability=always(6), cohort_size=6, timing=timing)
    assert result.metrics.column("time").tolist() == [[0.0, 30.0, 60.0]]
    fast = run_small(availability=always(6), cohort_size=6, timing=Timing(timing.delays, answers=4))
    assert fast.metrics.column("time").tolist() == [[0.0, 20.0, 40.0]]
    assert [row.cohort_size for row in fast.metrics.rows] == [None, 4, 4]


def test_availability_by_time_and_empty_rounds() -> None:
    """Nobody is available in the first 5 s; then everyone is, 2 s per round: rounds begin at 0, 5, 7, 9, 11 ... s."""
    availability = trace([Interval(client, 1, 8) for client in range(6)], num_clients=6)
    result = run_small(availability=availability, timing=Timing(Delays(upload=2), seconds_per_round=5))
    assert result.metrics.column("time").tolist() == [[0.0, 13.0, 23.0]]


def test_a_resumed_run_is_identical(tmp_path: Path) -> None:
    whole = run_small(out=tmp_path / "whole", seeds=(1, 2))
    with pytest.raises(KeyboardInterrupt):
        run_small(out=tmp_path / "cut", seeds=(1, 2), on_progress=interrupt_at(5))
    run_small(out=tmp_path / "cut", seeds=(1, 2), resume=True)
    assert_identical(whole, tmp_path / "cut")
    assert len({row.time for row in whole.metrics.rows}) == 5  # two seeds, two evaluations after the start


def test_specs_with_other_delays_run_side_by_side() -> None:
    def spec(seconds: float) -> ExperimentSpec:
        return ExperimentSpec(
            FEDERATION, MODEL, fedavg(), PATTERN, 3, num_local_steps=2, batch_size=3, rounds=4, evaluate_every=4,
            timing=Timing(Delays(training=seconds)),
        )  # fmt: skip

    quick, slow = simulate_together([spec(1.0), spec(3.0)])
    assert isinstance(quick, Result)
    assert isinstance(slow, Result)
    assert 3 * quick.metrics.column("time") == pytest.approx(slow.metrics.column("time"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: run_small(sequential()), "sequential trains on pooled data"),
        (lambda: run_small(timing=Timing(Delays(upload=constant([1, 2])))), "for 2 clients, the federation has 6"),
        (lambda: run_small(timing=Delays()), "timing: expected what a factory returns"),
        (lambda: Timing(Delays(), deadline=0), "deadline=0: must be above 0"),
        (lambda: Timing(Delays(), answers=0), "answers=0: must be at least 1"),
        (lambda: Timing(Delays(), seconds_per_round=0), "seconds_per_round=0: must be a whole number"),
        (lambda: Timing(Delays(), interruption="pause"), "interruption='pause': needs seconds_per_round"),
        (lambda: Timing(Delays(), interruption="wait"), "choose one of finish, pause, fail"),  # type: ignore[arg-type]
        (lambda: Timing(3), "delays=3: give Delays"),  # type: ignore[arg-type]
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_no_bound_is_claimed_for_clients_that_may_be_too_late(tmp_path: Path) -> None:
    """Lemma 1 assumes that selected clients answer; Assumption 4 is about rounds, which by time differ in length."""
    limited = run_small(availability=always(6), out=tmp_path / "limited")
    by_time = run_small(timing=Timing(Delays(training=10), seconds_per_round=20), out=tmp_path / "by-time")
    facts = [RunFolder(result.folder).manifest["availability"] for result in (limited, by_time) if result.folder]
    assert [fact["staleness_bound"] for fact in facts] == [None, None]
    assert [fact["assumption_holds"] for fact in facts] == [True, None]
