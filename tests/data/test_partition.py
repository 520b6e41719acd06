"""Partitions: every sample belongs to one client, no client is empty, and sizes and labels are as specified."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedlatest import ConfigError, Partition, by_client, by_label, dirichlet, iid
from fedlatest.data import PARTITIONS
from fedlatest.data.partition import _give_empty_clients_a_sample

Labels = npt.NDArray[np.int64]
seeds = st.integers(0, 2**32 - 1)
some_labels = arrays.arrays(np.int64, st.integers(1, 80), elements=st.integers(0, 4))


@st.composite
def enough_of_each_label(draw: st.DrawFn) -> tuple[Labels, int]:
    """Shuffled labels, not always from 0 on, and clients per label k, with enough samples that no client is empty.

    The smallest share of a label is 3 / (3 + 7 (k - 1)). If n times this share is above 1, a client has at least one of
    n samples after both ends of its part are rounded.
    """
    per_label = draw(st.integers(1, 6))
    classes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True))
    fewest = (3 + 7 * (per_label - 1)) // 3 + 1
    counts = [draw(st.integers(fewest, fewest + 40)) for _ in classes]
    labels = np.repeat(np.array(classes), counts)
    return np.random.default_rng(draw(seeds)).permutation(labels), per_label


def parts(partition: Partition) -> list[npt.NDArray[np.int32]]:
    return np.split(partition.order, partition.offsets[1:-1])


def assert_every_sample_has_one_owner(partition: Partition, *, num_samples: int, num_clients: int) -> None:
    assert sorted(partition.order.tolist()) == list(range(num_samples))
    assert partition.offsets.shape == (num_clients + 1,)
    assert partition.offsets[0] == 0
    assert partition.offsets[-1] == num_samples
    assert (np.diff(partition.offsets) >= 1).all()


def assert_equal(first: Partition, second: Partition) -> None:
    assert first.order.tolist() == second.order.tolist()
    assert first.offsets.tolist() == second.offsets.tolist()


@given(case=enough_of_each_label(), seed=seeds)
def test_by_label(case: tuple[Labels, int], seed: int) -> None:
    """One label per client, k clients per label, in the order of the labels."""
    labels, per_label = case
    classes = np.unique(labels)
    num_clients = per_label * classes.size
    partition = by_label(labels, num_clients=num_clients, seed=seed)
    assert_every_sample_has_one_owner(partition, num_samples=labels.size, num_clients=num_clients)
    held = [np.unique(labels[rows]).tolist() for rows in parts(partition)]
    assert held == [[label] for label in classes for _ in range(per_label)]
    assert_equal(partition, by_label(labels, num_clients=num_clients, seed=seed))


@given(case=enough_of_each_label(), seed=seeds)
def test_by_label_sizes(case: tuple[Labels, int], seed: int) -> None:
    """Weights are in [3, 7], so a client's share of a label is at least 3 / (3 + 7 (k - 1)) and at most
    7 / (7 + 3 (k - 1)). Both ends of its part are rounded, each by at most 1/2, so the size differs by at most 1.
    """
    labels, per_label = case
    classes, counts = np.unique(labels, return_counts=True)
    partition = by_label(labels, num_clients=per_label * classes.size, seed=seed)
    sizes = np.diff(partition.offsets).reshape(classes.size, per_label)
    assert sizes.sum(axis=1).tolist() == counts.tolist()
    low = counts * 3 / (3 + 7 * (per_label - 1)) - 1
    high = counts * 7 / (7 + 3 * (per_label - 1)) + 1
    assert (low[:, None] <= sizes).all()
    assert (sizes <= high[:, None]).all()


def test_by_label_sizes_have_the_distribution_of_the_paper() -> None:
    """1000 clients share 10**6 samples of one label: size / 1000 is approximately weight / mean weight.

    Weights are 5 + z with z standard normal, clipped to [-2, 2]. The mean is 5. With phi(2) = 0.053991 and
    P(|z| > 2) = 0.045500 the variance is (0.954500 - 4 * 0.053991) + 4 * 0.045500 = 0.92054, so the sizes' standard
    deviation is 1000 * sqrt(0.92054) / 5 = 191.9; its estimate from 1000 sizes has a
    standard error of at most 191.9 / sqrt(2000) = 4.3, and six of these are 26. A weight is clipped with probability
    0.0455, so 45.5 of 1000 are expected to be, within 6 * sqrt(45.5 * 0.9545) = 40.
    """
    sizes = np.diff(by_label(np.zeros(10**6, np.int64), num_clients=1000, seed=1).offsets)
    assert abs(sizes.std() - 191.9) < 26
    smallest, largest = sizes.min(), sizes.max()
    # Both tails are clipped, so the extreme sizes are 600 and 1400, each to within 1: 1 / 600 + 1 / 1400 = 0.0024.
    assert largest / smallest == pytest.approx(7 / 3, rel=0.0025)
    clipped = (sizes <= smallest + 1).sum() + (sizes >= largest - 1).sum()
    assert abs(clipped - 45.5) < 40


@given(labels=some_labels, num_clients=st.integers(1, 80), seed=seeds)
def test_iid(labels: Labels, num_clients: int, seed: int) -> None:
    assume(num_clients <= labels.size)
    partition = iid(labels, num_clients=num_clients, seed=seed)
    assert_every_sample_has_one_owner(partition, num_samples=labels.size, num_clients=num_clients)
    assert np.ptp(np.diff(partition.offsets)) <= 1
    assert_equal(partition, iid(labels, num_clients=num_clients, seed=seed))


@given(
    labels=some_labels,
    num_clients=st.integers(1, 80),
    seed=seeds,
    alpha=st.sampled_from([1e-6, 1e-3, 0.1, 1.0, 10.0, 1e6]),
)
def test_dirichlet(labels: Labels, num_clients: int, seed: int, alpha: float) -> None:
    assume(num_clients <= labels.size)
    partition = dirichlet(labels, num_clients=num_clients, seed=seed, alpha=alpha)
    assert_every_sample_has_one_owner(partition, num_samples=labels.size, num_clients=num_clients)
    assert_equal(partition, dirichlet(labels, num_clients=num_clients, seed=seed, alpha=alpha))


@given(owners=st.lists(st.integers(0, 7), min_size=8, max_size=40))
def test_empty_clients_receive_samples_of_the_largest(owners: list[int]) -> None:
    """One at a time, each the first sample of the client that is then the largest; of several, of the first."""
    expected = np.array(owners)
    for client in np.flatnonzero(np.bincount(expected, minlength=8) == 0):
        largest = np.bincount(expected, minlength=8).argmax()
        expected[np.flatnonzero(expected == largest)[0]] = client
    found = np.array(owners)
    _give_empty_clients_a_sample(found, 8)
    assert found.tolist() == expected.tolist()


def test_dirichlet_is_even_for_a_large_alpha_and_concentrated_for_a_small_one() -> None:
    """4 labels of 1000 samples, 10 clients. With alpha = 1e6 a share has mean 1/10 and standard deviation
    sqrt(0.1 * 0.9 / (1e7 + 1)) = 1e-4, a tenth of a sample: each client has 100 of each label, to within 1.
    With alpha = 1e-6 each label goes to one client, except for the one sample that each empty client receives.
    """
    labels = np.tile(np.arange(4), 1000)
    even = dirichlet(labels, num_clients=10, seed=0, alpha=1e6)
    for rows in parts(even):
        assert np.abs(np.bincount(labels[rows], minlength=4) - 100).max() <= 1
    concentrated = np.diff(dirichlet(labels, num_clients=10, seed=0, alpha=1e-6).offsets)
    assert (concentrated >= 990).sum() + (concentrated == 1).sum() == 10
    assert 1 <= (concentrated >= 990).sum() <= 4


@given(owners=st.lists(st.sampled_from(["ann", "bob", "cy", "dee"]), min_size=1, max_size=30))
def test_by_client(owners: list[str]) -> None:
    """Clients in the order of their names, each with its rows in the order of the data."""
    partition = by_client(np.array(owners))
    expected = [[row for row, owner in enumerate(owners) if owner == name] for name in sorted(set(owners))]
    assert [rows.tolist() for rows in parts(partition)] == expected


@pytest.mark.parametrize("name", PARTITIONS)
def test_another_seed_gives_another_partition(name: str) -> None:
    labels = np.tile(np.arange(5), 40)
    first, second = (PARTITIONS[name](labels, num_clients=10, seed=seed) for seed in (0, 1))
    assert first.order.tolist() != second.order.tolist()


def test_iid_by_hand() -> None:
    assert iid(np.zeros(11), num_clients=4, seed=0).offsets.tolist() == [0, 3, 6, 9, 11]


@pytest.mark.parametrize(
    ("num_clients", "suggested"), [(0, 3), (1, 3), (2, 3), (4, 3), (5, 6), (7, 6), (8, 9), (100, 99), (-1, 3)]
)
def test_by_label_suggests_a_multiple_of_the_number_of_labels(num_clients: int, suggested: int) -> None:
    message = f"num_clients={num_clients}: one label per client needs a multiple of the 3 labels, such as {suggested}"
    with pytest.raises(ConfigError, match="^" + re.escape(message) + "$"):
        by_label(np.tile(np.arange(3), 100), num_clients=num_clients, seed=0)


@pytest.mark.parametrize("name", PARTITIONS)
@pytest.mark.parametrize("num_clients", [12, 2000])
def test_more_clients_than_samples_is_an_error(name: str, num_clients: int) -> None:
    with pytest.raises(ConfigError, match=rf"^num_clients={num_clients}: .*\b10 samples"):
        PARTITIONS[name](np.tile(np.arange(2), 5), num_clients=num_clients, seed=0)


def test_a_label_with_fewer_samples_than_clients_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^num_clients=6: too many for 102 samples"):
        by_label(np.repeat([0, 1], [100, 2]), num_clients=6, seed=0)


@pytest.mark.parametrize("partition", [iid, dirichlet])
@pytest.mark.parametrize("num_clients", [0, -2])
def test_no_clients_is_an_error(partition: Callable[..., Partition], num_clients: int) -> None:
    with pytest.raises(ConfigError, match=f"^num_clients={num_clients}: a federation has at least one client"):
        partition(np.zeros(4, int), num_clients=num_clients, seed=0)


@pytest.mark.parametrize("alpha", [0.0, -0.5, np.nan, np.inf])
def test_dirichlet_needs_a_positive_alpha(alpha: Any) -> None:
    with pytest.raises(ConfigError, match=f"^alpha={alpha}:"):
        dirichlet(np.zeros(4, int), num_clients=2, seed=0, alpha=alpha)


def test_by_label_of_no_samples_is_an_error() -> None:
    with pytest.raises(ConfigError):
        by_label(np.zeros(0, int), num_clients=2, seed=0)
