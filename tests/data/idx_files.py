"""Writes IDX files, the format of MNIST, and a small data set in this format."""

import gzip
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.data.mnist import FILES


def write_idx(folder: Path, name: str, array: npt.NDArray[np.uint8], *, spelled: str | None = None) -> Path:
    """Write one IDX file, gzipped if its name ends with .gz."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (spelled or name)
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def write_small_mnist(folder: Path) -> None:
    """Write 4000 training and 200 test images of 3 x 3 pixels; each of the ten digits has its own brightness."""
    rng = np.random.default_rng(0)
    for number, (images, labels) in zip((4000, 200), (list(FILES)[:2], list(FILES)[2:]), strict=True):
        digits = (np.arange(number) % 10).astype(np.uint8)
        pixels = 20 * digits[:, None, None] + rng.integers(0, 40, (number, 3, 3))
        write_idx(folder, images, pixels.astype(np.uint8))
        write_idx(folder, labels, digits)
