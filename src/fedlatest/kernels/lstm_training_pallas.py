"""The kernel for NVIDIA GPUs that trains two-layer LSTMs: one program per client takes all local steps in one launch.

Both layers are computed together, as one layer of 2 H units over wavefronts: wavefront s is word s of the lower layer
and word s - 1 of the upper layer, which do not depend on each other. All weights are one matrix. Its columns are the
gates of all units: column 4 u + g is gate g of unit u, where the first H units are the lower layer. Its rows are

* 2 H units of the previous wavefront: the recurrences, and the inputs of the upper layer;
* E inputs: the word vector, a 1 for each of the two biases, and padding up to a power of two;
* the output layer: in column 4 u its weight for unit u of the upper layer, in column 0 its bias.

Entries without a parameter are zero. A group of texts is processed together, a warp for each text if H is 16. Axes:
[G] texts of a group, [U] = 2 H units, [4 U] gates, [T] a tile of rows, where row s G + i is wavefront s of text i.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

GROUP = 2  # texts that are processed together
TILE = 16  # rows of a matrix product
MAX_INPUTS = 64  # with the biases; the gradient of the weights is in registers
MAX_ROWS = 2048  # wavefronts of a batch; their traces are in the memory of the GPU


def is_usable(*, num_inputs: int, hidden: int, batch_size: int, num_words: int) -> bool:
    """Return whether the kernel supports these sizes.

    Args:
        num_inputs: Length of a word vector.
        hidden: Number of hidden units in each layer.
        batch_size: Number of texts in a local step.
        num_words: Number of words of the longest text.
    """
    fits = num_inputs + 2 <= MAX_INPUTS and _num_groups(batch_size) * _num_rows(num_words) <= MAX_ROWS
    return hidden in (8, 16) and num_words > 0 and fits


def train(
    start: Any,
    offset: Any | None,
    ids: jax.Array,
    lengths: jax.Array,
    labels: jax.Array,
    table: jax.Array,
    rows: jax.Array,
    rates: jax.Array,
    pulls: jax.Array | None,
    interpret: bool = False,
) -> Any:
    """Return the model of one client after its local steps x - rate * gradient - pull * (x - start) - offset.

    Args:
        start: The parameters of `lstm`.
        offset: A tree like the model, or None.
        ids: [samples, words] the number of each word.
        lengths: int32 [samples] number of words.
        labels: int32 [samples].
        table: float32 [numbers, inputs] word vectors.
        rows: int32 [steps, batch] the samples of each batch.
        rates: [steps].
        pulls: [steps], or None for zeros.
        interpret: Whether to run the kernel in the Pallas interpreter, which needs no GPU.
    """
    units, groups, num_rows = 2 * _hidden(start), _num_groups(rows.shape[1]), _num_rows(ids.shape[1])
    packed = _pack(start)
    arguments = [packed, *([] if offset is None else [_pack(offset)]), ids, lengths, labels, table, rows, rates]
    arguments += [] if pulls is None else [pulls]
    results = [  # all but the first are working memory
        jax.ShapeDtypeStruct(shape, jnp.float32)
        for shape in (
            packed.shape,
            (4 * units, units),
            (groups, num_rows, 4 * units),
            (groups, num_rows, units),
            (groups, num_rows, 6, units),
        )
    ]
    options: dict[str, Any] = {}
    if not interpret:
        from jax.experimental.pallas import triton

        num_warps = max(1, GROUP * units // 32)
        options = {"compiler_params": triton.CompilerParams(num_warps=num_warps, num_stages=1)}
    kernel = partial(_kernel, has_offset=offset is not None, has_pull=pulls is not None, interpret=interpret)
    model, *_ = pl.pallas_call(kernel, results, interpret=interpret, **options)(*arguments)
    return _unpack(model, num_inputs=table.shape[1])


def _hidden(params: Any) -> int:
    return int(params["lower"]["hidden"].shape[0])


def _num_groups(batch_size: int) -> int:
    return -(-batch_size // GROUP)


def _num_rows(num_words: int) -> int:
    return -(-(num_words + 1) * GROUP // TILE) * TILE


def _num_padded(num_inputs: int) -> int:
    return max(TILE, pl.next_power_of_2(num_inputs + 2))


def _pack(params: Any) -> jax.Array:
    """Return the matrix [U + E + 1, 4 U] of all weights."""
    lower, upper, output = params["lower"], params["upper"], params["output"]
    hidden = _hidden(params)
    num_inputs = lower["input"].shape[0]
    absent = jnp.zeros((hidden, 4 * hidden), jnp.float32)
    padding = jnp.zeros((_num_padded(num_inputs) - num_inputs - 2, 4 * hidden), jnp.float32)
    row = jnp.zeros((1, 4, hidden), jnp.float32)
    bias = row.at[0, 0, 0].set(output["bias"][0]).reshape(1, 4 * hidden)
    weight = row.at[0, 0].set(output["weight"][0]).reshape(1, 4 * hidden)
    biases = [[layer["input_bias"][None], layer["hidden_bias"][None]] for layer in (lower, upper)]
    columns = (
        [lower["hidden"], absent, lower["input"], *biases[0], padding, bias],
        [upper["input"], upper["hidden"], jnp.zeros((num_inputs, 4 * hidden)), *biases[1], padding, weight],
    )
    layers = [jnp.concatenate(blocks).reshape(-1, 4, hidden) for blocks in columns]
    return jnp.swapaxes(jnp.concatenate(layers, axis=2), 1, 2).reshape(-1, 8 * hidden)


def _unpack(model: jax.Array, *, num_inputs: int) -> Any:
    hidden = model.shape[1] // 8
    gates = jnp.swapaxes(model.reshape(-1, 2 * hidden, 4), 1, 2)  # [rows, 4, U]
    lower, upper = (part.reshape(-1, 4 * hidden) for part in jnp.split(gates, 2, axis=2))
    inputs = 2 * hidden
    biases = inputs + num_inputs
    return {
        "lower": {
            "hidden": lower[:hidden],
            "input": lower[inputs:biases],
            "input_bias": lower[biases],
            "hidden_bias": lower[biases + 1],
        },
        "upper": {
            "input": upper[:hidden],
            "hidden": upper[hidden:inputs],
            "input_bias": upper[biases],
            "hidden_bias": upper[biases + 1],
        },
        "output": {"weight": upper[-1:, :hidden], "bias": lower[-1, :1]},
    }


class _Client(NamedTuple):
    """References to the arrays of one client, which are in the memory of the GPU."""

    start: Any  # [U + E + 1, 4 U]
    offset: Any  # likewise, or None
    ids: Any
    lengths: Any
    labels: Any
    table: Any
    rows: Any
    rates: Any
    pulls: Any  # or None
    model: Any  # [U + E + 1, 4 U]
    transposed: Any  # [4 U, U] the first U rows of the model, transposed
    gates: Any  # [groups, rows, 4 U] the contribution of the inputs to the gates, later the gradients of the gates
    states: Any  # [groups, rows, U] hidden states before each wavefront
    traces: Any  # [groups, rows, 6, U] gates i, f, g and o, cell before the wavefront, tanh(cell after it)


class _Texts(NamedTuple):
    """A group of texts in one local step."""

    step: jax.Array
    group: jax.Array
    samples: jax.Array  # [G]
    in_batch: jax.Array  # [G] the last group of a batch may be incomplete
    lengths: jax.Array  # [G]
    num_wavefronts: jax.Array  # of the longest text


def _kernel(*refs: Any, has_offset: bool, has_pull: bool, interpret: bool) -> None:
    missing = {name: None for name, given in (("offset", has_offset), ("pulls", has_pull)) if not given}
    given = [name for name in _Client._fields if name not in missing]
    client = _Client(**missing, **dict(zip(given, refs, strict=True)))
    num_groups, _, num_units = client.states.shape
    units, gates = jnp.arange(num_units), jnp.arange(4 * num_units)
    inputs = num_units + jnp.arange(client.model.shape[0] - num_units - 1)
    recurrent_block, input_block = (units[:, None], gates[None, :]), (inputs[:, None], gates[None, :])
    output_block = (client.model.shape[0] - 1, 4 * units)

    def barrier() -> None:
        """Wait until all threads of the program see what the others have written."""
        if not interpret:
            from jax.experimental.pallas import triton

            triton.debug_barrier()

    def store(block: tuple[Any, ...], values: jax.Array) -> None:
        client.model[block] = values
        if block is recurrent_block:
            client.transposed[gates[None, :], units[:, None]] = values

    def step(number: jax.Array, _: None) -> None:
        def train_group(group: jax.Array, gradient: jax.Array) -> jax.Array:
            texts = _load_texts(client, number, group)
            _multiply_inputs(client, texts)
            barrier()
            state = _forward(client, texts)
            state_gradient, output_gradient = _loss_gradients(client, texts, state, client.model[output_block])
            barrier()
            _backward(client, texts, state_gradient)
            return gradient + output_gradient

        def update(block: tuple[Any, ...], gradient: jax.Array) -> None:
            before = client.model[block]
            after = before - client.rates[number] * gradient
            if client.pulls is not None:
                after = after - client.pulls[number] * (before - client.start[block])
            store(block, after if client.offset is None else after - client.offset[block])

        output_gradient = lax.fori_loop(0, num_groups, train_group, jnp.zeros(num_units, jnp.float32))
        barrier()
        update(output_block, output_gradient)
        recurrent_gradient, input_gradient = _weight_gradients(client, number)
        update(recurrent_block, recurrent_gradient)
        update(input_block, input_gradient)
        barrier()

    for block in (recurrent_block, input_block, output_block):
        store(block, client.start[block])
    barrier()
    lax.fori_loop(0, client.rows.shape[0], step, None)


def _load_texts(client: _Client, step: jax.Array, group: jax.Array) -> _Texts:
    numbers = group * GROUP + jnp.arange(GROUP)
    batch_size, num_words = client.rows.shape[1], client.ids.shape[1]
    samples = _samples(client, step, numbers)
    lengths = jnp.where(numbers < batch_size, jnp.clip(client.lengths[samples], 0, num_words), 0)
    return _Texts(step, group, samples, numbers < batch_size, lengths, jnp.max(lengths) + 1)


def _samples(client: _Client, step: jax.Array, numbers: jax.Array) -> jax.Array:
    """Return the samples of texts of a batch."""
    samples = client.rows[step, jnp.minimum(numbers, client.rows.shape[1] - 1)]
    return jnp.clip(samples, 0, client.ids.shape[0] - 1)


def _load_inputs(client: _Client, texts: _Texts, tile: jax.Array) -> jax.Array:
    """Return [T, E] word vectors, with a 1 for each bias."""
    rows = tile * TILE + jnp.arange(TILE)
    samples = _samples(client, texts.step, texts.group * GROUP + lax.rem(rows, GROUP))
    words = client.ids[samples, jnp.minimum(lax.div(rows, GROUP), client.ids.shape[1] - 1)].astype(jnp.int32)
    words = jnp.clip(words, 0, client.table.shape[0] - 1)
    num_inputs = client.table.shape[1]
    inputs = jnp.arange(_num_padded(num_inputs))[None, :]
    vectors = _load_where(inputs < num_inputs, client.table.at[words[:, None], inputs])
    return jnp.where((inputs == num_inputs) | (inputs == num_inputs + 1), 1.0, vectors)


def _num_tiles(texts: _Texts) -> jax.Array:
    return lax.div(texts.num_wavefronts * GROUP + (TILE - 1), TILE)


def _multiply_inputs(client: _Client, texts: _Texts) -> None:
    """Write the contribution of the inputs to the gates."""
    num_gates, num_units = client.transposed.shape
    inputs, gates = jnp.arange(client.model.shape[0] - num_units - 1), jnp.arange(num_gates)
    weights = client.model[num_units + inputs[:, None], gates[None, :]]

    def tile_step(tile: jax.Array, vectors: jax.Array) -> jax.Array:
        following = _load_inputs(client, texts, tile + 1)  # before they are needed
        rows = tile * TILE + jnp.arange(TILE)
        products = _contract(vectors, 1, weights)
        client.gates[texts.group, rows[:, None], gates[None, :]] = products
        return following

    lax.fori_loop(0, _num_tiles(texts), tile_step, _load_inputs(client, texts, jnp.int32(0)))


def _forward(client: _Client, texts: _Texts) -> jax.Array:
    """Write the traces of all wavefronts and return [G, U] the last state of each text."""
    num_gates, num_units = client.transposed.shape
    units, gates = jnp.arange(num_units), jnp.arange(num_gates)
    # Repeated for each text: of this shape, a warp has a text and each of its threads the four gates of a unit, so that
    # sums over the rows need no communication.
    rows, columns = (lax.broadcasted_iota(jnp.int32, (num_units, GROUP, num_gates), axis) for axis in (0, 2))
    weights = client.model[rows, columns]

    def load_gates(wavefront: jax.Array) -> jax.Array:
        return client.gates[texts.group, _rows(wavefront), gates[None, :]]

    def wavefront_step(wavefront: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        hidden, cell, z = state
        following = load_gates(jnp.minimum(wavefront + 1, texts.num_wavefronts - 1))  # before they are needed
        client.states[texts.group, _rows(wavefront), units[None, :]] = hidden
        z = z + jnp.sum(jnp.transpose(hidden)[:, :, None] * weights, axis=0)
        parts = (part[:, :, 0] for part in jnp.split(z.reshape(GROUP, num_units, 4), 4, axis=2))
        i, f, g, o = (activate(part) for activate, part in zip(ACTIVATIONS, parts, strict=True))
        cell_after = f * cell + i * g
        tanh_cell = jnp.tanh(cell_after)
        for part, value in enumerate((i, f, g, o, cell, tanh_cell)):
            client.traces[texts.group, _rows(wavefront), part, units[None, :]] = value
        active = _active(texts, wavefront, units)
        return jnp.where(active, o * tanh_cell, hidden), jnp.where(active, cell_after, cell), following

    zeros = jnp.zeros((GROUP, num_units), jnp.float32)
    hidden, _, _ = lax.fori_loop(0, texts.num_wavefronts, wavefront_step, (zeros, zeros, load_gates(jnp.int32(0))))
    return hidden


def _loss_gradients(
    client: _Client, texts: _Texts, state: jax.Array, weights: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the gradients of the mean loss with respect to the last states [G, U] and to the output layer [U]."""
    is_upper = (jnp.arange(weights.shape[0]) >= weights.shape[0] // 2)[None, :]
    is_bias = (jnp.arange(weights.shape[0]) == 0)[None, :]
    features = jnp.where(is_upper, state, jnp.where(is_bias, 1.0, 0.0))
    logits = jnp.sum(features * weights[None, :], axis=1)
    gradients = (_sigmoid(logits) - client.labels[texts.samples].astype(jnp.float32)) / client.rows.shape[1]
    gradients = jnp.where(texts.in_batch, gradients, 0.0)[:, None]
    return jnp.where(is_upper, gradients * weights[None, :], 0.0), jnp.sum(gradients * features, axis=0)


def _backward(client: _Client, texts: _Texts, gradient: jax.Array) -> None:
    """Write the gradients of the gates of all wavefronts, given the gradient of the last states."""
    num_gates, num_units = client.transposed.shape
    units, gates = jnp.arange(num_units), jnp.arange(num_gates)
    shape = (num_units, GROUP, 4, num_units)  # again a warp for each text; a thread sums over units, not over gates
    rows, row_gates, columns = (lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 2, 3))
    weights = client.transposed[4 * rows + row_gates, columns]

    def load_trace(wavefront: jax.Array) -> list[jax.Array]:
        return [client.traces[texts.group, _rows(wavefront), part, units[None, :]] for part in range(6)]

    def wavefront_step(wavefronts_done: jax.Array, state: tuple[Any, ...]) -> tuple[Any, ...]:
        dh, dc, (i, f, g, o, cell, tanh_cell) = state
        wavefront = texts.num_wavefronts - 1 - wavefronts_done
        following = load_trace(jnp.maximum(wavefront - 1, 0))  # before it is needed
        active = _active(texts, wavefront, units)
        d = dc + dh * o * (1 - tanh_cell * tanh_cell)
        dz = (d * g * i * (1 - i), d * cell * f * (1 - f), d * i * (1 - g * g), dh * tanh_cell * o * (1 - o))
        di, df, dg, do = (jnp.where(active, part, 0.0) for part in dz)
        pairs = jnp.stack([jnp.stack([di, dg], axis=-1), jnp.stack([df, do], axis=-1)], axis=-1)  # [G, U, 2, 2]
        client.gates[texts.group, _rows(wavefront), gates[None, :]] = pairs.reshape(GROUP, num_gates)
        by_unit = jnp.transpose(pairs.reshape(GROUP, num_units, 4), (1, 0, 2))[:, :, :, None]
        dh = jnp.sum(jnp.sum(by_unit * weights, axis=0), axis=1) + jnp.where(active, 0.0, dh)
        return dh, jnp.where(active, d * f, dc), following

    state = (gradient, jnp.zeros_like(gradient), load_trace(texts.num_wavefronts - 1))
    lax.fori_loop(0, texts.num_wavefronts, wavefront_step, state)


