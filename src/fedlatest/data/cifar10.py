"""CIFAR-10, read from the files of its binary version in a folder or downloaded with a checksum."""

import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, limited_gzip
from fedlatest.data.download import LimitedDownloader
from fedlatest.data.features import pixels
from fedlatest.data.federation import Samples
from fedlatest.errors import DataError
from fedlatest.paths import DATA, cache_folder, data_folder

TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
FILES = (*TRAIN_FILES, TEST_FILE)
INNER_FOLDER = "cifar-10-batches-bin"  # in the archive
ARCHIVE = "cifar-10-binary.tar.gz"
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # published beside the archive
CHANNELS, SIDE, NUM_CLASSES = 3, 32, 10
NUM_PIXELS = CHANNELS * SIDE * SIDE
RECORD = 1 + NUM_PIXELS  # bytes: the label, then the red, green and blue planes, each row by row
MAX_FILE_BYTES = 10_000 * RECORD  # of a file in the archive
MAX_ARCHIVE_BYTES = 2 * len(FILES) * MAX_FILE_BYTES  # decompressed
ARCHIVE_ERRORS = (*DECOMPRESSION_ERRORS, tarfile.TarError, ValueError, RecursionError)

ReadFile = Callable[[str], bytes]  # the content of one of FILES


def load_cifar10(folder: Path | str | None = None) -> Samples:
    """Return CIFAR-10 with pixels in [0, 1], not normalised: 50000 training and 10000 test images of 3072 values.

    An image is stored row by row, with the red, green and blue value of a pixel next to each other:
    `image.reshape(32, 32, 3)`.

    The files of the binary version (data_batch_1.bin .. data_batch_5.bin and test_batch.bin) are read from `folder` (or
    the environment variable FEDLATEST_DATA), from its subfolder `cifar10`, or from `cifar-10-batches-bin` in either. If
    neither is set, the archive is downloaded once and its checksum is verified; it is never unpacked to disk.
    """
    chosen = data_folder(folder)
    with _open_folder(chosen) if chosen else _open_archive(_download()) as (place, read):
        parts = [_images_and_labels(read(name), f"{place}/{name}") for name in FILES]
    images, labels = (np.concatenate(part) for part in zip(*parts[:-1], strict=True))
    return Samples("cifar10", pixels(images), labels, pixels(parts[-1][0]), parts[-1][1])


def _images_and_labels(content: bytes, source: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the images [records, 3072], channels last, and the labels of a file."""
    if not content or len(content) % RECORD:
        raise DataError(
            f"{source}: has {len(content)} bytes, which is no whole number of records of {RECORD}; it is truncated or "
            "not of the binary version of CIFAR-10"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int32)
    if labels.max() >= NUM_CLASSES:
        raise DataError(
            f"{source}: record {labels.argmax()} has label {labels.max()}; labels of CIFAR-10 are 0 .. 9, so this is "
            "another data set or a damaged file"
        )
    planes = records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
    return planes.transpose(0, 2, 3, 1).reshape(-1, NUM_PIXELS), labels


@contextmanager
def _open_folder(folder: Path) -> Iterator[tuple[Path, ReadFile]]:
    """Yield the folder that contains the files, and a function that reads one of them."""
    if not folder.is_dir():
        raise DataError(f"data={folder}: no such folder; give the folder that contains {FILES[0]} .. {TEST_FILE}")
    outer = (folder, folder / "cifar10")
    places = [*outer, *(place / INNER_FOLDER for place in outer)]
    place = next((place for place in places if any((place / name).is_file() for name in FILES)), None)
    if place is None:
        raise DataError(
            f"data={folder}: contains no files of CIFAR-10; expected {FILES[0]} .. {FILES[-2]} and {TEST_FILE} there, "
            f"in its subfolder cifar10/ or in {INNER_FOLDER}/ in either"
        )
    missing = [name for name in FILES if not (place / name).is_file()]
    if missing:
        raise DataError(f"data={place}: {missing[0]} is missing")

    def read(name: str) -> bytes:
        try:
            return (place / name).read_bytes()
        except OSError as error:
            raise DataError(f"{place / name}: cannot be read ({error})") from error

    yield place, read


@contextmanager
def _open_archive(archive: Path) -> Iterator[tuple[Path, ReadFile]]:
    """Yield the path of the archive, and a function that reads one of its files; nothing is extracted."""

    def read(name: str) -> bytes:
        try:
            member = contents.getmember(f"{INNER_FOLDER}/{name}")
            file = contents.extractfile(member) if member.isreg() and member.size <= MAX_FILE_BYTES else None
            if file is not None:
                return file.read()
        except (KeyError, *ARCHIVE_ERRORS) as error:
            raise DataError(f"{archive}: {name} cannot be read; delete the archive ({error})") from error
        if member.isreg():
            raise DataError(
                f"{archive}: {name} announces {member.size} bytes, expected at most {MAX_FILE_BYTES}; delete the "
                "archive"
            )
        raise DataError(f"{archive}: {name} is not a file; delete the archive")

    with ExitStack() as stack:
        try:
            raw = stack.enter_context(archive.open("rb"))
            unpacked = limited_gzip(raw, limit=MAX_ARCHIVE_BYTES)
            contents = stack.enter_context(tarfile.open(fileobj=unpacked, mode="r:"))
        except ARCHIVE_ERRORS as error:
            raise DataError(f"{archive}: cannot be read; delete it to download it again ({error})") from error
        yield archive, read


def _download() -> Path:
    import pooch

    try:
        cache, download = cache_folder() / "cifar10", LimitedDownloader()
        return Path(pooch.retrieve(URL, f"md5:{MD5}", fname=ARCHIVE, path=cache, downloader=download))
    except (OSError, ValueError) as error:  # no network, or a wrong checksum
        raise DataError(
            f"CIFAR-10 was not found and {ARCHIVE} could not be downloaded ({type(error).__name__}). Put {FILES[0]} .. "
            f"{FILES[-2]} and {TEST_FILE} of the binary version in a folder and pass the folder with --data or {DATA}."
        ) from error
