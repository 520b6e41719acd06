"""The task: data, model, training and evaluation. Plain NumPy; anything that takes and returns arrays will do."""

from functools import cache

import numpy as np
import numpy.typing as npt

import fedlatest

Arrays = dict[str, npt.NDArray[np.float32]]
Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


def first_model() -> Arrays:
    """A softmax regression before training."""
    return {"weight": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}


def load_part(number: int, num_parts: int) -> tuple[Features, Labels]:
    """The digits of one client: each holds many of some digits and few of others."""
    federation = _federation(num_parts)
    rows = federation.order[federation.offsets[number] : federation.offsets[number + 1]]
    return federation.features[rows], federation.labels[rows]


def load_test() -> tuple[Features, Labels]:
    """The digits that no client holds."""
    samples = fedlatest.load_digits()
    return samples.test_features, samples.test_labels


def train(
    model: Arrays,
    features: Features,
    labels: Labels,
    *,
    steps: int,
    batch_size: int,
    rate: float,
    seed: tuple[int, ...],
) -> tuple[Arrays, float]:
    """Some steps of SGD; the trained model and the mean loss on the way."""
    weight, bias = model["weight"].copy(), model["bias"].copy()
    rng, losses = np.random.default_rng(seed), []
    for _ in range(steps):
        batch = rng.integers(0, len(labels), batch_size)
        x, y = features[batch], labels[batch]
        chances = _chances(weight, bias, x)
        losses.append(_loss(chances, y))
        error = (chances - np.eye(10, dtype=np.float32)[y]) / batch_size
        weight -= rate * x.T @ error
        bias -= rate * error.sum(axis=0)
    return {"weight": weight, "bias": bias}, float(np.mean(losses))


def evaluate(model: Arrays, features: Features, labels: Labels) -> dict[str, float]:
    """Loss and accuracy."""
    chances = _chances(model["weight"], model["bias"], features)
    return {"loss": _loss(chances, labels), "accuracy": float((chances.argmax(axis=1) == labels).mean())}


@cache
def _federation(num_parts: int) -> fedlatest.Federation:
    samples = fedlatest.load_digits()
    return samples.to_federation(fedlatest.dirichlet(samples.labels, num_clients=num_parts, alpha=0.5, seed=0))


def _chances(weight: Features, bias: Features, x: Features) -> Features:
    logits = x @ weight + bias
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def _loss(chances: Features, labels: Labels) -> float:
    return float(-np.log(chances[np.arange(len(labels)), labels] + 1e-9).mean())
