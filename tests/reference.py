"""A slow, obvious reference in plain NumPy: one client at a time, one list of samples at a time.

It restates the hash, the shuffle, the selection rules and every algorithm, for logistic regression, in float64. Each
class is one algorithm and follows its update rule literally, round by round.
"""

import itertools
import math
from collections.abc import Callable, Sequence
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
    position_now = position
    for number in range(24):
        round_key = mix((key + 0x9E3779B9 * (number + 1)) & MASK)
        unit = np.float32(round_key >> 8) * np.float32(2**-24)
        pivot = min(int(unit * np.float32(size)), size - 1)
        partner = (pivot - position_now) % size
        if mix(round_key ^ max(position_now, partner)) >> 31:
            position_now = partner
    return position_now


def batches(federation: Federation, client: int, *, round: int, seed: int, steps: int, size: int) -> list[list[int]]:
    """Rows of the client's local batches: shuffle, take them in order, shuffle again."""
    own = federation.order[federation.offsets[client] : federation.offsets[client + 1]]
    order_of_rows: list[int] = []
    shuffle = 0
    while len(order_of_rows) < steps * size:
        key = bits(seed, BATCHES, int(federation.ids[client]), round, shuffle)
        order_of_rows += [int(own[permute(key, len(own), position)]) for position in range(len(own))]
        shuffle += 1
    return [order_of_rows[step * size : (step + 1) * size] for step in range(steps)]


def gradient(x: Floats, features: Floats, labels: npt.NDArray[Any]) -> Floats:
    """Gradient of the mean cross-entropy of logits = features @ x[:, :-1].T + x[:, -1]."""
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    logits = design @ x.T
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    return np.asarray(chances.T @ design / len(labels))


@dataclass
class FedAvg:
    """Runs rounds and keeps everything worth comparing; the other algorithms override parts of it."""

    federation: Federation
    available: Callable[[int], npt.NDArray[np.bool_]]
    x: Floats
    cohort_size: int
    steps: int
    batch: int
    rate: float
    seed: int = 0
    weighting: str = "loss"
    server_step: float = 1.0
    cohorts: list[set[int]] = field(default_factory=list)
    last: list[int] = field(default_factory=list)  # R_i, or -1
    known_rates: Sequence[float] = ()  # p_i, where the algorithm requires them

    def __post_init__(self) -> None:
        self.num_clients = self.federation.num_clients
        self.last = [-1] * self.num_clients
        self.begin()

    def begin(self) -> None:
        """Set up what the algorithm keeps."""

    def run(self, rounds: int) -> Floats:
        for round in range(rounds):
            cohort = self.select(round)
            self.merge(round, cohort, {client: self.train(client, round) for client in cohort})
            self.cohorts.append(set(cohort))
            for client in cohort:
                self.last[client] = round
        return self.x

    def select(self, round: int) -> list[int]:
        return self.uniform(round, np.flatnonzero(self.available(round)).tolist())

    def uniform(self, round: int, clients: list[int]) -> list[int]:
        rank = {c: bits(self.seed, SELECTION, int(self.federation.ids[c]), round) >> 2 for c in clients}
        return sorted(clients, key=lambda client: -rank[client])[: self.cohort_size]

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        if cohort:
            self.x = self.x + self.server_step * self.mean(cohort, updates)

    def mean(self, cohort: list[int], updates: dict[int, Floats]) -> Floats:
        share = sum(self.weight(client) for client in cohort) if self.weighting == "update" else len(cohort)
        return np.asarray(np.sum(list(updates.values()), axis=0) / share)

    def weight(self, client: int) -> float:
        sizes = np.diff(self.federation.offsets)
        return float(sizes[client] * len(sizes) / sizes.sum())

    def train(self, client: int, round: int) -> Floats:
        """The update of one client."""
        local = self.local_model(client, round, self.x)
        return (local - self.x) * (self.weight(client) if self.weighting == "update" else 1.0)

    def local_model(self, client: int, round: int, start: Floats, num_steps: int | None = None) -> Floats:
        """Local SGD on w_i N f_i."""
        local = start.copy()
        scale = self.weight(client) if self.weighting == "loss" else 1.0
        rows_of = batches(self.federation, client, round=round, seed=self.seed, steps=self.steps, size=self.batch)
        for rows in rows_of[:num_steps]:
            features = self.federation.features[rows].astype(np.float64)
            descent = scale * gradient(local, features, self.federation.labels[rows])
            local = local - self.rate * self.direction(client, descent, local)
        return local

    def direction(self, client: int, descent: Floats, local: Floats) -> Floats:
        return descent

    def num_steps_done(self, client: int, round: int, least_work: float) -> int:
        """The number of local steps of a client that does not do all of them."""
        least = max(1, math.ceil(least_work * self.steps))
        chance = (bits(self.seed, WORK, int(self.federation.ids[client]), round) >> 8) * 2**-24
        return least + int(chance * (self.steps - least + 1))


