"""MNIST, read from IDX files in a folder or downloaded with checksums."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, GZIP_MAGIC, LimitedReader, limited_gzip
from fedlatest.data.download import LimitedDownloader
from fedlatest.data.features import pixels
from fedlatest.data.federation import Samples
from fedlatest.errors import DataError
from fedlatest.paths import DATA, cache_folder, data_folder

FILES = {  # MD5 checksums of the original files
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
UNSIGNED_BYTE = 0x08  # type code of IDX files
MAX_IDX_BYTES = 2**30  # in one array; the largest published one, of EMNIST, has 0.64 * 10^9
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


def load_mnist(folder: Path | str | None = None) -> Samples:
    """Return MNIST with pixels in [0, 1], not normalised: 60000 training and 10000 test images of 784 pixels.

    The IDX files are read from `folder` (or the environment variable FEDLATEST_DATA) or from its subfolder `mnist`. If
    neither is set, they are downloaded once and their checksums are verified.
    """
    chosen = data_folder(folder)
    files = _find_files(chosen) if chosen else _download()
    train_images, train_labels, test_images, test_labels = (read_idx(path) for path in files)
    for images, labels, path in ((train_images, train_labels, files[0]), (test_images, test_labels, files[2])):
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels) or len(labels) == 0:
            raise DataError(
                f"{path}: {images.shape} images do not match {labels.shape} labels; download both files again"
            )
    if train_images.shape[1:] != test_images.shape[1:]:
        raise DataError(
            f"{files[2]}: test images are {test_images.shape[1:]}, training images {train_images.shape[1:]}"
        )
    return Samples(
        "mnist",
        pixels(train_images.reshape(len(train_images), -1)),
        train_labels.astype(np.int32),
        pixels(test_images.reshape(len(test_images), -1)),
        test_labels.astype(np.int32),
    )


def _find_files(folder: Path) -> list[Path]:
    """Return the paths of the four files, gzipped or not, in `folder` or in its subfolder `mnist`."""
    if not folder.is_dir():
        raise DataError(
            f"data={folder}: no such folder; give the folder that contains the IDX files of MNIST or a subfolder mnist/"
        )
    for place in (folder, folder / "mnist"):
        found = [_find_file(place, name) for name in FILES]
        if any(found):
            missing = [name for name, path in zip(FILES, found, strict=True) if path is None]
            if missing:
                raise DataError(f"data={place}: {missing[0]} is missing (with or without .gz)")
            return [path for path in found if path]
    raise DataError(
        f"data={folder}: contains no MNIST files; expected {next(iter(FILES))} there or in its subfolder mnist/"
    )


def _find_file(folder: Path, name: str) -> Path | None:
    plain = name.removesuffix(".gz")
    candidates = (folder / name, folder / plain, folder / plain.replace("-idx", ".idx"))
    return next((path for path in candidates if path.is_file()), None)


def _download() -> list[Path]:
    cache = cache_folder() / "mnist"
    return [Path(_fetch(name, md5, cache)) for name, md5 in FILES.items()]


def _fetch(name: str, md5: str, cache: Path) -> str:
    import pooch

    problem: Exception | None = None
    for mirror in MIRRORS:
        try:
            url, download = mirror + name, LimitedDownloader()
            return str(pooch.retrieve(url, f"md5:{md5}", fname=name, path=cache, downloader=download))
        except (OSError, ValueError) as error:  # no network, or a wrong checksum
            problem = error
    raise DataError(
        f"MNIST was not found and {name} could not be downloaded ({type(problem).__name__}). "
        f"Put the four IDX files in a folder and pass the folder with --data or {DATA}."
    )


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the array in an IDX file of unsigned bytes, plain or gzipped.

    At most one byte more than the header announces is read.

    Raises:
        DataError: The file cannot be read, has another format, announces more than MAX_IDX_BYTES, or its length does
            not match its header.
    """
    try:
        with path.open("rb") as raw:
            is_gzipped = raw.read(2) == GZIP_MAGIC
            raw.seek(0)
            limit = MAX_IDX_BYTES + 2**11  # an array, its header, and the byte after them
            return _parse_idx(limited_gzip(raw, limit=limit) if is_gzipped else LimitedReader(raw, limit=limit), path)
    except DECOMPRESSION_ERRORS as error:
        raise DataError(f"{path}: cannot be read; it is missing, truncated or corrupt ({error})") from error


def _parse_idx(file: LimitedReader, path: Path) -> npt.NDArray[np.uint8]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != UNSIGNED_BYTE:
        raise DataError(f"{path}: not an IDX file of unsigned bytes (its first bytes are {magic.hex(' ')})")
    sizes = file.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataError(f"{path}: damaged: its header ends after {4 + len(sizes)} bytes; download the file again")
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    announced = math.prod(shape)
    text = " x ".join(map(str, shape))
    if announced > MAX_IDX_BYTES:
        raise DataError(
            f"{path}: its header announces {text} bytes, the limit is {MAX_IDX_BYTES}; is it an MNIST file?"
        )
    content = file.read_up_to(announced + 1)
    if len(content) != announced:
        found = "more" if len(content) > announced else len(content)
        raise DataError(
            f"{path}: damaged: its header announces {text} bytes, but {found} follow; download the file again"
        )
    try:
        return np.frombuffer(content, np.uint8).reshape(shape)
    except ValueError as error:  # more axes than NumPy supports
        raise DataError(f"{path}: its header announces {magic[3]} axes, which cannot be read ({error})") from error
