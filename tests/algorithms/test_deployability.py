"""Which algorithms a deployment can run: declared by the algorithm, refused with the reason."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from fedlatest import Algorithm, ConfigError, fedau, fedavg, fedawe, fedsgd, naive, scaffold
from fedlatest.algorithms import ALGORITHMS, inverse_probability, mifa
from fedlatest.flower.server_algorithm import job_config

CAN_BE_DEPLOYED = {
    "fedlaavg": True,
    "fedlaavg_fresh": True,
    "fedvarp": True,
    "mifa": False,
    "fedstale": False,
    "inverse_probability": False,
    "fedavg": True,
    "fedadam": True,
    "fedyogi": True,
    "fednova": False,
    "feddyn": False,
    "amplified_fedavg": True,
    "fedsgd": False,
    "fedprox": False,
    "f3ast": False,
    "ca_fed": False,
    "focus": False,
    "naive": False,
    "flexible": False,
    "sequential": False,
    "scaffold": False,
    "amplified_scaffold": False,
    "fedawe": False,
    "fedau": False,
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_deployability_is_declared(name: str) -> None:
    """With unweighted losses: those that leave local training alone and upload their update."""
    algorithm = ALGORITHMS[name](**({} if name == "sequential" else {"weighting": "none"}))
    assert (algorithm.obstacles_to_deployment() == []) == CAN_BE_DEPLOYED[name]
    if CAN_BE_DEPLOYED[name]:
        assert job_config(algorithm).algorithm == name
        weighted = ALGORITHMS[name](weighting="loss")
        with pytest.raises(ConfigError, match=r"cannot be deployed: it changes the local steps \(direction\)"):
            job_config(weighted)
    else:
        with pytest.raises(ConfigError, match=f"algorithm={name} .* cannot be deployed: "):
            job_config(algorithm)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        (naive(weighting="none"), "it needs a fixed set of clients"),
        (fedsgd(weighting="none"), "it fixes the number of local steps"),
        (scaffold(weighting="none"), r"it broadcasts more than the model \(broadcast\)"),
        (fedawe(weighting="none"), r"it chooses where local training starts \(start\)"),
        (mifa(weighting="none"), r"its upload is not an UpdateUpload \(contribute\)"),
        (inverse_probability(rates="known", weighting="none"), "it needs the clients' participation rates"),
        (fedau(weighting="none"), r"its upload is not an UpdateUpload \(contribute\)"),
        (replace(fedavg(weighting="none"), brief=lambda server, facts: {}), "it sends each client values of its own"),
        (replace(fedavg(weighting="none"), requires=("rates",)), "it needs the clients' participation rates"),
        (
            replace(fedavg(weighting="none"), direction=lambda gradient, *rest: gradient),
            r"it changes the local steps \(direction\)",
        ),
    ],
)
def test_refused_deployment_names_the_reason(algorithm: Algorithm, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        job_config(algorithm)


def test_server_state_per_client_cannot_be_deployed() -> None:
    class Counts(NamedTuple):
        params: Any
        counts: jax.Array

    own = replace(fedavg(weighting="none"), init_server=lambda params, number: Counts(params, jnp.zeros(number)))
    with pytest.raises(ConfigError, match="its server keeps arrays per client"):
        job_config(own)
