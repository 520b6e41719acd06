"""Every algorithm, compiled, equals the plain NumPy reference on small problems."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import Algorithm, Federation
from fedlatest.algorithms import ALGORITHMS, sequential
from fedlatest.availability import Availability
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.program import Record, State
from fedlatest.simulation.rounds import average_error
from tests.problems import MODEL, coins, days, flat, small_federation
from tests.reference import F3AST, REFERENCES, CAFed, FedAvg, FedLaAvg, FedStale, FedVARP, Focus, Scaffold

ROUNDS = 12
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # the factory's name and keywords, which are also the reference's
    "fedlaavg": ("fedlaavg", {}),
    "fedlaavg-update": ("fedlaavg", {"weighting": "update"}),
    "fedlaavg-none": ("fedlaavg", {"weighting": "none"}),
    "fedlaavg-hold": ("fedlaavg", {"empty_round": "hold"}),
    "fedlaavg-cohort": ("fedlaavg", {"fresh": "cohort", "empty_round": "hold"}),
    "fedlaavg-number": ("fedlaavg", {"fresh": 0.25, "server_step": 0.5}),
    "fedlaavg-seen": ("fedlaavg", {"average_over": "seen"}),
    "fedlaavg-damping": ("fedlaavg", {"damping": 0.7}),
    "fedlaavg-weighted": ("fedlaavg", {"selection": "weighted", "fresh": "cohort"}),
    "fedlaavg-options": (
        "fedlaavg",
        {"damping": 0.5, "average_over": "seen", "fresh": 0.3, "weighting": "none"},
    ),
    "fedlaavg_fresh": ("fedlaavg_fresh", {}),
    "fedlaavg_fresh-update": ("fedlaavg_fresh", {"weighting": "update"}),
    "fedavg": ("fedavg", {}),
    "fedavg-update": ("fedavg", {"weighting": "update", "server_step": 0.5}),
    "fedsgd": ("fedsgd", {}),
    "fedprox": ("fedprox", {"mu": 0.7, "server_step": 0.5}),
    "fedadam": ("fedadam", {"server_step": 0.05}),
    "fedadam-update": ("fedadam", {"weighting": "update"}),
    "fedyogi": ("fedyogi", {"server_step": 0.05}),
    "fednova": ("fednova", {"least_work": 0.3}),
    "fednova-update": ("fednova", {"least_work": 0.5, "weighting": "update", "server_step": 0.5}),
    "feddyn": ("feddyn", {}),
    "feddyn-penalty": ("feddyn", {"penalty": 0.5, "weighting": "none", "server_step": 0.5}),
    "mifa": ("mifa", {}),
    "mifa-update": ("mifa", {"weighting": "update", "server_step": 0.5}),
    "fedvarp": ("fedvarp", {}),
    "fedvarp-update": ("fedvarp", {"weighting": "update", "server_step": 0.5}),
    "inverse_probability": ("inverse_probability", {"server_step": 0.5}),
    "inverse_probability-known": ("inverse_probability", {"rates": "known", "weighting": "none"}),
    "fedstale": ("fedstale", {}),
    "fedstale-known": ("fedstale", {"rates": "known", "beta": 0.3, "weighting": "none"}),
    "fedstale-cohort": ("fedstale", {"rates": "cohort", "beta": 0.8, "server_step": 0.5}),
    "f3ast": ("f3ast", {}),
    "f3ast-fast": ("f3ast", {"smoothing": 0.3, "server_step": 0.5, "weighting": "none"}),
    "ca_fed": ("ca_fed", {}),
    "ca_fed-smooth": ("ca_fed", {"bias": 0.5, "smoothing": 0.3, "tolerance": 0.01, "weighting": "none"}),
    "focus": ("focus", {}),
    "focus-step": ("focus", {"server_step": 3.0, "weighting": "none"}),
    "naive": ("naive", {"server_step": 0.5}),
    "flexible": ("flexible", {}),
    "flexible-part": ("flexible", {"least_work": 0.3, "server_step": 0.5}),
    "flexible-drop": ("flexible", {"least_presence": 0.25, "trial": 6}),
    "scaffold": ("scaffold", {}),
    "scaffold-step": ("scaffold", {"server_step": 0.5, "weighting": "none"}),
    "amplified_scaffold": ("amplified_scaffold", {"amplify_every": 3}),
    "amplified_scaffold-none": (
        "amplified_scaffold",
        {"amplification": 1.5, "weighting": "none", "amplify_every": 5, "server_step": 0.5},
    ),
    "fedawe": ("fedawe", {}),
    "fedawe-norm": ("fedawe", {"max_norm": 0.05}),
    "fedawe-step": ("fedawe", {"server_step": 0.3, "weighting": "none"}),
    "fedau": ("fedau", {"cutoff": 3}),
    "fedau-long": ("fedau", {"server_step": 0.5}),
    "amplified_fedavg": ("amplified_fedavg", {"amplify_every": 3, "server_step": 0.5}),
    "amplified_fedavg-update": ("amplified_fedavg", {"amplification": 1.5, "weighting": "update", "amplify_every": 4}),
}
RATES = (0.25, 0.5, 0.75, 0.5, 1.0, 0.25)  # p_i, for the algorithms that require them
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
    **options: Any,
) -> tuple[State, Record, FedAvg]:
    """Run the same experiment in the engine and in the reference; return final state, record and reference."""
    spec = ExperimentSpec(
        federation, MODEL, algorithm, availability, cohort_size, num_local_steps=4, batch_size=3, learning_rate=0.3,
        seeds=[seed], rates=RATES if "rates" in algorithm.requires else None,
    )  # fmt: skip
    engine = Engine([spec], clients_at_once=clients_at_once)
    states = engine.start()
    reference = REFERENCES[algorithm.name](
        federation,
        lambda round: np.asarray(availability.available(round, jnp.uint32(seed))),
        flat(states[0].server.params)[0],
        cohort_size,
        steps=4,
        batch=3,
        rate=float(np.float32(0.3)),
        seed=seed,
        known_rates=RATES,
        **options,
    )
    reference.run(ROUNDS)
    states, record = engine.advance(states, ROUNDS)
    return jax.tree.map(lambda leaf: leaf[0], states[0]), jax.tree.map(lambda leaf: leaf[0], record), reference


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("case", CASES)
def test_equals_reference(case: str, pattern: str) -> None:
    """Cohorts agree exactly, models to float32 rounding; Bernoulli rates are low enough for empty rounds."""
    name, options = CASES[case]
    state, record, reference = both(small_federation(), ALGORITHMS[name](**options), PATTERNS[pattern], **options)
    for round in range(ROUNDS):
        cohort = set(record.cohort.clients[round][record.cohort.mask[round]].tolist())
        assert cohort == reference.cohorts[round]
    np.testing.assert_allclose(flat(state.server.params), reference.x, rtol=2e-5, atol=2e-6)
    assert state.last_round.tolist() == reference.last
    assert average_error(state) < 2e-6  # the sum of the remembered parts that the server keeps is that of the clients
    if isinstance(reference, FedLaAvg | FedVARP | FedStale):
        np.testing.assert_allclose(flat(state.clients.remembered["update"]), reference.stored, rtol=2e-5, atol=2e-6)
    if isinstance(reference, F3AST):
        np.testing.assert_allclose(state.server.rates, reference.rates, rtol=2e-5)
    if isinstance(reference, CAFed):
        assert set(np.flatnonzero(state.server.excluded)) == reference.excluded
    if isinstance(reference, Focus):
        np.testing.assert_allclose(flat(state.total["gradient"]), reference.tracked, rtol=1e-4, atol=2e-5)
    if isinstance(reference, Scaffold):
        np.testing.assert_allclose(flat(state.clients.remembered["control"]), reference.own, rtol=2e-5, atol=1e-5)


def test_every_algorithm_has_a_reference() -> None:
    """Sequential SGD is compared below."""
    assert set(REFERENCES) == {name for name, _ in CASES.values()} == set(ALGORITHMS) - {"sequential"}


def test_bernoulli_pattern_has_empty_and_partial_rounds() -> None:
    """The Bernoulli case above covers rounds without participants and with fewer than K."""
    _, record, _ = both(small_federation(), ALGORITHMS["fedlaavg"](), PATTERNS["bernoulli"])
    assert 0 in record.cohort_size
    assert any(0 < size < 3 for size in record.cohort_size)


def test_sequential_equals_reference_on_pooled_data() -> None:
    """Sequential SGD is FedAvg on one client that holds all data, with the batches of the cohort put together."""
    federation = small_federation()
    spec = ExperimentSpec(
        federation, MODEL, sequential(), PATTERNS["bernoulli"], cohort_size=3, num_local_steps=4, batch_size=3,
        learning_rate=0.3, seeds=[3],
    )  # fmt: skip
    engine = Engine([spec])
    states = engine.start()
    reference = FedAvg(
        federation.pooled, lambda round: np.ones(1, bool), flat(states[0].server.params)[0], 1,
        steps=4, batch=9, rate=float(np.float32(0.3)), seed=3, weighting="none",
    )  # fmt: skip
    states, _ = engine.advance(states, ROUNDS)
    np.testing.assert_allclose(flat(states[0].server.params)[0], reference.run(ROUNDS), rtol=2e-5, atol=2e-6)
