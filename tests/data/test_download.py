"""Downloads from a server of our own: kept if they pass, pinned, and refused when they change."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest import DataError
from fedlatest.data.download import fetch
from tests.data.http_server import Site, serving


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as site:
        yield site


def accept(path: Path) -> None:
    """What is asked for begins with an x."""
    if not path.read_bytes().startswith(b"x"):
        raise DataError(f"{path.name}: does not begin with x")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_downloaded_once_checked_and_pinned(site: Site, tmp_path: Path) -> None:
    site.pages["/a/b.zip"] = b"x" * 600_000
    heard: list[tuple[int, int | None]] = []
    for _ in range(2):
        file = fetch(
            f"{site.url}/a/b.zip",
            tmp_path / "new/folder",
            check=accept,
            told=lambda done, total: heard.append((done, total)),
        )
        assert file.path == tmp_path / "new/folder/b.zip"
        assert file.path.read_bytes() == site.pages["/a/b.zip"]
        assert file.checksum == hashlib.sha256(site.pages["/a/b.zip"]).hexdigest()
    assert site.asked == ["/a/b.zip"]
    assert names(tmp_path / "new/folder") == ["b.zip", "b.zip.sha256"]
    assert (tmp_path / "new/folder/b.zip.sha256").read_text() == f"{file.checksum}  b.zip\n"
    assert heard[0][0] < heard[-1][0] == 600_000
    assert {total for _, total in heard} == {600_000}
    assert all(done <= 600_000 for done, _ in heard)


def test_what_fails_the_check_is_not_kept(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"<html>"
    with pytest.raises(DataError, match=r"/b: is not what it should be, nothing is kept .*does not begin with x"):
        fetch(f"{site.url}/b", tmp_path, check=accept)
    assert names(tmp_path) == []


def test_a_file_that_no_longer_matches_its_pin(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"x1"
    fetch(f"{site.url}/b", tmp_path, check=accept)
    (tmp_path / "b").write_bytes(b"x2")
    with pytest.raises(DataError, match=r"b: its sha256 is \w{64}, but \w{64} was pinned .*delete it to download"):
        fetch(f"{site.url}/b", tmp_path, check=accept)
    (tmp_path / "b").unlink()  # as the message says
    assert fetch(f"{site.url}/b", tmp_path, check=accept).path.read_bytes() == b"x1"
    (tmp_path / "b").write_bytes(b"x2")
    (tmp_path / "b.sha256").unlink()  # the other way
    assert fetch(f"{site.url}/b", tmp_path, check=accept).path.read_bytes() == b"x2"
    assert (tmp_path / "b.sha256").read_text().startswith(hashlib.sha256(b"x2").hexdigest())


def test_a_page_that_has_changed_since(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"x1"
    fetch(f"{site.url}/b", tmp_path, check=accept)
    (tmp_path / "b").unlink()
    site.pages["/b"] = b"x2"
    with pytest.raises(DataError, match=r"/b: has changed since .*delete .*b\.sha256 to take the new one"):
        fetch(f"{site.url}/b", tmp_path, check=accept)
    assert names(tmp_path) == ["b.sha256"]
    (tmp_path / "b.sha256").unlink()
    assert fetch(f"{site.url}/b", tmp_path, check=accept).path.read_bytes() == b"x2"


def test_a_file_that_was_put_there_is_checked_and_pinned(site: Site, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"^b: does not begin with x"):
        fetch(f"{site.url}/b", tmp_path, check=accept)
    (tmp_path / "b").write_bytes(b"x mine")
    fetch(f"{site.url}/b", tmp_path, check=accept)
    assert names(tmp_path) == ["b", "b.sha256"]
    assert site.asked == []


@pytest.mark.parametrize("content", [b"", b"abc  b\n", b"\xff", b"G" * 64])
def test_a_damaged_pin(site: Site, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.sha256").write_bytes(content)
    with pytest.raises(DataError, match=r"b\.sha256: .*delete it to pin what is there now"):
        fetch(f"{site.url}/b", tmp_path, check=accept)


def test_no_such_page(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^b is not here .*\(HTTPError: 404.*--data or FEDLATEST_DATA"):
        fetch(f"{site.url}/b", tmp_path, check=accept)
    assert names(tmp_path) == []


def test_a_connection_that_breaks(site: Site, tmp_path: Path) -> None:
    site.pages["/b"], site.cut = b"x" * 1000, 1
    with pytest.raises(DataError, match="could not be downloaded"):
        fetch(f"{site.url}/b", tmp_path, check=accept)
    assert names(tmp_path) == []


def test_no_network(site: Site, tmp_path: Path) -> None:
    """A port that nobody listens at: that of a server that has stopped."""
    with serving() as gone:
        pass
    with pytest.raises(DataError, match=r"could not be downloaded from http://127.*--data or FEDLATEST_DATA"):
        fetch(f"{gone.url}/b", tmp_path, check=accept)


def test_a_folder_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    site.pages["/b"] = b"x"
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"file: cannot be written .*name another folder with FEDLATEST_CACHE"):
        fetch(f"{site.url}/b", tmp_path / "file", check=accept)
