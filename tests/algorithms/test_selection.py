"""Selection on an accelerator, by counting, equals sorting; both ways select the same clients oldest first."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest.algorithms import selection
from fedlatest.algorithms.base import Cohort, RoundFacts

Rule = Callable[[jax.Array, RoundFacts], Cohort]


@settings(max_examples=15, deadline=None)
@given(
    size=st.sampled_from([1, 5, 64, 5000, 9001]),
    share=st.floats(0.001, 1),
    levels=st.integers(1, 4),
    draws=st.sampled_from([1, 7, 2**30]),
    seed=st.integers(0, 99),
)
def test_counting_equals_sorting(size: int, share: float, levels: int, draws: int, seed: int) -> None:
    """Ties of both numbers are frequent in some cases; the lowest position then comes first."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, levels, size).astype(np.int32)
    second = rng.integers(0, draws, size).astype(np.uint32)
    count = max(1, min(size, int(share * size), 200))
    found = jax.jit(selection._count_highest, static_argnums=2)(first, second, count)
    expected = np.lexsort((np.arange(size), -second.astype(np.int64), -first))[:count]
    np.testing.assert_array_equal(found.clients, expected)
    np.testing.assert_array_equal(found.mask, first[expected] > 0)


def lowest_first(available: jax.Array, facts: RoundFacts) -> Cohort:
    return selection.lowest_first(0.1 * (facts.last_round + 1).astype(jnp.float32), available, facts)


@pytest.mark.parametrize("rule", [selection.oldest_first, selection.uniform, selection.age_weighted, lowest_first])
def test_both_ways_select_the_same_clients(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 clients with few different last rounds, more and fewer of them available than the cohort has slots."""
    rng = np.random.default_rng(1)
    facts = RoundFacts(
        round=jnp.int32(7), seed=jnp.uint32(3), num_clients=30, cohort_size=10, ids=jnp.arange(30, dtype=jnp.int32),
        last_round=jnp.asarray(rng.integers(-1, 3, 30), jnp.int32), numbers={}, total_weight=30,
        learning_rate=jnp.float32(0.1), num_steps=1,
    )  # fmt: skip
    for share in (0.8, 0.2):
        available = jnp.asarray(rng.random(30) < share)
        cohorts = []
        for counts in (False, True):
            monkeypatch.setattr(selection, "_counts", lambda counts=counts: counts)
            cohort = rule(available, facts)
            cohorts.append(set(np.asarray(cohort.clients)[np.asarray(cohort.mask)].tolist()))
        assert cohorts[0] == cohorts[1]
        assert len(cohorts[0]) == min(10, int(available.sum()))


@pytest.mark.parametrize("counts", [False, True])
def test_the_largest_draw_comes_first(counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw of client 0 is rounded to 1, whose logarithm is 0; with equal ages the largest draws are selected."""
    draws = jnp.asarray([2**30 - 1, 5, 2**29, 2**28], jnp.uint32)
    monkeypatch.setattr(selection, "_counts", lambda: counts)
    monkeypatch.setattr(selection, "_hashed", lambda facts, when: draws)
    facts = RoundFacts(
        round=jnp.int32(3), seed=jnp.uint32(0), num_clients=4, cohort_size=2, ids=jnp.arange(4), numbers={},
        last_round=jnp.full(4, -1, jnp.int32), total_weight=4,
    )  # fmt: skip
    assert sorted(selection.age_weighted(jnp.ones(4, bool), facts).clients.tolist()) == [0, 2]


def test_older_clients_are_drawn_more_often() -> None:
    """One of two clients, absent for 1 and 3 rounds, is drawn: the second one in 9 of 10 draws."""
    facts = RoundFacts(
        round=jnp.int32(5), seed=jnp.uint32(0), num_clients=2, cohort_size=1, ids=jnp.arange(2), numbers={},
        last_round=jnp.asarray([4, 2], jnp.int32), total_weight=2,
    )  # fmt: skip

    def draw(seed: jax.Array) -> jax.Array:
        return selection.age_weighted(jnp.ones(2, bool), facts._replace(seed=seed)).clients[0]

    share = float(jax.vmap(draw)(jnp.arange(4000, dtype=jnp.uint32)).mean())
    assert abs(share - 0.9) < 5 * (0.9 * 0.1 / 4000) ** 0.5
