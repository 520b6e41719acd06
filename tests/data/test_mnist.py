"""MNIST: the four files are found, compared with each other or downloaded, and IDX files are never read partially."""

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedlatest import DataError, load_mnist
from fedlatest.data.mnist import FILES, MIRRORS, read_idx
from tests.data.idx_files import write_idx

NAMES = tuple(FILES)
# Three training and two test images of 2 x 2 pixels.
TRAIN_IMAGES = np.array([[[0, 255], [51, 102]], [[1, 2], [3, 4]], [[255, 255], [0, 0]]], np.uint8)
ARRAYS: dict[str, npt.NDArray[np.uint8]] = {
    NAMES[0]: TRAIN_IMAGES,
    NAMES[1]: np.array([7, 0, 9], np.uint8),
    NAMES[2]: TRAIN_IMAGES[:2] // 2,
    NAMES[3]: np.array([1, 2], np.uint8),
}


def write_all(folder: Path, spell: Callable[[str], str] = str) -> None:
    for name, array in ARRAYS.items():
        write_idx(folder, name, array, spelled=spell(name))


def is_small(folder: Path | None) -> bool:
    """Whether `folder` loads as the five images above."""
    samples = load_mnist(folder)
    return samples.labels.tolist() == [7, 0, 9] and samples.test_labels.tolist() == [1, 2]


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> str:
        raise AssertionError("a test tried to download")

    monkeypatch.setattr("pooch.retrieve", fail)


def test_pixels_are_scaled_to_1_and_flattened(tmp_path: Path) -> None:
    write_all(tmp_path)
    samples = load_mnist(tmp_path)
    assert samples.name == "mnist"
    # 1/255 is rounded and so is its product: the error is at most one unit in the last place, 2^-24 relative to 1
    np.testing.assert_allclose(samples.features[0], [0, 1, 0.2, 0.4], rtol=0, atol=2**-24)
    assert samples.features.shape == (3, 4)
    assert samples.test_features.shape == (2, 4)
    assert samples.features.dtype == np.dtype(np.float32)
    assert samples.labels.dtype == samples.test_labels.dtype == np.dtype(np.int32)
    assert samples.labels.tolist() == [7, 0, 9]
    assert samples.test_labels.tolist() == [1, 2]


SPELLINGS: dict[str, Callable[[str], str]] = {
    "gzipped": str,
    "plain": lambda name: name.removesuffix(".gz"),
    "with a dot": lambda name: name.removesuffix(".gz").replace("-idx", ".idx"),
    "some gzipped": lambda name: name if "train" in name else name.removesuffix(".gz"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("subfolder", [".", "mnist"])
def test_files_are_found_in_the_folder_or_its_subfolder(tmp_path: Path, spelling: str, subfolder: str) -> None:
    write_all(tmp_path / subfolder, SPELLINGS[spelling])
    assert is_small(tmp_path)


@pytest.mark.parametrize("subfolder", [".", "mnist"])
def test_the_folder_can_be_set_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subfolder: str
) -> None:
    write_all(tmp_path / subfolder)
    monkeypatch.setenv("FEDLATEST_DATA", str(tmp_path))
    assert is_small(None)


def test_the_argument_overrides_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path)
    monkeypatch.setenv("FEDLATEST_DATA", str(tmp_path / "elsewhere"))
    assert is_small(tmp_path)
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / 'elsewhere'}: no such folder")):
        load_mnist()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / 'none'}: no such folder")):
        load_mnist(tmp_path / "none")


def test_a_file_instead_of_a_folder_is_named(tmp_path: Path) -> None:
    write_all(tmp_path)
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / NAMES[0]}: no such folder")):
        load_mnist(tmp_path / NAMES[0])


