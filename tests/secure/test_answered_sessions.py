"""A decryptor answers one request per session, and remembers a bounded number of sessions."""

from dataclasses import replace

import pytest

from fedlatest.errors import ProtocolError
from fedlatest.secure import UnmaskRequest
from fedlatest.secure.decryptor import MAX_REMEMBERED, AnsweredSessions
from tests.secure.cohort import Cohort

COHORT = Cohort(4)


def request(number: int, *, included: tuple[int, ...] = (0, 1, 2)) -> UnmaskRequest:
    return UnmaskRequest(replace(COHORT.session, number=number), included, (b"",) * len(included))


def test_the_same_request_again() -> None:
    answered = AnsweredSessions().add(request(1))
    assert answered.add(request(1)) is answered


def test_another_request_of_the_session() -> None:
    answered = AnsweredSessions().add(request(1))
    same = request(1)
    for other in (
        request(1, included=(0, 1)),
        replace(same, sealed=(b"", b"", b"x")),
        replace(same, session=replace(same.session, nonce="cd")),
    ):
        with pytest.raises(ProtocolError, match="another request for session 1"):
            answered.add(other)


def test_sessions_in_any_order() -> None:
    answered = AnsweredSessions().add(request(5)).add(request(3))
    assert (answered.highest, answered.floor) == (5, 0)
    with pytest.raises(ProtocolError):
        answered.add(request(3, included=(0, 1)))


def test_old_sessions_are_refused_and_forgotten() -> None:
    answered = AnsweredSessions()
    for number in range(1, MAX_REMEMBERED + 11):
        answered = answered.add(request(number))
    assert len(answered.digests) == MAX_REMEMBERED
    assert (answered.floor, answered.highest) == (10, MAX_REMEMBERED + 10)
    for number in (0, 1, 10):
        with pytest.raises(ProtocolError):
            answered.add(request(number))
    assert answered.add(request(11)) is answered


def test_a_session_below_the_remembered_ones_raises_the_floor() -> None:
    """With the memory full, a late session with a low number is answered once and never again."""
    answered = AnsweredSessions()
    for number in range(100, 100 + MAX_REMEMBERED):
        answered = answered.add(request(number))
    answered = answered.add(request(50))
    assert answered.floor == 50
    for included in ((0, 1), (0, 1, 2)):
        with pytest.raises(ProtocolError):
            answered.add(request(50, included=included))
