"""The secret checksum of the updates in the sum: linear, exact, and zero only if nothing is left."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.linear_checksum import MODULUS, ROW, LinearChecksum

LOWEST, HIGHEST = -(2**31), 2**31 - 1
numbers = st.lists(st.integers(LOWEST, HIGHEST) | st.sampled_from([LOWEST, HIGHEST, 0]), max_size=6)


def _slow_checksum(seed: str, vector: FixedPoint) -> int:
    """Return the sum of z^(m - a) (s . v_a) in Python's integers."""
    content = hashlib.shake_256(seed.encode()).digest(8 * (ROW + 1))
    *factors, point = (int.from_bytes(content[i : i + 8], "little") & MODULUS for i in range(0, len(content), 8))
    found = 0
    for start in range(0, len(vector), ROW):
        row = vector[start : start + ROW].tolist()
        found = (found * point + sum(s * v for s, v in zip(factors, row, strict=False))) % MODULUS
    return found


@pytest.mark.parametrize("size", [0, 1, ROW - 1, ROW, ROW + 1, 5 * ROW + 7, 2**20 + 3])
def test_equals_the_definition(size: int) -> None:
    """Also for the largest numbers, for which the sums in double precision are the largest."""
    random = np.random.default_rng(0).integers(LOWEST, HIGHEST + 1, size).astype(np.int32)
    for vector in (random, np.full(size, LOWEST, np.int32), np.full(size, HIGHEST, np.int32)):
        assert LinearChecksum("seed").of(vector) == _slow_checksum("seed", vector)


@given(a=numbers, b=numbers, length=st.integers(0, 3))
def test_is_linear(a: list[int], b: list[int], length: int) -> None:
    """c(a) + c(b) = c(a + b), where a + b needs 33 bits and is given by the definition."""
    size = max(len(a), len(b)) + length
    checksum = LinearChecksum("seed")
    first, second = (np.array([*part, *[0] * (size - len(part))], np.int32) for part in (a, b))
    both = first.astype(np.int64) + second
    assert (checksum.of(first) + checksum.of(second)) % MODULUS == _slow_checksum("seed", both)
    assert (checksum.of(first) == 0) == (not first.any())


def test_depends_on_the_seed() -> None:
    vector = np.array([1, 2, 3], np.int32)
    assert LinearChecksum("a").of(vector) != LinearChecksum("b").of(vector)