@dataclass
class FedNova(FedAvg):
    least_work: float = 1.0

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        if cohort:
            weights = {c: self.weight(c) if self.weighting == "update" else 1.0 for c in cohort}
            steps = {c: self.num_steps_done(c, round, self.least_work) for c in cohort}
            tau = sum(weights[c] * steps[c] for c in cohort) / sum(weights.values())
            self.x = self.x + self.server_step * tau * self.mean(cohort, {c: updates[c] / steps[c] for c in cohort})

    def train(self, client: int, round: int) -> Floats:
        local = self.local_model(client, round, self.x, self.num_steps_done(client, round, self.least_work))
        return (local - self.x) * (self.weight(client) if self.weighting == "update" else 1.0)


@dataclass
class FedSGD(FedAvg):
    def begin(self) -> None:
        self.steps = 1


@dataclass
class FedProx(FedAvg):
    mu: float = 1.0

    def direction(self, client: int, descent: Floats, local: Floats) -> Floats:
        return descent + self.mu * (local - self.x)


@dataclass
class FedAdam(FedAvg):
    server_step: float = 0.01

    def begin(self) -> None:
        self.first, self.second, self.num_steps = np.zeros_like(self.x), np.zeros_like(self.x), 0

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        """Adam's step along the mean update, with bias-corrected moments."""
        if not cohort:
            return
        mean = self.mean(cohort, updates)
        self.num_steps += 1
        self.first = 0.9 * self.first + 0.1 * mean
        self.second = 0.99 * self.second + 0.01 * mean**2
        first, second = self.first / (1 - 0.9**self.num_steps), self.second / (1 - 0.99**self.num_steps)
        self.x = self.x + self.server_step * first / (np.sqrt(second) + 1e-3)


@dataclass
class FedYogi(FedAvg):
    server_step: float = 0.01

    def begin(self) -> None:
        self.first, self.second, self.num_steps = np.full_like(self.x, 1e-6), np.full_like(self.x, 1e-6), 0

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        """Yogi's step along the mean update, with bias-corrected moments."""
        if not cohort:
            return
        mean = self.mean(cohort, updates)
        self.num_steps += 1
        self.first = 0.9 * self.first + 0.1 * mean
        self.second = self.second - 0.01 * np.sign(self.second - mean**2) * mean**2
        first, second = self.first / (1 - 0.9**self.num_steps), self.second / (1 - 0.99**self.num_steps)
        self.x = self.x + self.server_step * first / (np.sqrt(second) + 1e-3)


@dataclass
class FedLaAvg(FedAvg):
    empty_round: str = "step"
    fresh: str | float = "average"
    average_over: str = "all"
    damping: float = 0.0
    selection: str = "oldest"

    def begin(self) -> None:
        self.stored = np.zeros((self.num_clients, *self.x.shape))  # u_i

    def select(self, round: int) -> list[int]:
        available = np.flatnonzero(self.available(round)).tolist()
        ids = [int(number) for number in self.federation.ids]
        if self.selection == "weighted":
            draws = {c: ((bits(self.seed, SELECTION, ids[c], round) >> 2) + 0.5) / 2**30 for c in available}
            values = {c: -np.log(draws[c]) / (round - self.last[c]) ** 2 for c in available}
            return sorted(available, key=lambda client: values[client])[: self.cohort_size]
        rank = {c: (self.last[c], -(bits(self.seed, SELECTION, ids[c], self.last[c]) >> 2)) for c in available}
        return sorted(available, key=lambda client: rank[client])[: self.cohort_size]

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        num_seen = sum(client in cohort or last >= 0 for client, last in enumerate(self.last))
        divisor = max(num_seen, 1) if self.average_over == "seen" else self.num_clients
        ages = [round - last for client, last in enumerate(self.last) if last >= 0 and client not in cohort]
        old = self.stored.sum(axis=0) / divisor * (np.mean(ages) ** -self.damping if ages else 1.0)
        differences = [update - self.stored[client] for client, update in updates.items()]
        for client, update in updates.items():
            self.stored[client] = update
        if not cohort and self.empty_round == "step":
            self.x = self.x + self.server_step * old
        if cohort:
            share = sum(self.weight(client) for client in cohort) if self.weighting == "update" else len(cohort)
            weight = {"average": 1 / divisor, "cohort": 1 / share}.get(str(self.fresh), self.fresh)
            self.x = self.x + self.server_step * (old + float(weight) * np.sum(differences, axis=0))


