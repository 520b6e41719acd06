"""A Federation of three clients and six samples: its properties, its checksums, and the data that it rejects."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import DataError, Federation, Samples, by_client, iid
from fedlatest.data.features import Words

FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = np.array([0, 1, 2, 2, 1, 1], np.int32)
# Client 10 owns sample 3, client 11 the samples 5, 0 and 1, client 12 the samples 2 and 4.
SMALL = Federation(
    name="small",
    features=FEATURES,
    labels=LABELS,
    test_features=np.zeros((2, 2), np.float32),
    test_labels=np.array([0, 1], np.int32),
    order=np.array([3, 5, 0, 1, 2, 4], np.int32),
    offsets=np.array([0, 1, 4, 6]),
    ids=np.array([10, 11, 12], np.int32),
)


def changed(array: Any, position: Any, value: Any) -> Any:
    copy = np.array(array)
    copy[position] = value
    return copy


def test_properties() -> None:
    assert SMALL.num_clients == 3
    assert SMALL.num_labels == 3
    assert SMALL.sizes.tolist() == [1, 3, 2]


def test_labels_are_counted_over_training_and_test() -> None:
    assert replace(SMALL, test_labels=np.array([0, 7], np.int32)).num_labels == 8


def test_weights_are_shares_of_the_samples_times_n() -> None:
    """1, 3 and 2 of 6 samples, times 3 clients."""
    assert SMALL.weights.tolist() == [0.5, 1.5, 1.0]
    assert SMALL.weights.dtype == np.dtype(np.float32)


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_the_mean_of_the_weights_is_1(sizes: list[int]) -> None:
    """In float32 the relative rounding error of each weight is at most 2^-24, and so is that of their mean.

    The additional 2^-50 allows for the rounding errors of the division in float64.
    """
    rounding = 2**-24 + 2**-50
    owners = np.repeat(np.arange(len(sizes)), sizes)
    data = Samples("any", np.zeros((owners.size, 1), np.float32), owners, np.zeros((1, 1), np.float32), owners[:1])
    weights = data.to_federation(by_client(owners)).weights.astype(float)
    assert weights.mean() == pytest.approx(1, rel=rounding)
    assert weights == pytest.approx(np.array(sizes) * len(sizes) / sum(sizes), rel=rounding)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=40))
def test_client_labels_of_any_partition(samples: list[tuple[int, int]]) -> None:
    """The argmax of a histogram, which takes the lowest of several most frequent labels."""
    owners, labels = np.array(samples).T
    data = Samples("any", np.zeros((labels.size, 1), np.float32), labels, np.zeros((1, 1), np.float32), labels[:1])
    expected = [int(np.bincount(labels[owners == owner]).argmax()) for owner in np.unique(owners)]
    federation = data.to_federation(by_client(owners))
    assert federation.client_labels().tolist() == expected
    histograms = [np.bincount(labels[owners == owner], minlength=federation.num_labels) for owner in np.unique(owners)]
    np.testing.assert_allclose(federation.label_shares(), [counts / counts.sum() for counts in histograms], rtol=1e-6)


def test_client_labels_are_the_most_frequent_or_the_lowest_of_them() -> None:
    """Client 10 has the label 2; client 11 has 1, 0, 1; client 12 has 2 and 1, of which 1 is the lower."""
    assert SMALL.client_labels().tolist() == [2, 1, 1]


def test_label_shares() -> None:
    """Client 10 has the label 2; client 11 has 1, 0, 1; client 12 has 2 and 1."""
    expected = np.array([[0, 0, 1], [1 / 3, 2 / 3, 0], [0, 0.5, 0.5]])
    np.testing.assert_allclose(SMALL.label_shares(), expected, rtol=1e-6)


def test_ids_are_positions_by_default() -> None:
    assert replace(SMALL, ids=np.zeros(0, np.int32)).ids.tolist() == [0, 1, 2]


def test_pooled_is_the_same_data_with_one_client() -> None:
    pooled = SMALL.pooled
    assert pooled.num_clients == 1
    assert pooled.offsets.tolist() == [0, 6]
    assert pooled.order.tolist() == SMALL.order.tolist()
    assert pooled.ids.tolist() == [0]
    assert pooled.weights.tolist() == [1.0]
    assert pooled.client_labels().tolist() == [1]  # three of the six
    before, after = SMALL.checksums, pooled.checksums
    assert (before["train"], before["test"]) == (after["train"], after["test"])
    assert before["partition"] != after["partition"]


def test_to_federation_divides_the_samples_according_to_the_partition() -> None:
    data = Samples("divided", FEATURES, LABELS, SMALL.test_features, SMALL.test_labels)
    partition = iid(LABELS, num_clients=2, seed=0)
    federation = data.to_federation(partition)
    assert federation.name == "divided"
    assert federation.sizes.tolist() == [3, 3]
    assert federation.order.tolist() == partition.order.tolist()
    assert federation.features is FEATURES


def test_checksums_depend_on_the_content_only() -> None:
    again = replace(SMALL, name="other", features=FEATURES.copy(), order=SMALL.order.copy())
    assert again.checksums == SMALL.checksums
    transposed_in_memory = replace(SMALL, features=np.asfortranarray(FEATURES))
    assert transposed_in_memory.checksums == SMALL.checksums


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "a feature": ("train", {"features": changed(FEATURES, (3, 1), 7.5)}),
    "a label": ("train", {"labels": changed(LABELS, 5, 0)}),
    "the features' type": ("train", {"features": FEATURES.astype(np.float64)}),
    "a test feature": ("test", {"test_features": changed(SMALL.test_features, (1, 0), 1)}),
    "a test label": ("test", {"test_labels": np.array([0, 2], np.int32)}),
    "a sample's owner": ("partition", {"order": np.array([5, 3, 0, 1, 2, 4], np.int32)}),
    "a client's size": ("partition", {"offsets": np.array([0, 2, 4, 6])}),
    "a client's id": ("partition", {"ids": np.array([10, 11, 13], np.int32)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_affects_one_checksum(change: str) -> None:
    part, fields = CHANGES[change]
    before, after = SMALL.checksums, replace(SMALL, **fields).checksums
    assert before.keys() == after.keys() == {"train", "test", "partition"}
    assert {name for name in before if before[name] != after[name]} == {part}


def test_features_may_be_a_tree() -> None:
    tree = {"pixels": FEATURES, "words": np.arange(6)}
    test_tree = {"pixels": SMALL.test_features, "words": np.arange(2)}
    federation = replace(SMALL, features=tree, test_features=test_tree)
    assert federation.checksums["train"] != SMALL.checksums["train"]
    with pytest.raises(DataError, match="training sample 2 contains NaN"):
        replace(federation, features={"pixels": changed(FEATURES, (2, 0), np.nan), "words": np.arange(6)})
    with pytest.raises(DataError, match=r"features and labels differ in length \(\[5, 6\]\)"):
        replace(federation, features={"pixels": FEATURES, "words": np.arange(5)})


INVALID: dict[str, tuple[str, dict[str, Any]]] = {
    "NaN": ("training sample 4 contains NaN or infinity", {"features": changed(FEATURES, (4, 1), np.nan)}),
    "infinity": ("training sample 0 contains NaN or infinity", {"features": changed(FEATURES, (0, 0), -np.inf)}),
    "NaN in the test set": (
        "test sample 1 contains NaN or infinity",
        {"test_features": changed(SMALL.test_features, (1, 0), np.nan)},
    ),
    "fewer labels": ("features and labels differ in length ([5, 6])", {"labels": LABELS[:5]}),
    "fewer test labels": ("test features and labels differ in length", {"test_labels": LABELS[:1]}),
    "offsets not from 0": ("offsets must start at 0", {"offsets": np.array([1, 2, 4, 6])}),
    "offsets past the end": ("offsets must start at 0", {"offsets": np.array([0, 1, 4, 7])}),
    "offsets before the end": ("offsets must start at 0", {"offsets": np.array([0, 1, 4, 5])}),
    "no clients": ("offsets must start at 0", {"offsets": np.array([0]), "ids": np.zeros(0, np.int32)}),
    "an empty client": ("client 11 has no sample", {"offsets": np.array([0, 1, 1, 6])}),
    "decreasing offsets": ("client 12 has no sample", {"offsets": np.array([0, 1, 7, 6])}),
    "a repeated id": (
        "ids must contain one distinct id for each of the 3 clients",
        {"ids": np.array([4, 5, 4], np.int32)},
    ),
    "too few ids": ("ids must contain one distinct id for each of the 3 clients", {"ids": np.array([4, 5], np.int32)}),
    "a row after the last sample": (
        "`order` contains row numbers outside the samples",
        {"order": changed(SMALL.order, 0, 6)},
    ),
    "a negative row": ("`order` contains row numbers outside the samples", {"order": changed(SMALL.order, 0, -1)}),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_data_is_rejected(case: str) -> None:
    message, fields = INVALID[case]
    with pytest.raises(DataError, match="^" + re.escape(f"small: {message}")):
        replace(SMALL, **fields)


OTHER_INVALID: dict[str, dict[str, Any]] = {
    "a sample with two owners": {"order": np.array([3, 3, 0, 1, 2, 4], np.int32)},
    "a negative label": {"labels": changed(LABELS, 0, -1)},
    "test features of another width": {"test_features": np.zeros((2, 3), np.float32)},
}


@pytest.mark.parametrize("case", OTHER_INVALID)
def test_other_invalid_data_is_rejected(case: str) -> None:
    with pytest.raises(DataError):
        replace(SMALL, **OTHER_INVALID[case])


IDS, NUM_WORDS = np.array([[1, 2, 0], [3, 0, 0], [0, 0, 0], [4, 4, 4], [1, 0, 0], [2, 3, 0]], np.uint8), 5
LENGTHS = np.array([2, 1, 0, 3, 1, 2], np.int32)
TABLE = np.arange(2 * NUM_WORDS, dtype=np.float32).reshape(NUM_WORDS, 2) * (np.arange(NUM_WORDS) > 0)[:, None]
TEXTS = replace(
    SMALL, features=Words(IDS, LENGTHS), test_features=Words(IDS[:2], LENGTHS[:2]), table=TABLE,
    second=np.array([0, 1, 2, 3, 4, 86_399], np.int32),
)  # fmt: skip

INVALID_TEXTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no table": ("training samples are Words, which need a `table`", {"table": None}),
    "test words without a table": (
        "test samples are Words",
        {"features": [IDS, LENGTHS], "table": None},
    ),
    "a table without padding": ("`table` must be [words, dimensions] with zeros in row 0", {"table": TABLE + 1}),
    "an empty table": ("`table` must be [words, dimensions] with zeros in row 0", {"table": TABLE[:0]}),
    "a table of numbers": ("`table` must be [words, dimensions] with zeros in row 0", {"table": TABLE[:, 0]}),
    "NaN in the table": ("row 3 of `table` contains NaN or infinity", {"table": changed(TABLE, (3, 1), np.nan)}),
    "a word id after the last": (
        "training word ids 0 .. 5 are outside the 5 rows of `table`",
        {"features": Words(changed(IDS, (1, 0), 5), LENGTHS)},
    ),
    "a negative word id": (
        "test word ids -1 .. 2 are outside the 5 rows of `table`",
        {"test_features": Words(np.array([[1, 2, 0], [-1, 0, 0]]), LENGTHS[:2])},
    ),
    "word ids that are not whole numbers": (
        "training Words must be whole numbers",
        {"features": Words(IDS.astype(np.float32), LENGTHS)},
    ),
    "lengths in two columns": (
        "training Words must be whole numbers, ids [texts, longest] and lengths [texts]",
        {"features": Words(IDS, LENGTHS[:, None]), "test_features": Words(IDS[:2], LENGTHS[:2, None])},
    ),
    "a text longer than the array": (
        "training texts have lengths 0 .. 4; they must be 0 .. 3",
        {"features": Words(IDS, changed(LENGTHS, 3, 4))},
    ),
    "a negative length": (
        "test texts have lengths -1 .. 2; they must be 0 .. 3",
        {"test_features": Words(IDS[:2], np.array([2, -1], np.int32))},
    ),
    "fewer lengths than texts": (
        "features and labels differ in length ([5, 6])",
        {"features": Words(IDS, LENGTHS[:5])},
    ),
    "test texts of another width": (
        "training samples have shape [(3,), ()], test samples [(2,), ()]",
        {"test_features": Words(IDS[:2, :2], LENGTHS[:2])},
    ),
    "too few times": (
        "`second` must have one time for each of the 6 samples",
        {"second": np.arange(5, dtype=np.int32)},
    ),
    "a time after midnight": (
        "`second` has values 0 .. 86400; seconds after midnight are 0 .. 86399",
        {"second": changed(TEXTS.second, 5, 86_400)},
    ),
    "a time before midnight": ("`second` has values -1 .. 86399", {"second": changed(TEXTS.second, 0, -1)}),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID_TEXTS)
def test_invalid_texts_are_rejected(case: str) -> None:
    message, fields = INVALID_TEXTS[case]
    with pytest.raises(DataError, match="^" + re.escape(f"small: {message}")):
        replace(TEXTS, **fields)


def test_checksums_of_texts_cover_words_lengths_and_table() -> None:
    for fields in (
        {"features": Words(changed(IDS, (0, 0), 2), LENGTHS)},
        {"features": Words(IDS, changed(LENGTHS, 0, 1))},
        {"table": changed(TABLE, (2, 0), 7)},
    ):
        assert replace(TEXTS, **fields).checksums["train"] != TEXTS.checksums["train"]
