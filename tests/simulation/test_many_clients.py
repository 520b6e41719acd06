"""What is written about clients when a run starts and ends: exact where that is small, and bounded where it is not.

Work is counted as (client, round) pairs that are evaluated, not timed.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import (
    Availability,
    Federation,
    Interval,
    RunFolder,
    bernoulli,
    diurnal,
    fedavg,
    fedlaavg,
    logistic,
    markov,
    simulate,
    trace,
    windows,
)
from fedlatest.availability import base
from fedlatest.simulation import ExperimentSpec, recorder
from fedlatest.simulation.recorder import MAX_CHECKED_PAIRS, MAX_CLIENTS_PER_ROW, MAX_SAMPLED_ROUNDS, describe_clients

MANY, LONG = 300_000, 1_000_000  # clients and rounds: 3e11 pairs

MODELS: dict[str, Callable[[int], Availability]] = {
    "diurnal": lambda n: diurnal(np.arange(n) % 3 == 0, period=7),
    "windows": lambda n: windows(np.linspace(0, 23.9, n), hours=5, rounds_per_day=10_000),
    "trace": lambda n: trace([Interval(client, client % 11, 40) for client in range(n)], num_clients=n, wrap=True),
    "bernoulli": lambda n: bernoulli(np.full(n, 0.5)),
    "markov": lambda n: markov(np.full(n, 0.5), correlation=3),
    "diurnal and markov": lambda n: diurnal(np.arange(n) % 3 == 0, period=7) & markov(np.full(n, 0.9), correlation=3),
}
every_model = pytest.mark.parametrize("name", MODELS)


def spec(availability: Availability, *, rounds: int, seeds: tuple[int, ...] = (0,)) -> ExperimentSpec:
    """An experiment whose clients have one sample each, with labels 0 and 1."""
    n = availability.num_clients
    federation = Federation(
        name="one sample each",
        features=np.linspace(-1, 1, 2 * n, dtype=np.float32).reshape(n, 2),
        labels=(np.arange(n) % 2).astype(np.int32),
        test_features=np.zeros((2, 2), np.float32),
        test_labels=np.array([0, 1], np.int32),
        order=np.arange(n, dtype=np.int32),
        offsets=np.arange(n + 1),
    )
    model = logistic(num_features=2, num_classes=2)
    return ExperimentSpec(federation, model, fedavg(), availability, cohort_size=2, rounds=rounds, seeds=seeds)


@pytest.fixture
def pairs_evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace the evaluation of availability by a record of how many (client, round) pairs it would take."""
    evaluated: list[int] = []

    def absence(model: Availability, horizon: jax.Array, seed: jax.Array) -> jax.Array:
        del seed
        evaluated.append(model.num_clients * int(horizon))
        return jnp.zeros(model.num_clients, jnp.int32)

    def count(model: Availability, row_of: jax.Array, rounds: jax.Array, seed: jax.Array, *, num_rows: int) -> Any:
        del seed
        assert row_of.shape == (model.num_clients,)
        evaluated.append(model.num_clients * rounds.size)
        return jnp.zeros((rounds.size, num_rows))

    def table(*_: Any) -> None:
        raise AssertionError("a table of all clients and rounds was made")

    monkeypatch.setattr(base, "_longest_absence", absence)
    monkeypatch.setattr(recorder, "_count", count)
    monkeypatch.setattr(Availability, "table", table)
    return evaluated


@every_model
def test_work_is_bounded_for_many_clients_and_rounds(name: str, pairs_evaluated: list[int]) -> None:
    """Without the bounds, the picture would take 4000 x 300,000 pairs and the check of Assumption 4 3e11."""
    experiment = spec(MODELS[name](MANY), rounds=LONG)
    clients = describe_clients(experiment)
    assert sum(pairs_evaluated) <= MAX_SAMPLED_ROUNDS * MAX_CLIENTS_PER_ROW * clients.available.shape[0]
    assert clients.sample_note == "a sample: 24,000 of 300,000 clients, 4,000 of 1,000,000 rounds"
    pairs_evaluated.clear()
    facts = recorder.assumption_facts(experiment)
    has_intervals = name in ("diurnal", "windows", "trace")
    assert pairs_evaluated == ([] if has_intervals else [MAX_CHECKED_PAIRS])
    assert facts.get("clients_examined") == (None if has_intervals else MAX_CHECKED_PAIRS // LONG)


@every_model
def test_the_picture_of_few_clients_is_exact(name: str) -> None:
    """260 clients in 120 rows and 50 rounds in 50 columns: every cell is a mean over all its pairs."""
    experiment = spec(MODELS[name](260), rounds=50, seeds=(3,))
    clients = describe_clients(experiment)
    table = experiment.availability.table(50, seed=3)[:, clients.order]
    rows = [table[:, first:last].mean(axis=1) for first, last in pairwise(clients.row_edges)]
    np.testing.assert_allclose(clients.available, 255 * np.array(rows), atol=0.51)
    assert clients.sample.tolist() == [260, 50]
    assert clients.sample_note == ""


def test_the_picture_of_a_sample_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 26,000 clients against 20 of the 216 or 217 in a row.

    A client is available in a share 0.5 of the rounds, and independent draws of 20 clients have a standard deviation
    of 0.11; over all 120 x 10 cells the mean differs by less than five times 0.11 / sqrt(1200).
    """
    experiment = spec(bernoulli(np.full(26_000, 0.5)), rounds=10)
    monkeypatch.setattr(recorder, "MAX_CLIENTS_PER_ROW", 20)
    sampled = describe_clients(experiment)
    assert sampled.sample.tolist() == [2400, 10]
    monkeypatch.setattr(recorder, "MAX_CLIENTS_PER_ROW", 26_000)
    whole = describe_clients(experiment)
    assert whole.sample.tolist() == [26_000, 10]
    assert (sampled.available != whole.available).any()
    assert abs(sampled.available.mean() - whole.available.mean()) < 255 * 5 * 0.11 / np.sqrt(1200)


def test_a_run_whose_assumption_is_checked_on_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With at most 100 pairs, 10 of 40 clients are examined over 10 rounds; Lemma 1's bound needs all of them."""
    for folder, most in (("whole", 400), ("sample", 100)):
        monkeypatch.setattr(recorder, "MAX_CHECKED_PAIRS", most)
        experiment = spec(bernoulli(np.full(40, 0.9)), rounds=10)
        simulate(
            experiment.federation, experiment.model, fedlaavg(), experiment.availability, rounds=10, cohort_size=2,
            num_local_steps=1, batch_size=1, out=tmp_path / folder,
        )  # fmt: skip
    whole, sample = (RunFolder(tmp_path / name).manifest["availability"] for name in ("whole", "sample"))
    assert whole["assumption_holds"] is True
    assert whole["staleness_bound"] == 20 * whole["smallest_e"] - 1
    assert "clients_examined" not in whole
    assert sample["clients_examined"] == 10
    assert sample["assumption_holds"] is None
    assert sample["staleness_bound"] is None
    assert sample["smallest_e"] <= whole["smallest_e"]
    assert sample["largest_staleness"] == whole["largest_staleness"]


def test_a_sample_can_refute_the_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the clients are never available, and half of a sample of 20 are expected to be among them."""
    monkeypatch.setattr(recorder, "MAX_CHECKED_PAIRS", 200)
    facts = recorder.assumption_facts(spec(bernoulli(np.arange(40) % 2.0), rounds=10))
    assert facts["assumption_holds"] is False
    assert facts["smallest_e"] is None
    assert 0 < facts["num_never_available"] < 20
    assert all(client % 2 == 0 for client in facts["never_available"])