@dataclass
class FedLaAvgFresh(FedLaAvg):
    fresh: str | float = "cohort"
    selection: str = "weighted"


@dataclass
class MIFA(FedAvg):
    def begin(self) -> None:
        self.gradients = np.zeros((self.num_clients, *self.x.shape))  # G_i

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        for client, update in updates.items():
            self.gradients[client] = -update / self.rate
        self.x = self.x - self.server_step * self.rate * self.gradients.mean(axis=0)


@dataclass
class FedVARP(FedAvg):
    def begin(self) -> None:
        self.stored = np.zeros((self.num_clients, *self.x.shape))  # u_i

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        if cohort:
            differences = {client: update - self.stored[client] for client, update in updates.items()}
            self.x = self.x + self.server_step * (self.stored.mean(axis=0) + self.mean(cohort, differences))
        for client, update in updates.items():
            self.stored[client] = update


@dataclass
class InverseProbability(FedAvg):
    rates: str = "counts"

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        for client, update in updates.items():
            rate = self.probability(client, round, cohort)
            self.x = self.x + self.server_step * update / (rate * self.num_clients)

    def probability(self, client: int, round: int, cohort: list[int]) -> float:
        """p_i of a client that takes part in this round."""
        if self.rates == "known":
            return self.known_rates[client]
        if self.rates == "cohort":
            return len(cohort) / self.num_clients
        return (1 + sum(client in earlier for earlier in self.cohorts)) / (round + 1)


@dataclass
class FedStale(InverseProbability):
    beta: float = 0.5

    def begin(self) -> None:
        self.stored = np.zeros((self.num_clients, *self.x.shape))  # h_i

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        if cohort or self.rates != "cohort":
            step = self.beta * self.stored.mean(axis=0)
            for client, update in updates.items():
                difference = update - self.beta * self.stored[client]
                step = step + difference / (self.probability(client, round, cohort) * self.num_clients)
            self.x = self.x + self.server_step * step
        for client, update in updates.items():
            self.stored[client] = update


@dataclass
class F3AST(FedAvg):
    smoothing: float = 0.01

    def begin(self) -> None:
        self.rates = [self.cohort_size / self.num_clients] * self.num_clients  # r_i

    def select(self, round: int) -> list[int]:
        available = np.flatnonzero(self.available(round)).tolist()
        ids = [int(number) for number in self.federation.ids]
        rank = {c: (self.rates[c], -(bits(self.seed, SELECTION, ids[c], round) >> 2)) for c in available}
        return sorted(available, key=lambda client: rank[client])[: self.cohort_size]

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        for client in range(self.num_clients):
            self.rates[client] = (1 - self.smoothing) * self.rates[client] + self.smoothing * (client in cohort)
        for client, update in updates.items():
            self.x = self.x + self.server_step * update / (self.rates[client] * self.num_clients)


@dataclass
class CAFed(FedAvg):
    """Keeps the whole history of every client, and computes its frequencies anew in every round."""

    bias: float = 1.0
    tolerance: float = 0.0
    smoothing: float = 1.0

    def begin(self) -> None:
        self.history: list[list[bool]] = [[] for _ in range(self.num_clients)]
        self.excess: dict[int, float] = {}  # l_i
        self.excluded: set[int] = set()

    def select(self, round: int) -> list[int]:
        for client, is_on in enumerate(self.available(round)):
            self.history[client].append(bool(is_on))
        on = [client for client in range(self.num_clients) if self.history[client][-1]]
        ids = [int(number) for number in self.federation.ids]
        draw = {c: -(bits(self.seed, SELECTION, ids[c], round) >> 2) for c in on}
        return sorted(on, key=lambda client: (client in self.excluded, draw[client]))[: self.cohort_size]

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        training = [client for client in cohort if client not in self.excluded]
        willing = [c for c in range(self.num_clients) if self.history[c][-1] and c not in self.excluded]
        for client in training:
            weight = len(willing) / len(training) / np.mean(self.history[client])
            self.x = self.x + self.server_step * weight * updates[client] / self.num_clients
        for client, update in updates.items():
            share = self.weight(client) if self.weighting == "loss" else 1.0
            excess = float(np.sum(update**2)) / (self.steps * self.rate) ** 2 / share
            old = self.excess.get(client, excess)
            self.excess[client] = (1 - self.smoothing) * old + self.smoothing * excess
        self.excluded = self.to_exclude() if self.excess else set()

    def to_exclude(self) -> set[int]:
        mean = float(np.mean(list(self.excess.values())))
        losses = [self.excess.get(client, mean) for client in range(self.num_clients)]
        included = set(range(self.num_clients))

        def error(clients: set[int]) -> float:
            variation = 1 - len(clients) / self.num_clients
            return sum(losses[c] for c in clients) / len(clients) + self.bias * max(losses) * variation**2

        ids = self.federation.ids
        by_correlation = sorted(included, key=lambda c: (-abs(self.correlation(self.history[c])), ids[c]))
        by_rate = sorted(included, key=lambda c: (sum(self.history[c]), ids[c]))
        for client in by_correlation + by_rate:
            fewer = included - {client}
            if client in included and fewer and error(included) - error(fewer) >= self.tolerance:
                included = fewer
        return set(range(self.num_clients)) - included

    def correlation(self, history: list[bool]) -> float:
        after_on = [new for old, new in itertools.pairwise(history) if old]
        after_off = [not new for old, new in itertools.pairwise(history) if not old]
        return float(np.mean(after_on) + np.mean(after_off) - 1) if after_on and after_off else 0.0


