"""Estimates of L, G, sigma and B on a problem whose constants are known."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import Federation, Loss, Model, always, fedlaavg
from fedlatest.experiments.estimates import curvature, estimate
from fedlatest.simulation import ExperimentSpec

SQUARED = Loss("squared", lambda outputs, labels: outputs**2, lambda outputs, labels: outputs == labels)
MODEL = Model(lambda key: jnp.array([1.0, 2.0]), lambda x, features: features @ x)


def test_estimates_of_a_quadratic() -> None:
    """Clients of two samples, f_i(x) = mean of (a x)^2, at x = (1, 2), batches of one; all weights are 1.

    Client 0 holds (3, 0) twice: Hessian diag(18, 0), gradient (18, 0), no noise, loss 9.
    Client 1 holds (1, 0) and (0, 1): Hessian diag(1, 1), gradients (2, 0) and (0, 4), which are (1, 2) on average and
    differ from that by a squared norm of 5; the unbiased estimate from 16 batches is 16/15 of it. Loss 2.5.
    L is the larger curvature, G the larger gradient norm, sigma the larger deviation, B the mean of 9 and 2.5.
    """
    features = np.array([[3, 0], [3, 0], [1, 0], [0, 1]], np.float32)
    labels = np.zeros(4, np.int32)
    federation = Federation(
        "by hand", features, labels, features, labels, np.arange(4, dtype=np.int32), np.array([0, 2, 4])
    )
    spec = ExperimentSpec(
        federation=federation, model=MODEL, algorithm=fedlaavg(), availability=always(2),
        cohort_size=1, num_local_steps=1, batch_size=1, learning_rate=0.1, loss=SQUARED, rounds=5,
    )  # fmt: skip
    found = estimate(spec)
    assert found.num_clients == 2
    assert found.problem == pytest.approx((18, 18, (5 * 16 / 15) ** 0.5, 5.75), rel=1e-3)
    assert found.describe({"gradient", "noise"}).startswith("Estimated: G, sigma, at the initial model, from 2 clients")


def test_curvature_of_the_objective() -> None:
    """The mean loss of all samples has one Hessian, not one per client.

    (3, 0) twice, (1, 0) and (0, 1): diag(9 + 9 + 1, 1) * 2 / 4, so the largest curvature is 9.5. With the opposite
    loss for the samples of label 1, (3, 0) and (0, 2) give diag(-9, 4): the largest curvature is 4, not -9.
    """
    signed = Loss("signed", lambda outputs, labels: (1 - 2 * labels) * outputs**2, lambda outputs, labels: labels == 0)
    four = np.array([[3, 0], [3, 0], [1, 0], [0, 1]], np.float32), np.zeros(4, np.int32)
    two = np.array([[3, 0], [0, 2]], np.float32), np.array([1, 0], np.int32)
    for (features, labels), loss, expected in ((four, SQUARED, 9.5), (two, signed, 4)):
        federation = Federation(
            "by hand", features, labels, features, labels, np.arange(len(labels), dtype=np.int32),
            np.array([0, len(labels) // 2, len(labels)]),
        )  # fmt: skip
        spec = ExperimentSpec(
            federation=federation, model=MODEL, algorithm=fedlaavg(), availability=always(2),
            cohort_size=1, num_local_steps=1, batch_size=1, learning_rate=0.1, loss=loss, rounds=5,
        )  # fmt: skip
        assert curvature(spec) == pytest.approx(expected, rel=1e-3)
        assert curvature(spec, jnp.array([5.0, 7.0])) == pytest.approx(expected, rel=1e-3)
