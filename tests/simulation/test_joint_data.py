"""Federations of equal layout run side by side in one program, each with the results that it has alone."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from fedlatest import Federation, Result, diurnal, fedavg, fedlaavg, logistic, sequential
from fedlatest.data.features import Pixels, Words, pixels
from fedlatest.models import sigmoid_cross_entropy
from fedlatest.simulation import ExperimentSpec, rounds, simulate_spec, simulate_together
from fedlatest.simulation.device_data import expand, put_on_device
from fedlatest.simulation.joint_data import join, layout, select
from tests.problems import small_federation
from tests.simulation.test_texts import MODEL, NUM_CLIENTS, small_texts


def narrow_texts() -> Federation:
    """Return other texts of at most 3 instead of 4 words, from 6 instead of 11 rows of the table."""
    federation = small_texts(seed=3)

    def cut(words: Words) -> Words:
        return Words(words.ids[:, :3] % 6, np.minimum(words.lengths, 3))

    assert federation.table is not None
    return replace(
        federation,
        features=cut(federation.features),
        test_features=cut(federation.test_features),
        table=federation.table[:6],
    )


def text_spec(federation: Federation, algorithm: Any) -> ExperimentSpec:
    availability = diurnal(np.arange(NUM_CLIENTS) < 2, period=2)
    return ExperimentSpec(
        federation, MODEL, algorithm, availability, cohort_size=2, num_local_steps=3, batch_size=2, learning_rate=0.5,
        loss=sigmoid_cross_entropy, rounds=4, evaluate_every=2,
    )  # fmt: skip


@cache
def text_runs(factory: Any) -> list[tuple[ExperimentSpec, Result]]:
    """Return two specs with different texts, each with the result that it has alone."""
    specs = [text_spec(federation, factory()) for federation in (small_texts(), narrow_texts())]
    return [(spec, simulate_spec(spec)) for spec in specs]


@pytest.mark.parametrize("side_by_side", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("factory", [fedlaavg, pytest.param(sequential, marks=pytest.mark.slow)])
def test_texts_of_different_lengths_share_a_program(
    factory: Any, side_by_side: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of samples and words and the longest text differ; bit-identical where trials take turns."""
    runs = text_runs(factory)
    assert len({len(spec.federation.order) for spec, _ in runs}) == 2
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)
    count = num_programs()
    found = simulate_together([spec for spec, _ in runs])
    assert num_programs() == count + 1
    tolerance: Any = {"rtol": 1e-4, "atol": 1e-6} if side_by_side else {"rtol": 0.0}
    for one, (_, alone) in zip(found, runs, strict=True):
        assert isinstance(one, Result)
        for column in ("train_loss", "test_loss", "test_accuracy"):
            np.testing.assert_allclose(one.metrics.column(column), alone.metrics.column(column), **tolerance)
        jax.tree.map(lambda leaf, other: np.testing.assert_allclose(leaf, other, **tolerance), one.params, alone.params)


def num_programs() -> int:
    jitted: Any = rounds.advance
    return int(jitted._cache_size())


def test_algorithms_share_the_evaluation() -> None:
    """It is compiled for the model and the samples; what an algorithm remembers is no part of it."""
    federation = small_federation(8, seed=1)
    specs = [
        ExperimentSpec(
            federation, logistic(num_features=4, num_classes=3), algorithm, diurnal(np.arange(8) < 3, period=4), 3
        )
        for algorithm in (fedlaavg(), fedavg())
    ]
    jitted: Any = rounds.score
    simulate_spec(specs[0])
    count = jitted._cache_size()
    simulate_spec(specs[1])
    assert jitted._cache_size() == count


def test_joined_samples_are_those_of_each_federation() -> None:
    """Client by client: the same vectors of words, labels, weights and ids."""
    federations = [small_texts(), narrow_texts()]
    parts = [put_on_device(federation) for federation in federations]
    parts, joined = jax.device_get((parts, join(parts)))
    assert joined.features.ids.dtype == np.uint8
    for number, part in enumerate(parts):
        own = select(joined, np.int32(number))  # type: ignore[arg-type]
        np.testing.assert_array_equal(own.weights, part.weights)
        np.testing.assert_array_equal(own.ids, part.ids)
        for client in range(NUM_CLIENTS):
            size = int(part.sizes[client])
            assert size == int(own.sizes[client])
            rows, expected_rows = (np.arange(size) + int(data.starts[client]) for data in (own, part))
            np.testing.assert_array_equal(own.labels[rows], part.labels[expected_rows])
            texts, expected = (
                expand(jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], data.features), data.table)
                for data, chosen in ((own, rows), (part, expected_rows))
            )
            np.testing.assert_array_equal(texts.lengths, expected.lengths)
            longest = expected.vectors.shape[1]
            np.testing.assert_array_equal(texts.vectors[:, :longest], expected.vectors)


def test_pixels_and_other_numbers_can_be_joined() -> None:
    """Bytes stay bytes only if all federations consist of them; the values are the same either way."""
    plain = small_federation(6)
    levels = np.random.default_rng(0).integers(0, 256, (len(plain.labels), 4)).astype(np.uint8)
    images = replace(plain, features=pixels(levels))
    assert layout(plain) == layout(images)
    parts = [put_on_device(federation) for federation in (plain, images)]
    assert isinstance(parts[1].features, Pixels)
    both = join(parts).features
    np.testing.assert_array_equal(both, np.concatenate([plain.features[plain.order], images.features[images.order]]))
    assert isinstance(join([parts[1], parts[1]]).features, Pixels)


def test_layouts() -> None:
    federation = small_federation(8, seed=1)
    assert layout(federation) == layout(small_federation(8, seed=2))
    assert layout(federation) != layout(small_federation(7, seed=1))
    assert layout(federation) != layout(replace(federation, test_labels=np.full(20, 3, np.int32)))
    wide = np.zeros((len(federation.labels), 5), np.float32)
    assert layout(federation) != layout(replace(federation, features=wide, test_features=np.zeros((20, 5), np.float32)))
    assert layout(small_texts()) == layout(narrow_texts())
