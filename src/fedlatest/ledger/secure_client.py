"""The client's side of secure aggregation: its keys, the masking of an upload, and the answers of a decryptor.

What is stored, in `secure-JOB.json` beside the folders of the jobs: the private key, and which sessions this client has
answered as a decryptor. The record is durable before an answer is sent, so that a crash never leads to two different
answers for one session. A client that loses the file gets a new key: its shares of earlier sessions are useless then.
"""

import hashlib
import json
from typing import Any

from fedlatest.errors import ProtocolError
from fedlatest.ledger.client_store import ClientStore
from fedlatest.ledger.fixed_point import FixedPoint
from fedlatest.ledger.messages import Instruction
from fedlatest.ledger.secure_settings import min_cohort_of, scope_of
from fedlatest.secure import KeyPair, MaskedUpload, SessionView, UnmaskRequest, answer_request, mask_upload
from fedlatest.secure.decryptor import AnsweredSessions, check_request


class ClientSecrets:
    """A client's key pair and its record of answered sessions, for one job."""

    def __init__(self, store: ClientStore, job: str) -> None:
        self._store, self._name = store, f"secure-{job}.json"

    def load(self) -> tuple[KeyPair, AnsweredSessions]:
        """Return the key pair and the record; create and store new ones if there are none or the file is damaged."""
        with self._store.lock():
            found = self._read()
            if found is None:
                found = KeyPair.generate(), AnsweredSessions()
                self._write(*found)
        return found

    def record(self, request: UnmaskRequest) -> None:
        """Record durably that a request is answered.

        Raises:
            ProtocolError: another request of the same session was answered.
        """
        with self._store.lock():
            found = self._read()
            if found is None:
                raise ProtocolError("the file with the client's keys was lost")
            keys, answered = found
            updated = answered.add(request)
            if updated is not answered:
                self._write(keys, updated)

    def _read(self) -> tuple[KeyPair, AnsweredSessions] | None:
        try:
            fields: dict[str, Any] = json.loads(self._store.storage.get(self._name) or b"")
            if fields.pop("checksum") != _checksum_of(fields):
                return None
            digests = {int(number): str(digest) for number, digest in fields["answered"].items()}
            return KeyPair.from_private(bytes.fromhex(fields["private"])), AnsweredSessions(digests, fields["floor"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def _write(self, keys: KeyPair, answered: AnsweredSessions) -> None:
        fields = {
            "private": keys.private.hex(),
            "answered": {str(number): digest for number, digest in answered.digests.items()},
            "floor": answered.floor,
        }
        self._store.storage.put(self._name, json.dumps({**fields, "checksum": _checksum_of(fields)}).encode())


def check_session(store: ClientStore, instruction: Instruction) -> SessionView:
    """Return the session of an instruction.

    Raises:
        ProtocolError: the client must not upload in this session.
    """
    view = SessionView.decode(instruction.payload)
    scope = scope_of(instruction.job, instruction.epoch)
    view.check(instruction.client, scope=scope, min_cohort=min_cohort_of(instruction.settings))
    _load_key(store, instruction, view)
    return view


def mask(store: ClientStore, instruction: Instruction, view: SessionView, upload: FixedPoint) -> MaskedUpload:
    """Return a masked upload.

    Args:
        store: the client's durable state.
        instruction: the instruction.
        view: its session.
        upload: the update, or its difference to the one in the sum.
    """
    keys = _load_key(store, instruction, view)
    return mask_upload(upload, view, instruction.client, keys)


def _load_key(store: ClientStore, instruction: Instruction, view: SessionView) -> KeyPair:
    """Return the client's key pair; raise ProtocolError if the others in the session know another key.

    With other keys, nobody could remove the client's masks, and the session would fail for the whole cohort.
    """
    keys, _ = ClientSecrets(store, instruction.job).load()
    if keys.public != view.public_key:
        raise ProtocolError("this client has lost its key, and has a new one that the session does not know")
    return keys


def answer_unmask(store: ClientStore, instruction: Instruction) -> bytes:
    """Return the shares that this client reveals as a decryptor.

    Raises:
        ProtocolError: the request must not be answered.
    """
    request = UnmaskRequest.decode(instruction.payload)
    secrets = ClientSecrets(store, instruction.job)
    keys, _ = secrets.load()
    scope, minimum = scope_of(instruction.job, instruction.epoch), min_cohort_of(instruction.settings)
    check_request(request, instruction.client, keys, scope=scope, min_cohort=minimum)
    secrets.record(request)
    return answer_request(request, instruction.client, keys, scope=scope, min_cohort=minimum)


def public_facts(store: ClientStore, job: str) -> dict[str, Any]:
    """Return what a client of a secure job reports beside its state: its public key and its newest session."""
    keys, answered = ClientSecrets(store, job).load()
    return {"public_key": keys.public.hex(), "highest_session": answered.highest}


def _checksum_of(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
