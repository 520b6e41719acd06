"""Random availability: independent draws with fixed, periodic or label-dependent rates, and Markov chains.

The periodic models are those of Xiang et al. (2024), "Efficient Federated Learning against Heterogeneous and
Non-stationary Client Unavailability": the probability of client i in round r is p_i f(r) with f constant (`bernoulli`),
a `staircase`, a `sine`, or an `interleaved_sine`.

Every draw is a hash of (seed, client id, round), so any round can be evaluated directly. Axis: [N] clients.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import MAX_ROUNDS, Availability
from fedlatest.errors import ConfigError
from fedlatest.streams import Purpose, uniform


def bernoulli(rates: Values, *, ids: Values | None = None) -> Availability:
    """Return a model in which each client is available with its own probability, independently in every round.

    >>> bernoulli([1.0, 0.0]).available(3, seed=0).tolist()
    [True, False]
    """
    return sine(rates, amplitude=0.0, period=1, ids=ids)


def sine(
    rates: Values, *, amplitude: float, period: int, phase: Values = 0.0, ids: Values | None = None
) -> Availability:
    """Return independent draws whose probability follows a sine of the round.

    The probability in round r is rate * (1 - a + a sin(2 pi (r / P + phase))), between rate * (1 - 2 a) and
    rate.

    Args:
        rates: [N] largest probability of each client, in [0, 1].
        amplitude: a, in [0, 0.5].
        period: P, the rounds of one cycle.
        phase: Offset in cycles, one number or one per client.
        ids: [N] client ids that select the random streams; by default the positions 0 .. N - 1.

    >>> sine([0.8, 0.8], amplitude=0.3, period=20).num_clients
    2
    """
    checked = _check_rates("rates", rates)
    _check_amplitude(amplitude)
    _check_period(period)
    return Independent(
        _check_ids(ids, checked.size),
        jnp.asarray(checked),
        jnp.float32(amplitude),
        jnp.int32(period),
        _check_phase(phase, checked.size),
    )


def interleaved_sine(
    rates: Values,
    *,
    amplitude: float,
    period: int,
    min_rate: float,
    phase: Values = 0.0,
    ids: Values | None = None,
) -> Availability:
    """Return the draws of `sine`, except that a probability below `min_rate` is 0.

    Clients with a low rate are then absent for a part of every period, and clients with a rate below `min_rate` always.

    Args:
        rates: [N] largest probability of each client, in [0, 1].
        amplitude: a, in [0, 0.5].
        period: P, the rounds of one cycle.
        min_rate: Probabilities below it are replaced by 0.
        phase: Offset in cycles, one number or one per client.
        ids: [N] client ids that select the random streams; by default the positions 0 .. N - 1.

    >>> model = interleaved_sine([0.2, 0.05], amplitude=0.3, period=4, min_rate=0.1)
    >>> model.mean_rates(4).round(3).tolist()  # (0.14 + 0.2 + 0.14 + 0) / 4, because 0.08 is below 0.1
    [0.12, 0.0]
    """
    checked = _check_rates("rates", rates)
    _check_amplitude(amplitude)
    _check_period(period)
    if not 0 <= min_rate <= 1:
        raise ConfigError(f"min_rate={min_rate}: must be a probability in [0, 1]")
    return Interleaved(
        _check_ids(ids, checked.size),
        jnp.asarray(checked),
        jnp.float32(amplitude),
        jnp.int32(period),
        _check_phase(phase, checked.size),
        jnp.float32(min_rate),
    )


def staircase(rates: Values, *, low: float, period: int, ids: Values | None = None) -> Availability:
    """Return independent draws with probability rate in the first half of every period and rate * low in the second.

    Args:
        rates: [N] probability of each client in the first half, in [0, 1].
        low: The factor in the second half, in [0, 1].
        period: Rounds of one cycle; if it is odd, the first half is one round longer.
        ids: [N] client ids that select the random streams; by default the positions 0 .. N - 1.

    >>> model = staircase([1.0, 1.0], low=0.0, period=4)
    >>> model.table(5)[:, 0].astype(int).tolist()
    [1, 1, 0, 0, 1]
    """
    checked = _check_rates("rates", rates)
    if not 0 <= low <= 1:
        raise ConfigError(f"low={low}: the factor of the second half must be in [0, 1]")
    _check_period(period)
    return Staircase(_check_ids(ids, checked.size), jnp.asarray(checked), jnp.float32(low), jnp.int32(period))


def label_rates(labels: Values, rates_by_label: Values, *, ids: Values | None = None) -> Availability:
    """Return independent draws whose probability depends on the client's label.

    The set of available clients then correlates with the data that they hold.

    Args:
        labels: [N] label of each client, 0 .. L - 1.
        rates_by_label: [L] probability for each label, in [0, 1].
        ids: [N] client ids that select the random streams; by default the positions 0 .. N - 1.

    >>> label_rates([0, 1, 1], [1.0, 0.0]).available(0, seed=0).tolist()
    [True, False, False]
    """
    rates, clients = _check_rates("rates_by_label", rates_by_label), np.asarray(labels)
    if not np.issubdtype(clients.dtype, np.integer) or clients.ndim != 1:
        raise ConfigError("labels: give one whole number per client")
    if clients.size == 0 or clients.min() < 0 or clients.max() >= rates.size:
        raise ConfigError(
            f"rates_by_label: has {rates.size} rates, but the largest label is {clients.max(initial=-1)}; "
            "give one rate for each label 0, 1, ..."
        )
    return bernoulli(rates[clients], ids=ids)


def markov(share: Values, *, correlation: float, ids: Values | None = None) -> Availability:
    """Return on/off Markov chains, one per client.

    The autocorrelation of a client's availability after n rounds is exp(-n / correlation).

    Args:
        share: [N] share of the rounds in which each client is available, in [0, 1].
        correlation: Rounds after which the autocorrelation has fallen to 1/e.
        ids: [N] client ids that select the random streams; by default the positions 0 .. N - 1.

    >>> markov([0.3, 0.3], correlation=10).available(10**6, seed=0).shape
    (2,)
    """
    shares = _check_rates("share", share)
    if not (math.isfinite(correlation) and 0 < correlation <= 1e7):
        raise ConfigError(f"correlation={correlation}: must be a number of rounds above 0, at most 1e7")
    levels = max(1, math.ceil(math.log2(25 * max(correlation, 1.0))))
    return Markov(_check_ids(ids, shares.size), jnp.asarray(shares), jnp.float32(correlation), levels)


class _Draws(Availability):
    """One independent draw per client and round, with probabilities that repeat after `period` rounds."""

    ids: jax.Array  # [N]
    period: jax.Array

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.ids.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the clients whose uniform draw is below their current probability."""
        return uniform(seed, Purpose.AVAILABILITY, self.ids, jnp.asarray(round)) < self.probability(round)

    @abstractmethod
    def probability(self, round: ArrayLike) -> jax.Array:
        """Return [N] the probabilities in `round`."""

    def cycle(self) -> int:
        """Return the period."""
        return int(self.period)


