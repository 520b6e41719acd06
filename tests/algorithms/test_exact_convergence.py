"""Which algorithms converge to the optimum of all clients when some clients take part more often than others."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import Algorithm, Federation, Loss, Model, bernoulli, fedavg, simulate
from fedlatest.algorithms import focus, mifa

RATES = (0.9, 0.9, 0.7, 0.3, 0.3, 0.2)
SQUARED = Loss(
    "squared", lambda outputs, labels: (outputs - labels) ** 2 / 2, lambda outputs, labels: outputs == labels
)
LINEAR = Model(lambda key: {"x": jnp.zeros(2)}, lambda params, features: features @ params["x"])


def least_squares() -> tuple[Federation, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Return six clients with three equations each in two unknowns, and the least-squares solution of all of them."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(18, 2)).astype(np.float32), rng.normal(size=18).astype(np.float32)
    federation = Federation(
        name="least squares", features=features, labels=labels, test_features=features, test_labels=labels,
        order=np.arange(18, dtype=np.int32), offsets=np.arange(0, 19, 3),
    )  # fmt: skip
    return federation, np.linalg.lstsq(features.astype(np.float64), labels.astype(np.float64), rcond=None)[0]


@pytest.mark.parametrize(
    ("algorithm", "is_exact"),
    [(focus(server_step=3.0), True), (mifa(), False), (fedavg(), False)],
    ids=["focus", "mifa", "fedavg"],
)
def test_unequal_participation_on_a_strongly_convex_problem(algorithm: Algorithm, is_exact: bool) -> None:
    """Batches are whole data sets, so that gradients are exact. FOCUS reaches the optimum with a constant learning
    rate; FedAvg prefers frequent clients, and the four local steps of MIFA and FedAvg drift towards local optima."""
    federation, optimum = least_squares()
    result = simulate(
        federation, LINEAR, algorithm, bernoulli(RATES), rounds=600, cohort_size=6, num_local_steps=4, batch_size=3,
        learning_rate=0.1, loss=SQUARED, evaluate_every=600,
    )  # fmt: skip
    distance = float(np.linalg.norm(np.asarray(result.params["x"]).ravel() - optimum))
    assert distance < 1e-5 if is_exact else distance > 1e-3
