"""A secret linear checksum, with which the server verifies that a goodbye removes what its client has added.

The server does not store updates that clients keep, only one number per client: the checksum of the sum of its accepted
differences. The checksum is linear, so it is updated with each difference, and a goodbye must bring it back to 0.

The checksum of v is computed modulo the prime P = 2^61 - 1. With v divided into rows v_1, ..., v_m of `ROW` numbers,

    c(v) = sum over a of z^(m - a) (s . v_a)  mod P

where s (a vector of `ROW` numbers below P) and z are derived from a secret seed. A client that does not know them and
whose numbers do not sum to zero is accepted with a probability of at most (m + 1) / P: less than 2^-47 for 50 million
numbers. Its replies tell it nothing about the secret, except that a wrong goodbye was wrong.
"""

import hashlib

import numpy as np

from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.hashing import map_chunks

MODULUS = 2**61 - 1
ROW = 2**13
_BITS, _PARTS = 9, 7  # s is divided into parts so that sums of ROW products with 32 bits are exact in double precision
_STEP = 4 * ROW  # numbers at a time: they stay in the cache of a core, and BLAS starts no threads


class LinearChecksum:
    """Computes checksums modulo `MODULUS`.

    Args:
        seed: the secret; never sent to a client.
    """

    def __init__(self, seed: str) -> None:
        drawn = np.frombuffer(hashlib.shake_256(seed.encode()).digest(8 * (ROW + 1)), "<u8") & np.uint64(MODULUS)
        self._point = int(drawn[ROW])
        shifts = np.arange(_PARTS, dtype=np.uint64) * np.uint64(_BITS)
        parts = (drawn[:ROW, None] >> shifts) & np.uint64(2**_BITS - 1)
        self._factors = parts.astype(np.float64)  # [ROW, parts]

    def of(self, numbers: FixedPoint) -> int:
        """Return the checksum of a vector.

        >>> checksum, a, b = LinearChecksum("secret"), np.array([3, -1], np.int32), np.array([4, 4], np.int32)
        >>> (checksum.of(a) + checksum.of(b)) % MODULUS == checksum.of(a + b)
        True
        """
        found = 0
        for rows in map_chunks(lambda chunk: self._sums_of_rows(numbers[chunk]), numbers.size):
            for sums in rows:
                row = sum(int(part) << (_BITS * position) for position, part in enumerate(sums))
                found = (found * self._point + row) % MODULUS
        return found

    def _sums_of_rows(self, numbers: FixedPoint) -> list[list[float]]:
        """Return the exact sums of the products with each part of s, as a list per row."""
        whole = numbers.size // ROW * ROW
        sums: list[list[float]] = []
        for start in range(0, whole, _STEP):
            rows = numbers[start : min(start + _STEP, whole)].reshape(-1, ROW).astype(np.float64)
            sums += (rows @ self._factors).tolist()
        rest = numbers[whole:].astype(np.float64)
        return [*sums, (rest @ self._factors[: rest.size]).tolist()] if rest.size else sums
