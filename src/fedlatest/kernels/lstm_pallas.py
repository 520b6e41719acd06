"""The LSTM kernels for NVIDIA GPUs: one program per text, with its state in registers and without its padding.

The kernels compute the recurrence over the words. The large products (the contribution of the inputs to the gates, and
the gradients of the weights) are computed by XLA. Axes in a kernel: [words, 4 gates, hidden units].
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from fedlatest.data.features import Sentences, zero_padding

Weights = tuple[jax.Array, ...]  # input, hidden and bias of the lower layer, then of the upper layer
NUM_WARPS = 1


def is_usable(hidden: int) -> bool:
    """Return whether the kernels support this size: a power of two whose weights fit in the registers of a warp."""
    return hidden in (8, 16)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def last_hidden(weights: Weights, vectors: jax.Array, lengths: jax.Array, interpret: bool = False) -> jax.Array:
    """Return [texts, hidden] the state of the upper layer after the last word.

    Args:
        weights: Weights of both layers.
        vectors: float32 [texts, words, inputs] word vectors.
        lengths: int32 [texts] number of words.
        interpret: Whether to run the kernels in the Pallas interpreter, which needs no GPU.
    """
    return _forward(weights, vectors, lengths, interpret)[0]


def _forward(weights: Weights, vectors: jax.Array, lengths: jax.Array, interpret: bool) -> tuple[jax.Array, Any]:
    lower_input, lower_hidden, lower_bias, upper_input, upper_hidden, upper_bias = weights
    vectors, lengths = zero_padding(Sentences(vectors, lengths))
    hidden, num_words = lower_hidden.shape[0], vectors.shape[1]
    inputs = (vectors @ lower_input + lower_bias).reshape(*vectors.shape[:2], 4, hidden)
    outputs = [
        jax.ShapeDtypeStruct((num_words, 12, hidden), jnp.float32),  # traces: gates, cell, tanh(cell) of each layer
        jax.ShapeDtypeStruct((num_words + 1, 2, hidden), jnp.float32),  # hidden states of both layers before each word
        jax.ShapeDtypeStruct((hidden,), jnp.float32),
    ]
    run = pl.pallas_call(_forward_kernel, outputs, interpret=interpret, **_options(interpret))
    matrices = [_by_gate(matrix) for matrix in (lower_hidden, upper_input, upper_hidden)]
    bias = upper_bias.reshape(4, hidden)
    traces, states, last = jax.vmap(lambda inputs, length: run(inputs, length[None], *matrices, bias))(inputs, lengths)
    return last, (weights, vectors, lengths, traces, states)


def _backward(interpret: bool, residuals: Any, gradient: jax.Array) -> tuple[Weights, None, None]:
    weights, vectors, lengths, traces, states = residuals
    _, lower_hidden, _, upper_input, upper_hidden, _ = weights
    num_texts, num_words, _ = vectors.shape
    hidden = lower_hidden.shape[0]
    output = jax.ShapeDtypeStruct((num_words, 8, hidden), jnp.float32)
    run = pl.pallas_call(_backward_kernel, output, interpret=interpret, **_options(interpret))
    matrices = [jnp.swapaxes(_by_gate(matrix), 1, 2) for matrix in (lower_hidden, upper_input, upper_hidden)]
    gates = jax.vmap(lambda length, traces, gradient: run(length[None], traces, gradient, *matrices))(
        lengths, traces, gradient
    )
    lower, upper = (part.reshape(num_texts, num_words, 4 * hidden) for part in jnp.split(gates, 2, axis=2))
    before, after = states[:, :-1], states[:, 1:]
    return (
        (
            _outer(vectors, lower),
            _outer(before[:, :, 0], lower),
            jnp.sum(lower, axis=(0, 1)),
            _outer(after[:, :, 0], upper),
            _outer(before[:, :, 1], upper),
            jnp.sum(upper, axis=(0, 1)),
        ),
        None,
        None,
    )


last_hidden.defvjp(_forward, _backward)


def _options(interpret: bool) -> dict[str, Any]:
    if interpret:
        return {}
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=NUM_WARPS, num_stages=1)}


def _by_gate(matrix: jax.Array) -> jax.Array:
    """Reshape [inputs, 4 hidden] to [4, inputs, hidden]."""
    return jnp.moveaxis(matrix.reshape(matrix.shape[0], 4, -1), 1, 0)


def _outer(values: jax.Array, gates: jax.Array) -> jax.Array:
    return jnp.einsum("tsj,tsk->jk", values, gates)


def _forward_kernel(
    inputs: Any, length: Any, lower_hidden: Any, upper_input: Any, upper_hidden: Any, upper_bias: Any,
    traces: Any, states: Any, last: Any,
) -> None:  # fmt: skip
    matrices = [_load_matrices(ref) for ref in (lower_hidden, upper_input, upper_hidden)]
    bias = [upper_bias[gate, :] for gate in range(4)]
    zeros = jnp.zeros(inputs.shape[-1], jnp.float32)
    num_words = length[0]

    def word(t: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        h1, c1, h2, c2 = state
        states[t, 0, :], states[t, 1, :] = h1, h2
        h1, c1 = _cell([inputs[t, gate, :] + _times(h1, matrices[0][gate]) for gate in range(4)], c1, traces, t, 0)
        gates = [bias[gate] + _times(h1, matrices[1][gate]) + _times(h2, matrices[2][gate]) for gate in range(4)]
        return h1, c1, *_cell(gates, c2, traces, t, 6)

    h1, _, h2, _ = lax.fori_loop(0, num_words, word, (zeros,) * 4)
    last[:] = h2
    states[num_words, 0, :], states[num_words, 1, :] = h1, h2

    def padding(t: jax.Array, _: None) -> None:
        states[t, 0, :], states[t, 1, :] = zeros, zeros

    lax.fori_loop(num_words + 1, states.shape[0], padding, None)


def _backward_kernel(
    length: Any, traces: Any, gradient: Any, lower_hidden: Any, upper_input: Any, upper_hidden: Any, gates: Any
) -> None:
    transposed = [_load_matrices(ref) for ref in (lower_hidden, upper_input, upper_hidden)]
    zeros = jnp.zeros(gradient.shape[0], jnp.float32)
    num_words = length[0]

    def padding(t: jax.Array, _: None) -> None:
        for part in range(8):
            gates[t, part, :] = zeros

    lax.fori_loop(num_words, gates.shape[0], padding, None)

    def word(words_done: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        t = num_words - 1 - words_done
        dh1, dc1, dh2, dc2 = state
        upper, dc2 = _cell_back(dh2, dc2, traces, gates, t, layer=1)
        dh1 = dh1 + sum((_times(upper[gate], transposed[1][gate]) for gate in range(4)), zeros)
        dh2 = sum((_times(upper[gate], transposed[2][gate]) for gate in range(4)), zeros)
        lower, dc1 = _cell_back(dh1, dc1, traces, gates, t, layer=0)
        dh1 = sum((_times(lower[gate], transposed[0][gate]) for gate in range(4)), zeros)
        return dh1, dc1, dh2, dc2

    lax.fori_loop(0, num_words, word, (zeros, zeros, gradient[:], zeros))


def _load_matrices(ref: Any) -> list[jax.Array]:
    return [ref[gate, :, :] for gate in range(4)]


def _times(row: jax.Array, matrix: jax.Array) -> jax.Array:
    """Return row @ matrix, which is too small for the matrix units of a GPU."""
    return jnp.sum(row[:, None] * matrix, axis=0)


def _sigmoid(x: jax.Array) -> jax.Array:
    return 0.5 + 0.5 * jnp.tanh(0.5 * x)


def _cell(
    gates: list[jax.Array], cell: jax.Array, traces: Any, t: jax.Array, first: int
) -> tuple[jax.Array, jax.Array]:
    i, f, g, o = _sigmoid(gates[0]), _sigmoid(gates[1]), jnp.tanh(gates[2]), _sigmoid(gates[3])
    cell = f * cell + i * g
    tanh_cell = jnp.tanh(cell)
    for part, value in enumerate((i, f, g, o, cell, tanh_cell)):
        traces[t, first + part, :] = value
    return o * tanh_cell, cell


def _cell_back(
    dh: jax.Array, dc: jax.Array, traces: Any, gates: Any, t: jax.Array, *, layer: int
) -> tuple[list[jax.Array], jax.Array]:
    i, f, g, o, _, tanh_cell = (traces[t, 6 * layer + part, :] for part in range(6))
    cell_before = jnp.where(t > 0, traces[jnp.maximum(t - 1, 0), 6 * layer + 4, :], 0.0)
    d = dc + dh * o * (1 - tanh_cell * tanh_cell)
    gate_gradients = [
        d * g * i * (1 - i),
        d * cell_before * f * (1 - f),
        d * i * (1 - g * g),
        dh * tanh_cell * o * (1 - o),
    ]
    for gate, value in enumerate(gate_gradients):
        gates[t, 4 * layer + gate, :] = value
    return gate_gradients, d * f
