"""When kernels train a model: only the model, loss and samples that they were written for."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from fedlatest import always, fedavg, mlp, softmax_cross_entropy
from fedlatest.simulation import ExperimentSpec
from tests.kernels.recurrence_backends import needs_compiler
from tests.problems import small_federation

pytestmark = needs_compiler
FEDERATION = small_federation()
MODEL = mlp(num_features=FEDERATION.features.shape[1], num_classes=FEDERATION.num_labels, hidden=4)


def spec(**changes: Any) -> ExperimentSpec:
    standard = {"model": MODEL, "algorithm": fedavg(), "batch_size": 2, "num_local_steps": 2}
    num_clients = FEDERATION.num_clients
    return ExperimentSpec(
        federation=FEDERATION, availability=always(num_clients), cohort_size=2, **{**standard, **changes}
    )


def test_built_in_models_are_trained_by_a_kernel() -> None:
    assert spec().program().native_training is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"model": MODEL._replace(apply=lambda params, features: MODEL.apply(params, 2 * features))},
        {"loss": softmax_cross_entropy._replace(per_sample=lambda logits, labels: jnp.sum(logits, axis=-1))},
        {"client_optimizer": optax.trace(0.9)},
        {"algorithm": replace(fedavg(), direction=lambda gradient, *_: jax.tree.map(jnp.sign, gradient))},
        {"batch_size": 1000},
    ],
    ids=["another model", "another loss", "an optimizer", "another step", "a large batch"],
)
def test_everything_else_is_left_to_jax(changes: dict[str, Any]) -> None:
    assert spec(**changes).program().native_training is None


def test_kernels_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLATEST_NATIVE", "0")
    assert spec().program().native_training is None
