"""MNIST's four files: found where they may lie, checked against each other, and never missed silently."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import DataError, load_mnist
from fedlatest.data.mnist import FILES, MIRRORS
from tests.data.idx_files import write

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
        write(folder, name, array, spelled=spell(name))


def is_small(folder: Path | None) -> bool:
    """Whether `folder` loads as the five images above."""
    samples = load_mnist(folder)
    return samples.labels.tolist() == [7, 0, 9] and samples.test_labels.tolist() == [1, 2]


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> str:
        raise AssertionError("a test tried to download")

    monkeypatch.setattr("pooch.retrieve", refuse)


def test_pixels_are_scaled_to_1_and_flattened(tmp_path: Path) -> None:
    write_all(tmp_path)
    samples = load_mnist(tmp_path)
    assert samples.name == "mnist"
    # 1/255 rounded, times the byte, rounded: at most one unit in the last place (2^-24 relative to 1) off
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
@pytest.mark.parametrize("below", [".", "mnist"])
def test_found_in_the_folder_or_its_folder_mnist(tmp_path: Path, spelling: str, below: str) -> None:
    write_all(tmp_path / below, SPELLINGS[spelling])
    assert is_small(tmp_path)


@pytest.mark.parametrize("below", [".", "mnist"])
def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str) -> None:
    write_all(tmp_path / below)
    monkeypatch.setenv("FEDLATEST_DATA", str(tmp_path))
    assert is_small(None)


def test_the_argument_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_empty_folder_is_named_with_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path}: holds no MNIST files; expected {NAMES[0]}")):
        load_mnist(tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("below", ["", "mnist"])
def test_a_missing_file_of_the_four_is_named(tmp_path: Path, name: str, below: str) -> None:
    write_all(tmp_path / below)
    (tmp_path / below / name).unlink()
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / below}: {name} is missing")):
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
def test_images_and_labels_that_do_not_go_together_are_named(tmp_path: Path, case: str) -> None:
    named, replaced, array = MISMATCHES[case]
    write_all(tmp_path)
    write(tmp_path, replaced, array)
    with pytest.raises(DataError, match="^" + re.escape(f"{tmp_path / named}: ") + ".*do not go with"):
        load_mnist(tmp_path)


@pytest.mark.parametrize(
    ("images", "labels"),
    [(np.zeros((2, 3, 3), np.uint8), np.zeros(2, np.uint8)), (np.zeros((0, 2, 2), np.uint8), np.zeros(0, np.uint8))],
    ids=["of another size than the training images", "none"],
)
def test_unusable_test_images_are_named(
    tmp_path: Path, images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]
) -> None:
    write_all(tmp_path)
    write(tmp_path, NAMES[2], images)
    write(tmp_path, NAMES[3], labels)
    with pytest.raises(DataError, match="^" + re.escape(f"{tmp_path / NAMES[2]}: ")):
        load_mnist(tmp_path)


@pytest.mark.parametrize("error", [OSError("no network"), ValueError("MD5 hash of downloaded file does not match")])
def test_a_failed_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    asked: list[str] = []

    def fail(url: str, *arguments: object, **options: object) -> str:
        asked.append(url)
        raise error

    monkeypatch.delenv("FEDLATEST_DATA", raising=False)
    monkeypatch.setattr("pooch.retrieve", fail)
    message = rf"{re.escape(NAMES[0])} could not be downloaded \({type(error).__name__}\).*--data or FEDLATEST_DATA"
    with pytest.raises(DataError, match=message):
        load_mnist()
    assert asked == [mirror + NAMES[0] for mirror in MIRRORS]


def test_the_second_mirror_is_asked_with_the_files_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path)

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> str:
        if url.startswith(MIRRORS[0]):
            raise OSError("this mirror is down")
        assert url == MIRRORS[1] + fname
        assert known_hash == "md5:" + FILES[fname]
        return str(tmp_path / fname)

    monkeypatch.setenv("FEDLATEST_DATA", "")  # as good as none
    monkeypatch.setattr("pooch.retrieve", retrieve)
    assert is_small(None)


def test_the_full_data(mnist_folder: Path) -> None:
    """The label counts of the original files, published with many papers; pixels reach 0 and 255 / 255."""
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
