"""Secret sharing: enough shares give the secret, fewer are consistent with every secret."""

import itertools
import random
from unittest import mock

import pytest

from fedlatest.errors import ProtocolError
from fedlatest.secure import shamir
from fedlatest.secure.shamir import PRIME, combine, split

SECRET = bytes(range(16))


def test_the_modulus_is_prime() -> None:
    """Miller-Rabin with 64 random bases: a composite number passes with a probability below 2^-128."""
    exponent, twos = PRIME - 1, 0
    while exponent % 2 == 0:
        exponent, twos = exponent // 2, twos + 1
    draw = random.Random(0)
    for _ in range(64):
        power = pow(draw.randrange(2, PRIME - 1), exponent, PRIME)
        squares = [pow(power, 2**step, PRIME) for step in range(twos)]
        assert power == 1 or PRIME - 1 in squares


@pytest.mark.parametrize(("threshold", "num_shares"), [(1, 1), (1, 3), (2, 3), (3, 3), (3, 4), (7, 10)])
def test_every_set_of_enough_shares_gives_the_secret(threshold: int, num_shares: int) -> None:
    shares = split(SECRET, threshold=threshold, num_shares=num_shares)
    assert {len(share) for share in shares} == {17}
    for size in range(threshold, num_shares + 1):
        for chosen in itertools.combinations(range(num_shares), size):
            assert combine({index: shares[index] for index in chosen}) == SECRET


@pytest.mark.parametrize("secret", [bytes(16), bytes([255] * 16)])
def test_extreme_secrets(secret: bytes) -> None:
    shares = split(secret, threshold=3, num_shares=4)
    assert combine(dict(enumerate(shares))) == secret


def test_fewer_shares_are_consistent_with_every_secret() -> None:
    """For each candidate secret there is exactly one share that completes t - 1 given shares to it."""
    shares = split(SECRET, threshold=3, num_shares=4)
    draw = random.Random(1)
    for candidate in [bytes(16), bytes([255] * 16), *(draw.randbytes(16) for _ in range(20))]:
        # Lagrange at x = 3 through (0, candidate), (1, share 0) and (2, share 1): f(3) = f(0) - 3 f(1) + 3 f(2).
        first, second = (int.from_bytes(share, "big") for share in shares[:2])
        third = (int.from_bytes(candidate, "big") - 3 * first + 3 * second) % PRIME
        assert combine({0: shares[0], 1: shares[1], 2: third.to_bytes(17, "big")}) == candidate


def test_two_of_three_shares_have_the_same_distribution_for_all_secrets() -> None:
    """Exhaustive modulo 7: over all coefficients, each pair of values appears once, whatever the secret is."""
    with mock.patch.object(shamir, "PRIME", 7):
        for points in itertools.combinations((1, 2, 3), 2):
            for secret in range(7):
                pairs = [
                    tuple(shamir._evaluate([secret, *coefficients], point) for point in points)
                    for coefficients in itertools.product(range(7), repeat=2)
                ]
                assert sorted(pairs) == list(itertools.product(range(7), repeat=2))


def test_a_wrong_share_gives_another_secret_or_an_error() -> None:
    shares = dict(enumerate(split(SECRET, threshold=3, num_shares=3)))
    for _ in range(20):
        wrong = {**shares, 1: random.Random(2).randbytes(16).rjust(17, b"\0")}
        try:
            assert combine(wrong) != SECRET
        except ProtocolError:
            continue


def test_shares_of_no_secret_are_refused() -> None:
    """A polynomial whose constant term is above 2^128."""
    with pytest.raises(ProtocolError, match="do not belong to one secret"):
        combine({0: (2**128).to_bytes(17, "big")})


def test_shares_are_random() -> None:
    assert split(SECRET, threshold=2, num_shares=2) != split(SECRET, threshold=2, num_shares=2)