def _weight_gradients(client: _Client, step: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the gradients of the weights of the states [U, 4 U] and of the inputs [E, 4 U]."""
    num_groups, _, num_units = client.states.shape
    num_inputs = client.table.shape[1]
    units, inputs, gates = (jnp.arange(size) for size in (num_units, _num_padded(num_inputs), 4 * num_units))

    def group_step(group: jax.Array, totals: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        texts = _load_texts(client, step, group)

        def tile_step(tile: jax.Array, totals: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            rows = (tile * TILE + jnp.arange(TILE))[:, None]
            inside = rows < texts.num_wavefronts * GROUP
            gradients = _load_where(inside, client.gates.at[group, rows, gates[None, :]])
            states = _load_where(inside, client.states.at[group, rows, units[None, :]])
            values = (states, _load_inputs(client, texts, tile))
            recurrent, of_inputs = (x + _contract(v, 0, gradients) for x, v in zip(totals, values, strict=True))
            return recurrent, of_inputs

        return lax.fori_loop(0, _num_tiles(texts), tile_step, totals)

    zeros = [jnp.zeros((rows.shape[0], gates.shape[0]), jnp.float32) for rows in (units, inputs)]
    recurrent, of_inputs = lax.fori_loop(0, num_groups, group_step, (zeros[0], zeros[1]))
    is_upper = gates[None, :] >= gates.shape[0] // 2
    from_lower = units[:, None] < num_units // 2
    is_bias = (inputs[:, None] >= num_inputs) & (inputs[:, None] < num_inputs + 2)
    return (
        jnp.where(from_lower | is_upper, recurrent, 0.0),  # the lower layer does not depend on the upper layer
        jnp.where(is_bias | (inputs[:, None] < num_inputs) & ~is_upper, of_inputs, 0.0),
    )


def _load_where(mask: jax.Array, ref: Any) -> jax.Array:
    """Return what `ref` refers to where `mask` is true, else zeros."""
    from jax.experimental.pallas import triton

    return jnp.asarray(triton.load(ref, mask=mask, other=0.0))


def _contract(left: jax.Array, axis: int, right: jax.Array) -> jax.Array:
    """Return the sum over an axis of the left matrix and the rows of the right one, in float32."""
    return lax.dot_general(left, right, (((axis,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)


def _rows(wavefront: jax.Array) -> jax.Array:
    return wavefront * GROUP + jnp.arange(GROUP)[:, None]


def _active(texts: _Texts, wavefront: jax.Array, units: jax.Array) -> jax.Array:
    """Return [G, U] whether a wavefront is a word of the text in the layer of a unit; else the state stays."""
    word = wavefront - (units >= units.shape[0] // 2).astype(jnp.int32)[None, :]
    return (word >= 0) & (word < texts.lengths[:, None])


def _sigmoid(x: jax.Array) -> jax.Array:
    return 1.0 / (1.0 + jnp.exp(-x))


ACTIVATIONS = (_sigmoid, _sigmoid, jnp.tanh, _sigmoid)  # of the gates i, f, g and o
