"""The task: data, model, training and evaluation in plain NumPy. Any library with named arrays can replace it.

A node starts a process for every message, so what this file imports is imported every time.
"""

import numpy as np
import numpy.typing as npt

import fedlatest

Arrays = dict[str, npt.NDArray[np.float32]]
Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


def initial_model() -> Arrays:
    """Return a softmax regression before training."""
    return {"weight": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}


def load_part(number: int, num_parts: int) -> tuple[Features, Labels]:
    """Return the examples of one client; clients have different proportions of the digits."""
    samples = fedlatest.load_digits()
    partition = fedlatest.dirichlet(samples.labels, num_clients=num_parts, alpha=0.5, seed=0)
    rows = partition.order[partition.offsets[number] : partition.offsets[number + 1]]
    return samples.features[rows], samples.labels[rows]


def load_test() -> tuple[Features, Labels]:
    """Return test examples, which no client has."""
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
    """Train with SGD, and return the trained model and the mean loss over the steps."""
    weight, bias = model["weight"].copy(), model["bias"].copy()
    rng, losses = np.random.default_rng(seed), []
    for _ in range(steps):
        batch = rng.integers(0, len(labels), batch_size)
        x, y = features[batch], labels[batch]
        probabilities = _probabilities(weight, bias, x)
        losses.append(_loss(probabilities, y))
        error = (probabilities - np.eye(10, dtype=np.float32)[y]) / batch_size
        weight -= rate * x.T @ error
        bias -= rate * error.sum(axis=0)
    return {"weight": weight, "bias": bias}, float(np.mean(losses))


def evaluate(model: Arrays, features: Features, labels: Labels) -> dict[str, float]:
    """Return the loss and the accuracy."""
    probabilities = _probabilities(model["weight"], model["bias"], features)
    return {"loss": _loss(probabilities, labels), "accuracy": float((probabilities.argmax(axis=1) == labels).mean())}


def _probabilities(weight: Features, bias: Features, x: Features) -> Features:
    logits = x @ weight + bias
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _loss(probabilities: Features, labels: Labels) -> float:
    return float(-np.log(probabilities[np.arange(len(labels)), labels] + 1e-9).mean())
