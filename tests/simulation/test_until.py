"""Runs that end at a virtual time: when, what their folders hold, resuming, side by side, and the counted traffic."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest import ConfigError, Progress, Result, RunFolder, always, fedavg, simulate, simulate_together
from fedlatest.algorithms import fedbuff, fedlaavg_async
from fedlatest.availability import Interval, bernoulli, diurnal, trace
from fedlatest.delays import Delays, Timing, constant, lognormal
from fedlatest.report import read_runs
from fedlatest.simulation import ExperimentSpec
from tests.problems import MODEL, small_federation
from tests.simulation.test_resume import assert_identical, interrupt_at

FEDERATION = small_federation(6)
RANDOM = Delays(training=lognormal(10, sigma=0.5))
OPTIONS: dict[str, Any] = {"num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2, "evaluate_every": 5}


def run_small(algorithm: Any = None, availability: Any = None, **options: Any) -> Result:
    defaults = {"rounds": 1000, "cohort_size": 3, "timing": Timing(RANDOM, until=150), **OPTIONS}
    return simulate(FEDERATION, MODEL, algorithm or fedavg(), availability or always(6), **(defaults | options))


def test_a_run_ends_at_the_first_evaluation_after_its_time(tmp_path: Path) -> None:
    """Rounds take 10 s and every fifth is evaluated: at 50 s and, because 72 s have passed, last at 100 s."""
    result = run_small(timing=Timing(Delays(training=10), until=72), out=tmp_path / "run")
    assert result.metrics.column("time").tolist() == [[0.0, 50.0, 100.0]]
    folder = RunFolder(tmp_path / "run")
    assert folder.finished
    assert folder.manifest["rounds_done"] == 10
    assert folder.manifest["config"]["timing"]["until"] == 72
    assert folder.participation().num_rounds == 10
    assert not list(folder.path.glob("checkpoint*"))
    assert read_runs([folder.path])[0].rounds_done == 10
    again = run_small(timing=Timing(Delays(training=10), until=72), out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.params["weight"], result.params["weight"])


def test_all_seeds_pass_the_time_and_rounds_are_a_limit() -> None:
    result = run_small(seeds=range(4))
    times = result.metrics.column("time")
    assert (times[:, -1] >= 150).all()
    assert (times[:, -2] < 150).any()
    short = run_small(rounds=7)
    assert short.metrics.rounds.tolist() == [0, 5, 7]
    assert float(short.metrics.column("time")[0, -1]) < 150


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_resumed_run_is_identical(asynchronous: bool, tmp_path: Path) -> None:
    """Also one that was stopped after its last evaluation, before its results were written."""
    options: dict[str, Any] = {"seeds": (1, 2)}
    if asynchronous:
        timing = Timing(RANDOM, seconds_per_round=20, until=150)
        options |= {"algorithm": fedlaavg_async(), "timing": timing, "evaluate_every": 10}
    whole = run_small(out=tmp_path / "whole", **options)
    last = int(whole.metrics.rounds[-1])
    assert last < 1000
    for name, round in (("early", options.get("evaluate_every", 5)), ("late", last)):
        with pytest.raises(KeyboardInterrupt):
            run_small(out=tmp_path / name, on_progress=interrupt_at(round), **options)
        assert not RunFolder(tmp_path / name).finished
        run_small(out=tmp_path / name, resume=True, **options)
        assert_identical(whole, tmp_path / name)


@pytest.mark.parametrize("side_by_side", [False, True])
def test_specs_side_by_side_end_each_at_its_own_time(side_by_side: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)

    def spec(seconds: float, until: float) -> ExperimentSpec:
        timing = Timing(Delays(training=lognormal(seconds, sigma=0.5)), until=until)
        return ExperimentSpec(
            FEDERATION, MODEL, fedavg(), always(6), 3, rounds=1000, seeds=(0, 7), timing=timing, **OPTIONS
        )

    specs = [spec(10, 150), spec(20, 150), spec(10, 500)]
    together = simulate_together(specs)
    lengths = []
    for one, result in zip(specs, together, strict=True):
        [alone] = simulate_together([one])
        assert isinstance(alone, Result)
        assert isinstance(result, Result)
        assert result.metrics.column("time").tolist() == alone.metrics.column("time").tolist()
        np.testing.assert_allclose(result.params["weight"], alone.params["weight"], rtol=1e-6 if side_by_side else 0)
        lengths.append(int(result.metrics.rounds[-1]))
    assert lengths[1] < lengths[0] < lengths[2]


@pytest.mark.parametrize("algorithm", [fedavg(), fedlaavg_async()], ids=["synchronous", "asynchronous"])
def test_a_table_of_the_availability_gives_the_same_results(algorithm: Any) -> None:
    """Clients come and go every minute, and fail if they leave."""
    timing = Timing(RANDOM, seconds_per_round=20, interruption="fail", until=400)
    plain = ExperimentSpec(
        FEDERATION, MODEL, algorithm, bernoulli(np.full(6, 0.6)), 3, rounds=1000, seeds=(0, 7), timing=timing, **OPTIONS
    )
    results = simulate_together([plain]) + simulate_together([replace(plain, tabulated=True)])
    one, other = ([row._replace(seconds=0) for row in result.metrics.rows] for result in results)  # type: ignore[union-attr]
    assert one == other
    assert len(one) > 10


def test_the_progress_is_that_of_the_time() -> None:
    """Of 100 s of 10 s each, half is done after 5 of about 10 rounds."""
    seen: list[Progress] = []
    run_small(timing=Timing(Delays(training=10), until=100), on_progress=seen.append)
    assert [(each.round, each.rounds) for each in seen] == [(0, 1000), (5, 10), (10, 10)]
    assert seen[-1].seconds_left == 0


@pytest.mark.parametrize("algorithm", [fedlaavg_async(), fedbuff(buffer=4)], ids=["fedlaavg_async", "fedbuff"])
def test_the_model_stays_as_it_is_if_nobody_is_available_any_more(algorithm: Any) -> None:
    """The trace ends after 30 s; three clients arrive at 20 s and three at 40 s. The run ends at 500 s.

    FedBuff has a half-full buffer at the end, which is not merged.
    """
    availability = trace([Interval(client, 0, 3) for client in range(6)], num_clients=6)
    timing = Timing(Delays(training=20), seconds_per_round=10, until=500)
    results = [
        run_small(algorithm, availability, timing=timing, evaluate_every=every, rounds=2 * every) for every in (10, 40)
    ]
    for result in results:
        assert result.metrics.column("time")[0, -1] == 500
        assert result.metrics.column("uploads")[0, -1] == 6
        assert result.metrics.column("merged")[0, -1] == 6 // algorithm.buffer * algorithm.buffer
    np.testing.assert_array_equal(results[0].params["weight"], results[1].params["weight"])
    alone = run_small(
        algorithm, availability, timing=replace(timing, until=None), rounds=6 // algorithm.buffer, evaluate_every=1
    )
    np.testing.assert_array_equal(results[0].params["weight"], alone.params["weight"])


def test_an_asynchronous_run_stops_at_its_time() -> None:
    """Six clients that take 7 s each, of which three are at work: the last arrive at 49 s, the next would at 56 s."""
    timing = Timing(Delays(training=7), seconds_per_round=10, until=50.5)
    result = run_small(fedlaavg_async(), timing=timing, evaluate_every=10)
    assert result.metrics.column("time")[0, -1] == 51
    assert result.metrics.column("merged")[0, -1] == 3 * 7


def test_late_updates_and_failed_clients_are_counted() -> None:
    """Of six clients that take 1 .. 6 s, four answer; with a deadline of 3.5 s, three."""
    delays = Delays(training=constant([1, 2, 3, 4, 5, 6]))

    def counts(timing: Timing, availability: Any = None) -> list[int]:
        row = run_small(fedavg(), availability, rounds=5, cohort_size=6, timing=timing).metrics.rows[-1]
        assert row.downloads is not None
        assert row.uploads is not None
        assert row.merged is not None
        return [row.downloads, row.uploads, row.merged]

    assert counts(Timing(delays)) == [30, 30, 30]
    assert counts(Timing(delays, answers=4)) == [30, 30, 20]
    assert counts(Timing(delays, deadline=3.5)) == [30, 30, 15]
    # All are available in turns of 4 s: those that take 5 s and 6 s fail, and the round ends after 4 s.
    alternating = diurnal(np.arange(6) < 6, period=1)
    by_time = Timing(delays, seconds_per_round=4, interruption="fail")
    rounds = counts(by_time, alternating)
    assert rounds == [18, 12, 12]  # rounds 0, 2 and 4; nobody is available in rounds 1 and 3


def test_runs_without_virtual_time_count_nothing() -> None:
    row = run_small(rounds=5, timing=None).metrics.rows[-1]
    assert (row.time, row.downloads, row.uploads, row.merged) == (None, None, None, None)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ExperimentSpec(
                FEDERATION, MODEL, fedavg(), always(6), 3, timing=Timing(RANDOM, seconds_per_round=9), tabulated=True
            ),
            "until: the availability of a tabulated experiment must be known in advance",
        ),
        (lambda: Timing(RANDOM, until=0), "until=0: must be above 0"),
        (lambda: Timing(RANDOM, until=float("nan")), "until=nan: must be above 0"),
        (lambda: run_small(timing=Timing(RANDOM, answers=4)), "answers=4: only 3 clients are asked"),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
