"""The kernel for NVIDIA GPUs that trains logistic regressions: one program per client, with its model in registers.

All local steps of a cohort are one launch. XLA alone needs several launches per step, whose overhead exceeds the work.
"""

from functools import partial
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
    outputs = jnp.arange(pl.next_power_of_2(num_outputs))
    inputs = jnp.arange(pl.next_power_of_2(num_inputs))
    inside = (outputs[:, None] < num_outputs) & (inputs[None, :] < num_inputs)

    def load_model(weight: Any, bias: Any) -> tuple[jax.Array, jax.Array]:
        whole = triton.load(weight.at[outputs[:, None], inputs[None, :]], mask=inside, other=0.0)
        return whole, triton.load(bias.at[outputs], mask=outputs < num_outputs, other=0.0)

    def load_sample(row: jax.Array) -> jax.Array:
        sample = triton.load(features.at[row, inputs], mask=inputs < num_inputs, other=0)
        return sample.astype(jnp.float32) * STEP if features.dtype == jnp.uint8 else sample

    def step(number: jax.Array, model: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weight, bias = model
        factor = rates[number] / batch_size
        samples = [rows[number, sample] for sample in range(batch_size)]
        gradients = []
        for row in samples:
            logits = jnp.sum(weight * load_sample(row)[None, :], axis=1) + bias
            logits = jnp.where(outputs < num_outputs, logits, -jnp.inf)
            powers = jnp.exp(logits - jnp.max(logits))
            gradients.append(factor * (powers / jnp.sum(powers) - (outputs == labels[row])))
        if pulls is not None:
            first = load_model(start_weight, start_bias)
            weight, bias = (x - pulls[number] * (x - x0) for x, x0 in zip((weight, bias), first, strict=True))
        if offsets is not None:
            weight, bias = (x - d for x, d in zip((weight, bias), load_model(*offsets), strict=True))
        for row, gradient in zip(samples, gradients, strict=True):
            weight = weight - gradient[:, None] * load_sample(row)[None, :]
            bias = bias - gradient
        return weight, bias

    weight, bias = lax.fori_loop(0, num_steps, step, load_model(start_weight, start_bias))
    triton.store(weight_out.at[outputs[:, None], inputs[None, :]], weight, mask=inside)
    triton.store(bias_out.at[outputs], bias, mask=outputs < num_outputs)