@register_dataclass
@dataclass(frozen=True)
class Independent(_Draws):
    """Draws with a constant or sinusoidal probability. Created by `sine`."""

    ids: jax.Array  # [N]
    rate: jax.Array  # [N]
    amplitude: jax.Array
    period: jax.Array
    phase: jax.Array  # [N]

    def probability(self, round: ArrayLike) -> jax.Array:
        """Return rate * (1 - a + a sin(2 pi (r / P + phase)))."""
        cycles = (jnp.asarray(round) % self.period) / self.period + self.phase
        return self.rate * (1 - self.amplitude + self.amplitude * jnp.sin(2 * jnp.pi * cycles))

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen = np.asarray(clients)
        return replace(self, ids=self.ids[chosen], rate=self.rate[chosen], phase=self.phase[chosen])


@register_dataclass
@dataclass(frozen=True)
class Interleaved(Independent):
    """Draws with a sinusoidal probability, 0 where it would be below `min_rate`. Created by `interleaved_sine`."""

    min_rate: jax.Array

    def probability(self, round: ArrayLike) -> jax.Array:
        """Return the probability of the sine where it is at least `min_rate`, and 0 elsewhere."""
        probability = super().probability(round)
        return jnp.where(probability < self.min_rate, 0, probability)


@register_dataclass
@dataclass(frozen=True)
class Staircase(_Draws):
    """Draws with one probability in the first half of a period and another one in the second. See `staircase`."""

    ids: jax.Array  # [N]
    rate: jax.Array  # [N]
    low: jax.Array
    period: jax.Array

    def probability(self, round: ArrayLike) -> jax.Array:
        """Return the rate in the first half of a period, and rate * low in the second."""
        in_first_half = 2 * (jnp.asarray(round) % self.period) < self.period
        return self.rate * jnp.where(in_first_half, 1, self.low)

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen = np.asarray(clients)
        return replace(self, ids=self.ids[chosen], rate=self.rate[chosen])


