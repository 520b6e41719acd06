"""The rate experiment: its constants, that Theorem 3 holds, and the rates."""

import math

import numpy as np
import pytest

from fedlatest import ConfigError
from fedlatest.experiments.rate_simulation import RateSetting, fit_exponents, play_rate

SEEDS = (0, 1, 2)


def test_setting_by_hand() -> None:
    """N = 16, K = 4, blocks of 2: E = 3, I = 4 * 3 - 1; gamma = sqrt(1/4 * 4 / (3 * 300)) / 2 = 1/60."""
    setting = RateSetting(16, 300)
    assert (setting.smallest_e, setting.staleness) == (3, 11)
    assert setting.learning_rate == pytest.approx(1 / 60)
    assert not setting.enough_rounds  # 3 * 64 * 4 = 768
    assert RateSetting(16, 768).enough_rounds


def test_a_quadratic_without_noise_or_difference_by_hand() -> None:
    """Clients alike and exact gradients: the largest is that of x^0 = 3, and B = ||3 - 0||^2 / 2."""
    point = play_rate(RateSetting(4, 200, "quadratic", heterogeneity=1e-9, noise=0.0))
    assert point.problem.distance == pytest.approx(4 * 9 / 2, rel=1e-6)
    assert point.problem.gradient == pytest.approx(6, rel=1e-6)  # sqrt(4 * 3^2), at the start
    assert 0 < point.mean_squared[0] < 36


@pytest.mark.parametrize("kind", ["logcosh", "quadratic"])
def test_no_run_violates_theorem_3_and_the_rates_are_the_corollarys(kind: str) -> None:
    """Gradients fall as N^(-1/4) T^(-1/2) with Corollary 1's step, under the bound in every run."""
    points = [
        play_rate(RateSetting(num_clients, rounds, kind), SEEDS)  # type: ignore[arg-type]
        for num_clients in (4, 16)
        for rounds in (1024, 4096)
    ]
    for point in points:
        assert point.holds
        assert point.largest_staleness <= point.setting.staleness
        assert point.bound.dominant == "distance"
    fitted = fit_exponents(points)
    assert fitted.by_clients == pytest.approx(np.full(3, -0.25), abs=0.06)
    assert fitted.by_rounds == pytest.approx(np.full(3, -0.5), abs=0.03)


@pytest.mark.parametrize(
    ("period", "noise", "heterogeneity"), [(1, 0.0, 0.0), (1, 3.0, 2.0), (10, 1.0, 3.0), (40, 0.5, 1.0)]
)
def test_theorem_3_holds_elsewhere_too(period: int, noise: float, heterogeneity: float) -> None:
    """Longer blocks, more noise, clients further apart; and few rounds, of which many are before all have been seen."""
    for rounds in (30, 1000):
        point = play_rate(RateSetting(4, rounds, period=period, noise=noise, heterogeneity=heterogeneity), SEEDS)
        assert point.holds
        assert point.largest_staleness <= point.setting.staleness


def test_nonsense() -> None:
    with pytest.raises(ConfigError, match="num_clients=6: the experiment takes multiples of 4"):
        RateSetting(6, 100)
    with pytest.raises(ConfigError, match="rounds=0"):
        RateSetting(4, 0)
    with pytest.raises(ConfigError, match="noise=nan"):
        RateSetting(4, 9, noise=math.nan)
    with pytest.raises(ConfigError, match="several numbers of clients"):
        fit_exponents([])
