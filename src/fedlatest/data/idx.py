"""The IDX format of the MNIST files, gzipped or not."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.errors import DataError

UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file; anything short, long or foreign is an error."""
    content = _read(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: not an IDX file of unsigned bytes (its first bytes are {content[:4].hex(' ')})")
    num_axes = content[3]
    header = 4 + 4 * num_axes
    sizes = content[4:header]
    shape = tuple(int(size) for size in np.frombuffer(sizes[: len(sizes) // 4 * 4], ">u4"))
    if len(shape) != num_axes or len(content) - header != math.prod(shape):
        raise DataError(
            f"{path}: damaged: its header promises {' x '.join(map(str, shape)) or 'more'} bytes, "
            f"{max(0, len(content) - header)} follow; fetch the file again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read, it is missing, truncated or corrupt ({error})") from error
