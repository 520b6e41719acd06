"""Delays in the form that constant and log-normal ones share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest.delays import Delays, constant, exponential, lognormal
from fedlatest.delays.common_form import in_common_form

CLIENTS = jnp.arange(50)
SAME = {
    "constant": Delays(training=constant(np.linspace(0.1, 60, 50))),
    "number": Delays(training=7.3),
    "lognormal": Delays(training=lognormal(10, sigma=0.75)),
}


@pytest.mark.parametrize("name", SAME)
def test_the_delays_are_the_same_bits_and_have_the_same_structure(name: str) -> None:
    delays = in_common_form(SAME[name], 50)
    for event in range(20):
        ours, theirs = (each.stages(3, CLIENTS, event).training for each in (delays, SAME[name]))
        np.testing.assert_array_equal(ours, theirs)
    assert jax.tree.map(jnp.shape, delays) == jax.tree.map(jnp.shape, in_common_form(SAME["number"], 50))


def test_other_delays_stay_as_they_are() -> None:
    others = Delays(download=constant(1, per="megabyte"), training=exponential(3), upload=0)
    kept = in_common_form(others, 50)
    assert (kept.download, kept.training, kept.upload) == (others.download, others.training, others.upload)
