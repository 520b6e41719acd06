"""CIFAR-10: the six files are found or downloaded, their layout is read correctly, and damaged files are named."""

import io
import os
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedlatest import DataError, load_cifar10
from fedlatest.data.cifar10 import FILES, INNER_FOLDER, MD5, RECORD, URL
from fedlatest.simulation.device_data import compact
from tests.data.cifar_files import IMAGES_PER_FILE, images_of, labels_of, records, write_small_cifar10


@pytest.fixture(autouse=True)
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> str:
        raise AssertionError("a test tried to download")

    monkeypatch.setattr("pooch.retrieve", fail)


def is_small(folder: Path | None) -> bool:
    """Whether `folder` loads as the small files."""
    samples = load_cifar10(folder)
    labels = np.concatenate([labels_of(number) for number in range(5)])
    return np.array_equal(samples.labels, labels) and np.array_equal(samples.test_labels, labels_of(5))


def test_a_record_by_hand(tmp_path: Path) -> None:
    """The label comes first; byte 1 + 1024 c + 32 y + x is channel c of the pixel in row y and column x."""
    write_small_cifar10(tmp_path)
    record = np.zeros(RECORD, np.uint8)
    record[0] = 7
    record[1 + 1024 * 2 + 32 * 3 + 4] = 51
    (tmp_path / FILES[0]).write_bytes(record.tobytes())
    samples = load_cifar10(tmp_path)
    image = samples.features[0].reshape(32, 32, 3)
    assert samples.labels[0] == 7
    assert np.argwhere(image).tolist() == [[3, 4, 2]]
    assert image[3, 4, 2] == np.float32(51) * (np.float32(1) / np.float32(255))


def test_all_files_are_read_in_order(tmp_path: Path) -> None:
    write_small_cifar10(tmp_path)
    samples = load_cifar10(tmp_path)
    assert samples.name == "cifar10"
    assert samples.features.shape == (5 * IMAGES_PER_FILE, 3072)
    assert samples.test_features.shape == (IMAGES_PER_FILE, 3072)
    assert samples.features.dtype == np.dtype(np.float32)
    assert samples.labels.dtype == samples.test_labels.dtype == np.dtype(np.int32)
    assert is_small(tmp_path)
    for number, part in enumerate([*np.split(samples.features, 5), samples.test_features]):
        planes = part.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(planes, images_of(number) / 255, rtol=0, atol=2**-23)


def test_the_device_stores_bytes(tmp_path: Path) -> None:
    write_small_cifar10(tmp_path)
    stored = compact(load_cifar10(tmp_path).test_features).levels
    assert np.array_equal(stored.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2), images_of(5))


@pytest.mark.parametrize("subfolder", [".", "cifar10", INNER_FOLDER, f"cifar10/{INNER_FOLDER}"])
def test_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subfolder: str) -> None:
    write_small_cifar10(tmp_path / subfolder)
    assert is_small(tmp_path)
    monkeypatch.setenv("FEDLATEST_DATA", str(tmp_path))
    assert is_small(None)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / 'none'}: no such folder")):
        load_cifar10(tmp_path / "none")


def test_a_folder_without_the_files_is_an_error_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10.txt").write_text("something else")
    with pytest.raises(DataError, match=re.escape("expected data_batch_1.bin .. data_batch_5.bin and test_batch.bin")):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("name", [FILES[0], FILES[-1]])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_small_cifar10(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path}: {name} is missing")):
        load_cifar10(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes"),
        (records(images_of(0), labels_of(0))[:-1], f"has {8 * RECORD - 1} bytes"),
        (records(images_of(0), labels_of(0)) + b"\0", f"has {8 * RECORD + 1} bytes"),
        (records(images_of(0, 2), np.array([9, 10], np.uint8)), "record 1 has label 10"),
    ],
    ids=["empty", "truncated", "too long", "wrong label"],
)
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    write_small_cifar10(tmp_path)
    (tmp_path / FILES[2]).write_bytes(content)
    with pytest.raises(DataError, match="^" + re.escape(f"{tmp_path / FILES[2]}: {message}")):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("error", [OSError("no network"), ValueError("MD5 hash of downloaded file does not match")])
def test_a_failed_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: object, **options: object) -> str:
        raise error

    monkeypatch.delenv("FEDLATEST_DATA", raising=False)
    monkeypatch.setattr("pooch.retrieve", fail)
    message = rf"could not be downloaded \({type(error).__name__}\).*test_batch.bin.*--data or FEDLATEST_DATA"
    with pytest.raises(DataError, match=message):
        load_cifar10()


def write_archive(path: Path, folder: Path, *, without: str = "") -> None:
    """Pack the six files as the published archive does, with an entry that must not be extracted."""
    with tarfile.open(path, "w:gz") as archive:
        outside = tarfile.TarInfo("../outside")
        outside.size = 3
        archive.addfile(outside, io.BytesIO(b"bad"))
        for name in FILES:
            if name != without:
                archive.add(folder / name, f"{INNER_FOLDER}/{name}")


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of an archive that `pooch.retrieve` returns."""
    path = tmp_path / "cache" / "archive.tar.gz"
    path.parent.mkdir()

    def retrieve(url: str, known_hash: str, **options: object) -> str:
        assert (url, known_hash) == (URL, f"md5:{MD5}")
        return str(path)

    monkeypatch.setenv("FEDLATEST_DATA", "")  # the same as unset
    monkeypatch.setattr("pooch.retrieve", retrieve)
    write_small_cifar10(tmp_path / "files")
    return path


def test_a_downloaded_archive_is_read_without_extracting_it(tmp_path: Path, archive: Path) -> None:
    write_archive(archive, tmp_path / "files")
    assert is_small(None)
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
    assert not (tmp_path / "outside").exists()


def test_a_damaged_archive_is_named(tmp_path: Path, archive: Path) -> None:
    write_archive(archive, tmp_path / "files", without=FILES[3])
    with pytest.raises(DataError, match="^" + re.escape(f"{archive}: {FILES[3]} cannot be read")):
        load_cifar10()
    write_archive(archive, tmp_path / "files")
    content = archive.read_bytes()
    for damaged in (content[: len(content) // 2], b"not an archive"):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match="^" + re.escape(f"{archive}: ") + ".*cannot be read"):
            load_cifar10()


def test_the_full_data() -> None:
    """Each of the ten classes has 5000 training and 1000 test images."""
    folder = Path(os.environ.get("FEDLATEST_DATA") or "none")
    places = [folder, folder / "cifar10", folder / INNER_FOLDER, folder / "cifar10" / INNER_FOLDER]
    if not any((place / FILES[0]).is_file() for place in places):
        pytest.skip("FEDLATEST_DATA does not name a folder with the binary version of CIFAR-10 in it")
    samples = load_cifar10()
    assert samples.features.shape == (50000, 3072)
    assert np.bincount(samples.labels).tolist() == [5000] * 10
    assert np.bincount(samples.test_labels).tolist() == [1000] * 10
    means = samples.test_features.reshape(-1, 32, 32, 3).mean(axis=(0, 1, 2), dtype=np.float64)
    np.testing.assert_allclose(means, [0.49, 0.48, 0.45], atol=0.01)
