"""The cryptographic primitives and their parameters. All are implemented by the library `cryptography`.

| what | primitive |
|---|---|
| key agreement | X25519 (RFC 7748), long-term keys |
| derivation of keys and seeds | HKDF with SHA-256 (RFC 5869); the salt is the hash of the session |
| masks | AES-128 in counter mode with the seed as key, from counter 0, read as little-endian 64-bit numbers |
| encryption of shares | AES-128-GCM, random nonce of 96 bits; binds the session, both names and the neighbours |
| commitments | the first 128 bits of SHA-256 of a label and a random value of at least 128 bits |
| randomness | the operating system's generator (`os.urandom`) |

A seed is the key of one mask only, so the counter may start at 0. `tests/secure/test_primitives.py` has test vectors.
"""

import hashlib
import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedlatest.errors import ProtocolError

MaskedNumbers = npt.NDArray[np.uint64]
MASK_DTYPE = np.dtype("<u8")
SEED_BYTES, KEY_BYTES, NONCE_BYTES, TAG_BYTES, COMMITMENT_BYTES = 16, 32, 12, 16, 16
_LABEL = b"fedlatest secure aggregation 1: "
_CHUNK = 2**16  # numbers masked at a time: half a megabyte stays in the processor's cache


class KeyPair(NamedTuple):
    """A long-term X25519 key pair; the private key never leaves the client."""

    private: bytes
    public: bytes

    @classmethod
    def generate(cls) -> "KeyPair":
        """Return a new key pair from the operating system's random numbers."""
        return cls.from_private(X25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def from_private(cls, private: bytes) -> "KeyPair":
        """Return the key pair of a private key."""
        return cls(private, X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())

    def agree(self, public: bytes) -> bytes:
        """Return the secret that both owners of two key pairs can compute, and nobody else.

        Raises:
            ProtocolError: the public key is not valid.
        """
        try:
            private = X25519PrivateKey.from_private_bytes(self.private)
            return private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise ProtocolError(f"the public key {public.hex()[:80]} is not valid") from None


def check_public_key(public: bytes) -> None:
    """Raise ProtocolError if nobody can agree on a secret with the owner of a public key.

    The shared secret of a point of low order is zero whatever the other private key is, and X25519 refuses it. A client
    with such a key would make the uploads of all its neighbours fail.
    """
    KeyPair.generate().agree(public)


def random_seed() -> bytes:
    """Return a new random seed of a mask."""
    return os.urandom(SEED_BYTES)


def derive(secret: bytes, session_hash: bytes, purpose: str, *parties: str) -> bytes:
    """Return 128 bits derived from a secret for one purpose in one session.

    Args:
        secret: the input key material.
        session_hash: the hash of the session, which is the salt.
        purpose: what the result is used for.
        parties: the ids of the clients concerned; their order matters.
    """
    lengths = b"".join(len(party.encode()).to_bytes(4, "big") + party.encode() for party in (purpose, *parties))
    return HKDF(SHA256(), SEED_BYTES, salt=session_hash, info=_LABEL + lengths).derive(secret)


def add_masks(numbers: MaskedNumbers, seeds: Iterable[tuple[bytes, int]]) -> None:
    """Add the mask of each seed to the numbers in place, modulo 2^64, or subtract it if its sign is negative."""
    streams = [(Cipher(AES(seed), CTR(bytes(16))).encryptor(), sign) for seed, sign in seeds]
    chunk = min(_CHUNK, len(numbers))
    zeros, buffer = bytes(8 * chunk), bytearray(8 * chunk + 15)
    for start in range(0, len(numbers), _CHUNK):
        part = numbers[start : start + _CHUNK]
        plain = zeros if len(part) == chunk else zeros[: 8 * len(part)]
        for stream, sign in streams:
            stream.update_into(plain, buffer)
            mask = np.frombuffer(buffer, MASK_DTYPE, len(part))
            (np.add if sign > 0 else np.subtract)(part, mask, out=part)


def encrypt(key: bytes, plain: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate; the context is authenticated too, but not part of the result."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, context)


def sealed_length(length: int) -> int:
    """Return how long the result of `encrypt` is for a plain text of some length."""
    return NONCE_BYTES + length + TAG_BYTES


def decrypt(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return what `encrypt` encrypted.

    Raises:
        ProtocolError: the text was not encrypted with this key for this context, or it was changed.
    """
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
    except (InvalidTag, ValueError):
        raise ProtocolError("a share cannot be decrypted: it is not for this client and session") from None


def commit(kind: str, value: bytes) -> bytes:
    """Return a commitment to a random value; it reveals nothing, because the value cannot be guessed."""
    return hashlib.sha256(_LABEL + kind.encode() + b": " + value).digest()[:COMMITMENT_BYTES]
