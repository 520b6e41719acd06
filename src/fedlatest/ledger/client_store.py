"""What a client keeps on its own disk: its acknowledged value and its pending one, each under its ticket.

Values are written first and named in `state.json` after; that file is the point at which a new value counts. A crash in
between leaves a value that nobody names, which the next write sweeps away.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedlatest.errors import LedgerError
from fedlatest.files import release_lock, sync, take_lock, write_atomically
from fedlatest.ledger.fixed_point import ON_THE_WIRE, Vector
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.messages import Epoch, Ticket


class Disk(Protocol):
    """What a client's store needs of the place where it lies; `put` returns once the content cannot be lost."""

    def get(self, name: str) -> bytes | None:
        """The content under a name, if there is one."""

    def put(self, name: str, content: bytes) -> None:
        """Put a content under a name, in place of what was there: all of it or, at a crash, none."""

    def drop(self, name: str) -> None:
        """Remove a name, if it is there."""

    def names(self, folder: str) -> list[str]:
        """All names that begin with `folder/`."""

    def lock(self) -> AbstractContextManager[None]:
        """Hold others off for a while."""


class Folder:
    """A folder of files; writes are forced to the disk before they take their place."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot be made ({error.strerror}); choose another state folder") from error

    def get(self, name: str) -> bytes | None:
        """The content of a file."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.path / name}: cannot be read ({error.strerror})") from error

    def put(self, name: str, content: bytes) -> None:
        """Write beside the file, force it to the disk, then take its place."""
        path = self.path / name
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
                sync(path.parent.parent)
        except OSError as error:
            raise LedgerError(f"{path.parent}: cannot be made ({error.strerror})") from error

        def write(draft: Path) -> None:
            draft.write_bytes(content)

        write_atomically(path, write, mode=0o600)

    def drop(self, name: str) -> None:
        """Delete a file."""
        (self.path / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        """The files in a folder below this one, with the drafts of writes that a crash cut short."""
        return sorted(f"{folder}/{path.name}" for path in (self.path / folder).glob("*"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Wait until no other process holds the folder's lock, then hold it."""
        descriptor = take_lock(self.path, wait=True)
        try:
            yield
        finally:
            release_lock(descriptor)


def durable_id(disk: Disk) -> str:
    """The name that a client made for itself once, here."""
    with disk.lock():
        known = disk.get("client-id")
        if known is None:
            known = uuid.uuid4().hex.encode()
            disk.put("client-id", known)
    return known.decode()


@dataclass(frozen=True)
class Slot:
    """A value under its ticket; the digest tells a damaged file from a whole one."""

    ticket: Ticket
    digest: str


@dataclass(frozen=True)
class Held:
    """What a client knows of a job: `seen` is the highest ticket number of this epoch, `slots` are oldest first.

    `weight` is that of the newest value, 0 before there is one.
    """

    client: str
    config: str
    epoch: Epoch
    seen: int = 0
    slots: tuple[Slot, ...] = ()
    weight: float = 0.0
    leaving: bool = False

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """The tickets of the values that are kept."""
        return tuple(slot.ticket for slot in self.slots)


class ClientStore:
    """A client's durable memory, a folder a job."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes from changing what is here."""
        return self.disk.lock()

    def load(self, job: str) -> Held | None:
        """What is known of a job; a value whose file is gone or damaged is not held, nor is a damaged state."""
        held = _parse(self.disk.get(f"{job}/state.json") or b"")
        if held is None:
            return None
        whole = tuple(slot for slot in held.slots if self._read(job, slot) is not None)
        return replace(held, slots=whole)

    def value(self, job: str, ticket: Ticket) -> Vector:
        """The value under a ticket that is held."""
        held = self.load(job)
        [slot] = [slot for slot in (held.slots if held else ()) if slot.ticket == ticket]
        value = self._read(job, slot)
        assert value is not None, "load names whole values alone"
        return value

    def keep(self, job: str, held: Held, ticket: Ticket, value: Vector) -> None:
        """Keep a value under a new ticket beside those that `held` names; what it does not name goes."""
        slot = Slot(ticket, digest_of(value))
        self.disk.put(_file(job, ticket), np.ascontiguousarray(value, ON_THE_WIRE).tobytes())
        self.note(job, replace(held, slots=(*held.slots, slot)))

    def note(self, job: str, held: Held) -> None:
        """Write what is known of a job, and sweep away the values that it no longer names."""
        self.disk.put(f"{job}/state.json", _as_json(held))
        named = {f"{job}/state.json", *(_file(job, ticket) for ticket in held.tickets)}
        for name in self.disk.names(job):
            if name not in named:
                self.disk.drop(name)

    def leave(self, job: str) -> bool:
        """Ask to be taken out of a job at the next contact; false if the job is not known here."""
        return self._wish(job, leaving=True)

    def stay(self, job: str) -> bool:
        """Take back the wish to leave, or come back after it was granted; false if the job is not known here."""
        return self._wish(job, leaving=False)

    def _wish(self, job: str, *, leaving: bool) -> bool:
        with self.lock():
            held = self.load(job)
            if held is None:
                return False
            self.note(job, replace(held, leaving=leaving))
        return True

    def _read(self, job: str, slot: Slot) -> Vector | None:
        content = self.disk.get(_file(job, slot.ticket))
        if content is None or len(content) % ON_THE_WIRE.itemsize:
            return None
        value = np.frombuffer(content, ON_THE_WIRE)
        return value if digest_of(value) == slot.digest else None


def _file(job: str, ticket: Ticket) -> str:
    return f"{job}/{ticket.number}-{ticket.nonce}.value"


def _as_json(held: Held) -> bytes:
    slots = [[slot.ticket.number, slot.ticket.nonce, slot.digest] for slot in held.slots]
    return json.dumps({**held.__dict__, "slots": slots}, indent=1).encode()


def _parse(content: bytes) -> Held | None:
    try:
        found: dict[str, Any] = json.loads(content)
        slots = tuple(Slot(Ticket(number, nonce), digest) for number, nonce, digest in found["slots"])
        return Held(**{**found, "epoch": Epoch(*found["epoch"]), "slots": slots})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
