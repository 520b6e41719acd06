"""Hash and shuffle: equal to the reference, uniform, and a permutation for every size."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.streams import Purpose, bits, permute, uniform
from tests import reference

words = st.integers(0, 2**32 - 1)
jit_permute = jax.jit(permute)


@given(seed=words, first=words, second=words)
def test_bits_equal_the_reference(seed: int, first: int, second: int) -> None:
    ours = bits(np.uint32(seed), Purpose.BATCHES, np.uint32(first), np.uint32(second))
    assert int(ours) == reference.bits(seed, Purpose.BATCHES, first, second)


@given(key=words, size=st.integers(1, 300))
def test_permute_is_a_permutation(key: int, size: int) -> None:
    places = jit_permute(np.uint32(key), size, jnp.arange(300) % size)[:size]
    assert sorted(places.tolist()) == list(range(size))


@given(key=words, size=st.integers(1, 70000), position=st.integers(0, 2**30))
def test_permute_equals_the_reference(key: int, size: int, position: int) -> None:
    ours = jit_permute(np.uint32(key), size, position % size)
    assert int(ours) == reference.permute(key, size, position % size)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_permute_reaches_every_order_equally_often(size: int) -> None:
    """With 12000 keys each of the size! orders is expected 12000 / size! times; chi-square at p about 1e-6."""
    keys = bits(7, Purpose.BATCHES, jnp.arange(12000))
    orders = np.asarray(permute(keys[:, None], size, jnp.arange(size)[None, :]))
    counts = Counter(map(tuple, orders.tolist()))
    expected = len(orders) / len(list(itertools.permutations(range(size))))
    chi_square = sum((counts[order] - expected) ** 2 / expected for order in itertools.permutations(range(size)))
    degrees = len(list(itertools.permutations(range(size)))) - 1
    assert chi_square < degrees + 5 * np.sqrt(2 * degrees) + 10


def test_permute_separates_neighbours() -> None:
    """The positions of 0 and 1 in a shuffle of 60 are uniform over the 60 * 59 pairs: chi-square."""
    keys = bits(1, Purpose.BATCHES, jnp.arange(200_000))
    first, second = (np.asarray(permute(keys, 60, position)) for position in (0, 1))
    counts = np.bincount(first * 60 + second, minlength=3600).reshape(60, 60)
    assert np.trace(counts) == 0
    pairs = counts[~np.eye(60, dtype=bool)]
    chi_square = ((pairs - pairs.mean()) ** 2 / pairs.mean()).sum()
    assert abs(chi_square - pairs.size) < 6 * np.sqrt(2 * pairs.size)


def test_uniform_is_uniform_and_streams_are_uncorrelated() -> None:
    draws = np.asarray(uniform(0, Purpose.AVAILABILITY, jnp.arange(100_000)))
    other_purpose = np.asarray(uniform(0, Purpose.SELECTION, jnp.arange(100_000)))
    other_seed = np.asarray(uniform(1, Purpose.AVAILABILITY, jnp.arange(100_000)))
    histogram = np.histogram(draws, bins=100, range=(0, 1))[0]
    assert ((histogram - 1000) ** 2 / 1000).sum() < 99 + 6 * np.sqrt(2 * 99)
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(np.corrcoef(draws, other_purpose)[0, 1]) < 0.015
    assert abs(np.corrcoef(draws, other_seed)[0, 1]) < 0.015
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.015
