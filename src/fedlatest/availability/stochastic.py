"""Random availability: independent draws with fixed, periodic or label-dependent rates, and Markov chains.

Every draw is a hash of (seed, client id, round), so any round can be evaluated directly. Axis: [N] clients.
"""

import math
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
    if not 0 <= amplitude <= 0.5:
        raise ConfigError(f"amplitude={amplitude}: must be in [0, 0.5], otherwise a probability would be negative")
    if not 1 <= period < MAX_ROUNDS:
        raise ConfigError(f"period={period}: must be 1 .. {MAX_ROUNDS - 1} rounds")
    phases = np.asarray(phase, np.float32)
    if phases.shape not in ((), checked.shape) or not np.all(np.isfinite(phases)):
        raise ConfigError(f"phase={phases}: give one finite number of cycles, or one per client")
    phases = np.broadcast_to(phases, checked.shape)
    return Independent(
        _check_ids(ids, checked.size),
        jnp.asarray(checked),
        jnp.float32(amplitude),
        jnp.int32(period),
        jnp.asarray(phases),
    )


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


@register_dataclass
@dataclass(frozen=True)
class Independent(Availability):
    """One independent draw per client and round, with a constant or sinusoidal probability. Created by `sine`."""

    ids: jax.Array  # [N]
    rate: jax.Array  # [N]
    amplitude: jax.Array
    period: jax.Array
    phase: jax.Array  # [N]

    @property
    def num_clients(self) -> int:
        """The number of clients, N."""
        return self.ids.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Return the clients whose uniform draw is below their current rate."""
        round = jnp.asarray(round)
        cycles = (round % self.period) / self.period + self.phase
        rate = self.rate * (1 - self.amplitude + self.amplitude * jnp.sin(2 * jnp.pi * cycles))
        return uniform(seed, Purpose.AVAILABILITY, self.ids, round) < rate

    def subset(self, clients: Values) -> Availability:
        """Return the model of the clients at some positions."""
        chosen = np.asarray(clients)
        return replace(self, ids=self.ids[chosen], rate=self.rate[chosen], phase=self.phase[chosen])


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


def _check_ids(ids: Values | None, num_clients: int) -> jax.Array:
    checked = jnp.arange(num_clients) if ids is None else jnp.asarray(ids, jnp.int32)
    if checked.shape != (num_clients,):
        raise ConfigError(f"ids: give one id per client ({num_clients}), not an array of shape {checked.shape}")
    return checked
