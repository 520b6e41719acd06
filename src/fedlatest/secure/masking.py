"""The client's side: adds masks to an upload and encrypts the shares of their seeds for the decryptors."""

import json
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ProtocolError
from fedlatest.secure import shamir
from fedlatest.secure.primitives import (
    MASK_DTYPE,
    KeyPair,
    MaskedNumbers,
    add_masks,
    commit,
    derive,
    encrypt,
    random_seed,
)
from fedlatest.secure.session import Participant, SessionView, encode_bytes


class MaskedUpload(NamedTuple):
    """What a client sends in a session."""

    numbers: MaskedNumbers
    payload: bytes
    """The encrypted shares and the commitments, as JSON."""


def mask_upload(
    numbers: npt.NDArray[np.signedinteger[Any]], view: SessionView, client: str, keys: KeyPair
) -> MaskedUpload:
    """Return an upload with masks that only the whole session can remove.

    The client's own mask has a new random seed at each call. So a message that is sent twice, even with another content
    after a disk was restored, never has the same masks: the decryptors reveal the seeds of one of them only.

    Args:
        numbers: the upload; the sum over the session must fit in 63 bits.
        view: the session, which the caller has checked.
        client: the client's id.
        keys: the client's key pair.

    Raises:
        ProtocolError: a public key in the session is not valid.
    """
    own = random_seed()
    pairs = {position: pair_seed(view.hash, keys, client, other) for position, other in sorted(view.neighbours.items())}
    masked = np.array(numbers, np.int64).view(MASK_DTYPE)
    add_masks(masked, [(own, 1), *((seed, sign_of(view.position, other)) for other, seed in pairs.items())])
    seeds = [own, *pairs.values()]
    shares = [shamir.split(seed, threshold=view.threshold, num_shares=len(view.decryptors)) for seed in seeds]
    sealed, share_commitments = [], []
    for index, decryptor in enumerate(view.decryptors):
        bundle = [pieces[index] for pieces in shares]
        key = share_key(view.hash, keys, decryptor.public_key, sender=client, receiver=decryptor.id)
        sealed.append(encode_bytes(encrypt(key, b"".join(bundle), view.context)))
        share_commitments += [commit("share", piece) for piece in bundle]
    payload = {
        "sealed": sealed,
        "seeds": encode_bytes(b"".join(commit("seed", seed) for seed in seeds)),
        "shares": encode_bytes(b"".join(share_commitments)),
    }
    return MaskedUpload(masked, json.dumps(payload).encode())


def sign_of(position: int, other: int) -> int:
    """Return the sign with which a client adds the mask that it shares with another: the two signs are opposite."""
    return 1 if position < other else -1


def pair_seed(session_hash: bytes, keys: KeyPair, client: str, other: Participant) -> bytes:
    """Return the seed of the mask that two clients share in a session; both compute the same."""
    if other.id == client:
        raise ProtocolError("a client cannot be its own neighbour")
    return derive(keys.agree(other.public_key), session_hash, "pair mask", *sorted((client, other.id)))


def share_key(session_hash: bytes, keys: KeyPair, public_key: bytes, *, sender: str, receiver: str) -> bytes:
    """Return the key for the shares that one client encrypts for another in a session; both compute the same."""
    return derive(keys.agree(public_key), session_hash, "shares", sender, receiver)
