"""Opens the answers of the decryptors only if enough of them answered the same request.

A server could name other clients to each decryptor. Each of them would reveal only what its own request allows, but
together their shares could unmask a single upload. So a decryptor encrypts its answer with a random key, and shares the
key among the decryptors: the piece for another one is encrypted with a key that the two derive from the request. With
its own answer, each decryptor publishes the keys of the pieces for it, of its own request only. So the server can open
an answer if `threshold` decryptors have answered the same request. It takes no further message.

Honest decryptors answer one request of a session. While fewer than a third of the decryptors work with the server, at
most one request of a session can be opened.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedlatest.errors import ProtocolError
from fedlatest.secure import shamir
from fedlatest.secure.primitives import KeyPair, decrypt, derive, encrypt, random_seed
from fedlatest.secure.session import Participant, decode_bytes, encode_bytes, read_object


class SealedAnswer(NamedTuple):
    """The answer of one decryptor, which can be opened with the answers of others."""

    content: bytes  # encrypted
    pieces: tuple[bytes, ...]  # of the key of the content, by decryptor; encrypted, except its own
    keys: tuple[bytes, ...]  # of the pieces that the other decryptors encrypted for this one; empty for its own

    def encode(self) -> bytes:
        """Return the answer as it is sent."""
        fields = {
            "content": encode_bytes(self.content),
            "pieces": list(map(encode_bytes, self.pieces)),
            "keys": list(map(encode_bytes, self.keys)),
        }
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, payload: bytes, num_decryptors: int) -> "SealedAnswer":
        """Return the answer in a message; raise ProtocolError if it is not valid."""
        fields = read_object(payload)
        try:
            pieces, keys = (tuple(map(decode_bytes, fields[name])) for name in ("pieces", "keys"))
            found = cls(decode_bytes(fields["content"]), pieces, keys)
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the shares are not valid") from None
        if len(pieces) != num_decryptors or len(keys) != num_decryptors:
            raise ProtocolError(f"the answer is not one for {num_decryptors} decryptors")
        return found


def seal_answer(
    content: bytes,
    statement: bytes,
    client: str,
    keys: KeyPair,
    *,
    decryptors: Sequence[Participant],
    threshold: int,
) -> SealedAnswer:
    """Return an answer that can be opened if `threshold` decryptors answer for the same statement.

    Args:
        content: the answer.
        statement: a hash of what all decryptors must have been asked; the decryptor answers no other one of a session.
        client: the decryptor's id.
        keys: the decryptor's key pair.
        decryptors: all decryptors of the session.
        threshold: number of decryptors that must agree.

    Raises:
        ProtocolError: a public key is not valid.
    """
    key = random_seed()
    split = shamir.split(key, threshold=threshold, num_shares=len(decryptors))
    pieces, revealed = [], []
    for piece, other in zip(split, decryptors, strict=True):
        if other.id == client:
            pieces.append(piece)
            revealed.append(b"")
            continue
        secret = keys.agree(other.public_key)
        pieces.append(encrypt(derive(secret, statement, "agreement", client, other.id), piece, statement))
        revealed.append(derive(secret, statement, "agreement", other.id, client))
    return SealedAnswer(encrypt(key, content, statement), tuple(pieces), tuple(revealed))


def open_answer(answers: Mapping[int, SealedAnswer], index: int, statement: bytes, *, threshold: int) -> bytes | None:
    """Return the content of an answer; None if fewer than `threshold` decryptors have answered the same request.

    Args:
        answers: the answers of a session, by the index of the decryptor.
        index: the answer to open.
        statement: the hash of what the decryptors were asked.
        threshold: number of decryptors that must agree.

    Raises:
        ProtocolError: enough decryptors agree, but the answer does not have the form that its sender must give it.
    """
    answer = answers[index]
    found = {index: answer.pieces[index]}
    for other, theirs in answers.items():
        if other != index:
            try:
                found[other] = decrypt(theirs.keys[index], answer.pieces[other], statement)
            except ProtocolError:  # one of the two lies, or was asked something else
                continue
    if len(found) < threshold:
        return None
    return decrypt(shamir.combine(dict(sorted(found.items())[:threshold])), answer.content, statement)
