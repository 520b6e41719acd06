"""A client's store: a value counts when the state names it, and only if it is whole."""

import numpy as np
import pytest

from fedlatest.ledger import ClientStore, Epoch, Ticket
from fedlatest.ledger.client_store import Held
from tests.ledger.faults import CrashError, FlakyDisk

JOB = "a" * 32
HELD = Held("me", "config", Epoch(1, "e"))
FIRST, SECOND = Ticket(1, "a"), Ticket(2, "b")
ONE, TWO = np.array([1, 2], np.int32), np.array([3, 4], np.int32)


def _tickets(store: ClientStore) -> tuple[Ticket, ...]:
    held = store.load(JOB)
    return held.tickets if held else ()


def test_a_value_is_kept_beside_the_one_that_is_named() -> None:
    store = ClientStore(FlakyDisk())
    assert store.load(JOB) is None
    store.keep(JOB, HELD, FIRST, ONE)
    held = store.load(JOB)
    assert held is not None
    assert (held.client, held.config, held.epoch, held.tickets) == ("me", "config", (1, "e"), (FIRST,))
    store.keep(JOB, held, SECOND, TWO)
    assert _tickets(store) == (FIRST, SECOND)
    assert store.value(JOB, FIRST).tolist() == [1, 2]
    assert store.value(JOB, SECOND).tolist() == [3, 4]


def test_what_is_not_named_is_swept_away() -> None:
    disk = FlakyDisk()
    store = ClientStore(disk)
    store.keep(JOB, HELD, FIRST, ONE)
    store.keep(JOB, HELD, SECOND, TWO)
    assert sorted(disk.files) == [f"{JOB}/2-b.value", f"{JOB}/state.json"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", [0, 1, 2])
def test_a_crash_leaves_the_old_value_or_the_new_one(write: int, after: bool) -> None:
    """Writes: the new value, the state, the removal of the old value. With the state the new one begins to count."""
    disk = FlakyDisk()
    store = ClientStore(disk)
    store.keep(JOB, HELD, FIRST, ONE)
    disk.fuse.set(write, after=after)
    with pytest.raises(CrashError):
        store.keep(JOB, HELD, SECOND, TWO)
    counts = (write, after) >= (1, True)
    assert _tickets(store) == ((SECOND,) if counts else (FIRST,))
    store.keep(JOB, HELD, Ticket(3, "c"), ONE)
    assert sorted(disk.files) == [f"{JOB}/3-c.value", f"{JOB}/state.json"]


@pytest.mark.parametrize("content", [None, b"", b"abc", b"12345678"])
def test_a_damaged_value_is_not_held(content: bytes | None) -> None:
    disk = FlakyDisk()
    store = ClientStore(disk)
    store.keep(JOB, HELD, FIRST, ONE)
    if content is None:
        disk.drop(f"{JOB}/1-a.value")
    else:
        disk.put(f"{JOB}/1-a.value", content)
    assert _tickets(store) == ()
    assert store.load(JOB) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"client": "me"}', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_state_is_no_state(content: bytes) -> None:
    disk = FlakyDisk()
    store = ClientStore(disk)
    store.keep(JOB, HELD, FIRST, ONE)
    disk.put(f"{JOB}/state.json", content)
    assert store.load(JOB) is None