def test_an_empty_folder_is_an_error_that_names_the_expected_file(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="^" + re.escape(f"data={tmp_path}: contains no MNIST files; expected {NAMES[0]}")
    ):
        load_mnist(tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("subfolder", ["", "mnist"])
def test_a_missing_file_of_the_four_is_named(tmp_path: Path, name: str, subfolder: str) -> None:
    write_all(tmp_path / subfolder)
    (tmp_path / subfolder / name).unlink()
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / subfolder}: {name} is missing")):
        load_mnist(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_file_is_named(tmp_path: Path, name: str) -> None:
    write_all(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: cannot be read")):
        load_mnist(tmp_path)


MISMATCHES: dict[str, tuple[str, str, npt.NDArray[np.uint8]]] = {
    "a label too few": (NAMES[0], NAMES[1], np.zeros(2, np.uint8)),
    "a label too many": (NAMES[0], NAMES[1], np.zeros(4, np.uint8)),
    "a test label too many": (NAMES[2], NAMES[3], np.zeros(3, np.uint8)),
    "images for labels": (NAMES[0], NAMES[1], TRAIN_IMAGES),
    "labels for images": (NAMES[0], NAMES[0], np.zeros(3, np.uint8)),
    "test labels for images": (NAMES[2], NAMES[2], np.zeros(2, np.uint8)),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_images_and_labels_that_do_not_match_are_named(tmp_path: Path, case: str) -> None:
    named, replaced, array = MISMATCHES[case]
    write_all(tmp_path)
    write_idx(tmp_path, replaced, array)
    with pytest.raises(DataError, match="^" + re.escape(f"{tmp_path / named}: ") + ".*do not match"):
        load_mnist(tmp_path)


@pytest.mark.parametrize(
    ("images", "labels"),
    [(np.zeros((2, 3, 3), np.uint8), np.zeros(2, np.uint8)), (np.zeros((0, 2, 2), np.uint8), np.zeros(0, np.uint8))],
    ids=["of another size than the training images", "none"],
)
def test_invalid_test_images_are_named(
    tmp_path: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]
) -> None:
    write_all(tmp_path)
    write_idx(tmp_path, NAMES[2], images)
    write_idx(tmp_path, NAMES[3], labels)
    with pytest.raises(DataError, match="^" + re.escape(f"{tmp_path / NAMES[2]}: ")):
        load_mnist(tmp_path)


@pytest.mark.parametrize("error", [OSError("no network"), ValueError("MD5 hash of downloaded file does not match")])
def test_a_failed_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    urls: list[str] = []

    def fail(url: str, *arguments: object, **options: object) -> str:
        urls.append(url)
        raise error

    monkeypatch.delenv("FEDLATEST_DATA", raising=False)
    monkeypatch.setattr("pooch.retrieve", fail)
    message = rf"{re.escape(NAMES[0])} could not be downloaded \({type(error).__name__}\).*--data or FEDLATEST_DATA"
    with pytest.raises(DataError, match=message):
        load_mnist()
    assert urls == [mirror + NAMES[0] for mirror in MIRRORS]


def test_the_second_mirror_is_used_with_the_same_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path)

    def retrieve(url: str, known_hash: str, fname: str, **options: object) -> str:
        if url.startswith(MIRRORS[0]):
            raise OSError("this mirror is down")
        assert url == MIRRORS[1] + fname
        assert known_hash == "md5:" + FILES[fname]
        return str(tmp_path / fname)

    monkeypatch.setenv("FEDLATEST_DATA", "")  # the same as unset
    monkeypatch.setattr("pooch.retrieve", retrieve)
    assert is_small(None)


def test_the_full_data(mnist_folder: Path) -> None:
    """The label counts are those of the original files, published in many papers; pixels range from 0 to 255 / 255."""
    samples = load_mnist(mnist_folder)
    assert samples.features.shape == (60000, 784)
    assert samples.test_features.shape == (10000, 784)
    for pixels in (samples.features, samples.test_features):
        assert pixels.min() == 0
        assert pixels.max() == 1
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(samples.labels).tolist() == train
    assert np.bincount(samples.test_labels).tolist() == test
    assert samples.labels[:5].tolist() == [5, 0, 4, 1, 9]


# An IDX file of 2 x 3 bytes: two zeros, type 8 (unsigned byte), 2 axes, their sizes as big-endian words, the bytes.
IDX_FILE = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255])
HEADER = 12


