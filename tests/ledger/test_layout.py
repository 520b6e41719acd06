"""The layout: a name for a model's shape that is the same everywhere, and the way to one vector and back."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest.errors import ConfigError
from fedlatest.ledger import Layout

MODEL: dict[str, npt.NDArray[Any]] = {
    "weight": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
    "steps": np.array(7, np.int64),
    "bias": np.array([0.5], np.float64),
}


def test_the_hash_is_the_same_everywhere() -> None:
    """A change of this number shuts every client out of its running job."""
    assert Layout.of(MODEL).hash == "b2a2c80ae0db5bb0"
    assert Layout.of(MODEL).size == 5


def test_names_shapes_and_types_make_the_hash() -> None:
    others = [
        {**MODEL, "steps": np.array(7, np.int32)},
        {**MODEL, "bias": np.zeros((1, 1))},
        {"weights": MODEL["weight"], "steps": MODEL["steps"], "bias": MODEL["bias"]},
    ]
    assert len({Layout.of(other).hash for other in (MODEL, *others)}) == 4


def test_order_does_not_matter() -> None:
    """A library may sort the arrays of a model; they are told apart by their names."""
    turned = dict(reversed(MODEL.items()))
    layout = Layout.of(MODEL)
    assert Layout.of(turned).hash == layout.hash
    np.testing.assert_array_equal(layout.flatten(turned), layout.flatten(MODEL))
    np.testing.assert_array_equal(Layout.of(turned).flatten(turned), layout.flatten(MODEL))
    assert list(layout.unflatten(layout.flatten(turned), layout.fixed(turned))) == list(MODEL)


def test_a_model_lies_in_a_vector_and_comes_back_in_its_own_types() -> None:
    layout = Layout.of(MODEL)
    vector = layout.flatten(MODEL)
    assert vector.dtype == np.float32
    assert vector.tolist() == [0.5, 1.0, 2.0, 3.0, 4.0]  # by name: bias, weight
    back = layout.unflatten(vector + np.float32(0.4), layout.fixed(MODEL))
    assert {name: array.dtype for name, array in back.items()} == {name: array.dtype for name, array in MODEL.items()}
    assert back["steps"] == 7  # whole numbers are not trained
    np.testing.assert_allclose(back["weight"], MODEL["weight"] + 0.4)


@pytest.mark.parametrize("model", [{}, {"steps": np.array(7)}])
def test_a_model_has_something_to_train(model: dict[str, npt.NDArray[Any]]) -> None:
    with pytest.raises(ConfigError, match="nothing to train"):
        Layout.of(model).flatten(model)


def test_another_model_is_refused_by_both_names() -> None:
    layout, other = Layout.of(MODEL), {"weight": MODEL["weight"]}
    with pytest.raises(ConfigError, match=f"its layout is {Layout.of(other).hash}, the job's {layout.hash}"):
        layout.flatten(other)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([True]), np.array([1j])])
def test_a_model_is_made_of_numbers(array: npt.NDArray[Any]) -> None:
    with pytest.raises(ConfigError, match="array x is of type"):
        Layout.of({"x": array})
