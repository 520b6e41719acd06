"""What secure aggregation costs a client, a decryptor and the server, next to the path without masks.

Usage: python -m benchmarks.secure_aggregation [--clients 10 100 1000] [--parameters 10000 100000 1000000 10000000]

One session per case, with 10 decryptors; a tenth of the cohort drops out after it was asked. The times are those of one
client and of one decryptor (medians), and of the server for the whole session. The sum is compared with a plain sum.

In cases with more than 10^8 numbers in all uploads, only three clients mask theirs, and these are measured. The others
send zeros with complete shares: the server has the same work, but the sum is not compared.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.machine import describe_machine
from fedlatest.ledger.fixed_point import SUM_DTYPE
from fedlatest.ledger.hashing import add_in_place, checksum_of, digest_of
from fedlatest.secure import Collector, KeyPair, Participant, SessionView, UnmaskRequest, answer_request, make_session
from fedlatest.secure.masking import MaskedUpload, mask_upload
from fedlatest.secure.primitives import MASK_DTYPE

NUM_DECRYPTORS, MEASURED = 10, 3
SCOPE = "benchmark"


class Costs(NamedTuple):
    """Seconds and bytes of one case."""

    client_plain: float  # digest and checksum of an upload
    client_secure: float  # the same, and masks and shares
    upload_plain: int
    upload_secure: int
    instruction: int  # bytes that the session adds to an instruction
    decryptor: float
    request: int
    answer: int
    server_plain: float  # checksum and sum of all uploads
    server_secure: float


def measure(num_clients: int, size: int) -> Costs:
    """Run one session and return its costs."""
    keys = {f"client{number:04d}": KeyPair.generate() for number in range(num_clients)}
    participants = [Participant(name, pair.public) for name, pair in keys.items()]
    decryptors = participants[: min(NUM_DECRYPTORS, num_clients)]
    session = make_session(
        participants, decryptors, scope=SCOPE, number=1, nonce="0123456789abcdef", min_cohort=max(2, num_clients // 2)
    )
    dropped = {participant.id for participant in participants[-max(1, num_clients // 10) :]}
    uploading = [name for name in keys if name not in dropped]
    numbers = np.random.default_rng(0).integers(-(2**20), 2**20, size).astype(np.int32)
    total = np.zeros(size, SUM_DTYPE)
    collector = Collector(session, size)
    client_plain, client_secure, server_plain, server_secure = [], [], 0.0, 0.0
    is_large, zeros = num_clients * size > 10**8, np.zeros(size, MASK_DTYPE)
    for index, name in enumerate(uploading):
        view = SessionView.decode(session.view_of(name).encode())
        if index < MEASURED or not is_large:
            plain_seconds, _ = timed(_digests, numbers)
            seconds, masked = timed(_mask, numbers, view, name, keys[name])
            client_plain.append(plain_seconds)
            client_secure.append(plain_seconds + seconds)
            secure_bytes = masked.numbers.nbytes + len(masked.payload)
        else:
            masked = MaskedUpload(zeros, mask_upload(np.zeros(0, np.int64), view, name, keys[name]).payload)
        server_plain += timed(_collect_plain, total, numbers)[0]
        server_secure += timed(_collect, collector, name, masked)[0]
    seconds, requests = timed(collector.requests)
    server_secure += seconds
    decrypting = []
    for name, request in requests.items():
        content = request.encode()
        seconds, answer = timed(_answer, content, name, keys[name])
        decrypting.append(seconds)
        server_secure += timed(collector.add_answer, name, answer)[0]
    seconds, unmasked = timed(_unmask, collector, size)
    server_secure += seconds
    assert is_large or np.array_equal(unmasked, total), "the unmasked sum is exact"
    return Costs(
        statistics.median(client_plain), statistics.median(client_secure), numbers.nbytes,
        secure_bytes, len(session.view_of(uploading[0]).encode()),
        statistics.median(decrypting), len(content), len(answer), server_plain, server_secure,
    )  # fmt: skip


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the seconds that a call takes, and its result."""
    began = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - began, result


def _digests(numbers: npt.NDArray[np.int32]) -> tuple[str, str]:
    return digest_of(numbers), checksum_of(numbers)


def _collect_plain(total: npt.NDArray[np.int64], numbers: npt.NDArray[np.int32]) -> None:
    checksum_of(numbers)
    add_in_place(total, numbers)


def _unmask(collector: Collector, size: int) -> npt.NDArray[np.int64]:
    return collector.unmask(limit=2**63)


def _mask(numbers: npt.NDArray[np.int32], view: SessionView, name: str, keys: KeyPair) -> MaskedUpload:
    view.check(name, scope=SCOPE, min_cohort=2)
    return mask_upload(numbers.astype(np.int64), view, name, keys)


def _collect(collector: Collector, name: str, masked: MaskedUpload) -> None:
    checksum_of(masked.numbers.view("<i4"))
    collector.add(name, masked.numbers, masked.payload)


def _answer(content: bytes, name: str, keys: KeyPair) -> bytes:
    return answer_request(UnmaskRequest.decode(content), name, keys, scope=SCOPE, min_cohort=2)


def main() -> None:
    """Measure all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parameters", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    arguments = parser.parse_args()
    print(describe_machine())
    print("| clients | parameters | client, s | upload | session | decryptor, s | request | answer | server, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for num_clients in arguments.clients:
        for size in arguments.parameters:
            costs = measure(num_clients, size)
            cells = [
                f"{num_clients:,}", f"{size:,}", f"{costs.client_plain:.4f} / {costs.client_secure:.4f}",
                f"{_bytes(costs.upload_plain)} / {_bytes(costs.upload_secure)}", _bytes(costs.instruction),
                f"{costs.decryptor:.3f}", _bytes(costs.request), _bytes(costs.answer),
                f"{costs.server_plain:.3f} / {costs.server_secure:.3f}",
            ]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


def _bytes(number: int) -> str:
    return f"{number / 1e6:.3g} MB" if number >= 1e6 else f"{number / 1e3:.3g} kB"


if __name__ == "__main__":
    main()