@dataclass
class Focus(FedAvg):
    def begin(self) -> None:
        self.previous = np.zeros((self.num_clients, *self.x.shape))  # g_i
        self.tracked = np.zeros_like(self.x)  # y

    def train(self, client: int, round: int) -> Floats:
        """y_i: the change of the client's gradient since it last took part."""
        local, change = self.x.copy(), np.zeros_like(self.x)
        scale = self.weight(client) if self.weighting == "loss" else 1.0
        for rows in batches(self.federation, client, round=round, seed=self.seed, steps=self.steps, size=self.batch):
            local = local - self.rate * change
            features = self.federation.features[rows].astype(np.float64)
            new = scale * gradient(local, features, self.federation.labels[rows])
            change = change + new - self.previous[client]
            self.previous[client] = new
        return change

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        for change in updates.values():
            self.tracked = self.tracked + change
        if cohort:
            self.x = self.x - self.server_step * self.rate * self.tracked / self.num_clients


@dataclass
class Naive(FedAvg):
    def begin(self) -> None:
        self.waiting: dict[int, Floats] = {}

    def select(self, round: int) -> list[int]:
        available = np.flatnonzero(self.available(round)).tolist()
        return self.uniform(round, [client for client in available if client not in self.waiting])

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        self.waiting |= updates
        if len(self.waiting) == self.num_clients:
            self.x = self.x + self.server_step * np.mean(list(self.waiting.values()), axis=0)
            self.waiting = {}


@dataclass
class Flexible(FedAvg):
    least_work: float = 1.0
    least_presence: float = 0.0
    trial: int = 100
    dropped: set[int] = field(default_factory=set)

    def select(self, round: int) -> list[int]:
        available = np.flatnonzero(self.available(round)).tolist()
        return self.uniform(round, [client for client in available if client not in self.dropped])

    def train(self, client: int, round: int) -> Floats:
        done = self.num_steps_done(client, round, self.least_work)
        return (self.local_model(client, round, self.x, done) - self.x) * (self.steps / done)

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        left = self.num_clients - len(self.dropped)
        self.x = self.x + self.server_step * np.sum([np.zeros_like(self.x), *updates.values()], axis=0) / left
        if round == self.trial:  # counts the cohorts of rounds 0 .. trial - 1
            seen = [sum(client in cohort for cohort in self.cohorts) for client in range(self.num_clients)]
            self.dropped = {c for c, times in enumerate(seen) if times < self.least_presence * max(seen)}


@dataclass
class Scaffold(FedAvg):
    def begin(self) -> None:
        self.common = np.zeros_like(self.x)  # c
        self.own = np.zeros((self.num_clients, *self.x.shape))  # c_i

    def direction(self, client: int, descent: Floats, local: Floats) -> Floats:
        return descent - self.own[client] + self.common

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        new = {c: self.own[c] - self.common - update / (self.steps * self.rate) for c, update in updates.items()}
        if cohort:
            self.x = self.x + self.server_step * self.mean(cohort, updates)
        for client, control in new.items():
            self.common = self.common + (control - self.own[client]) / self.num_clients
            self.own[client] = control


