"""A client's store: an update is stored once `state.json` names it, and only if its file is intact."""

import numpy as np
import pytest

from fedlatest.ledger import ClientStore, Epoch, Ticket
from fedlatest.ledger.client_store import ClientState, StoredUpdate
from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.hashing import digest_of
from tests.ledger.faults import CrashError, FaultyStorage

JOB = "a" * 32
STATE = ClientState("me", "config", Epoch(1, "e"))
FIRST, SECOND = Ticket(1, "a"), Ticket(2, "b")
ONE, TWO = np.array([1, 2], np.int32), np.array([3, 4], np.int32)


def stored(ticket: Ticket, update: FixedPoint, weight: float = 1.0) -> StoredUpdate:
    return StoredUpdate(ticket, digest_of(update), weight)


FIRST_UPDATE, SECOND_UPDATE = (stored(FIRST, ONE), ONE), (stored(SECOND, TWO), TWO)


def _tickets(store: ClientStore) -> tuple[Ticket, ...]:
    state = store.load(JOB)
    return state.tickets if state else ()


def test_new_update_is_stored_beside_the_named_ones() -> None:
    store = ClientStore(FaultyStorage())
    assert store.load(JOB) is None
    store.save_update(JOB, STATE, *FIRST_UPDATE)
    state = store.load(JOB)
    assert state is not None
    assert (state.client, state.config, state.epoch, state.tickets) == ("me", "config", (1, "e"), (FIRST,))
    store.save_update(JOB, state, *SECOND_UPDATE)
    assert _tickets(store) == (FIRST, SECOND)
    contents = [store.read_update(JOB, update) for update in (FIRST_UPDATE[0], SECOND_UPDATE[0])]
    assert [content.tolist() for content in contents if content is not None] == [[1, 2], [3, 4]]


def test_update_that_is_not_named_is_deleted() -> None:
    storage = FaultyStorage()
    store = ClientStore(storage)
    store.save_update(JOB, STATE, *FIRST_UPDATE)
    store.save_update(JOB, STATE, *SECOND_UPDATE)
    assert sorted(storage.files) == [f"{JOB}/2-b.value", f"{JOB}/state.json"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", [0, 1, 2])
def test_crash_leaves_the_old_update_or_the_new_one(write: int, after: bool) -> None:
    """The writes are: the new update, the state, the deletion of the old update. The state makes the new one valid."""
    storage = FaultyStorage()
    store = ClientStore(storage)
    store.save_update(JOB, STATE, *FIRST_UPDATE)
    storage.trigger.arm(write, after=after)
    with pytest.raises(CrashError):
        store.save_update(JOB, STATE, *SECOND_UPDATE)
    is_stored = (write, after) >= (1, True)
    assert _tickets(store) == ((SECOND,) if is_stored else (FIRST,))
    store.save_update(JOB, STATE, stored(Ticket(3, "c"), ONE), ONE)
    assert sorted(storage.files) == [f"{JOB}/3-c.value", f"{JOB}/state.json"]


@pytest.mark.parametrize("content", [None, b"", b"abc", b"12345678"])
def test_damaged_update_is_not_listed(content: bytes | None) -> None:
    storage = FaultyStorage()
    store = ClientStore(storage)
    store.save_update(JOB, STATE, *FIRST_UPDATE)
    if content is None:
        storage.delete(f"{JOB}/1-a.value")
    else:
        storage.put(f"{JOB}/1-a.value", content)
    assert _tickets(store) == ()
    assert store.load(JOB) is not None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"client": "me"}', b"\xff\xfe", b"[" * 100_000])
def test_damaged_state_is_ignored(content: bytes) -> None:
    storage = FaultyStorage()
    store = ClientStore(storage)
    store.save_update(JOB, STATE, *FIRST_UPDATE)
    storage.put(f"{JOB}/state.json", content)
    assert store.load(JOB) is None
