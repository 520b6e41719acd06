"""Pickles of plain data are read as `pickle` would; any other pickle is refused and not executed."""

import collections
import io
import math
import os
import pickle
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import DataError
from fedlatest.availability.plain_pickle import read_plain_pickle

KEYS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    KEYS,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.pickle"


@given(data=PLAIN, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_of_every_protocol(tmp_path_factory: pytest.TempPathFactory, data: Any, protocol: int) -> None:
    """Also equal in type: True is not 1, and a tuple is not a list."""
    path = tmp_path_factory.getbasetemp() / "plain.pickle"
    path.write_bytes(pickle.dumps(data, protocol))
    assert repr(read_plain_pickle(path)) == repr(data)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_large_and_shared_values(path: Path, protocol: int) -> None:
    """Numbers of every size, more items than fit into one batch, and objects that occur twice."""
    shared = ["twice", 2**70, -(2**40), 70_000, 300, 7, 0.1, math.inf]
    data = {"many": list(range(3000)), "dict": dict.fromkeys(range(2500), shared), "tuple": (1, 2, 3, shared)}
    path.write_bytes(pickle.dumps(data, protocol))
    assert read_plain_pickle(path) == data


def test_bytes_of_python_2(path: Path) -> None:
    """Python 2 wrote its texts with instructions that Python 3 only reads."""
    path.write_bytes(b"(dp0\nS'model'\np1\nS'a'\nsU\x03abcI7\ns.")
    assert read_plain_pickle(path) == {"model": "a", "abc": 7}


class Malicious:
    """Its pickle runs a command that creates a file when it is loaded."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.victim}",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_not_executed(path: Path, tmp_path: Path, protocol: int) -> None:
    """The same file, given to pickle.load, does create the file: the test would notice an execution."""
    victim = tmp_path / "victim"
    content = pickle.dumps({1: {"active": [0], "inactive": [1], "finish_time": Malicious(victim)}}, protocol)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"refused, because it contains the pickle instruction (STACK_)?GLOBAL;"):
        read_plain_pickle(path)
    assert not victim.exists()
    pickle.load(io.BytesIO(content))
    assert victim.exists()


@pytest.mark.parametrize(
    "data",
    [np.int64(3), np.zeros(2), collections.OrderedDict(a=1), {1}, frozenset([1]), b"bytes", bytearray(b"x"), 1j, len],
    ids=lambda data: type(data).__name__,
)
def test_other_objects_are_refused(path: Path, data: object) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps([data], protocol))
        with pytest.raises(DataError, match="^" + re.escape(f"{path}: refused, because it contains the pickle")):
            read_plain_pickle(path)


INSTRUCTIONS = {
    "INST": b"(S'echo'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'echo'\no.",
    "PERSID": b"Pname\n.",
    "BINPERSID": b"]Q.",
    "EXT1": b"\x82\x01.",
    "BUILD": b"]}b.",
    "NEWOBJ": b"])\x81.",
    "REDUCE": b"])R.",
    "NEXT_BUFFER": b"\x97.",
    "DUP": b"]2.",
    "POP": b"]]0.",
    "POP_MARK": b"](]1.",
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_refused_instructions_are_named(path: Path, name: str) -> None:
    path.write_bytes(INSTRUCTIONS[name])
    with pytest.raises(DataError, match=rf"the pickle instruction ({name}|GLOBAL);"):
        read_plain_pickle(path)


@pytest.mark.parametrize(
    "content",
    [b"", b".", b"]", b"]].", b"K\x01a.", b"]a.", b"}K\x01.", b"}(K\x01u.", b"]e.", b"(]e.", b"h\x05.", b"(K\x01.",
     b"}]K\x01s.", b"\xff\xff.", b"X\xff\xff\xff\x7fab.", b"Ione\n.", b"\x85.", b"]K\x01K\x01s."],
)  # fmt: skip
def test_damaged_files_are_named(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: is not a complete pickle")):
        read_plain_pickle(path)


@given(position=st.integers(0, 200), value=st.integers(0, 255))
def test_any_changed_byte_gives_data_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int
) -> None:
    content = bytearray(pickle.dumps({1: {"active": [5, 700, 70_000], "model": "x" * 20, "rate": 0.5}}))
    content[position % len(content)] = value
    path = tmp_path_factory.getbasetemp() / "changed.pickle"
    path.write_bytes(content)
    with suppress(DataError):
        read_plain_pickle(path)


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"{path}: cannot be read")):
        read_plain_pickle(path)
