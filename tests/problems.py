"""Small federations and availability models that several tests share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest import Availability, Federation, bernoulli, both, diurnal, logistic

MODEL = logistic(num_features=4, num_classes=3)


def small_federation(num_clients: int = 6, seed: int = 0) -> Federation:
    """Return a federation of clients with 1 to 9 samples each, 4 features and 3 classes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 10, num_clients)
    samples = int(sizes.sum())
    return Federation(
        name="small",
        features=rng.normal(size=(samples, 4)).astype(np.float32),
        labels=rng.integers(0, 3, samples).astype(np.int32),
        test_features=rng.normal(size=(20, 4)).astype(np.float32),
        test_labels=np.append(rng.integers(0, 3, 19), 2).astype(np.int32),
        order=rng.permutation(samples).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
    )


def coins(rates: Sequence[float], *, ids: npt.NDArray[Any] | None = None) -> Availability:
    """Return Bernoulli draws with the structure of `days`, so that one compiled program serves both."""
    return both(bernoulli(rates, ids=ids), diurnal([True] * len(rates), period=2**20))


def days(group: Sequence[bool], *, period: int) -> Availability:
    """Return diurnal blocks with the structure of `coins`, so that one compiled program serves both."""
    return both(bernoulli([1.0] * len(group)), diurnal(group, period=period))


def flat(params: Any) -> npt.NDArray[np.float64]:
    """Return the parameters of a logistic model in the layout of the reference: [classes, features + 1], bias last."""
    weight, bias = np.asarray(params["weight"], np.float64), np.asarray(params["bias"], np.float64)
    return np.concatenate([weight, bias[..., None]], axis=-1)
