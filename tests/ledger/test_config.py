"""A job's config: what is allowed, and a hash that hangs on what it says alone."""

from typing import Any

import pytest

from fedlatest.errors import ConfigError
from fedlatest.ledger import JobConfig


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
def test_what_is_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    [name] = wrong
    with pytest.raises(ConfigError, match=f"{name}="):
        JobConfig("fedlaavg", **wrong)


def test_the_hash_hangs_on_what_the_config_says() -> None:
    """Whole numbers where fractions are meant, and the order of settings, make no other job."""
    one = JobConfig("fedlaavg", {"rate": 0.1, "steps": 5}, unit=1.0, clip_norm=10.0)
    same = JobConfig("fedlaavg", {"steps": 5, "rate": 0.1}, unit=1, clip_norm=10)
    assert one.hash == same.hash
    assert JobConfig("fedlaavg").hash != one.hash
