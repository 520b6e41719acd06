"""What a client stores on its own disk: the update that is in the server's sum and the pending one, by ticket.

Guarantee: after a crash, the client's state is the one before or the one after `ClientStore.save_update`. The update
is written first and `state.json`, which names it, second. A crash between the two leaves a file that `state.json`
does not name; the next write deletes it. `tests/ledger/test_client_store.py` stops the client before and after each
of the writes.

`state.json` has a checksum, and it has the digest and the weight of each update: a damaged file counts as lost. It also
has the number of its format, which increases with every change. Format 1 had no number; its `config` may be a hash of
64 bits. A file of a newer format is not lost: the client refuses to work until it is upgraded.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedlatest.errors import LedgerError
from fedlatest.files import acquire_lock, release_lock, sync, write_atomically
from fedlatest.ledger.fixed_point import UPLOAD_DTYPE, FixedPoint
from fedlatest.ledger.hashing import digest_of
from fedlatest.ledger.messages import Epoch, Ticket


class DurableStorage(Protocol):
    """Named byte strings that survive a crash; names have the form `folder/name` or `name`."""

    def get(self, name: str) -> bytes | None:
        """Return the content stored under a name, or None."""

    def put(self, name: str, content: bytes | memoryview) -> None:
        """Replace the content under a name atomically; on return, the new content is durable."""

    def delete(self, name: str) -> None:
        """Delete a name, if it exists."""

    def names(self, folder: str) -> list[str]:
        """Return all names that begin with `folder/`."""

    def folders(self) -> list[str]:
        """Return all folders."""

    def lock(self) -> AbstractContextManager[None]:
        """Return a context manager that holds the storage's lock, which excludes other processes."""


class FolderStorage:
    """A folder of files as durable storage; all errors of the file system are raised as LedgerError."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LedgerError(
                f"{self.path}: cannot be created ({error.strerror}); choose another state folder"
            ) from error

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, or None if there is no such file."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"{self.path / name}: cannot be read ({error.strerror})") from error

    def put(self, name: str, content: bytes | memoryview) -> None:
        """Write a file atomically and durably; only the user who runs the client may read it."""
        path = self.path / name
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True, mode=0o700)
                sync(path.parent.parent)
        except OSError as error:
            raise LedgerError(f"{path.parent}: cannot be created ({error.strerror})") from error

        def write(draft: Path) -> None:
            draft.write_bytes(content)

        write_atomically(path, write, mode=0o600, error=LedgerError)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise LedgerError(f"{self.path / name}: cannot be deleted ({error.strerror})") from error

    def names(self, folder: str) -> list[str]:
        """Return the files in a subfolder, including temporary files that a crash left behind."""
        return sorted(f"{folder}/{path.name}" for path in (self.path / folder).glob("*"))

    def folders(self) -> list[str]:
        """Return the subfolders."""
        return sorted(path.name for path in self.path.glob("*") if path.is_dir())

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock; wait while another process holds it."""
        try:
            descriptor = acquire_lock(self.path, wait=True)
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot be locked ({error.strerror})") from error
        try:
            yield
        finally:
            release_lock(descriptor)


def load_or_create_client_id(storage: DurableStorage) -> str:
    """Return the client's stored id; create and store a random one at the first call.

    The id is also in the states of the client's jobs, which have checksums: they decide if the file is damaged.
    """
    with storage.lock():
        known = (storage.get(_ID_FILE) or b"").decode(errors="replace")
        is_valid = _CLIENT_ID.fullmatch(known) is not None
        states = (_parse(storage.get(f"{job}/state.json") or b"") for job in storage.folders())
        in_jobs = [state.client for state in states if state is not None]
        generated = [client for client in in_jobs if _CLIENT_ID.fullmatch(client)]
        if is_valid and (known in generated or not generated):
            return known
        client = next(iter(generated or in_jobs), None) or uuid.uuid4().hex
        storage.put(_ID_FILE, client.encode())
    return client


_ID_FILE = "client-id"
_CLIENT_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class StoredUpdate:
    """An update on the client's disk, and the client's weight for it; the digest detects a damaged file.

    In a secure job, the digest has a random salt of hexadecimal digits that only the client knows, and `session` is the
    hash of the only session for which the update is masked.
    """

    ticket: Ticket
    digest: str
    weight: float
    salt: str = ""
    session: str = ""


@dataclass(frozen=True)
class ClientState:
    """What a client knows about a job.

    Args:
        client: id of the client in this job.
        config: hash of the job's configuration.
        epoch: the last epoch that the client has seen.
        highest_ticket: the highest ticket number that the client has seen in this epoch.
        updates: the updates on its disk, oldest first.
        leaving: whether the client wants to leave the job.
        participations: number of uploads that it has sent in a private job, in all epochs.
        last_participation: the round in which it was asked for the last of them.
    """

    client: str
    config: str
    epoch: Epoch
    highest_ticket: int = 0
    updates: tuple[StoredUpdate, ...] = ()
    leaving: bool = False
    participations: int = 0
    last_participation: int | None = None

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """The tickets of the updates on the disk."""
        return tuple(update.ticket for update in self.updates)


