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


@pytest.mark.parametrize("rule", [selection.oldest_first, selection.uniform, lowest_first])
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
