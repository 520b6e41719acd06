"""The server's side of a secure session: which uploads it has collected, and whether their sum was unmasked.

It needs the library `cryptography`; `fedlatest.ledger.secure_rounds` imports it when a secure job needs it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ProtocolError
from fedlatest.ledger.client_table import ClientRow
from fedlatest.ledger.hashing import checksum_of
from fedlatest.ledger.messages import Reply
from fedlatest.ledger.secure_settings import MAX_UPLOAD
from fedlatest.secure import Collector, Participant, UnmaskingError, UnmaskRequest, make_session
from fedlatest.secure.primitives import MASK_DTYPE


class SecureSession:
    """A session from its first instruction to its unmasked sum.

    Args:
        collector: adds and unmasks the uploads.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.replies: dict[str, Reply] = {}
        self.requested = False

    @property
    def number(self) -> int:
        """The number of the session."""
        return self._collector.session.number

    @property
    def min_cohort(self) -> int:
        """The smallest number of uploads that is unmasked."""
        return self._collector.session.min_cohort

    @property
    def num_uploads(self) -> int:
        """The number of uploads so far."""
        return len(self.replies)

    def payload_of(self, client: str) -> bytes:
        """Return what a client of the cohort is told about the session."""
        return self._collector.session.view_of(client).encode()

    def add(self, reply: Reply) -> None:
        """Add a masked upload; raise ProtocolError if it is not valid."""
        upload = reply.upload
        if not isinstance(upload, np.ndarray) or upload.dtype != MASK_DTYPE or upload.ndim != 1:
            raise ProtocolError("the job is secure: the upload must be masked")
        if checksum_of(upload.view("<i4")) != reply.checksum:
            raise ProtocolError("the upload does not match the checksum in its header")
        self._collector.add(reply.client, upload, reply.payload)
        self.replies[reply.client] = replace(reply, upload=None, payload=b"")

    def requests(self) -> dict[str, UnmaskRequest]:
        """Return the requests to the decryptors; raise ProtocolError if the sum must not be unmasked."""
        if self.num_uploads < self.min_cohort:
            raise ProtocolError(f"{self.num_uploads} uploads are too few to unmask: the minimum is {self.min_cohort}")
        self.requested = True
        return self._collector.requests()

    def add_shares(self, reply: Reply) -> None:
        """Add the shares of a decryptor; raise ProtocolError if some are not valid."""
        self._collector.add_answer(reply.client, reply.payload)

    @property
    def unreliable_decryptors(self) -> list[str]:
        """The ids of decryptors whose shares were not valid."""
        return self._collector.unreliable_decryptors

    @property
    def is_complete(self) -> bool:
        """Whether the sum can be unmasked."""
        return self._collector.is_complete

    def culprits(self) -> list[str]:
        """Return the clients whose own fault it is that the sum cannot be unmasked."""
        return self._collector.culprits()

    def unmask(self) -> npt.NDArray[np.int64]:
        """Return the sum of the uploads, in fixed-point numbers.

        Raises:
            UnmaskingError: a client shared other seeds than it committed to.
            ProtocolError: the sum is not possible.
        """
        return self._collector.unmask(limit=MAX_UPLOAD)


def open_session(
    cohort: Sequence[ClientRow], decryptors: Sequence[ClientRow], *, scope: str, number: int, nonce: str,
    min_cohort: int, size: int,
) -> SecureSession:  # fmt: skip
    """Return a new session.

    Args:
        cohort: the clients that are asked to upload.
        decryptors: the clients that hold shares.
        scope: the job and its epoch.
        number: the number of the session, which was never used before.
        nonce: random hexadecimal digits.
        min_cohort: the smallest number of uploads that is unmasked.
        size: the number of numbers in an update.
    """
    session = make_session(
        list(map(_participant, cohort)),
        list(map(_participant, decryptors)),
        scope=scope,
        number=number,
        nonce=nonce,
        min_cohort=min_cohort,
    )
    session.check()
    return SecureSession(Collector(session, size))


def _participant(client: ClientRow) -> Participant:
    return Participant(client.id, bytes.fromhex(client.public_key))


def clients_at_fault(error: ProtocolError) -> list[str]:
    """Return the clients that an error names as its cause."""
    return error.clients if isinstance(error, UnmaskingError) else []