@dataclass
class AmplifiedScaffold(FedAvg):
    """Lists the mean gradient of every participation in the period, as the paper's Algorithm 1 does."""

    amplification: float = 2.0
    amplify_every: int = 20

    def begin(self) -> None:
        self.anchor = self.x.copy()
        self.common = np.zeros_like(self.x)  # c
        self.own = np.zeros((self.num_clients, *self.x.shape))  # c_i
        self.seen: list[list[Floats]] = [[] for _ in range(self.num_clients)]

    def direction(self, client: int, descent: Floats, local: Floats) -> Floats:
        return descent - self.own[client] + self.common

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        for client, update in updates.items():
            self.seen[client].append(self.own[client] - self.common - update / (self.steps * self.rate))
        super().merge(round, cohort, updates)
        if (round + 1) % self.amplify_every == 0:
            for client, gradients in enumerate(self.seen):
                if gradients:
                    self.own[client] = np.mean(gradients, axis=0)
            self.common = self.own.mean(axis=0)
            self.seen = [[] for _ in range(self.num_clients)]
            self.x = self.anchor + self.amplification * (self.x - self.anchor)
            self.anchor = self.x


@dataclass
class FedDyn(FedAvg):
    penalty: float = 0.1

    def begin(self) -> None:
        self.mean_dual = np.zeros_like(self.x)  # h
        self.own = np.zeros((self.num_clients, *self.x.shape))  # g_i

    def direction(self, client: int, descent: Floats, local: Floats) -> Floats:
        return descent - self.own[client] + self.penalty * (local - self.x)

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        if not cohort:
            return
        for client, update in updates.items():
            self.own[client] = self.own[client] - self.penalty * update
            self.mean_dual = self.mean_dual - self.penalty * update / self.num_clients
        self.x = self.x + self.server_step * (self.mean(cohort, updates) - self.mean_dual / self.penalty)


@dataclass
class FedAWE(FedAvg):
    max_norm: float = 0.0

    def begin(self) -> None:
        self.models = {client: self.x.copy() for client in range(self.num_clients)}  # x_i

    def train(self, client: int, round: int) -> Floats:
        """The amplified update: eta_g (t - tau_i) D_i."""
        own = self.models[client]
        absence = round - self.last[client]
        return self.server_step * absence * (self.local_model(client, round, own) - own)

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        if cohort:
            update = np.asarray(np.mean(list(updates.values()), axis=0))
            if self.max_norm and np.linalg.norm(update) > self.max_norm:
                update = update * self.max_norm / np.linalg.norm(update)
            self.x = np.mean([self.models[client] for client in cohort], axis=0) + update
            self.models |= dict.fromkeys(cohort, self.x)


@dataclass
class FedAU(FedAvg):
    """Counts every client's gap in every round, as the paper's Algorithm 2 does."""

    cutoff: int = 50

    def begin(self) -> None:
        self.omega, self.num_gaps = [1.0] * self.num_clients, [0] * self.num_clients
        self.gap = [0] * self.num_clients

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        weighted = [self.omega[client] * update for client, update in updates.items()]
        self.x = self.x + self.server_step * np.sum([np.zeros_like(self.x), *weighted], axis=0) / self.num_clients
        for client in range(self.num_clients):
            self.gap[client] += 1
            if client in cohort or self.gap[client] == self.cutoff:
                seen = self.num_gaps[client]
                self.omega[client] = (seen * self.omega[client] + self.gap[client]) / (seen + 1)
                self.num_gaps[client], self.gap[client] = seen + 1, 0


@dataclass
class AmplifiedFedAvg(FedAvg):
    amplification: float = 2.0
    amplify_every: int = 20

    def begin(self) -> None:
        self.anchor = self.x.copy()

    def merge(self, round: int, cohort: list[int], updates: dict[int, Floats]) -> None:
        super().merge(round, cohort, updates)
        if (round + 1) % self.amplify_every == 0:
            self.x = self.x + (self.amplification - 1) * (self.x - self.anchor)
            self.anchor = self.x


REFERENCES: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "fedsgd": FedSGD,
    "fedprox": FedProx,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fednova": FedNova,
    "feddyn": FedDyn,
    "fedlaavg": FedLaAvg,
    "fedlaavg_fresh": FedLaAvgFresh,
    "mifa": MIFA,
    "fedvarp": FedVARP,
    "inverse_probability": InverseProbability,
    "fedstale": FedStale,
    "f3ast": F3AST,
    "ca_fed": CAFed,
    "focus": Focus,
    "naive": Naive,
    "flexible": Flexible,
    "scaffold": Scaffold,
    "amplified_scaffold": AmplifiedScaffold,
    "fedawe": FedAWE,
    "fedau": FedAU,
    "amplified_fedavg": AmplifiedFedAvg,
}
"""By the name of the algorithm's factory; its keywords are those of the factory."""
