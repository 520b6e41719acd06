"""A job's identity: the allowed settings, stable hashes, and the conversion of a model to one flat array and back."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest.errors import ConfigError
from fedlatest.ledger import JobConfig, Layout

MODEL: dict[str, npt.NDArray[Any]] = {
    "weight": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
    "steps": np.array(7, np.int64),
    "bias": np.array([0.5], np.float64),
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "nobody"},
        {"unit": 0.0},
        {"unit": 2.0**11},
        {"unit": float("nan")},
        {"clip_norm": 0.0},
        {"clip_norm": float("nan")},
        {"seed": -1},
        {"seed": 2**32},
    ],
)
def test_setting_out_of_range_raises_and_is_named(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(ConfigError, match=f"{name}="):
        JobConfig("fedlaavg", **wrong)


def test_config_hash_depends_on_the_values_only() -> None:
    """Integers in place of floats and another order of the settings do not change the hash."""
    one = JobConfig("fedlaavg", {"rate": 0.1, "steps": 5}, unit=1.0, clip_norm=10.0)
    same = JobConfig("fedlaavg", {"steps": 5, "rate": 0.1}, unit=1, clip_norm=10)
    assert one.hash == same.hash
    assert JobConfig("fedlaavg").hash != one.hash


def test_layout_hash_is_stable() -> None:
    """A change of this value would exclude all clients from their existing jobs."""
    assert Layout.of(MODEL).hash == "b2a2c80ae0db5bb04862208d756d5542"
    assert Layout.of(MODEL).size == 5


def test_layout_hash_depends_on_names_shapes_and_types() -> None:
    others = [
        {**MODEL, "steps": np.array(7, np.int32)},
        {**MODEL, "bias": np.zeros((1, 1))},
        {"weights": MODEL["weight"], "steps": MODEL["steps"], "bias": MODEL["bias"]},
    ]
    assert len({Layout.of(other).hash for other in (MODEL, *others)}) == 4


def test_order_of_the_arrays_does_not_matter() -> None:
    """A library may sort the arrays of a model; arrays are identified by their names."""
    reordered = dict(reversed(MODEL.items()))
    layout = Layout.of(MODEL)
    assert Layout.of(reordered).hash == layout.hash
    np.testing.assert_array_equal(layout.flatten(reordered), layout.flatten(MODEL))
    np.testing.assert_array_equal(Layout.of(reordered).flatten(reordered), layout.flatten(MODEL))
    assert list(layout.unflatten(layout.flatten(reordered), layout.untrained(reordered))) == list(MODEL)


def test_flatten_and_unflatten_restore_shapes_and_types() -> None:
    layout = Layout.of(MODEL)
    flat = layout.flatten(MODEL)
    assert flat.dtype == np.float32
    assert flat.tolist() == [0.5, 1.0, 2.0, 3.0, 4.0]  # by name: bias, weight
    back = layout.unflatten(flat + np.float32(0.4), layout.untrained(MODEL))
    assert {name: array.dtype for name, array in back.items()} == {name: array.dtype for name, array in MODEL.items()}
    assert back["steps"] == 7  # integers are not trained
    np.testing.assert_allclose(back["weight"], MODEL["weight"] + 0.4)


@pytest.mark.parametrize("model", [{}, {"steps": np.array(7)}])
def test_model_without_float_arrays_raises(model: dict[str, npt.NDArray[Any]]) -> None:
    with pytest.raises(ConfigError, match="nothing to train"):
        Layout.of(model).flatten(model)


def test_other_model_raises_with_both_hashes() -> None:
    layout, other = Layout.of(MODEL), {"weight": MODEL["weight"]}
    with pytest.raises(ConfigError, match=f"its layout is {Layout.of(other).hash}, the job's {layout.hash}"):
        layout.flatten(other)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([True]), np.array([1j])])
def test_array_of_another_kind_raises(array: npt.NDArray[Any]) -> None:
    with pytest.raises(ConfigError, match="array x is of type"):
        Layout.of({"x": array})
