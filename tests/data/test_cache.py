"""Cached arrays: made once, never believed when damaged, never in the way."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest import DataError
from fedlatest.data.cache import cached, pack, source, unpack
from fedlatest.paths import cache_folder


class Maker:
    """Counts how often it is asked."""

    def __init__(self, value: int = 7) -> None:
        self.calls, self.value = 0, value

    def __call__(self) -> dict[str, npt.NDArray[np.int32]]:
        self.calls += 1
        return {"a": np.full(3, self.value, np.int32), "b": np.zeros((0, 2), np.int32)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/parsed"


def test_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLATEST_CACHE", "/some/where")
    assert cache_folder() == Path("/some/where")
    monkeypatch.setenv("FEDLATEST_CACHE", "")  # as good as none
    assert cache_folder().name == "fedlatest"


def test_made_once_for_each_name_and_key(cache: Path) -> None:
    make = Maker()
    for _ in range(3):
        arrays = cached("thing", "key", make)
        assert arrays["a"].tolist() == [7, 7, 7]
        assert arrays["b"].shape == (0, 2)
        assert arrays.keys() == {"a", "b"}
    assert make.calls == 1
    cached("thing", "other key", make)
    cached("other thing", "key", make)
    assert make.calls == 3
    assert len(list(cache.iterdir())) == 3  # and no draft


def test_a_file_under_another_key_is_not_believed(cache: Path) -> None:
    cached("thing", "old", Maker(1))
    [path] = cache.iterdir()
    cached("thing", "new", Maker(2))
    [other] = set(cache.iterdir()) - {path}
    other.write_bytes(path.read_bytes())
    assert cached("thing", "new", Maker(3))["a"][0] == 3


def test_a_file_cut_anywhere_is_made_again(cache: Path) -> None:
    cached("thing", "key", Maker(1))
    [path] = cache.iterdir()
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        make = Maker(2)
        assert cached("thing", "key", make)["a"][0] == 2
        assert make.calls == 1
        assert cached("thing", "key", make)["a"][0] == 2
        assert make.calls == 1  # and whole again


@given(place=st.integers(0, 10_000), flip=st.integers(1, 255))
@settings(max_examples=200)
def test_a_changed_byte_never_changes_what_comes(place: int, flip: int) -> None:
    """Either it lies in what does not matter (a date), or the file is made again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLATEST_CACHE", f"{cache_folder()}/flips")
        cached("thing", "key", Maker(1))
        [path] = (cache_folder() / "parsed").iterdir()
        whole = bytearray(path.read_bytes())
        whole[place % len(whole)] ^= flip
        path.write_bytes(whole)
        arrays = cached("thing", "key", Maker(1))
        assert arrays["a"].tolist() == [1, 1, 1]
        assert arrays["b"].shape == (0, 2)


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "file"))
    make = Maker()
    assert cached("thing", "key", make)["a"][0] == 7
    assert cached("thing", "key", make)["a"][0] == 7
    assert make.calls == 2


def test_what_cannot_be_made_leaves_nothing(cache: Path) -> None:
    def fail() -> dict[str, npt.NDArray[np.int32]]:
        raise DataError("no")

    with pytest.raises(DataError, match="no"):
        cached("thing", "key", fail)
    assert not cache.exists()


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=8))
def test_words_come_back(words: list[str]) -> None:
    assert unpack(*pack(words)) == words


def test_checksums(tmp_path: Path) -> None:
    """The sha256 of "abc" is the first example of FIPS 180-2."""
    (tmp_path / "abc").write_bytes(b"abc")
    assert source(tmp_path / "abc").checksum == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(DataError, match="nowhere: cannot be read"):
        source(tmp_path / "nowhere")
