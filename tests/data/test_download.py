"""Downloads from a local server: kept if they pass the check, pinned, and rejected if they change."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest import DataError
from fedlatest.data.download import LimitedDownloader, fetch
from tests.data.http_server import Site, serving


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as site:
        yield site


def check_content(path: Path) -> None:
    """The expected content begins with an x."""
    if not path.read_bytes().startswith(b"x"):
        raise DataError(f"{path.name}: does not begin with x")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_is_downloaded_once_checked_and_pinned(site: Site, tmp_path: Path) -> None:
    site.pages["/a/b.zip"] = b"x" * 600_000
    reports: list[tuple[int, int | None]] = []
    for _ in range(2):
        file = fetch(
            f"{site.url}/a/b.zip",
            tmp_path / "new/folder",
            check=check_content,
            on_progress=lambda done, total: reports.append((done, total)),
        )
        assert file.path == tmp_path / "new/folder/b.zip"
        assert file.path.read_bytes() == site.pages["/a/b.zip"]
        assert file.checksum == hashlib.sha256(site.pages["/a/b.zip"]).hexdigest()
    assert site.requests == ["/a/b.zip"]
    assert names(tmp_path / "new/folder") == ["b.zip", "b.zip.sha256"]
    assert (tmp_path / "new/folder/b.zip.sha256").read_text() == f"{file.checksum}  b.zip\n"
    assert reports[0][0] < reports[-1][0] == 600_000
    assert {total for _, total in reports} == {600_000}
    assert all(done <= 600_000 for done, _ in reports)


def test_a_download_that_fails_the_check_is_deleted(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"<html>"
    with pytest.raises(DataError, match=r"/b: does not have the expected content.*does not begin with x"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)
    assert names(tmp_path) == []


def test_a_file_that_differs_from_its_pin_is_rejected(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"x1"
    fetch(f"{site.url}/b", tmp_path, check=check_content)
    (tmp_path / "b").write_bytes(b"x2")
    with pytest.raises(DataError, match=r"b: its sha256 is \w{64}, but \w{64} was pinned .*delete it to download"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)
    (tmp_path / "b").unlink()  # the first remedy in the message
    assert fetch(f"{site.url}/b", tmp_path, check=check_content).path.read_bytes() == b"x1"
    (tmp_path / "b").write_bytes(b"x2")
    (tmp_path / "b.sha256").unlink()  # the second remedy
    assert fetch(f"{site.url}/b", tmp_path, check=check_content).path.read_bytes() == b"x2"
    assert (tmp_path / "b.sha256").read_text().startswith(hashlib.sha256(b"x2").hexdigest())


def test_a_download_that_differs_from_the_pin_is_rejected(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"x1"
    fetch(f"{site.url}/b", tmp_path, check=check_content)
    (tmp_path / "b").unlink()
    site.pages["/b"] = b"x2"
    with pytest.raises(DataError, match=r"/b: has changed since .*delete .*b\.sha256 to accept the new file"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)
    assert names(tmp_path) == ["b.sha256"]
    (tmp_path / "b.sha256").unlink()
    assert fetch(f"{site.url}/b", tmp_path, check=check_content).path.read_bytes() == b"x2"


def test_a_file_placed_by_the_user_is_checked_and_pinned(site: Site, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"^b: does not begin with x"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)
    (tmp_path / "b").write_bytes(b"x mine")
    fetch(f"{site.url}/b", tmp_path, check=check_content)
    assert names(tmp_path) == ["b", "b.sha256"]
    assert site.requests == []


@pytest.mark.parametrize("content", [b"", b"abc  b\n", b"\xff", b"G" * 64])
def test_a_damaged_pin_is_an_error(site: Site, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.sha256").write_bytes(content)
    with pytest.raises(DataError, match=r"b\.sha256: .*delete it to pin the current file"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)


def test_a_missing_page_is_an_error(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^b was not found .*\(HTTPError: 404.*--data or FEDLATEST_DATA"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)
    assert names(tmp_path) == []


def test_a_broken_connection_is_an_error(site: Site, tmp_path: Path) -> None:
    site.pages["/b"], site.num_missing = b"x" * 1000, 1
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)
    assert names(tmp_path) == []


@pytest.mark.parametrize("encoded", [False, True])
def test_a_page_that_is_too_large_is_an_error(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: bool
) -> None:
    """What counts is the size after decoding what the server compressed."""
    monkeypatch.setattr("fedlatest.data.download.MAX_DOWNLOAD", 1_000_000)
    site.pages["/b"] = gzip.compress(b"x" * 1_000_001) if encoded else b"x" * 1_000_001
    site.headers = {"Content-Encoding": "gzip"} if encoded else {}
    with pytest.raises(DataError, match=r"TooLargeError: the server sends more than 1,000,000 bytes"):
        fetch(f"{site.url}/b", tmp_path, check=check_content)
    assert names(tmp_path) == []


def test_the_downloader_works_with_pooch(site: Site, tmp_path: Path) -> None:
    import pooch

    site.pages["/b"] = b"x" * 600_000
    known = f"md5:{hashlib.md5(site.pages['/b']).hexdigest()}"
    found = pooch.retrieve(f"{site.url}/b", known, fname="b", path=tmp_path, downloader=LimitedDownloader())
    assert Path(found).read_bytes() == site.pages["/b"]


def test_no_network_is_an_error(site: Site, tmp_path: Path) -> None:
    """The port of a server that has stopped."""
    with serving() as stopped:
        pass
    with pytest.raises(DataError, match=r"could not be downloaded from http://127.*--data or FEDLATEST_DATA"):
        fetch(f"{stopped.url}/b", tmp_path, check=check_content)


def test_a_folder_that_cannot_be_written_is_an_error(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"x"
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"file: cannot be written .*choose another folder with FEDLATEST_CACHE"):
        fetch(f"{site.url}/b", tmp_path / "file", check=check_content)
