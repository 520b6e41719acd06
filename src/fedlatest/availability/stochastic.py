"""Availability by chance: independent draws at fixed, modulated or label-dependent rates, and Markov chains.

Every draw is a hash of (seed, client id, round), so any round can be asked for at once.
"""

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike
from numpy.typing import ArrayLike as Values

from fedlatest.availability.base import MOST_ROUNDS, Availability
from fedlatest.errors import ConfigError
from fedlatest.streams import Purpose, uniform


@register_dataclass
@dataclass(frozen=True)
class Independent(Availability):
    """A coin per client and round, whose chance may swing like a sine: rate (1 - a + a sin(2 pi (r / P + phase)))."""

    ids: jax.Array  # [N]
    rate: jax.Array  # [N]
    amplitude: jax.Array
    period: jax.Array
    phase: jax.Array  # [N]

    @property
    def num_clients(self) -> int:
        """N."""
        return self.ids.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Those whose coin falls under the rate of the moment."""
        round = jnp.asarray(round)
        turn = (round % self.period) / self.period + self.phase
        rate = self.rate * (1 - self.amplitude + self.amplitude * jnp.sin(2 * jnp.pi * turn))
        return uniform(seed, Purpose.AVAILABILITY, self.ids, round) < rate


@register_dataclass
@dataclass(frozen=True)
class Markov(Availability):
    """An on/off chain per client, evaluated anywhere by bridging between fixed points.

    Every 2^levels rounds there is an anchor, far enough apart (25 correlation times) that their states are independent
    draws to within 2^-32. Between two anchors the middle state is drawn given both ends, then the middle of the half
    that holds the round, and so on: the same chain, in `levels` steps.
    """

    ids: jax.Array  # [N]
    share: jax.Array  # [N]
    correlation: jax.Array  # rounds after which the autocorrelation has fallen to 1/e
    levels: int = field(metadata={"static": True})

    @property
    def num_clients(self) -> int:
        """N."""
        return self.ids.shape[0]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        """Those whose chain is on."""
        round = jnp.asarray(round, jnp.int32)
        block, offset = round >> self.levels, round & (2**self.levels - 1)
        on_left = uniform(seed, Purpose.AVAILABILITY, self.ids, block) < self.share
        on_right = uniform(seed, Purpose.AVAILABILITY, self.ids, block + 1) < self.share
        left = jnp.int32(0)
        for level in reversed(range(self.levels)):
            middle = left + 2**level
            draw = uniform(seed, Purpose.BRIDGE, self.ids, block, middle)
            on_middle = draw < self._middle_on(on_left, on_right, 2**level)
            beyond = offset >= middle
            on_left, on_right = jnp.where(beyond, on_middle, on_left), jnp.where(beyond, on_right, on_middle)
            left = jnp.where(beyond, middle, left)
        return on_left

    def _middle_on(self, on_left: jax.Array, on_right: jax.Array, steps: int) -> jax.Array:
        """The chance of being on `steps` rounds from both ends, given the ends."""
        forgotten = -jnp.expm1(-steps / self.correlation)  # exact where little is forgotten
        on = self._reach(on_left, jnp.bool_(True), forgotten) * self._reach(jnp.bool_(True), on_right, forgotten)
        off = self._reach(on_left, jnp.bool_(False), forgotten) * self._reach(jnp.bool_(False), on_right, forgotten)
        return on / (on + off)

    def _reach(self, state: jax.Array, goal: jax.Array, forgotten: jax.Array) -> jax.Array:
        """The chance of going from `state` to `goal`: stay, or forget and draw anew from the share."""
        drawn = jnp.where(goal, self.share, 1 - self.share) * forgotten
        return jnp.where(state == goal, (1 - forgotten) + drawn, drawn)


def bernoulli(rates: Values, *, ids: Values | None = None) -> Availability:
    """Each client is here with its own chance, independently in every round.

    >>> bernoulli([1.0, 0.0]).available(3, seed=0).tolist()
    [True, False]
    """
    return sine(rates, amplitude=0.0, period=1, ids=ids)


def sine(
    rates: Values, *, amplitude: float, period: int, phase: Values = 0.0, ids: Values | None = None
) -> Availability:
    """Independent draws whose chance swings between rate (1 - 2 amplitude) and rate every `period` rounds.

    >>> sine([0.8, 0.8], amplitude=0.3, period=20).num_clients
    2
    """
    checked = _rates("rates", rates)
    if not 0 <= amplitude <= 0.5:
        raise ConfigError(f"amplitude={amplitude}: must be in [0, 0.5], so that no chance is negative")
    if not 1 <= period < MOST_ROUNDS:
        raise ConfigError(f"period={period}: a swing takes 1 .. {MOST_ROUNDS - 1} rounds")
    phases = np.asarray(phase, np.float32)
    if phases.shape not in ((), checked.shape) or not np.all(np.isfinite(phases)):
        raise ConfigError(f"phase={phases}: give one finite number of turns, or one per client")
    phases = np.broadcast_to(phases, checked.shape)
    return Independent(
        _ids(ids, checked.size), jnp.asarray(checked), jnp.float32(amplitude), jnp.int32(period), jnp.asarray(phases)
    )


def label_rates(labels: Values, rates_by_label: Values, *, ids: Values | None = None) -> Availability:
    """Independent draws whose chance depends on the client's label: who is here says what data is here.

    >>> label_rates([0, 1, 1], [1.0, 0.0]).available(0, seed=0).tolist()
    [True, False, False]
    """
    rates, clients = _rates("rates_by_label", rates_by_label), np.asarray(labels)
    if not np.issubdtype(clients.dtype, np.integer) or clients.ndim != 1:
        raise ConfigError("labels: give one whole number per client")
    if clients.size == 0 or clients.min() < 0 or clients.max() >= rates.size:
        raise ConfigError(f"rates_by_label: gives {rates.size} rates, but the labels reach {clients.max(initial=-1)}")
    return bernoulli(rates[clients], ids=ids)


def markov(share: Values, *, correlation: float, ids: Values | None = None) -> Availability:
    """On/off chains that are on for `share` of the time and stay as they are for about `correlation` rounds.

    corr(here at r, here at r + n) = exp(-n / correlation).

    >>> markov([0.3, 0.3], correlation=10).available(10**6, seed=0).shape
    (2,)
    """
    shares = _rates("share", share)
    if not (math.isfinite(correlation) and 0 < correlation <= 1e7):
        raise ConfigError(f"correlation={correlation}: must be a number of rounds above 0, at most 1e7")
    levels = max(1, math.ceil(math.log2(25 * max(correlation, 1.0))))
    return Markov(_ids(ids, shares.size), jnp.asarray(shares), jnp.float32(correlation), levels)


def _rates(name: str, rates: Values) -> npt.NDArray[np.float32]:
    checked = np.asarray(rates, np.float32)
    if checked.ndim != 1 or checked.size == 0:
        raise ConfigError(f"{name}: give one rate per client")
    wrong = ~((checked >= 0) & (checked <= 1))
    if wrong.any():
        raise ConfigError(f"{name}={checked[wrong][0]}: a rate is in [0, 1]")
    return checked


def _ids(ids: Values | None, num_clients: int) -> jax.Array:
    stable = jnp.arange(num_clients) if ids is None else jnp.asarray(ids, jnp.int32)
    if stable.shape != (num_clients,):
        raise ConfigError(f"ids: give one id per client ({num_clients}), not an array of shape {stable.shape}")
    return stable
