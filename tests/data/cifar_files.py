"""Small files in the format of the binary version of CIFAR-10."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.data.cifar10 import FILES

IMAGES_PER_FILE = 8


def images_of(number: int, count: int = IMAGES_PER_FILE) -> npt.NDArray[np.uint8]:
    """Return random images [count, 3, 32, 32] of file `number`."""
    return np.random.default_rng(number).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


def labels_of(number: int, count: int = IMAGES_PER_FILE) -> npt.NDArray[np.uint8]:
    """Return the labels of file `number`; the files together have all ten labels."""
    return ((np.arange(count) + number * count) % 10).astype(np.uint8)


def records(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> bytes:
    """Return the bytes of a file: for each image its label, then its red, green and blue plane."""
    return b"".join(bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True))


def write_small_cifar10(folder: Path, count: int = IMAGES_PER_FILE) -> None:
    """Write all six files, with `count` images in each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(FILES):
        (folder / name).write_bytes(records(images_of(number, count), labels_of(number, count)))
