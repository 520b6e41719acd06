"""Shamir's secret sharing over the integers modulo the prime 2^130 - 5.

A secret of 128 bits is the constant term of a random polynomial of degree threshold - 1; share k is its value at k + 1.
Any `threshold` shares determine the secret; fewer are independent of it. The random coefficients come from `secrets`.
"""

import secrets
from collections.abc import Mapping
from functools import lru_cache

from fedlatest.errors import ProtocolError

PRIME = 2**130 - 5
SHARE_BYTES = 17
SECRET_BYTES = 16


def split(secret: bytes, *, threshold: int, num_shares: int) -> list[bytes]:
    """Return the shares of a secret.

    Args:
        secret: 16 bytes.
        threshold: number of shares that are needed to reconstruct it.
        num_shares: number of shares.
    """
    assert len(secret) == SECRET_BYTES
    assert 1 <= threshold <= num_shares
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [_evaluate(coefficients, index + 1).to_bytes(SHARE_BYTES, "big") for index in range(num_shares)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret, given at least `threshold` of its shares by their index.

    >>> pieces = split(bytes(range(16)), threshold=2, num_shares=3)
    >>> combine({0: pieces[0], 2: pieces[2]}) == bytes(range(16))
    True

    Raises:
        ProtocolError: the shares do not belong to one secret of 16 bytes.
    """
    indices = tuple(sorted(shares))
    values = (int.from_bytes(shares[index], "big") for index in indices)
    secret = sum(weight * value for weight, value in zip(_weights(indices), values, strict=True)) % PRIME
    if secret >= 2 ** (8 * SECRET_BYTES):
        raise ProtocolError("the shares do not belong to one secret")
    return secret.to_bytes(SECRET_BYTES, "big")


def _evaluate(coefficients: list[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value


@lru_cache(maxsize=64)
def _weights(indices: tuple[int, ...]) -> tuple[int, ...]:
    """Return the Lagrange coefficients at 0 for the points index + 1."""
    points = [index + 1 for index in indices]
    weights = []
    for point in points:
        numerator = denominator = 1
        for other in points:
            if other != point:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - point) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)
