"""The server's side: adds masked uploads, collects shares from the decryptors, and removes the masks from the sum."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ProtocolError
from fedlatest.secure import shamir
from fedlatest.secure.agreement import SealedAnswer, open_answer
from fedlatest.secure.decryptor import UnmaskRequest, revealed_positions
from fedlatest.secure.masking import sign_of
from fedlatest.secure.primitives import COMMITMENT_BYTES, MASK_DTYPE, MaskedNumbers, add_masks, commit, sealed_length
from fedlatest.secure.session import Session, decode_bytes, read_list, read_object
from fedlatest.secure.shamir import SHARE_BYTES


class UnmaskingError(ProtocolError):
    """A sum cannot be unmasked because of what some clients sent.

    Args:
        message: what is wrong.
        clients: the ids of these clients.
    """

    def __init__(self, message: str, clients: list[str]) -> None:
        super().__init__(message)
        self.clients = clients


class _Sealed(NamedTuple):
    """What a client sent beside its masked numbers."""

    shares: tuple[bytes, ...]  # encrypted, by decryptor
    seed_commitments: bytes
    share_commitments: bytes  # those for the first decryptor, then for the second, ...


class Collector:
    """Collects the uploads of a session and unmasks their sum.

    Masked uploads are added as they arrive, so that the memory does not grow with the cohort.

    Args:
        session: the session.
        length: the number of numbers in an upload.
    """

    def __init__(self, session: Session, length: int) -> None:
        self.session, self.length = session, length
        self._sum: MaskedNumbers = np.zeros(length, MASK_DTYPE)
        self._sealed: dict[int, _Sealed] = {}
        self._closed = False
        self._shares: dict[tuple[int, int], dict[int, bytes]] = {}  # (position, which seed) -> decryptor -> share
        self._answers: dict[int, SealedAnswer] = {}  # by decryptor
        self._unopened: set[int] = set()
        self._statement = b""
        self._wrong: set[int] = set()  # decryptors whose answers were not valid
        self._complaints: dict[int, set[int]] = {}  # position -> decryptors without a valid share of it

    @property
    def included(self) -> tuple[int, ...]:
        """The positions of the clients whose uploads are in the sum."""
        return tuple(sorted(self._sealed))

    def add(self, client: str, numbers: MaskedNumbers, payload: bytes) -> None:
        """Add a masked upload.

        Raises:
            ProtocolError: the upload is not valid, or it came too late; it is not in the sum.
        """
        position = self.session.positions.get(client)
        if position is None or position in self._sealed or self._closed:
            raise ProtocolError("the session does not wait for an upload of this client")
        if not isinstance(numbers, np.ndarray) or numbers.dtype != MASK_DTYPE or numbers.shape != (self.length,):
            raise ProtocolError(f"a masked upload must be {MASK_DTYPE}[{self.length}]")
        sealed = self._read(payload, position)
        np.add(self._sum, numbers, out=self._sum)
        self._sealed[position] = sealed

    def requests(self) -> dict[str, UnmaskRequest]:
        """Return the requests to the decryptors, by their ids; no upload is added afterwards.

        Raises:
            ProtocolError: the sum must not be unmasked, for example because there are too few uploads.
        """
        self._closed = True
        included = self.included
        self.session.check_included(included)
        requests = {
            decryptor.id: UnmaskRequest(
                self.session, included, tuple(self._sealed[position].shares[index] for position in included)
            )
            for index, decryptor in enumerate(self.session.decryptors)
        }
        self._statement = requests[self.session.decryptors[0].id].statement
        return requests

    def add_answer(self, decryptor: str, payload: bytes) -> None:
        """Add the shares that a decryptor reveals; they can be read when enough decryptors have answered.

        Shares that are not the ones that their owners committed to do not count: see `unreliable_decryptors`.

        Raises:
            ProtocolError: the answer is not valid.
        """
        index = next((k for k, each in enumerate(self.session.decryptors) if each.id == decryptor), None)
        if index is None or index in self._answers or not self._closed:
            raise ProtocolError("the session does not wait for shares of this client")
        self._answers[index] = SealedAnswer.decode(payload, len(self.session.decryptors))
        self._unopened.add(index)
        if len(self._answers) < self.session.threshold:
            return
        for each in sorted(self._unopened):
            try:
                content = open_answer(self._answers, each, self._statement, threshold=self.session.threshold)
                if content is not None:
                    self._unopened.remove(each)
                    self._read_answer(each, content)
            except ProtocolError:
                self._unopened.discard(each)
                self._wrong.add(each)

    def _read_answer(self, index: int, content: bytes) -> None:
        """Keep the valid shares in the answer of a decryptor; raise ProtocolError if not all are."""
        try:
            revealed = [decode_bytes(each) for each in read_object(content)["shares"]]
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the shares are not valid") from None
        if len(revealed) != len(self._sealed):
            raise ProtocolError(f"the shares of {len(revealed)} clients were sent, not of {len(self._sealed)}")
        for position, shares in zip(self.included, revealed, strict=True):
            if not self._add_shares(index, position, shares):
                self._complaints.setdefault(position, set()).add(index)
                self._wrong.add(index)

    @property
    def unreliable_decryptors(self) -> list[str]:
        """The ids of decryptors whose answers were not valid, or could not be opened although those of others were."""
        opened = self._answers.keys() - self._unopened - self._wrong
        found = self._wrong | (self._unopened if opened else set())
        return [self.session.decryptors[index].id for index in sorted(found)]

    @property
    def is_complete(self) -> bool:
        """Whether there are enough shares to unmask the sum."""
        needed = self._needed()
        return self._closed and all(len(self._shares.get(each, ())) >= self.session.threshold for each in needed)

    def culprits(self) -> list[str]:
        """Return clients whose own fault it is that the sum cannot be unmasked.

        So many decryptors have no valid share of such a client that not all of them are lying, while fewer than a third
        of the decryptors lie.
        """
        tolerated = len(self.session.decryptors) - self.session.threshold
        found = [position for position, by in self._complaints.items() if len(by) > tolerated]
        return [self.session.roster[position].id for position in sorted(found)]

    def unmask(self, *, limit: int) -> npt.NDArray[np.int64]:
        """Return the sum of the uploads; call it once, when `is_complete`.

        Args:
            limit: the largest magnitude of a number in one upload.

        Raises:
            UnmaskingError: a client shared other seeds than it committed to.
            ProtocolError: the sum is larger than so many uploads can be: a client used other masks than it shared.
        """
        seeds = {each: self._reconstruct(*each) for each in self._needed()}
        masks = []
        for (position, which), seed in seeds.items():
            sign = 1 if which == 0 else sign_of(position, self.session.neighbours(position)[which - 1])
            masks.append((seed, -sign))
        add_masks(self._sum, masks)
        total, bound = self._sum.view(np.int64), limit * len(self._sealed)
        if total.size and (int(total.max()) > bound or int(total.min()) < -bound):
            raise ProtocolError("the sum is larger than its uploads can be: a client did not use the masks it shared")
        return total

    def _needed(self) -> list[tuple[int, int]]:
        included = frozenset(self._sealed)
        return [
            (position, which)
            for position in self.included
            for which in revealed_positions(self.session, position, included)
        ]

    def _reconstruct(self, position: int, which: int) -> bytes:
        shares = self._shares[position, which]
        chosen = dict(sorted(shares.items())[: self.session.threshold])
        start = COMMITMENT_BYTES * which
        expected = self._sealed[position].seed_commitments[start : start + COMMITMENT_BYTES]
        client = self.session.roster[position].id
        try:
            seed = shamir.combine(chosen)
        except ProtocolError as error:
            raise UnmaskingError(str(error), [client]) from None
        if commit("seed", seed) != expected:
            raise UnmaskingError("a client shared another seed than it committed to", [client])
        return seed

    def _add_shares(self, index: int, position: int, content: bytes) -> bool:
        """Keep the shares of one client that one decryptor reveals, if they match the client's commitments."""
        which = revealed_positions(self.session, position, frozenset(self._sealed))
        if len(content) != SHARE_BYTES * len(which):
            return False
        pieces = [content[start : start + SHARE_BYTES] for start in range(0, len(content), SHARE_BYTES)]
        num_seeds = 1 + len(self.session.neighbours(position))
        commitments = self._sealed[position].share_commitments
        for each, piece in zip(which, pieces, strict=True):
            start = COMMITMENT_BYTES * (index * num_seeds + each)
            if commit("share", piece) != commitments[start : start + COMMITMENT_BYTES]:
                return False
        for each, piece in zip(which, pieces, strict=True):
            self._shares.setdefault((position, each), {})[index] = piece
        return True

    def _read(self, payload: bytes, position: int) -> _Sealed:
        """Return what a client sent beside its numbers; raise ProtocolError if its form is not valid."""
        fields: Mapping[str, object] = read_object(payload)
        num_seeds, num_decryptors = 1 + len(self.session.neighbours(position)), len(self.session.decryptors)
        try:
            sealed = tuple(map(decode_bytes, read_list(fields["sealed"])))
            seeds, shares = decode_bytes(fields["seeds"]), decode_bytes(fields["shares"])
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the shares of the upload are not valid") from None
        lengths = (*map(len, sealed), len(seeds), len(shares))
        unit = COMMITMENT_BYTES * num_seeds
        if lengths != (*[sealed_length(SHARE_BYTES * num_seeds)] * num_decryptors, unit, unit * num_decryptors):
            raise ProtocolError("the upload does not have the shares and commitments of its session")
        return _Sealed(sealed, seeds, shares)
