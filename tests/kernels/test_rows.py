"""Replacing rows and summing rows in C equals a loop over the slots in NumPy, bit for bit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlatest.kernels import rows_native
from tests.kernels.recurrence_backends import needs_compiler

pytestmark = needs_compiler


def reference(kept: Any, total: Any, new: Any, positions: Any, mask: Any) -> tuple[Any, Any]:
    kept, total = kept.copy(), total.copy()
    for row, position, real in zip(new, positions, mask, strict=True):
        if real and 0 <= position < len(kept):
            total += row - kept[position]
            kept[position] = row
    return kept, total


def some_rows(seed: int, num: int, slots: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    positions = rng.permutation(num + 2)[:slots].astype(np.int32)  # some lie beyond the last row
    arrays = [rng.normal(size=(*axes, *shape)).astype(np.float32) for axes in ((num,), (), (slots,))]
    return *arrays, positions, rng.random(slots) < 0.8


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 99), num=st.integers(1, 9), slots=st.integers(1, 9), length=st.sampled_from([1, 7, 1024, 2500])
)
def test_replaced_rows_equal_a_loop(seed: int, num: int, slots: int, length: int) -> None:
    arguments = some_rows(seed, num, min(slots, num + 2), (length,))
    found = jax.jit(rows_native.replace_rows)(*arguments)
    for left, right in zip(found, reference(*arguments), strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_sum_does_not_depend_on_the_number_of_slots_at_once() -> None:
    kept, total, new, positions, mask = some_rows(0, 9, 8, (3, 500))
    whole = rows_native.replace_rows(kept, total, new, positions, mask)
    for part in (slice(0, 3), slice(3, 8)):
        kept, total = rows_native.replace_rows(kept, total, new[part], positions[part], mask[part])
    np.testing.assert_array_equal(whole[0], kept)
    np.testing.assert_array_equal(whole[1], total)


def test_added_rows_equal_a_loop_also_under_vmap() -> None:
    _, total, new, _, mask = some_rows(3, 4, 5, (2, 1500))
    expected = total.copy()
    for row in new[mask]:
        expected += row
    np.testing.assert_array_equal(rows_native.add_rows(total, new, mask), expected)
    stacked = [jnp.stack([leaf, leaf]) for leaf in (total, new, mask)]
    found = jax.jit(jax.vmap(rows_native.add_rows))(*stacked)
    np.testing.assert_array_equal(found, np.stack([expected, expected]))


def test_rows_are_replaced_in_place_inside_a_loop() -> None:
    """No copy of all rows: the compiled program needs less temporary memory than they take."""
    num, length = 200, 1000

    def loop(kept: Any, total: Any, new: Any) -> Any:
        def body(number: Any, state: Any) -> Any:
            return rows_native.replace_rows(state[0], state[1], new + number, jnp.arange(2), jnp.ones(2, bool))

        return jax.lax.fori_loop(0, 5, body, (kept, total))

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((num, length), (length,), (2, length))]
    compiled = jax.jit(loop, donate_argnums=(0, 1)).lower(*shapes).compile()
    analysis = compiled.memory_analysis()
    if analysis is None:
        pytest.skip("this version of JAX does not report memory")
    assert analysis.temp_size_in_bytes < num * length