@register_dataclass
@dataclass(frozen=True)
class Markov(Availability):
    """One on/off chain per client, evaluated at any round by bridging between anchor rounds. Created by `markov`.

    Every 2^levels rounds there is an anchor. Anchors are at least 25 correlation times apart, so their states can be
    drawn independently (the error is below 2^-32). Between two anchors, the state in the middle is drawn conditionally
    on both ends, then the middle of the half that contains the round, and so on. This samples the same chain in
    `levels` steps.
    """

    ids: jax.Array  # [N]
    share: jax.Array  # [N]
    correlation: jax.Array  # rounds after which the autocorrelation has fallen to 1/e
    levels: int = field(metadata={"static": True})

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.ids.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the clients whose chain is on."""
        round = jnp.asarray(round, jnp.int32)
        block, offset = round >> self.levels, round & (2**self.levels - 1)
        on_left = uniform(seed, Purpose.AVAILABILITY, self.ids, block) < self.share
        on_right = uniform(seed, Purpose.AVAILABILITY, self.ids, block + 1) < self.share
        left = jnp.int32(0)
        for level in reversed(range(self.levels)):
            middle = left + 2**level
            draw = uniform(seed, Purpose.BRIDGE, self.ids, block, middle)
            on_middle = draw < self._probability_of_middle(on_left, on_right, 2**level)
            in_right_half = offset >= middle
            on_left = jnp.where(in_right_half, on_middle, on_left)
            on_right = jnp.where(in_right_half, on_right, on_middle)
            left = jnp.where(in_right_half, middle, left)
        return on_left

    def probability(self, round: ArrayLike) -> jax.Array:
        """Return the shares, which are the probabilities in every round: the chains are stationary."""
        del round
        return self.share

    def cycle(self) -> int:
        """Return 1: the probabilities are the same in every round."""
        return 1

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen = np.asarray(clients)
        return replace(self, ids=self.ids[chosen], share=self.share[chosen])

    def _probability_of_middle(self, on_left: jax.Array, on_right: jax.Array, steps: int) -> jax.Array:
        """Return the probability of being on, `steps` rounds from both ends, given the states at the ends."""
        redrawn = -jnp.expm1(-steps / self.correlation)  # expm1 is accurate where this is small
        on, off = jnp.bool_(True), jnp.bool_(False)
        through_on = self._transition(on_left, on, redrawn) * self._transition(on, on_right, redrawn)
        through_off = self._transition(on_left, off, redrawn) * self._transition(off, on_right, redrawn)
        return through_on / (through_on + through_off)

    def _transition(self, start: jax.Array, end: jax.Array, redrawn: jax.Array) -> jax.Array:
        """Return the probability of going from `start` to `end` if a chain is redrawn with probability `redrawn`."""
        by_redraw = jnp.where(end, self.share, 1 - self.share) * redrawn
        return jnp.where(start == end, (1 - redrawn) + by_redraw, by_redraw)


def _check_rates(name: str, rates: Values) -> npt.NDArray[np.float32]:
    checked = np.asarray(rates, np.float32)
    if checked.ndim != 1 or checked.size == 0:
        raise ConfigError(f"{name}: give one rate per client, not an array of shape {checked.shape}")
    invalid = ~((checked >= 0) & (checked <= 1))
    if invalid.any():
        raise ConfigError(f"{name}={checked[invalid][0]}: a rate must be in [0, 1]")
    return checked


def _check_amplitude(amplitude: float) -> None:
    if not 0 <= amplitude <= 0.5:
        raise ConfigError(f"amplitude={amplitude}: must be in [0, 0.5], otherwise a probability would be negative")


def _check_period(period: int) -> None:
    if not 1 <= period < MAX_ROUNDS:
        raise ConfigError(f"period={period}: must be 1 .. {MAX_ROUNDS - 1} rounds")


def _check_phase(phase: Values, num_clients: int) -> jax.Array:
    phases = np.asarray(phase, np.float32)
    if phases.shape not in ((), (num_clients,)) or not np.all(np.isfinite(phases)):
        raise ConfigError(f"phase={phases}: give one finite number of cycles, or one per client")
    return jnp.asarray(np.broadcast_to(phases, (num_clients,)))


def _check_ids(ids: Values | None, num_clients: int) -> jax.Array:
    checked = jnp.arange(num_clients) if ids is None else jnp.asarray(ids, jnp.int32)
    if checked.shape != (num_clients,):
        raise ConfigError(f"ids: give one id per client ({num_clients}), not an array of shape {checked.shape}")
    return checked
