"""The workloads of the benchmarks: sizes, generated data, and the arithmetic and memory traffic of a round.

M is the default MNIST setting on generated pixels, S the default Sentiment140 setting on random words. Imports JAX only
inside functions, so that a benchmark can set up a process first.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from fedlatest import Federation, Model

COHORT, STEPS = 100, 10
PIXELS, CLASSES, IMAGE_BATCH, IMAGE_RATE = 784, 10, 5, 0.01
WORD_SIZE, HIDDEN, TEXT_BATCH, TEXT_RATE = 25, 16, 2, 0.1
TEXTS_PER_CLIENT, LONGEST, NUM_WORDS = 40, 48, 9776
FLOAT = 4  # bytes


class Work(NamedTuple):
    """Floating-point operations (a multiply-add counts as two) and bytes of memory traffic of a round."""

    flops: float
    bytes: float


def images(num_clients: int, samples_per_client: int) -> "Federation":
    """Random byte pixels and labels, equally many for every client."""
    from fedlatest import Federation
    from fedlatest.data.features import pixels

    rng = np.random.default_rng(0)
    rows = num_clients * samples_per_client
    return Federation(
        name="generated",
        features=pixels(rng.integers(0, 256, (rows, PIXELS), dtype=np.uint8)),
        labels=rng.integers(0, CLASSES, rows, dtype=np.int32),
        test_features=rng.random((10, PIXELS), dtype=np.float32),
        test_labels=np.arange(10, dtype=np.int32),
        order=np.arange(rows, dtype=np.int32),
        offsets=np.arange(0, rows + 1, samples_per_client),
    )


def text_lengths(count: int) -> npt.NDArray[np.int32]:
    """The number of words of random texts, distributed as in Sentiment140: 13 on average, at most 48."""
    lengths = np.random.default_rng(1).gamma(3.5, 3.8, count)
    return np.clip(lengths, 1, LONGEST).astype(np.int32)


def texts(num_clients: int, texts_per_client: int = TEXTS_PER_CLIENT) -> "Federation":
    """Random words in texts of the lengths `text_lengths`, equally many for every client."""
    from fedlatest import Federation
    from fedlatest.data.features import Words

    rng = np.random.default_rng(0)
    num_train, num_test = texts_per_client * num_clients, 4400
    table = rng.standard_normal((NUM_WORDS, WORD_SIZE), dtype=np.float32)
    table[0] = 0
    lengths = text_lengths(num_train)

    def with_lengths(lengths: npt.NDArray[np.int32]) -> Words:
        ids = rng.integers(1, NUM_WORDS, (lengths.size, LONGEST), dtype=np.uint16)
        ids[np.arange(LONGEST) >= lengths[:, None]] = 0
        return Words(ids, lengths)

    return Federation(
        name="random words",
        features=with_lengths(lengths),
        labels=rng.integers(0, 2, num_train, dtype=np.int32),
        test_features=with_lengths(lengths[np.arange(num_test) % num_train]),
        test_labels=rng.integers(0, 2, num_test, dtype=np.int32),
        order=np.arange(num_train, dtype=np.int32),
        offsets=np.arange(0, num_train + 1, texts_per_client),
        table=table,
    )


def convolutional() -> "Model":
    """Two layers of 3 x 3 convolutions with 8 and 16 channels, each followed by a 2 x 2 maximum, and a dense layer."""
    import jax
    import jax.numpy as jnp

    from fedlatest import Model
    from fedlatest.models.dense import dense, dense_init

    def init(key: jax.Array) -> dict[str, object]:
        first, second, third = jax.random.split(key, 3)
        return {
            "first": 0.2 * jax.random.normal(first, (3, 3, 1, 8)),
            "second": 0.1 * jax.random.normal(second, (3, 3, 8, 16)),
            "output": dense_init(third, 7 * 7 * 16, CLASSES),
        }

    def layer(images: jax.Array, kernel: jax.Array) -> jax.Array:
        found = jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        rows, height, width, channels = found.shape
        windows = jax.nn.relu(found).reshape(rows, height // 2, 2, width // 2, 2, channels)
        return jnp.max(windows, axis=(2, 4))

    def apply(params: dict[str, jax.Array], features: jax.Array) -> jax.Array:
        found = layer(layer(features.reshape(-1, 28, 28, 1), params["first"]), params["second"])
        return dense(params["output"], found.reshape(found.shape[0], -1))

    return Model(init, apply)


def work_on_images() -> Work:
    """The work of a round of M: a forward and a backward product per sample, each a multiply-add per weight.

    Memory: the pixels of all batches, and the remembered updates of the cohort, read and written. The model of a client
    stays in the cache.
    """
    weights, samples = PIXELS * CLASSES, COHORT * STEPS * IMAGE_BATCH
    return Work(flops=samples * weights * 4, bytes=samples * PIXELS + 2 * COHORT * FLOAT * (weights + CLASSES))


def work_on_texts(mean_length: float) -> Work:
    """The work of a round of S: forward, gradients of states and of weights, each a multiply-add per weight and word.

    The gradient of the words themselves is not needed. A gate's nonlinearity counts as 4 operations. Memory: the word
    vectors of all batches, and the remembered updates of the cohort, read and written.
    """
    gates, words = 4 * HIDDEN, COHORT * STEPS * TEXT_BATCH * mean_length
    weights = (WORD_SIZE + HIDDEN + 2 * HIDDEN) * gates
    gradients_of_states = 3 * HIDDEN * gates
    elementwise = 2 * (4 * gates + 10 * HIDDEN) + 2 * 25 * HIDDEN
    parameters = weights + 2 * gates + HIDDEN + 1
    return Work(
        flops=words * (2 * (2 * weights + gradients_of_states) + elementwise),
        bytes=words * WORD_SIZE * FLOAT + 2 * COHORT * FLOAT * parameters,
    )
