"""Reference implementation of the two-layer LSTM in NumPy and float64: one text and one word at a time."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Layer = dict[str, Floats]


def logits(params: Any, vectors: Any, lengths: Any) -> Floats:
    """Return [texts] the outputs of the model."""
    model = _as_float64(params)
    return np.array([_forward(model, text[:n])[0] for text, n in zip(vectors, lengths, strict=True)])


def gradient(params: Any, vectors: Any, lengths: Any, labels: Any) -> Any:
    """Return the gradient of the mean over texts of log(1 + exp(logit)) - label * logit."""
    model = _as_float64(params)
    total = {part: {name: np.zeros_like(leaf) for name, leaf in layer.items()} for part, layer in model.items()}
    for text, length, label in zip(vectors, lengths, labels, strict=True):
        logit, intermediates, state = _forward(model, np.asarray(text[:length], np.float64))
        slope = (_sigmoid(logit) - label) / len(labels)
        total["output"]["weight"] += slope * state[None]
        total["output"]["bias"] += slope
        _backward(model, intermediates, slope * model["output"]["weight"][0], total)
    return total


def _forward(model: Any, words: Floats) -> tuple[Any, list[Any], Floats]:
    """Return the logit, the intermediate values of each word in both layers, and the last state of the upper layer."""
    h1, c1, h2, c2 = np.zeros((4, len(model["lower"]["hidden"])))
    intermediates = []
    for word in words:
        h1, c1, lower = _cell(model["lower"], word, h1, c1)
        h2, c2, upper = _cell(model["upper"], h1, h2, c2)
        intermediates.append((lower, upper))
    return (model["output"]["weight"] @ h2 + model["output"]["bias"])[0], intermediates, h2


def _backward(model: Any, intermediates: list[Any], dh2: Floats, total: Any) -> None:
    """Add the gradients of the weights to `total`, given the gradient of the last state of the upper layer."""
    dh1, dc1, dc2 = np.zeros((3, len(dh2)))
    for lower, upper in reversed(intermediates):
        from_above, dh2, dc2 = _cell_backward(model["upper"], upper, dh2, dc2, total["upper"])
        _, dh1, dc1 = _cell_backward(model["lower"], lower, dh1 + from_above, dc1, total["lower"])


def _cell(layer: Layer, x: Floats, h: Floats, c: Floats) -> tuple[Floats, Floats, Any]:
    z = x @ layer["input"] + layer["input_bias"] + h @ layer["hidden"] + layer["hidden_bias"]
    z_i, z_f, z_g, z_o = np.split(z, 4)
    i, f, g, o = _sigmoid(z_i), _sigmoid(z_f), np.tanh(z_g), _sigmoid(z_o)
    new = f * c + i * g
    return o * np.tanh(new), new, (x, h, c, i, f, g, o, new)


def _cell_backward(
    layer: Layer, intermediate: Any, dh: Floats, dc: Floats, total: Layer
) -> tuple[Floats, Floats, Floats]:
    """Return the gradients of the input, of the hidden state and of the cell before the word."""
    x, h, c, i, f, g, o, new = intermediate
    do = dh * np.tanh(new)
    dc = dc + dh * o * (1 - np.tanh(new) ** 2)
    di, df, dg = dc * g, dc * c, dc * i
    dz = np.concatenate([di * i * (1 - i), df * f * (1 - f), dg * (1 - g**2), do * o * (1 - o)])
    total["input"] += np.outer(x, dz)
    total["hidden"] += np.outer(h, dz)
    total["input_bias"] += dz
    total["hidden_bias"] += dz
    return layer["input"] @ dz, layer["hidden"] @ dz, dc * f


def _sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


def _as_float64(params: Any) -> Any:
    return {part: {name: np.asarray(leaf, np.float64) for name, leaf in params[part].items()} for part in params}
