"""Sessions: the ring of masks, the views of the clients, and which clients may be included."""

from dataclasses import replace

import pytest

from fedlatest.errors import ProtocolError
from fedlatest.secure import Participant, SessionView, make_session
from fedlatest.secure.session import degree_of, neighbours, threshold_of
from tests.secure.cohort import SCOPE, Cohort

SIZES = [2, 3, 10, 92, 93, 94, 95, 100, 101, 500]


@pytest.mark.parametrize("size", SIZES)
def test_ring(size: int) -> None:
    """Each client has `degree` neighbours, and is a neighbour of each of them."""
    graph = {position: neighbours(position, size) for position in range(size)}
    for position, others in graph.items():
        assert len(set(others)) == len(others) == 2 * (degree_of(size) // 2) or len(others) == size - 1
        assert list(others) == sorted(others)
        assert position not in others
        assert all(position in graph[other] for other in others)


@pytest.mark.parametrize("size", [94, 100, 250])
def test_ring_stays_connected_after_a_gap(size: int) -> None:
    """Any degree / 2 - 1 clients in a row may drop out at two places; with degree / 2 each, the ring falls apart."""
    participants = [Participant(f"c{number}", bytes(32)) for number in range(size)]
    session = make_session(participants, participants[:3], scope=SCOPE, number=1, nonce="1", min_cohort=2)
    half = degree_of(size) // 2
    for gap in (half - 1, half):
        for start in range(0, size, 7):
            opposite = start + size // 2
            dropped = {(first + step) % size for first in (start, opposite) for step in range(gap)}
            included = [position for position in range(size) if position not in dropped]
            connected = session._is_connected(set(included))
            if gap < half:
                assert connected
            elif size > 3 * half:
                assert not connected
                with pytest.raises(ProtocolError, match="not connected"):
                    session.check_included(included)


def test_threshold_is_above_two_thirds() -> None:
    for number in range(3, 50):
        assert 3 * threshold_of(number) > 2 * number
        assert 3 * (threshold_of(number) - 1) <= 2 * number


def test_views_agree_on_the_session() -> None:
    session = Cohort(5).session
    for participant in session.roster:
        view = SessionView.decode(session.view_of(participant.id).encode())
        view.check(participant.id, scope=SCOPE, min_cohort=2)
        assert view.hash == session.hash
        assert view.context == session.context_of(session.positions[participant.id])


def test_hash_depends_on_everything() -> None:
    session = Cohort(4).session
    other = Participant("x", bytes(32))
    changed = [
        replace(session, scope="other 1 a"),
        replace(session, number=2),
        replace(session, nonce="ac"),
        replace(session, min_cohort=3),
        replace(session, threshold=4),
        replace(session, roster=(*session.roster[:-1], other)),
        replace(session, roster=session.roster[::-1]),
        replace(session, decryptors=(*session.decryptors[:-1], other)),
        replace(session, decryptors=session.decryptors[::-1]),
    ]
    assert len({each.hash for each in [session, *changed]}) == 10


def test_refused_views() -> None:
    cohort = Cohort(4)
    view = cohort.session.view_of("c0")
    first, *rest = sorted(view.neighbours)
    for changed, why in (
        (replace(view, scope="another job"), "another job"),
        (replace(view, min_cohort=1), "the job's minimum is 2"),
        (replace(view, num_clients=2**21), "not allowed"),
        (replace(view, min_cohort=5), "not allowed"),
        (replace(view, decryptors=view.decryptors[:2]), "at least 3"),
        (replace(view, decryptors=(view.decryptors[0],) * 4), "at least 3"),
        (replace(view, threshold=2), "more than 2/3"),
        (replace(view, threshold=5), "more than 2/3"),
        (replace(view, position=4), "neighbours"),
        (replace(view, position=first), "neighbours"),
        (replace(view, neighbours={other: view.neighbours[other] for other in rest}), "neighbours"),
        (replace(view, neighbours={**view.neighbours, first: view.neighbours[rest[0]]}), "neighbours"),
        (replace(view, neighbours={**view.neighbours, first: cohort.participant("c0")}), "neighbours"),
    ):
        with pytest.raises(ProtocolError, match=why):
            changed.check("c0", scope=SCOPE, min_cohort=2)


def test_refused_sessions() -> None:
    session = Cohort(4).session
    for changed, why in (
        (replace(session, roster=session.roster[::-1]), "order of its ring"),
        (replace(session, roster=(session.roster[0],) * 2), "client twice"),
        (replace(session, min_cohort=5), "not allowed"),
        (replace(session, min_cohort=1), "not allowed"),
        (replace(session, threshold=2), "more than 2/3"),
    ):
        with pytest.raises(ProtocolError, match=why):
            changed.check()
    for included, why in (
        ([0], "too few"),
        ([1, 0], "ascending order"),
        ([0, 0], "ascending order"),
        ([0, 4], "ascending order"),
        ([-1, 0], "ascending order"),
    ):
        with pytest.raises(ProtocolError, match=why):
            session.check_included(included)
