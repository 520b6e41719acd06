"""The estimated number of server steps, compared with simulations."""

from typing import Any

import numpy as np
import pytest

from fedlatest import ConfigError, always, fedavg, simulate_together
from fedlatest.algorithms import fedbuff
from fedlatest.availability import bernoulli, diurnal
from fedlatest.delays import Delays, Timing, constant, lognormal
from fedlatest.experiments.pace import EVALUATIONS, MARGIN, Pace, choose_paces, steps_until_the_end
from fedlatest.simulation import ExperimentSpec, Result
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(20)
RANDOM = Delays(training=lognormal(10, sigma=0.75))


def spec(algorithm: Any, timing: Timing, availability: Any = None, **options: Any) -> ExperimentSpec:
    defaults: dict[str, Any] = {"cohort_size": 6, "num_local_steps": 1, "batch_size": 2, "rounds": 4000}
    availability = availability or always(20)
    return ExperimentSpec(FEDERATION, MODEL, algorithm, availability, timing=timing, **(defaults | options))


def test_equal_delays_give_the_exact_number() -> None:
    """Rounds of 10 s: 360 in an hour. Six clients at work for 10 s each: 0.6 arrivals per second, 3 per step."""
    timing = Timing(Delays(training=10), seconds_per_round=60, until=3600)
    assert steps_until_the_end(spec(fedavg(), timing)) == pytest.approx(360)
    assert steps_until_the_end(spec(fedbuff(buffer=3), timing)) == pytest.approx(720)
    assert choose_paces([spec(fedbuff(buffer=3), timing)]) == [Pace(MARGIN * EVALUATIONS * 6, 6)]


def test_cases_with_similar_paces_have_the_same() -> None:
    """360 and 480 rounds in an hour are 3 and 4 per evaluation, 3.5 on average; 3600 are too different."""
    specs = [
        spec(fedavg(), Timing(Delays(training=seconds), seconds_per_round=60, until=3600)) for seconds in (10, 7.5, 1)
    ]
    assert [pace.evaluate_every for pace in choose_paces(specs[:2])] == [4, 4]
    assert [pace.evaluate_every for pace in choose_paces(specs)] == [3, 4, 30]


def test_limits_of_rounds() -> None:
    """All of 20 clients, which take 1 .. 20 s, take part: rounds last 20 s, 10 s, or 5 s until the fifth answer."""
    delays = Delays(training=constant(np.arange(1, 21)))
    options: dict[str, Any] = {"cohort_size": 20}
    assert steps_until_the_end(spec(fedavg(), Timing(delays, until=3600), **options)) == pytest.approx(180)
    assert steps_until_the_end(spec(fedavg(), Timing(delays, deadline=10, until=3600), **options)) == pytest.approx(360)
    assert steps_until_the_end(spec(fedavg(), Timing(delays, answers=5, until=3600), **options)) == pytest.approx(720)


@pytest.mark.parametrize(
    ("algorithm", "availability"),
    [
        (fedavg(), bernoulli(np.full(20, 0.5))),
        (fedbuff(buffer=2), diurnal(np.arange(20) < 4, period=10)),  # at first fewer clients than may be at work
    ],
    ids=["synchronous", "asynchronous"],
)
def test_the_estimate_is_close_to_a_simulation(algorithm: Any, availability: Any) -> None:
    deadline = 30 if algorithm.buffer is None else None
    timing = Timing(RANDOM, seconds_per_round=60, until=3600, deadline=deadline)
    one = spec(algorithm, timing, availability, evaluate_every=10)
    estimate = steps_until_the_end(one)
    [result] = simulate_together([one])
    assert isinstance(result, Result)
    steps = float(np.interp(3600, result.metrics.column("time")[0], result.metrics.rounds))
    assert 0.8 < estimate / steps < 1.25


def test_runs_without_an_end_or_without_delays() -> None:
    with pytest.raises(ConfigError, match="until: the pace of a run depends on when it ends"):
        choose_paces([spec(fedavg(), Timing(RANDOM))])
    with pytest.raises(ConfigError, match="delays: all clients take no time"):
        choose_paces([spec(fedavg(), Timing(Delays(), until=10))])
