"""A session with clients and decryptors in memory, for the tests of the package."""

import json
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ProtocolError
from fedlatest.secure import (
    Collector,
    KeyPair,
    MaskedUpload,
    Participant,
    Session,
    SessionView,
    UnmaskRequest,
    answer_request,
    make_session,
    mask_upload,
)
from fedlatest.secure.session import decode_bytes

SCOPE = "job 1 a"


class Cohort:
    """Clients c0, c1, ... and decryptors d0, d1, ... of one session; the update of client k is [k + 1, -k, 10^k].

    Args:
        num_clients: number of clients.
        num_decryptors: number of decryptors.
        min_cohort: the smallest number of uploads that is unmasked.
        number: the number of the session.
        nonce: its nonce.
        keys: the key pairs by name, if the participants of another cohort take part again.
    """

    def __init__(
        self,
        num_clients: int,
        *,
        num_decryptors: int = 4,
        min_cohort: int = 2,
        number: int = 1,
        nonce: str = "ab",
        keys: dict[str, KeyPair] | None = None,
    ) -> None:
        self.min_cohort = min_cohort
        clients, decryptors = (
            [f"{kind}{k}" for k in range(n)] for kind, n in (("c", num_clients), ("d", num_decryptors))
        )
        self.keys = keys if keys is not None else {name: KeyPair.generate() for name in [*clients, *decryptors]}
        self.updates = {name: np.array([k + 1, -k, 10**k % 99991], np.int64) for k, name in enumerate(clients)}
        self.session = make_session(
            [self.participant(name) for name in clients],
            [self.participant(name) for name in decryptors],
            scope=SCOPE,
            number=number,
            nonce=nonce,
            min_cohort=min_cohort,
        )
        self.collector = Collector(self.session, 3)

    def participant(self, name: str) -> Participant:
        """Return a client or decryptor with its public key."""
        return Participant(name, self.keys[name].public)

    def upload(self, name: str, *, view: SessionView | None = None) -> MaskedUpload:
        """Return a new masked upload of a client."""
        return mask_upload(self.updates[name], view or self.session.view_of(name), name, self.keys[name])

    def collect(self, names: Collection[str]) -> dict[str, MaskedUpload]:
        """Let some clients upload."""
        uploads = {name: self.upload(name) for name in names}
        for name, upload in uploads.items():
            self.collector.add(name, upload.numbers.copy(), upload.payload)
        return uploads

    def answer(self, name: str, request: UnmaskRequest, *, min_cohort: int | None = None) -> bytes:
        """Return the answer of a decryptor that has not answered yet."""
        minimum = self.min_cohort if min_cohort is None else min_cohort
        return answer_request(request, name, self.keys[name], scope=SCOPE, min_cohort=minimum)

    def unmask(self, decryptors: Sequence[str] | None = None) -> npt.NDArray[np.int64]:
        """Ask the decryptors and return the sum."""
        for name, request in self.collector.requests().items():
            if decryptors is None or name in decryptors:
                self.collector.add_answer(name, self.answer(name, request))
        if not self.collector.is_complete:
            raise ProtocolError("too few answers")
        return self.collector.unmask(limit=2**31)

    def total(self, names: Collection[str]) -> Any:
        """Return the sum of the updates of some clients, without masks."""
        return sum(self.updates[name] for name in names)


def request_for(
    session: Session, uploads: dict[str, MaskedUpload], names: Collection[str], index: int
) -> UnmaskRequest:
    """Return a request to decryptor number `index` for some clients, as a server that chooses them itself."""
    included = tuple(sorted(session.positions[name] for name in names))
    sealed = [json.loads(uploads[session.roster[position].id].payload)["sealed"][index] for position in included]
    return UnmaskRequest(session, included, tuple(map(decode_bytes, sealed)))
