"""Test vectors of the primitives; a change of one of these values makes clients of two versions incompatible."""

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedlatest.errors import ProtocolError
from fedlatest.secure import KeyPair, Participant, make_session
from fedlatest.secure.primitives import (
    MASK_DTYPE,
    add_masks,
    check_public_key,
    commit,
    decrypt,
    derive,
    encrypt,
    sealed_length,
)

# RFC 7748, section 6.1
ALICE = KeyPair.from_private(bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
BOB = KeyPair.from_private(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")


def test_x25519_vectors_of_rfc_7748() -> None:
    assert ALICE.public.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert BOB.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert ALICE.agree(BOB.public) == BOB.agree(ALICE.public) == SHARED


def test_hkdf_vector_of_rfc_5869() -> None:
    """Appendix A.1, through the class that `derive` uses."""
    hkdf = HKDF(SHA256(), 42, salt=bytes(range(13)), info=bytes(range(0xF0, 0xFA)))
    assert hkdf.derive(bytes([0x0B] * 22)).hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )


def test_derived_seed() -> None:
    """HKDF with the hash of the session as salt; purpose and names with their lengths in front."""
    found = derive(SHARED, bytes(32), "pair mask", "a", "b")
    assert found.hex() == "285af5555d911e6a74474ff4fba9f758"
    info = b"fedlatest secure aggregation 1: \0\0\0\x09pair mask\0\0\0\1a\0\0\0\1b"
    extracted = hmac.digest(bytes(32), SHARED, hashlib.sha256)
    assert found == hmac.digest(extracted, info + b"\x01", hashlib.sha256)[:16]


def test_derived_seeds_differ_by_session_purpose_and_names() -> None:
    first = derive(SHARED, bytes(32), "p", "a", "b")
    others = [
        derive(SHARED, bytes([1] * 32), "p", "a", "b"),
        derive(SHARED, bytes(32), "q", "a", "b"),
        derive(SHARED, bytes(32), "p", "b", "a"),
        derive(SHARED, bytes(32), "p", "ab", ""),
        derive(SHARED, bytes(32), "pa", "b"),
    ]
    assert len({first, *others}) == 6


def test_mask() -> None:
    """AES-128 of counter 0 with the key 000102...0f is c6a13b37878f5b826f4f8162a1c8d879."""
    numbers = np.zeros(3, MASK_DTYPE)
    add_masks(numbers, [(bytes(range(16)), 1)])
    assert numbers[:2].tobytes().hex() == "c6a13b37878f5b826f4f8162a1c8d879"
    assert numbers.tolist() == [9393259258721313222, 8779988069026713455, 2212605065629484659]


@pytest.mark.parametrize("length", [0, 1, 2**16 - 1, 2**16, 2**16 + 1, 2**17 + 3])
def test_masks_of_opposite_signs_cancel(length: int) -> None:
    numbers = np.arange(length).astype(MASK_DTYPE)
    add_masks(numbers, [(bytes(16), 1), (bytes([1] * 16), -1)])
    assert length < 2 or (numbers != np.arange(length)).all()
    add_masks(numbers, [(bytes([1] * 16), 1), (bytes(16), -1)])
    assert (numbers == np.arange(length)).all()


def test_encryption() -> None:
    """Test case 2 of the specification of GCM: all zeros."""
    assert AESGCM(bytes(16)).encrypt(bytes(12), bytes(16), b"").hex() == (
        "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"
    )
    sealed = encrypt(bytes(16), b"shares", b"session")
    assert len(sealed) == sealed_length(6) == 34
    assert sealed[12:] == AESGCM(bytes(16)).encrypt(sealed[:12], b"shares", b"session")
    assert decrypt(bytes(16), sealed, b"session") == b"shares"
    for key, text, context in (
        (bytes([1] * 16), sealed, b"session"),
        (bytes(16), sealed, b"another session"),
        (bytes(16), sealed[:-1] + bytes([sealed[-1] ^ 1]), b"session"),
        (bytes(16), sealed[:5], b"session"),
        (b"short", sealed, b"session"),
    ):
        with pytest.raises(ProtocolError):
            decrypt(key, text, context)


def test_commitment() -> None:
    assert commit("seed", bytes(16)).hex() == "2a86631d9f99ecbd61bfc86fe4eb677e"
    expected = hashlib.sha256(b"fedlatest secure aggregation 1: seed: " + bytes(16)).digest()[:16]
    assert commit("seed", bytes(16)) == expected
    assert commit("share", bytes(16)) != expected


def test_hash_of_a_session() -> None:
    participants = [Participant("a", ALICE.public), Participant("b", BOB.public)]
    decryptors = [Participant(name, ALICE.public) for name in "abc"]
    session = make_session(participants, decryptors, scope="job 1 t", number=7, nonce="00ff", min_cohort=2)
    assert session.hash.hex() == "d387ccb9817991c3ebccba32e4e0c384060c8f0eb85e3a113fdcece189f7c10b"
    neighbours = "f872ca6b544e957354d29305c1dca6ecd03bfb88289b138657a73dfc982693c5"
    assert session.context_of(0) == session.view_of("a").context == session.hash + bytes.fromhex(neighbours)


# Points of small order on the curve and on its twist: RFC 7748, section 7, and 2^255 - 19 times a small factor.
LOW_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


@pytest.mark.parametrize("public", LOW_ORDER)
def test_public_keys_of_low_order_are_refused(public: str) -> None:
    with pytest.raises(ProtocolError, match="is not valid"):
        check_public_key(bytes.fromhex(public))
    with pytest.raises(ProtocolError, match="is not valid"):
        ALICE.agree(bytes.fromhex(public))
    check_public_key(BOB.public)
