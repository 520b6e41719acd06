"""Every algorithm, compiled, equals the plain NumPy reference on small problems."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import (
    Algorithm,
    Federation,
    fedadam,
    fedavg,
    fedlaavg,
    fedprox,
    fedsgd,
    flexible,
    naive,
    sequential,
)
from fedlatest.availability import Availability
from fedlatest.models import softmax_cross_entropy
from fedlatest.simulation.engine import Engine, Training
from tests.problems import MODEL, coins, days, flat, small_federation
from tests.reference import Reference

ROUNDS = 12
CASES: dict[str, tuple[Algorithm, dict[str, Any]]] = {
    "fedlaavg": (fedlaavg(), {}),
    "fedlaavg-update": (fedlaavg(weighting="update"), {"weighting": "update"}),
    "fedlaavg-none": (fedlaavg(weighting="none"), {"weighting": "none"}),
    "fedlaavg-hold": (fedlaavg(empty_round="hold"), {"empty_round": "hold"}),
    "fedavg": (fedavg(), {}),
    "fedavg-update": (fedavg(weighting="update"), {"weighting": "update"}),
    "fedsgd": (fedsgd(), {}),
    "fedprox": (fedprox(mu=0.7), {"mu": 0.7}),
    "fedadam": (fedadam(server_step=0.05), {"server_step": 0.05}),
    "fedadam-update": (fedadam(weighting="update"), {"weighting": "update"}),
    "naive": (naive(), {}),
    "flexible": (flexible(), {}),
    "flexible-part": (flexible(least_work=0.3), {"least_work": 0.3}),
    "flexible-kick": (flexible(least_presence=0.25, trial=6), {"least_presence": 0.25, "trial": 6}),
}
PATTERNS = {
    "bernoulli": coins([0.1, 0.2, 0.3, 0.2, 0.4, 0.1]),
    "diurnal": days([True, False, True, False, False, True], period=2),
}


def both(
    federation: Federation,
    algorithm: Algorithm,
    availability: Availability,
    *,
    seed: int = 3,
    cohort_size: int = 3,
    clients_at_once: int = 2,
    **reference: Any,
) -> tuple[Any, Any, Reference]:
    """The same experiment in the engine and in the reference: (final state, record, reference)."""
    training = Training(cohort_size=cohort_size, num_local_steps=4, batch_size=3, learning_rate=0.3)
    engine = Engine(
        federation, MODEL, algorithm, availability, training, loss=softmax_cross_entropy, seeds=[seed],
        clients_at_once=clients_at_once,
    )  # fmt: skip
    states = engine.start()
    slow = Reference(
        federation,
        algorithm.name,
        lambda round: np.asarray(availability.available(round, jnp.uint32(seed))),
        flat(states[0].server.params)[0],
        cohort_size,
        steps=4,
        batch=3,
        rate=float(np.float32(0.3)),
        seed=seed,
        **reference,
    )
    slow.play(ROUNDS)
    states, record = engine.advance(states, ROUNDS)
    return jax.tree.map(lambda leaf: leaf[0], states[0]), jax.tree.map(lambda leaf: leaf[0], record), slow


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("case", CASES)
def test_equals_reference(case: str, pattern: str) -> None:
    """Cohorts agree exactly, models to float32 rounding; Bernoulli rates are low enough for rounds with nobody."""
    algorithm, options = CASES[case]
    federation = small_federation()
    state, record, slow = both(federation, algorithm, PATTERNS[pattern], **options)
    for round in range(ROUNDS):
        cohort = set(record.cohort.clients[round][record.cohort.mask[round]].tolist())
        assert cohort == slow.cohorts[round]
    np.testing.assert_allclose(flat(state.server.params), slow.x, rtol=2e-5, atol=2e-6)
    assert state.last_round.tolist() == slow.last
    if algorithm.remembers:
        np.testing.assert_allclose(flat(state.memory["update"]), slow.stored, rtol=2e-5, atol=2e-6)


def test_sometimes_nobody_is_there() -> None:
    """The Bernoulli case above does hold empty rounds and rounds with fewer than K."""
    _, record, _ = both(small_federation(), fedlaavg(), PATTERNS["bernoulli"])
    assert 0 in record.cohort_size
    assert any(0 < size < 3 for size in record.cohort_size)


def test_sequential_equals_reference_on_pooled_data() -> None:
    """Sequential SGD is FedAvg on one client that holds everything, with the cohort's batch together."""
    federation = small_federation()
    training = Training(cohort_size=3, num_local_steps=4, batch_size=3, learning_rate=0.3)
    engine = Engine(
        federation, MODEL, sequential(), PATTERNS["bernoulli"], training, loss=softmax_cross_entropy, seeds=[3]
    )
    states = engine.start()
    slow = Reference(
        federation.pooled, "fedavg", lambda round: np.ones(1, bool), flat(states[0].server.params)[0], 1,
        steps=4, batch=9, rate=float(np.float32(0.3)), seed=3, weighting="none",
    )  # fmt: skip
    states, _ = engine.advance(states, ROUNDS)
    np.testing.assert_allclose(flat(states[0].server.params)[0], slow.play(ROUNDS), rtol=2e-5, atol=2e-6)