def as_idx(array: npt.NDArray[np.uint8]) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def idx_path(tmp_path: Path) -> Path:
    return tmp_path / "small-idx2-ubyte"


def error_for(path: Path, content: bytes) -> str:
    """The error message after the path, with which it must start."""
    path.write_bytes(content)
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: ")) as error:
        read_idx(path)
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("content", [IDX_FILE, gzip.compress(IDX_FILE)], ids=["plain", "gzipped"])
def test_read_idx_by_hand(idx_path: Path, content: bytes) -> None:
    idx_path.write_bytes(content)
    array = read_idx(idx_path)
    assert array.tolist() == [[1, 2, 3], [4, 5, 255]]
    assert array.dtype == np.dtype(np.uint8)


@given(
    array=arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)),
    gzipped=st.booleans(),
)
def test_read_idx_returns_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, array: npt.NDArray[np.uint8], gzipped: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "written-idx"
    path.write_bytes(gzip.compress(as_idx(array)) if gzipped else as_idx(array))
    assert np.array_equal(read_idx(path), array)


def test_a_missing_idx_file_is_named(idx_path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"{idx_path}: cannot be read; it is missing")):
        read_idx(idx_path)


@pytest.mark.parametrize("length", range(2, len(gzip.compress(IDX_FILE))))
def test_a_gzipped_file_cut_anywhere_is_an_error(idx_path: Path, length: int) -> None:
    assert error_for(idx_path, gzip.compress(IDX_FILE)[:length]).startswith("cannot be read")


@pytest.mark.parametrize("position", range(-8, -4))
def test_a_gzipped_file_whose_checksum_is_wrong_is_an_error(idx_path: Path, position: int) -> None:
    content = bytearray(gzip.compress(IDX_FILE))
    content[position] ^= 1
    assert error_for(idx_path, bytes(content)).startswith("cannot be read")


@pytest.mark.parametrize("length", range(HEADER, len(IDX_FILE)))
def test_a_body_cut_anywhere_says_how_much_is_missing(idx_path: Path, length: int) -> None:
    assert error_for(idx_path, IDX_FILE[:length]).startswith(
        f"damaged: its header announces 2 x 3 bytes, but {length - HEADER} follow"
    )


def test_extra_bytes_are_an_error(idx_path: Path) -> None:
    assert error_for(idx_path, IDX_FILE + b"\0").startswith(
        "damaged: its header announces 2 x 3 bytes, but more follow"
    )


@pytest.mark.parametrize("length", range(4))
def test_a_file_shorter_than_its_magic_number_is_an_error(idx_path: Path, length: int) -> None:
    assert error_for(idx_path, IDX_FILE[:length]).startswith("not an IDX file")


@pytest.mark.parametrize("length", [4, 8])
def test_a_header_cut_between_sizes_is_an_error(idx_path: Path, length: int) -> None:
    assert error_for(idx_path, IDX_FILE[:length]).startswith("damaged")


@pytest.mark.parametrize("length", [5, 6, 7, 9, 10, 11])
def test_a_header_cut_within_a_size_is_an_error(idx_path: Path, length: int) -> None:
    assert error_for(idx_path, IDX_FILE[:length]).startswith("damaged")


@pytest.mark.parametrize(
    ("magic", "shown"),
    [
        (b"\0\0\x0d\x02", "00 00 0d 02"),  # floats
        (b"\0\1\x08\x02", "00 01 08 02"),
        (b"\1\0\x08\x02", "01 00 08 02"),
        (b"<htm", "3c 68 74 6d"),  # an HTML error page
    ],
)
def test_a_wrong_magic_number_is_shown(idx_path: Path, magic: bytes, shown: str) -> None:
    assert (
        error_for(idx_path, magic + IDX_FILE[4:]) == f"not an IDX file of unsigned bytes (its first bytes are {shown})"
    )
