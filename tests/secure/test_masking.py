"""Masks cancel exactly in the sum, for every set of clients that drop out, and failures name the client at fault."""

import itertools
import json

import numpy as np
import pytest

from fedlatest.errors import ProtocolError
from fedlatest.secure import UnmaskingError
from fedlatest.secure.primitives import MASK_DTYPE, commit
from tests.secure.cohort import Cohort


@pytest.mark.parametrize("included", [each for n in (2, 3, 4) for each in itertools.combinations(range(4), n)])
def test_sum_of_every_subset(included: tuple[int, ...]) -> None:
    cohort = Cohort(4)
    names = [f"c{number}" for number in included]
    cohort.collect(names)
    assert cohort.unmask().tolist() == cohort.total(names).tolist()
    assert sorted(cohort.session.roster[position].id for position in cohort.collector.included) == names


def test_sum_in_a_sparse_ring() -> None:
    """100 clients with 94 neighbours each, 40 of which drop out; values at the limits of 32 bits."""
    cohort = Cohort(100, num_decryptors=3)
    for number in range(100):
        cohort.updates[f"c{number}"] = np.array([2**31 - 1, -(2**31), number], np.int64)
    names = [f"c{number}" for number in range(100) if number % 5 > 1]
    cohort.collect(names)
    assert cohort.unmask().tolist() == [60 * (2**31 - 1), -60 * 2**31, sum(k for k in range(100) if k % 5 > 1)]


def test_threshold_of_decryptors() -> None:
    """3 of 4 decryptors are enough, 2 are not."""
    for chosen in itertools.combinations(["d0", "d1", "d2", "d3"], 3):
        cohort = Cohort(3)
        cohort.collect(["c0", "c1"])
        assert cohort.unmask(chosen).tolist() == cohort.total(["c0", "c1"]).tolist()
    cohort = Cohort(3)
    cohort.collect(["c0", "c1"])
    with pytest.raises(ProtocolError, match="too few answers"):
        cohort.unmask(["d1", "d3"])


def test_a_masked_upload_is_new_at_each_call() -> None:
    cohort = Cohort(3)
    first, second = cohort.upload("c0"), cohort.upload("c0")
    assert (first.numbers != second.numbers).all()
    assert (first.numbers != cohort.updates["c0"].view(MASK_DTYPE)).all()


def test_uploads_that_are_not_accepted() -> None:
    cohort = Cohort(3)
    upload = cohort.upload("c0")
    for name, numbers, payload in (
        ("d0", upload.numbers, upload.payload),
        ("c0", upload.numbers[:2], upload.payload),
        ("c0", upload.numbers.view(np.int64), upload.payload),
        ("c0", None, upload.payload),
        ("c0", upload.numbers, b"{}"),
        ("c0", upload.numbers, b"\xff"),
    ):
        with pytest.raises(ProtocolError):
            cohort.collector.add(name, numbers, payload)  # type: ignore[arg-type]
    cohort.collector.add("c0", *upload)
    with pytest.raises(ProtocolError, match="does not wait for an upload"):
        cohort.collector.add("c0", *upload)
    cohort.collect(["c1"])
    cohort.collector.requests()
    with pytest.raises(ProtocolError, match="does not wait for an upload"):
        cohort.collector.add("c2", *cohort.upload("c2"))
    assert cohort.unmask().tolist() == cohort.total(["c0", "c1"]).tolist()


def test_a_lying_decryptor_is_found_and_tolerated() -> None:
    cohort = Cohort(3)
    cohort.collect(["c0", "c1"])
    requests = cohort.collector.requests()
    fields = json.loads(cohort.answer("d2", requests["d2"]))
    fields["content"] = "AAAA" + fields["content"][4:]
    cohort.collector.add_answer("d2", json.dumps(fields).encode())
    for name in ("d0", "d1", "d3"):
        cohort.collector.add_answer(name, cohort.answer(name, requests[name]))
    assert cohort.collector.unreliable_decryptors == ["d2"]
    assert cohort.collector.is_complete
    with pytest.raises(ProtocolError, match="does not wait for shares"):
        cohort.collector.add_answer("d0", cohort.answer("d0", requests["d0"]))


def test_a_client_with_wrong_shares_is_found() -> None:
    """It encrypts something else for all decryptors."""
    cohort = Cohort(3)
    cohort.collect(["c0", "c1"])
    upload = cohort.upload("c2")
    fields = json.loads(upload.payload)
    fields["sealed"] = ["AAAA" + each[4:] for each in fields["sealed"]]
    cohort.collector.add("c2", upload.numbers, json.dumps(fields).encode())
    with pytest.raises(ProtocolError, match="too few answers"):
        cohort.unmask()
    assert cohort.collector.culprits() == ["c2"]


def test_a_client_with_another_seed_than_it_committed_to_is_found() -> None:
    cohort = Cohort(3)
    cohort.collect(["c0", "c1"])
    upload = cohort.upload("c2")
    fields = json.loads(upload.payload)
    fields["seeds"] = "AAAA" + fields["seeds"][4:]
    cohort.collector.add("c2", upload.numbers, json.dumps(fields).encode())
    with pytest.raises(UnmaskingError) as error:
        cohort.unmask()
    assert error.value.clients == ["c2"]


def test_a_sum_that_is_not_possible_is_refused() -> None:
    """A client used other masks than it shared; nobody can say which one."""
    cohort = Cohort(3)
    cohort.collect(["c0", "c1"])
    upload = cohort.upload("c2")
    cohort.collector.add("c2", upload.numbers + np.uint64(2**40), upload.payload)
    with pytest.raises(ProtocolError, match="larger than its uploads can be"):
        cohort.unmask()


def test_commitments_are_to_random_values() -> None:
    """The commitments of the same update differ, and none is to a value that the server knows."""
    cohort = Cohort(2)
    payloads = [json.loads(cohort.upload("c0").payload) for _ in range(2)]
    assert payloads[0]["shares"] != payloads[1]["shares"]
    assert commit("seed", bytes(16)) != commit("seed", bytes(15) + b"\1")
