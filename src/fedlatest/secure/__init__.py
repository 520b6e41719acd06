"""Secure aggregation: the server learns the sum of the uploads of a cohort, and of one client only that it took part.

The protocol, for one cohort (a *session*):

1. The server sends each client of the cohort the public keys of its neighbours in a graph over the cohort, and those of
   the *decryptors*: a few clients that are available now (`session`).
2. A client adds masks to its upload, modulo 2^64: one mask per neighbour, which the neighbour subtracts, and one of its
   own. It sends the masked upload, and with it the seeds of all its masks, secret-shared among the decryptors, each
   share encrypted for one of them (`masking`). This is its only message.
3. The server adds the masked uploads. It asks the decryptors for their shares of the seeds that it needs: the own seeds
   of the clients that have uploaded, and the seeds between those and the clients that have not (`decryptor`). A
   decryptor answers once per session, and the answers can be opened only if enough decryptors were asked the same
   (`agreement`).
4. From enough shares, the server reconstructs the seeds and removes the masks from the sum (`unmasking`).

It follows Bonawitz et al. (2017) in the two kinds of masks, Bell et al. (2020) in the sparse graph, and Ma et al.
(2023, "Flamingo") in the decryptors and in clients that send one message. docs/privacy.md says what differs, against
whom this protects, and what it costs.

All cryptographic primitives come from the library `cryptography`. The package imports nothing of fedlatest but its
errors: the ledger decides when a sum counts.
"""

from fedlatest.secure.decryptor import UnmaskRequest, answer_request
from fedlatest.secure.masking import MaskedUpload, mask_upload
from fedlatest.secure.primitives import KeyPair
from fedlatest.secure.session import Participant, Session, SessionView, make_session
from fedlatest.secure.unmasking import Collector, UnmaskingError

__all__ = [
    "Collector",
    "KeyPair",
    "MaskedUpload",
    "Participant",
    "Session",
    "SessionView",
    "UnmaskRequest",
    "UnmaskingError",
    "answer_request",
    "make_session",
    "mask_upload",
]
