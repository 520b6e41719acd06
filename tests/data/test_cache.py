"""Cached arrays: computed once, recomputed when damaged; a cache that cannot be used is not an error."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest import DataError
from fedlatest.data.cache import cached, hash_file, pack_strings, unpack_strings, write_shared
from fedlatest.paths import cache_folder


class Compute:
    """Counts its calls."""

    def __init__(self, value: int = 7) -> None:
        self.calls, self.value = 0, value

    def __call__(self) -> dict[str, npt.NDArray[np.int32]]:
        self.calls += 1
        return {"a": np.full(3, self.value, np.int32), "b": np.zeros((0, 2), np.int32)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/parsed"


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLATEST_CACHE", "/some/where")
    assert cache_folder() == Path("/some/where")
    monkeypatch.setenv("FEDLATEST_CACHE", "")  # the same as unset
    assert cache_folder().name == "fedlatest"


def test_computed_once_for_each_name_and_key(cache: Path) -> None:
    compute = Compute()
    for _ in range(3):
        arrays = cached("thing", "key", compute)
        assert arrays["a"].tolist() == [7, 7, 7]
        assert arrays["b"].shape == (0, 2)
        assert arrays.keys() == {"a", "b"}
    assert compute.calls == 1
    cached("thing", "other key", compute)
    cached("other thing", "key", compute)
    assert compute.calls == 3
    assert len(list(cache.iterdir())) == 3  # no draft is left


def test_a_file_written_for_another_key_is_not_used(cache: Path) -> None:
    cached("thing", "old", Compute(1))
    [path] = cache.iterdir()
    cached("thing", "new", Compute(2))
    [other] = set(cache.iterdir()) - {path}
    other.write_bytes(path.read_bytes())
    assert cached("thing", "new", Compute(3))["a"][0] == 3


def test_a_truncated_file_is_recomputed(cache: Path) -> None:
    cached("thing", "key", Compute(1))
    [path] = cache.iterdir()
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        compute = Compute(2)
        assert cached("thing", "key", compute)["a"][0] == 2
        assert compute.calls == 1
        assert cached("thing", "key", compute)["a"][0] == 2
        assert compute.calls == 1  # the file is complete again


@given(position=st.integers(0, 10_000), flip=st.integers(1, 255))
@settings(max_examples=200)
def test_a_changed_byte_never_changes_the_result(position: int, flip: int) -> None:
    """Either the byte does not matter (it belongs to a date), or the arrays are recomputed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLATEST_CACHE", f"{cache_folder()}/flips")
        cached("thing", "key", Compute(1))
        [path] = (cache_folder() / "parsed").iterdir()
        whole = bytearray(path.read_bytes())
        whole[position % len(whole)] ^= flip
        path.write_bytes(whole)
        arrays = cached("thing", "key", Compute(1))
        assert arrays["a"].tolist() == [1, 1, 1]
        assert arrays["b"].shape == (0, 2)


def test_a_cache_that_cannot_be_written_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "file"))
    compute = Compute()
    assert cached("thing", "key", compute)["a"][0] == 7
    assert cached("thing", "key", compute)["a"][0] == 7
    assert compute.calls == 2


def test_concurrent_writers_do_not_share_a_draft(tmp_path: Path) -> None:
    """Four threads write the same file in two steps; without the lock they would overwrite each other's draft."""

    def write(draft: Path) -> None:
        draft.write_bytes(b"first half, ")
        time.sleep(0.01)
        draft.write_bytes(draft.read_bytes() + b"second half")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: write_shared(tmp_path / "file", write), range(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"first half, second half"


def test_an_error_in_compute_leaves_no_file(cache: Path) -> None:
    def fail() -> dict[str, npt.NDArray[np.int32]]:
        raise DataError("no")

    with pytest.raises(DataError, match="no"):
        cached("thing", "key", fail)
    assert not cache.exists()


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=8))
def test_unpacked_strings_equal_the_packed_ones(words: list[str]) -> None:
    assert unpack_strings(*pack_strings(words)) == words


def test_hash_file(tmp_path: Path) -> None:
    """The sha256 of "abc" is the first example of FIPS 180-2."""
    (tmp_path / "abc").write_bytes(b"abc")
    assert hash_file(tmp_path / "abc").checksum == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(DataError, match="nowhere: cannot be read"):
        hash_file(tmp_path / "nowhere")
