"""Write two algorithms, FedAvg with server momentum and SCAFFOLD, and compare them with the built-in ones."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedlatest
from fedlatest.algorithms.base import (
    Algorithm,
    ClientFacts,
    ClientState,
    Cohort,
    Contribution,
    Direction,
    Params,
    RoundFacts,
    Sums,
    UpdateUpload,
    add,
    scale,
    subtract,
    where,
    zeros_like,
)
from fedlatest.algorithms.selection import uniform


def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
    """Draw the cohort uniformly from the available clients."""
    return uniform(available, facts)


def mean_update(sums: Sums) -> Params:
    """Return the mean of the cohort's updates; 0 if the cohort is empty."""
    return scale(sums.fresh["update"], 1.0 / jnp.maximum(sums.num, 1))


class MomentumServer(NamedTuple):
    params: Params
    velocity: Params


def momentum_fedavg(*, momentum: float = 0.9, server_step: float = 1.0) -> Algorithm:
    """FedAvg with server momentum: v = momentum v + mean update; x = x + server_step v."""

    def init_server(params: Params, num_clients: int) -> MomentumServer:
        return MomentumServer(params, zeros_like(params))

    def merge(server: MomentumServer, sums: Sums, facts: RoundFacts) -> MomentumServer:
        velocity = add(mean_update(sums), server.velocity, facts.numbers["momentum"])
        params = add(server.params, velocity, facts.numbers["server_step"])
        return where(sums.num > 0, MomentumServer(params, velocity), server)  # an empty round changes nothing

    numbers = {"momentum": momentum, "server_step": server_step}
    return Algorithm(
        name="momentum_fedavg",
        title="FedAvg with momentum",
        init_server=init_server,
        select=select,
        contribute=UpdateUpload(),
        merge=merge,
        settings=numbers,
        numbers=numbers,
    )


class ControlledServer(NamedTuple):
    params: Params
    control: Params  # c, the mean of all clients' control variates


def own_scaffold(*, server_step: float = 1.0) -> Algorithm:
    """SCAFFOLD: local steps descend along g - c_i + c, and c_i becomes the client's mean gradient."""

    def init_server(params: Params, num_clients: int) -> ControlledServer:
        return ControlledServer(params, zeros_like(params))

    def init_client(params: Params) -> ClientState:
        return ClientState(remembered={"control": zeros_like(params)})

    def broadcast(server: ControlledServer) -> ControlledServer:
        return server  # clients receive the model and c

    def correction(broadcast: ControlledServer, client: ClientState, facts: ClientFacts) -> Params:
        return subtract(broadcast.control, client.remembered["control"])

    def contribute(broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        update = subtract(local, broadcast.params)
        mean_step = scale(update, 1.0 / (facts.num_steps * facts.learning_rate))
        control = subtract(subtract(client.remembered["control"], broadcast.control), mean_step)
        return Contribution(fresh={"update": update}, remembered={"control": control})

    def merge(server: ControlledServer, sums: Sums, facts: RoundFacts) -> ControlledServer:
        return ControlledServer(
            params=add(server.params, mean_update(sums), facts.numbers["server_step"]),
            control=scale(sums.total["control"], 1.0 / facts.num_clients),
        )

    return Algorithm(
        name="own_scaffold",
        title="Own SCAFFOLD",
        init_server=init_server,
        init_client=init_client,
        select=select,
        broadcast=broadcast,
        direction=Direction(offset=correction),
        contribute=contribute,
        merge=merge,
        requires=("plain_sgd",),
        settings={"server_step": server_step},
        numbers={"server_step": server_step},
    )


samples = fedlatest.load_digits()
federation = samples.to_federation(fedlatest.by_label(samples.labels, num_clients=20, seed=0))


def run(algorithm: Algorithm) -> fedlatest.Result:
    return fedlatest.simulate(
        federation,
        fedlatest.logistic(num_features=64, num_classes=10),
        algorithm,
        fedlatest.bernoulli(np.full(20, 0.4)),
        rounds=60,
        cohort_size=5,
        learning_rate=0.02,
    )


if __name__ == "__main__":
    for own, built_in in [
        (momentum_fedavg(), fedlatest.fedavg(weighting="none", server_optimizer=optax.trace(0.9))),
        (own_scaffold(), fedlatest.scaffold(weighting="none")),
    ]:
        ours, theirs = run(own), run(built_in)
        models = zip(jax.tree.leaves(ours.params), jax.tree.leaves(theirs.params), strict=True)
        difference = max(float(abs(left - right).max()) for left, right in models)
        accuracy = ours.metrics.column("test_accuracy")[0, -1]
        print(f"{own.name}: test accuracy {accuracy:.3f}, largest difference from the built-in one {difference:.1g}")
