"""The rate experiment: its constants, the bound of Theorem 3, and the rates of Corollary 1."""

import math

import numpy as np
import pytest

from fedlatest import ConfigError
from fedlatest.experiments.rate_simulation import RateSetting, fit_exponents, simulate_rate

SEEDS = (0, 1, 2)


def test_constants_of_a_setting() -> None:
    """N = 16, K = 4, blocks of 2: E = 3, I = 4 * 3 - 1; gamma = sqrt(1/4 * 4 / (3 * 300)) / 2 = 1/60."""
    setting = RateSetting(16, 300)
    assert (setting.smallest_e, setting.staleness) == (3, 11)
    assert setting.learning_rate == pytest.approx(1 / 60)
    assert not setting.enough_rounds  # 3 * 64 * 4 = 768
    assert RateSetting(16, 768).enough_rounds


def test_constants_of_a_quadratic_without_noise_or_heterogeneity() -> None:
    """Equal clients and exact gradients: the gradient is largest at x^0 = (3, 3, 3, 3), and B = ||x^0||^2 / 2 = 18."""
    point = simulate_rate(RateSetting(4, 200, "quadratic", heterogeneity=1e-9, noise=0.0))
    assert point.problem.distance == pytest.approx(4 * 9 / 2, rel=1e-6)
    assert point.problem.gradient == pytest.approx(6, rel=1e-6)  # sqrt(4 * 3^2), at the start
    assert 0 < point.mean_squared[0] < 36


@pytest.mark.parametrize("kind", ["logcosh", "quadratic"])
def test_runs_satisfy_theorem_3_and_have_the_rates_of_corollary_1(kind: str) -> None:
    """With the step of Corollary 1, gradients decrease as N^(-1/4) T^(-1/2) and are within the bound in every run."""
    points = [
        simulate_rate(RateSetting(num_clients, rounds, kind), SEEDS)  # type: ignore[arg-type]
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
def test_theorem_3_holds_in_other_settings(period: int, noise: float, heterogeneity: float) -> None:
    """Longer blocks, more noise, more heterogeneity; 30 rounds end before every client has taken part."""
    for rounds in (30, 1000):
        point = simulate_rate(RateSetting(4, rounds, period=period, noise=noise, heterogeneity=heterogeneity), SEEDS)
        assert point.holds
        assert point.largest_staleness <= point.setting.staleness


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ConfigError, match="num_clients=6: must be a multiple of 4"):
        RateSetting(6, 100)
    with pytest.raises(ConfigError, match="rounds=0"):
        RateSetting(4, 0)
    with pytest.raises(ConfigError, match="noise=nan"):
        RateSetting(4, 9, noise=math.nan)
    with pytest.raises(ConfigError, match="several numbers of clients"):
        fit_exponents([])
