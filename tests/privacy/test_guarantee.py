import math
from typing import Any

import pytest

from fedlatest.errors import ConfigError
from fedlatest.privacy import Privacy

VALID: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "clip_norm": 0.5, "rounds": 100}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0: must be above 0"),
        ({"epsilon": math.nan}, "epsilon=nan: must be above 0"),
        ({"delta": 0.0}, "delta=0.0: must be between 0 and 1"),
        ({"delta": 1.0}, "delta=1.0: must be between 0 and 1"),
        ({"clip_norm": math.inf}, "clip_norm=inf: must be a finite number above 0"),
        ({"clip_norm": 0.0}, "clip_norm=0.0: must be a finite number above 0"),
        ({"rounds": 0}, "rounds=0: must be a whole number, 1 or larger"),
        ({"rounds": 2.5}, "rounds=2.5: must be a whole number, 1 or larger"),
        ({"min_separation": 0}, "min_separation=0: must be a whole number, 1 or larger"),
        ({"max_participations": 0}, "max_participations=0: must be a whole number, 1 or larger"),
        ({"mechanism": "laplace"}, "mechanism='laplace': choose 'auto', 'independent', 'correlated' or 'total'"),
    ],
)
def test_values_out_of_range(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Privacy(**{**VALID, **change})
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("separation", "most", "expected"),
    [(1, None, 100), (10, None, 10), (11, None, 10), (99, None, 2), (100, None, 1), (10, 4, 4), (10, 40, 10)],
)
def test_participations_that_are_possible(separation: int, most: int | None, expected: int) -> None:
    """With 100 rounds and 11 rounds in between, a client can take part in rounds 0, 11, ..., 99: 10 times."""
    privacy = Privacy(**VALID, min_separation=separation, max_participations=most)
    assert privacy.participations == expected


def test_the_mechanism_must_fit_the_uploads() -> None:
    assert Privacy(**VALID).mechanism_for("fresh") == "independent"
    assert Privacy(**VALID).mechanism_for("remembered") == "total"
    with pytest.raises(ConfigError, match="mechanism=total: does not fit an algorithm with fresh updates"):
        Privacy(**VALID, mechanism="total").mechanism_for("fresh")


def test_an_infinite_epsilon_is_none_in_json() -> None:
    assert Privacy(**{**VALID, "epsilon": math.inf}).as_dict()["epsilon"] is None
