"""The kernel for NVIDIA GPUs that trains logistic regressions: one program per client, with its model in registers.

All local steps of a cohort are one launch. XLA alone needs several launches per step, whose overhead exceeds the work.
"""

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

NUM_WARPS = 8
MAX_NUMBERS = 2**14  # weights of a model, padded to powers of two, that fit into the registers of a program
STEP = 1.0 / 255.0  # the value of one level of a byte


def is_usable(num_inputs: int, num_outputs: int) -> bool:
    """Return whether a model of this size fits into the registers of a program."""
    return pl.next_power_of_2(num_inputs) * pl.next_power_of_2(num_outputs) <= MAX_NUMBERS


def train(
    start: Any,
    offset: Any | None,
    features: jax.Array,
    labels: jax.Array,
    rows: jax.Array,
    rates: jax.Array,
    pulls: jax.Array | None,
    interpret: bool = False,
) -> Any:
    """Return the model of one client after its local steps x - rate * gradient - pull * (x - start) - offset.

    Args:
        start: The parameters: `weight` [outputs, inputs] and `bias` [outputs].
        offset: A tree like the model, or None.
        features: float32 [samples, inputs], or uint8, which are multiplied by 1/255.
        labels: int32 [samples].
        rows: int32 [steps, batch] the samples of each batch.
        rates: [steps].
        pulls: [steps], or None for zeros.
        interpret: Whether to run the kernel in the Pallas interpreter, which needs no GPU.
    """
    names = ("weight", "bias")
    shapes = [jax.ShapeDtypeStruct(start[name].shape, jnp.float32) for name in names]
    arguments = [start[name] for name in names]
    arguments += [] if offset is None else [offset[name] for name in names]
    arguments += [features, labels, rows, rates]
    arguments += [] if pulls is None else [pulls]
    options: dict[str, Any] = {}
    if not interpret:
        from jax.experimental.pallas import triton

        options = {"compiler_params": triton.CompilerParams(num_warps=NUM_WARPS, num_stages=1)}
    kernel = partial(_kernel, has_offset=offset is not None, has_pull=pulls is not None)
    weight, bias = pl.pallas_call(kernel, shapes, interpret=interpret, **options)(*arguments)
    return {"weight": weight, "bias": bias}


def _kernel(*refs: Any, has_offset: bool, has_pull: bool) -> None:
    from jax.experimental.pallas import triton

    remaining = list(refs)
    start_weight, start_bias = remaining[:2]
    offsets = remaining[2:4] if has_offset else None
    features, labels, rows, rates = remaining[(4 if has_offset else 2) :][:4]
    pulls = remaining[-3] if has_pull else None
    weight_out, bias_out = remaining[-2:]
    num_outputs, num_inputs = start_weight.shape
    num_steps, batch_size = rows.shape
    inputs = jnp.arange(pl.next_power_of_2(num_inputs))
    real = inputs < num_inputs
    tiles = [first + jnp.arange(size) for first, size in _tiles(num_outputs)]

    def load_model(weight: Any, bias: Any) -> list[jax.Array]:
        weights = [
            triton.load(weight.at[tile[:, None], inputs[None, :]], mask=real[None, :], other=0.0) for tile in tiles
        ]
        return [*weights, *(bias[tile] for tile in tiles)]

    def load_batch(number: jax.Array) -> list[jax.Array]:
        return [triton.load(features.at[rows[number, s], inputs], mask=real, other=0) for s in range(batch_size)]

    def values(sample: jax.Array) -> jax.Array:
        return (sample.astype(jnp.float32) * STEP if features.dtype == jnp.uint8 else sample)[None, :]

    def gradient_of(model: list[jax.Array], sample: jax.Array, label: jax.Array) -> list[jax.Array]:
        """Return softmax(logits) - one_hot(label)."""
        weights, biases = model[: len(tiles)], model[len(tiles) :]
        logits = [jnp.sum(w * values(sample), axis=1) + b for w, b in zip(weights, biases, strict=True)]
        largest = reduce(jnp.maximum, [jnp.max(part) for part in logits])
        powers = [jnp.exp(part - largest) for part in logits]
        total = reduce(jnp.add, [jnp.sum(part) for part in powers])
        return [part / total - (tile == label) for part, tile in zip(powers, tiles, strict=True)]

    def step(number: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        model, batch = carry
        following = load_batch(jnp.minimum(number + 1, num_steps - 1))  # read while this batch is processed
        factor = rates[number] / batch_size
        gradients = [gradient_of(model, sample, labels[rows[number, s]]) for s, sample in enumerate(batch)]
        if pulls is not None:
            first = load_model(start_weight, start_bias)
            model = [x - pulls[number] * (x - x0) for x, x0 in zip(model, first, strict=True)]
        if offsets is not None:
            model = [x - d for x, d in zip(model, load_model(*offsets), strict=True)]
        for sample, gradient in zip(batch, gradients, strict=True):
            slopes = [factor * part for part in gradient]
            changes = [*(part[:, None] * values(sample) for part in slopes), *slopes]
            model = [x - change for x, change in zip(model, changes, strict=True)]
        return model, following

    first_batch = load_batch(jnp.int32(0))
    model, _ = lax.fori_loop(0, num_steps, step, (load_model(start_weight, start_bias), first_batch))
    for tile, weight, bias in zip(tiles, model[: len(tiles)], model[len(tiles) :], strict=True):
        triton.store(weight_out.at[tile[:, None], inputs[None, :]], weight, mask=real[None, :])
        bias_out[tile] = bias


def _tiles(size: int) -> list[tuple[int, int]]:
    """Return (first, length) of parts whose lengths are powers of two.

    >>> _tiles(10)
    [(0, 8), (8, 2)]
    """
    parts, first = [], 0
    for power in reversed(range(size.bit_length())):
        if size >> power & 1:
            parts.append((first, 1 << power))
            first += 1 << power
    return parts
