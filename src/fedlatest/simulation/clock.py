"""Virtual time in a compiled program: when the clients finish, and when a synchronous round ends.

Times are whole milliseconds. `Now` counts whole seconds and the milliseconds beyond them, so that 32-bit integers
suffice for 68 years; delays are at most `MAX_MILLISECONDS`. Axes: [K] some clients.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from fedlatest.algorithms.base import Cohort
from fedlatest.availability import Availability
from fedlatest.delays import Delays, Interruption, Timing, Work
from fedlatest.delays.models import MAX_MILLISECONDS

NO_LIMIT = 2**31 - 1


class Now(NamedTuple):
    """A moment of virtual time."""

    seconds: jax.Array
    milliseconds: jax.Array  # 0 .. 999


class ClockProgram(NamedTuple):
    """What a compiled program with virtual time is specialised to."""

    by_time: bool  # whether availability follows the time, and not the number of the round
    interruption: Interruption


class TrialClock(NamedTuple):
    """The numbers of a `Timing`, as arguments of a compiled program."""

    delays: Delays
    work: Work
    deadline: jax.Array  # milliseconds, or NO_LIMIT
    answers: jax.Array  # or NO_LIMIT
    seconds_per_round: jax.Array  # 0 if availability follows the number of the round
    until: jax.Array  # seconds, the end of an asynchronous run, or NO_LIMIT


class Finish(NamedTuple):
    """When each of some clients finishes, or stops because it fails."""

    milliseconds: jax.Array  # [K] after now
    fails: jax.Array  # [K]


class _Walk(NamedTuple):
    """Clients at the beginning of a round of the availability model."""

    number: jax.Array  # rounds since they started
    begins: jax.Array  # milliseconds from their start to the beginning of the round
    left: jax.Array  # [K] milliseconds of work that are left
    finish: Finish
    is_open: jax.Array  # [K] neither finished nor failed


def clock_program(timing: Timing) -> ClockProgram:
    """Return the static part of a timing."""
    return ClockProgram(timing.seconds_per_round is not None, timing.interruption)


def trial_clock(timing: Timing, work: Work) -> TrialClock:
    """Return the numbers of a timing."""
    deadline = NO_LIMIT if timing.deadline is None else round(timing.deadline * 1000)
    return TrialClock(
        timing.delays,
        Work(*(jnp.float32(amount) for amount in work)),
        jnp.int32(deadline),
        jnp.int32(NO_LIMIT if timing.answers is None else min(timing.answers, NO_LIMIT)),
        jnp.int32(timing.seconds_per_round or 0),
        jnp.int32(NO_LIMIT if timing.until is None else math.ceil(timing.until)),
    )


def start_of_time() -> Now:
    """Return the moment at which a run begins."""
    return Now(jnp.int32(0), jnp.int32(0))


def later(now: Now, milliseconds: jax.Array) -> Now:
    """Return the moment after some milliseconds."""
    total = now.milliseconds + milliseconds
    return Now(now.seconds + total // 1000, total % 1000)


def seconds_of(now: Now) -> npt.NDArray[np.float64]:
    """Return moments that were fetched from the device in seconds."""
    return np.asarray(now.seconds) + np.asarray(now.milliseconds) / 1000


def availability_round(
    clock: ClockProgram | None, trial: TrialClock | None, now: Now | None, round: jax.Array
) -> jax.Array:
    """Return the round of the availability model that applies now."""
    if clock is None or not clock.by_time:
        return round
    assert trial is not None
    assert now is not None
    return now.seconds // trial.seconds_per_round


def until_next_round(trial: TrialClock, now: Now) -> jax.Array:
    """Return the milliseconds until the availability may change."""
    length = trial.seconds_per_round
    return (length - now.seconds % length) * 1000 - now.milliseconds


def until_end(trial: TrialClock, now: Now) -> jax.Array:
    """Return the milliseconds until the end of the run, or the longest delay if that is less."""
    seconds = jnp.clip(trial.until - now.seconds, 0, MAX_MILLISECONDS // 1000)
    return jnp.maximum(seconds * 1000 - now.milliseconds, 0)


def finish_times(
    clock: ClockProgram,
    trial: TrialClock,
    availability: Availability,
    now: Now,
    *,
    seed: jax.Array,
    event: jax.Array,
    clients: jax.Array,
    ids: jax.Array,
    mask: jax.Array,
) -> Finish:
    """Return when clients finish that are available and start now.

    Args:
        clock: What the program is specialised to.
        trial: The trial's numbers.
        availability: Which clients are available in which round.
        now: When they start.
        seed: Seed of the run.
        event: The number of their task, on which the delays depend.
        clients: [K] positions.
        ids: [K] stable ids.
        mask: [K] which of them are real.
    """
    needed = trial.delays.milliseconds(seed, clients, event, ids=ids, work=trial.work)
    fails = trial.delays.fails(seed, clients, event, ids=ids)
    if clock.interruption == "finish":
        return Finish(needed, fails)
    first, length = until_next_round(trial, now), trial.seconds_per_round * 1000
    start = now.seconds // trial.seconds_per_round

    def walk(at: _Walk) -> _Walk:
        present = availability.available(start + at.number, seed)[clients]
        at_work = at.is_open & present
        done = at_work & (at.left <= length)
        # "fail" stops where the client becomes unavailable; so does a pause that never ends
        stops = at.is_open & ~present if clock.interruption == "fail" else at.is_open & (at.begins >= MAX_MILLISECONDS)
        stops &= ~done
        times = jnp.where(done, at.begins + at.left, jnp.where(stops, at.begins, at.finish.milliseconds))
        left = jnp.where(at_work, at.left - length, at.left)
        ended = Finish(jnp.minimum(times, MAX_MILLISECONDS), at.finish.fails | stops)
        return _Walk(at.number + 1, at.begins + length, left, ended, at.is_open & ~done & ~stops)

    crosses = mask & (needed > first)
    begin = _Walk(jnp.int32(1), first, needed - first, Finish(needed, fails), crosses)
    return lax.while_loop(lambda at: jnp.any(at.is_open), walk, begin).finish


def close_round(trial: TrialClock, cohort: Cohort, finish: Finish) -> tuple[Cohort, jax.Array]:
    """Return the clients whose updates arrive before the round ends, and after how many milliseconds it ends.

    Updates that arrive at the same time count in the order of the slots. A round that is closed neither by the
    deadline nor by the number of answers ends when the last client has answered or failed.
    """
    times = finish.milliseconds
    answers = cohort.mask & ~finish.fails & (times <= trial.deadline)
    order = jnp.argsort(jnp.where(answers, times, NO_LIMIT), stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0], dtype=order.dtype), unique_indices=True)
    kept = answers & (rank < trial.answers)
    last = jnp.max(jnp.where(kept, times, 0), initial=0)
    everyone = jnp.minimum(jnp.max(jnp.where(cohort.mask, times, 0), initial=0), trial.deadline)
    elapsed = jnp.where(jnp.sum(kept) >= trial.answers, last, everyone)
    return cohort._replace(mask=kept), elapsed
