"""The deployment does what the simulation says: same recipe, same availability, same seed, equal models."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
import pytest

import fedlatest
from fedlatest.algorithms import amplified_fedavg, fedlaavg_fresh, fedvarp
from fedlatest.algorithms.base import NEVER, ClientFacts, ClientState, ModelOnly
from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, LocalGrid, Timeouts, client_app, to_record
from fedlatest.flower.outstanding_messages import OutstandingMessages
from fedlatest.flower.round_loop import RoundLoop
from fedlatest.flower.round_outcome import EventLog
from fedlatest.models import softmax_cross_entropy
from fedlatest.simulation.device_data import put_on_device
from fedlatest.simulation.local_training import batch_rows, train_locally
from fedlatest.simulation.rounds import initial_key
from tests.after_test import after_test

CLIENTS, ROUNDS, STEPS, BATCH, RATE, SEED, COHORT = 6, 16, 3, 4, 0.05, 3, 2
HERE = (np.arange(ROUNDS)[:, None] // 3 + np.arange(CLIENTS)) % 2 == 0  # two groups take turns,
HERE[6::7] = False  # and every seventh round nobody is here
Local = Callable[[Any, jax.Array, jax.Array], Any]
Train = Callable[[dict[str, Any], ClientTask], ClientResult]


@pytest.fixture(scope="module", autouse=True)
def _compile_quickly() -> Iterator[None]:
    """The programs run for milliseconds; making them fast would take most of the test's time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def federation() -> fedlatest.Federation:
    samples = fedlatest.load_digits()
    return samples.to_federation(fedlatest.dirichlet(samples.labels, num_clients=CLIENTS, alpha=0.5, seed=1))


@pytest.fixture(scope="module")
def local(federation: fedlatest.Federation) -> Local:
    """The simulator's local training: (params, client, round) -> params."""
    samples, model = put_on_device(federation), fedlatest.logistic(num_features=64, num_classes=10)
    algorithm = fedlatest.fedavg(weighting="none")  # plain steps

    def loss(params: Any, features: Any, labels: Any) -> jax.Array:
        return jnp.mean(softmax_cross_entropy.per_sample(model.apply(params, features), labels))

    @jax.jit
    def descend_from(params: Any, client: jax.Array, round: jax.Array) -> Any:
        rows = batch_rows(samples, client, round=round, seed=jnp.uint32(SEED), num_steps=STEPS, batch_size=BATCH)
        facts = ClientFacts(
            round, samples.ids[client], jnp.float32(1), STEPS, {}, jnp.uint32(SEED), learning_rate=jnp.float32(RATE)
        )
        return train_locally(algorithm, loss, samples, ModelOnly(params), ClientState(), rows, facts)

    return descend_from


def as_simulated(federation: fedlatest.Federation, local: Local, client: int) -> Train:
    """That training as a function on NumPy arrays."""

    def train(weights: dict[str, Any], task: ClientTask) -> ClientResult:
        trained = local(weights, jnp.int32(client), jnp.int32(task.round - 1))  # Flower counts from 1
        return ClientResult(
            int(federation.sizes[client]), {}, {name: np.asarray(part) for name, part in trained.items()}
        )

    return train


def over_contributors(algorithm: fedlatest.Algorithm, federation: fedlatest.Federation) -> fedlatest.Algorithm:
    """Let N and the total weight count only clients that have taken part, as in a deployment."""
    sizes = jnp.asarray(federation.sizes, jnp.float32)

    def merge(server: Any, sums: Any, facts: Any) -> Any:
        seen = (facts.last_round != NEVER).at[facts.cohort.clients].max(facts.cohort.mask)
        total_weight = jnp.maximum(jnp.sum(jnp.where(seen, sizes, 0)), 1) * facts.total_weight / jnp.sum(sizes)
        return algorithm.merge(
            server, sums, facts._replace(num_clients=jnp.maximum(jnp.sum(seen), 1), total_weight=total_weight)
        )

    return replace(algorithm, merge=merge)


@pytest.mark.parametrize(
    ("algorithm", "memory"),
    [
        (fedlatest.fedlaavg(weighting="update", empty_round="hold"), "client"),
        (fedlatest.fedlaavg(weighting="none", empty_round="step"), "server"),
        (fedlaavg_fresh(weighting="update"), "client"),
        (fedlatest.fedlaavg(weighting="update", fresh=0.3), "server"),
        (fedvarp(weighting="none", server_step=0.5), "client"),
        (fedlatest.fedlaavg(weighting="none", average_over="seen", damping=0.5), "client"),
        (fedlatest.fedavg(weighting="update"), None),
        (fedlatest.fedadam(weighting="none"), None),
        (amplified_fedavg(weighting="update", amplify_every=3), None),
        (fedlatest.fedlaavg(weighting="none", server_optimizer=optax.trace(0.9), server_step=0.5), "client"),
    ],
)
def test_equals_the_simulator(
    algorithm: fedlatest.Algorithm, memory: str | None, federation: fedlatest.Federation, local: Local, tmp_path: Path
) -> None:
    """Also in the rounds in which nobody is here; N and the total weight are those of a deployment."""
    model = fedlatest.logistic(num_features=64, num_classes=10)
    simulated = fedlatest.simulate(
        federation,
        model,
        over_contributors(algorithm, federation),
        fedlatest.trace(_intervals(HERE), num_clients=CLIENTS),
        rounds=ROUNDS,
        cohort_size=COHORT,
        num_local_steps=STEPS,
        batch_size=BATCH,
        learning_rate=RATE,
        seeds=[SEED],
    )
    first = model.init(initial_key(jnp.uint32(SEED)))
    deployed = _deploy(federation, local, first, algorithm, memory, tmp_path)
    for name, part in simulated.params.items():
        np.testing.assert_allclose(deployed[name], part[0], atol=2e-5)


def _deploy(
    federation: fedlatest.Federation,
    local: Local,
    first: Any,
    algorithm: fedlatest.Algorithm,
    memory: str | None,
    folder: Path,
) -> dict[str, Any]:
    grid = LocalGrid()
    for client in range(federation.num_clients):
        app = client_app(
            as_simulated(federation, local, client),
            num_examples=partial(lambda _, size: size, size=int(federation.sizes[client])),
        )
        grid.add(app, {"state-dir": str(folder / f"{client}"), "name": f"client{client}"})
    strategy = FedLaAvg(job=folder / "job", cohort_size=COHORT, algorithm=algorithm, memory=memory, seed=SEED)
    ledger = after_test.enter_context(strategy.open_ledger(to_record(first)))
    board = OutstandingMessages(grid, 10.0, 1)
    pace = Timeouts(deadline=0.05, poll=0.001)
    loop = RoundLoop(board, ledger, algorithm, EventLog(folder / "job/events.jsonl"), cohort_size=COHORT, timeouts=pace)
    loop.wait_for_clients(federation.num_clients, timeout=30)
    loop.timeouts = Timeouts(deadline=30, poll=0.001)
    for here in HERE:
        for node, online in zip(grid.nodes.values(), here, strict=True):
            node.online = bool(online)
        loop.timeouts = Timeouts(deadline=30 if here.any() else 0.01, poll=0.001)
        tally = loop.run_round()
        assert len(tally.accepted) == min(COHORT, here.sum())
    return loop.model


def _intervals(here: npt.NDArray[np.bool_]) -> list[fedlatest.Interval]:
    return [fedlatest.Interval(int(client), int(round), int(round) + 1) for round, client in np.argwhere(here)]
