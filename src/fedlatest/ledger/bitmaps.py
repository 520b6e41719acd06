"""Sets of clients in the ledger, as compressed bits by client number.

In a round, the available clients, those in contact and those among which a cohort was selected are nearly the same
sets. So the latter two are stored as their difference to the first, which takes a few bytes.
"""

import zlib

import numpy as np
import numpy.typing as npt

SELECTION_BYTES = 8  # per selection, before its candidates


def pack(bits: bytes) -> bytes:
    """Return compressed bits."""
    return zlib.compress(bits, 1)


def unpack(content: bytes, count: int) -> npt.NDArray[np.bool_]:
    """Return a set of `pack` as an array [count]; numbers that did not exist yet are False."""
    flags = np.unpackbits(np.frombuffer(zlib.decompress(content), np.uint8))[:count].astype(bool)
    return np.pad(flags, (0, count - len(flags)))


def difference(bits: bytes, other: bytes) -> bytes:
    """Return which clients are in one of two sets only; the sets have the same number of bits.

    >>> difference(difference(b"ab", b"cd"), b"cd")
    b'ab'
    """
    return (np.frombuffer(bits, np.uint8) ^ np.frombuffer(other, np.uint8)).tobytes()


def relative_candidates(selections: bytes, available: bytes) -> bytes:
    """Return the selections of a round with each set of candidates as a difference to the available clients, or back.

    Args:
        selections: their number in 4 bytes, `SELECTION_BYTES` for each of them, then the candidates of each.
        available: the available clients of the round, as bits.
    """
    number = int.from_bytes(selections[:4], "little")
    start = 4 + SELECTION_BYTES * number
    return selections[:start] + difference(selections[start:], available * number)
