"""A slow, obvious reference in plain NumPy: one client at a time, one sample list at a time, nothing clever.

It restates the hash, the shuffle, the selection rules and every algorithm, for logistic regression, in float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.data import Federation

Floats = npt.NDArray[np.float64]
MASK = 0xFFFFFFFF
SELECTION, BATCHES, WORK = 2, 3, 7


def mix(word: int) -> int:
    word = ((word ^ (word >> 16)) * 0x85EBCA6B) & MASK
    word = ((word ^ (word >> 13)) * 0xC2B2AE35) & MASK
    return word ^ (word >> 16)


def bits(seed: int, purpose: int, *words: int) -> int:
    state = mix((seed * 0x9E3779B1 + purpose) & MASK)
    for word in words:
        state = mix((mix(state ^ (word & MASK)) + 0x6D2B79F5) & MASK)
    return state


def permute(key: int, size: int, position: int) -> int:
    place = position
    for number in range(24):
        round_key = mix((key + 0x9E3779B9 * (number + 1)) & MASK)
        unit = np.float32(round_key >> 8) * np.float32(2**-24)
        pivot = min(int(unit * np.float32(size)), size - 1)
        partner = (pivot - place) % size
        if mix(round_key ^ max(place, partner)) >> 31:
            place = partner
    return place


def batches(federation: Federation, client: int, *, round: int, seed: int, steps: int, size: int) -> list[list[int]]:
    """Rows of the client's local batches: shuffle, walk, shuffle again."""
    own = federation.order[federation.offsets[client] : federation.offsets[client + 1]]
    walk: list[int] = []
    lap = 0
    while len(walk) < steps * size:
        key = bits(seed, BATCHES, int(federation.ids[client]), round, lap)
        walk += [int(own[permute(key, len(own), position)]) for position in range(len(own))]
        lap += 1
    return [walk[step * size : (step + 1) * size] for step in range(steps)]


def gradient(x: Floats, features: Floats, labels: npt.NDArray[Any]) -> Floats:
    """Gradient of the mean cross-entropy of logits = features @ x[:, :-1].T + x[:, -1]."""
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    logits = design @ x.T
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return np.asarray(chances.T @ design / len(labels))


@dataclass
class Reference:
    """Plays rounds of one algorithm and remembers everything worth comparing."""

    federation: Federation
    algorithm: str
    available: Callable[[int], npt.NDArray[np.bool_]]
    x: Floats
    cohort_size: int
    steps: int
    batch: int
    rate: float
    seed: int = 0
    mu: float = 1.0
    server_step: float = 0.01
    weighting: str = "loss"
    empty_round: str = "step"
    least_work: float = 1.0
    least_presence: float = 0.0
    trial: int = 100
    cohorts: list[set[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        num_clients = self.federation.num_clients
        self.stored = np.zeros((num_clients, *self.x.shape))  # u_i
        self.last = [-1] * num_clients  # R_i
        self.waiting: dict[int, Floats] = {}
        self.out: set[int] = set()
        self.first, self.second, self.num_steps = np.zeros_like(self.x), np.zeros_like(self.x), 0  # Adam's moments

    def play(self, rounds: int) -> Floats:
        for round in range(rounds):
            self.play_round(round)
        return self.x

    def play_round(self, round: int) -> None:
        cohort = self.select(round)
        updates = {client: self.update(client, round) for client in cohort}
        self.cohorts.append(set(cohort))
        for client in cohort:
            self.last[client] = round
        if self.algorithm == "fedlaavg":
            for client, update in updates.items():
                self.stored[client] = update
            if cohort or self.empty_round == "step":
                self.x = self.x + self.stored.mean(axis=0)
        elif self.algorithm == "naive":
            self.waiting |= updates
            if len(self.waiting) == self.federation.num_clients:
                self.x = self.x + np.mean(list(self.waiting.values()), axis=0)
                self.waiting = {}
        elif self.algorithm == "flexible":
            left = self.federation.num_clients - len(self.out)
            self.x = self.x + np.sum([np.zeros_like(self.x), *updates.values()], axis=0) / left
            if round == self.trial:  # whose cohorts were rounds 0 .. trial - 1
                self.out = self.seldom(round)
        elif cohort:
            share = sum(self.weight(client) for client in cohort) if self.weighting == "update" else len(cohort)
            mean = np.sum(list(updates.values()), axis=0) / share
            self.x = self.x + (self.adam(mean) if self.algorithm == "fedadam" else mean)

    def adam(self, mean: Floats) -> Floats:
        """Adam's step along the mean update, with bias-corrected moments."""
        self.num_steps += 1
        self.first = 0.9 * self.first + 0.1 * mean
        self.second = 0.99 * self.second + 0.01 * mean**2
        first, second = self.first / (1 - 0.9**self.num_steps), self.second / (1 - 0.99**self.num_steps)
        return np.asarray(self.server_step * first / (np.sqrt(second) + 1e-3))

    def select(self, round: int) -> list[int]:
        here = np.flatnonzero(self.available(round)).tolist()
        ids = [int(number) for number in self.federation.ids]
        if self.algorithm == "fedlaavg":
            rank = {c: (self.last[c], -(bits(self.seed, SELECTION, ids[c], self.last[c]) >> 2)) for c in here}
            return sorted(here, key=lambda client: rank[client])[: self.cohort_size]
        if self.algorithm == "naive":
            here = [client for client in here if client not in self.waiting]
        here = [client for client in here if client not in self.out]
        lots = {client: bits(self.seed, SELECTION, ids[client], round) >> 2 for client in here}
        return sorted(here, key=lambda client: -lots[client])[: self.cohort_size]

    def seldom(self, rounds: int) -> set[int]:
        """Who took part too seldom in the first rounds, compared with the most frequent."""
        seen = [sum(client in cohort for cohort in self.cohorts[:rounds]) for client in range(len(self.last))]
        return {c for c, times in enumerate(seen) if times < self.least_presence * max(seen)}

    def steps_done(self, client: int, round: int, steps: int) -> int:
        least = max(1, math.ceil(self.least_work * steps))
        chance = (bits(self.seed, WORK, int(self.federation.ids[client]), round) >> 8) * 2**-24
        return least + int(chance * (steps - least + 1))

    def weight(self, client: int) -> float:
        sizes = np.diff(self.federation.offsets)
        return float(sizes[client] * len(sizes) / sizes.sum())

    def update(self, client: int, round: int) -> Floats:
        """Local SGD on w_i N f_i: x_local - x."""
        local = self.x.copy()
        steps = 1 if self.algorithm == "fedsgd" else self.steps
        scale = self.weight(client) if self.weighting == "loss" else 1.0
        walk = batches(self.federation, client, round=round, seed=self.seed, steps=steps, size=self.batch)
        done = self.steps_done(client, round, steps) if self.algorithm == "flexible" else steps
        for rows in walk[:done]:
            features = self.federation.features[rows].astype(np.float64)
            descent = scale * gradient(local, features, self.federation.labels[rows])
            if self.algorithm == "fedprox":
                descent = descent + self.mu * (local - self.x)
            local = local - self.rate * descent
        return (local - self.x) * (steps / done) * (self.weight(client) if self.weighting == "update" else 1.0)
