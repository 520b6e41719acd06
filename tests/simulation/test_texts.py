"""Federations of texts: the kernel trains as the plain scan does, and evaluation does not depend on the order."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import (
    Algorithm,
    DivergedError,
    Federation,
    Model,
    Result,
    diurnal,
    fedavg,
    fedlaavg,
    sequential,
    simulate,
)
from fedlatest.data.features import Sentences, Words
from fedlatest.models import lstm, sigmoid_cross_entropy
from fedlatest.simulation import evaluation
from tests import lstm_reference
from tests.kernels.recurrence_backends import needs_compiler, some_params, using_backend

NUM_CLIENTS, LONGEST, NUM_WORDS, DIMENSIONS = 5, 4, 11, 3
PARAMS = some_params(DIMENSIONS, 4)
MODEL = lstm(num_features=DIMENSIONS, hidden=4)._replace(
    init=lambda _: PARAMS
)  # random initial weights take long to compile


def small_texts(seed: int = 0) -> Federation:
    """Five clients with 1 to 6 texts of 0 to 4 words from a vocabulary of ten; 9 test texts."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, NUM_CLIENTS)
    count = int(sizes.sum())
    table = rng.normal(0, 2, (NUM_WORDS, DIMENSIONS)).astype(np.float32)
    table[0] = 0

    def texts(count: int) -> Words:
        lengths = rng.integers(0, LONGEST + 1, count).astype(np.int32)
        ids = rng.integers(0, NUM_WORDS, (count, LONGEST)).astype(np.uint8)
        return Words(np.where(np.arange(LONGEST) < lengths[:, None], ids, 0).astype(np.uint8), lengths)

    return Federation(
        name="texts",
        features=texts(count),
        labels=rng.integers(0, 2, count).astype(np.int32),
        test_features=texts(9),
        test_labels=(np.arange(9) % 2).astype(np.int32),
        order=rng.permutation(count).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        table=table,
    )


TEXTS = small_texts()


def run_small(algorithm: Algorithm, federation: Federation = TEXTS, model: Model = MODEL, **options: Any) -> Result:
    defaults: dict[str, Any] = {
        "rounds": 4, "cohort_size": 2, "num_local_steps": 3, "batch_size": 2, "learning_rate": 0.5, "evaluate_every": 2,
    }  # fmt: skip
    availability = diurnal(np.arange(NUM_CLIENTS) < 2, period=2)
    return simulate(federation, model, algorithm, availability, loss=sigmoid_cross_entropy, **(defaults | options))


@needs_compiler
@pytest.mark.parametrize(
    "factory",
    [fedlaavg, pytest.param(fedavg, marks=pytest.mark.slow), pytest.param(sequential, marks=pytest.mark.slow)],
)
def test_the_kernel_trains_as_the_plain_scan_does(factory: Callable[[], Algorithm]) -> None:
    """Models and curves after four rounds, are equal up to the order of additions, and training changes the losses."""
    found = run_small(factory())
    with using_backend("plain"):
        expected = run_small(factory())
    for one, other in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)
    for column in ("train_loss", "test_loss"):
        losses = found.metrics.column(column)
        np.testing.assert_allclose(losses, expected.metrics.column(column), rtol=1e-5)
        assert len(set(np.ravel(losses).tolist())) == 3


def test_scores_are_those_of_the_final_model() -> None:
    """Loss and accuracy on all texts equal those of a NumPy implementation."""
    result = run_small(fedlaavg())
    assert TEXTS.table is not None
    params = jax.tree.map(lambda leaf: leaf[0], result.params)
    last = result.metrics.rows[-1]
    for words, labels, loss, accuracy in (
        (TEXTS.features, TEXTS.labels, last.train_loss, last.train_accuracy),
        (TEXTS.test_features, TEXTS.test_labels, last.test_loss, last.test_accuracy),
    ):
        logits = lstm_reference.logits(params, TEXTS.table[words.ids], words.lengths)
        assert loss == pytest.approx(np.mean(np.logaddexp(0, logits) - labels * logits), rel=1e-5)
        assert accuracy == pytest.approx(np.mean((logits > 0) == labels))


def test_ids_after_the_last_word_are_ignored() -> None:
    """Ids after the last word of a text should be 0, but may have any value."""
    ids, lengths = TEXTS.features
    filled = Words(np.where(np.arange(LONGEST) < lengths[:, None], ids, 7).astype(np.uint8), lengths)
    assert (filled.ids != ids).any()
    expected, found = run_small(fedlaavg()), run_small(fedlaavg(), replace(TEXTS, features=filled))
    for one, other in zip(jax.tree.leaves(found.params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_nan_in_the_model_is_detected() -> None:
    """One NaN among the weights makes the first contribution not finite, which stops the run."""
    params = PARAMS | {"lower": PARAMS["lower"] | {"hidden_bias": np.array([0] * 15 + [np.nan], np.float32)}}
    with pytest.raises(DivergedError, match=r"client \d in round 0 \(seed 0\) is not finite"):
        run_small(fedlaavg(), model=MODEL._replace(init=lambda _: params))


@pytest.mark.parametrize("rows_at_once", [1, 4, 100])
def test_evaluation_does_not_depend_on_the_order_of_texts(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Falling, rising and mixed lengths give the same scores as a loop over single texts, also per label."""
    monkeypatch.setattr(evaluation, "ROWS_AT_ONCE", rows_at_once)
    table = jnp.asarray(TEXTS.table)
    words, labels = TEXTS.test_features, TEXTS.test_labels
    logits = [
        float(MODEL.apply(PARAMS, Sentences(table[ids[None]], length[None]))[0])
        for ids, length in zip(words.ids, words.lengths, strict=True)
    ]
    loss = np.mean(np.logaddexp(0, logits) - labels * logits)
    correct = (np.array(logits) > 0) == labels
    assert 0 < correct.sum() < len(labels)
    score = jax.jit(
        lambda words, labels: evaluation.evaluate(
            MODEL.apply, sigmoid_cross_entropy, PARAMS, words, labels, table=table, num_labels=2
        )
    )
    for order in (np.arange(9), np.argsort(words.lengths), np.argsort(-words.lengths)):
        found = score(Words(words.ids[order], words.lengths[order]), labels[order])
        assert found.loss == pytest.approx(loss, rel=1e-6)
        assert found.accuracy == pytest.approx(correct.mean())
        assert found.num_correct.tolist() == [correct[labels == label].sum() for label in (0, 1)]