class ClientStore:
    """A client's durable state: one folder per job with `state.json` and one file per update."""

    def __init__(self, storage: DurableStorage) -> None:
        self.storage = storage

    def lock(self) -> AbstractContextManager[None]:
        """Return a context manager that prevents other processes from changing the state."""
        return self.storage.lock()

    def load(self, job: str, *, verify: bool = True) -> ClientState | None:
        """Return the state of a job; None if there is none or `state.json` is damaged.

        Args:
            job: id of the job.
            verify: leave out updates whose file is missing or damaged, which requires reading them.
        """
        state = _parse(self.storage.get(f"{job}/state.json") or b"")
        if state is None or not verify:
            return state
        intact = tuple(stored for stored in state.updates if self.read_update(job, stored) is not None)
        return replace(state, updates=intact)

    def read_update(self, job: str, stored: StoredUpdate) -> FixedPoint | None:
        """Return a stored update, or None if its file is missing or damaged."""
        content = self.storage.get(_file_name(job, stored.ticket))
        if content is None or len(content) % UPLOAD_DTYPE.itemsize:
            return None
        update = np.frombuffer(content, UPLOAD_DTYPE)
        return update if digest_of(update, stored.salt) == stored.digest else None

    def save_update(self, job: str, state: ClientState, stored: StoredUpdate, update: FixedPoint) -> None:
        """Store `state` and a new update beside those that `state` names; delete all others.

        Args:
            job: id of the job.
            state: the new state, without the new update.
            stored: ticket, digest and weight of the new update.
            update: the new update.
        """
        self.storage.put(_file_name(job, stored.ticket), np.ascontiguousarray(update, UPLOAD_DTYPE).data)
        self.save_state(job, replace(state, updates=(*state.updates, stored)))

    def save_state(self, job: str, state: ClientState) -> None:
        """Store the state of a job and delete the updates that it no longer names."""
        self.storage.put(f"{job}/state.json", _as_json(state))
        named = {f"{job}/state.json", *(_file_name(job, ticket) for ticket in state.tickets)}
        for name in self.storage.names(job):
            if name not in named:
                self.storage.delete(name)

    def leave(self, job: str) -> bool:
        """Ask to leave a job at the next contact with the server; return False if the job is not known."""
        return self._set_leaving(job, leaving=True)

    def cancel_leave(self, job: str) -> bool:
        """Cancel the request to leave, or join again after leaving; return False if the job is not known."""
        return self._set_leaving(job, leaving=False)

    def _set_leaving(self, job: str, *, leaving: bool) -> bool:
        with self.lock():
            state = self.load(job)
            if state is None:
                return False
            self.save_state(job, replace(state, leaving=leaving))
        return True


def _file_name(job: str, ticket: Ticket) -> str:
    return f"{job}/{ticket.number}-{ticket.nonce}.value"


_JSON_KEYS = {"highest_ticket": "seen", "updates": "slots"}  # the other keys are the names of the fields
_CHECKSUM = "checksum"
_FORMAT = "format"
FORMAT = 2


def _as_json(state: ClientState) -> bytes:
    updates = [
        [*stored.ticket, stored.digest, stored.weight, *([stored.salt, stored.session] if stored.salt else [])]
        for stored in state.updates
    ]
    values = {**state.__dict__, "updates": updates}
    if not state.participations:  # of a job without privacy
        del values["participations"], values["last_participation"]
    fields = {_FORMAT: FORMAT, **{_JSON_KEYS.get(name, name): value for name, value in values.items()}}
    return json.dumps({**fields, _CHECKSUM: _checksum_of(fields)}, indent=1).encode()


def _checksum_of(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _parse(content: bytes) -> ClientState | None:
    names = {key: name for name, key in _JSON_KEYS.items()}
    try:
        fields: dict[str, Any] = json.loads(content)
        if fields.pop(_CHECKSUM, None) != _checksum_of(fields):
            return None
        number = fields.pop(_FORMAT, 1)
        if number > FORMAT:
            raise LedgerError(
                f"the client's state has format {number}, written by a newer fedlatest; this version reads up to "
                f"{FORMAT}: upgrade fedlatest at the client"
            )
        found = {names.get(key, key): value for key, value in fields.items()}
        updates = tuple(StoredUpdate(Ticket(number, nonce), *rest) for number, nonce, *rest in found["updates"])
        return ClientState(**{**found, "epoch": Epoch(*found["epoch"]), "updates": updates})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
