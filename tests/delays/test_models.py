"""Delay models: one table of questions for every kind, and numbers that can be checked by hand."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest.delays import Delays, Duration, Work, constant, empirical, exponential, lognormal, recorded
from fedlatest.errors import ConfigError

CLIENTS = jnp.arange(5)
MODELS = {
    "constant": constant(3.0),
    "constant-each": constant([1.0, 2.0, 3.0, 4.0, 5.0]),
    "lognormal": lognormal(10.0, sigma=0.5),
    "lognormal-each": lognormal([1.0, 2.0, 3.0, 4.0, 5.0], sigma=0.2),
    "exponential": exponential(4.0),
    "per-sample": constant(0.01, per="sample"),
    "per-megabyte": exponential(2.0, per="megabyte"),
    "empirical": empirical([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0], [7.0], [8.0]]),
    "recorded": recorded(np.arange(50.0).reshape(10, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_pure_function_of_seed_client_and_event(name: str) -> None:
    """Neither the other clients that are asked for nor compilation changes a delay."""
    delays, work = Delays(training=MODELS[name]), Work(50.0, 0.25)
    together = delays.milliseconds(3, CLIENTS, 7, work=work)
    alone = [int(delays.milliseconds(3, client, 7, work=work)) for client in range(5)]
    compiled = jax.jit(lambda delays, seed, event: delays.milliseconds(seed, CLIENTS, event, work=work))
    assert together.dtype == jnp.int32
    assert together.tolist() == alone == compiled(delays, jnp.uint32(3), jnp.int32(7)).tolist()
    assert (together >= 0).all()


@pytest.mark.parametrize("name", ["lognormal", "exponential"])
def test_random_delays_differ_by_seed_client_event_and_stage(name: str) -> None:
    delays = Delays(download=MODELS[name], training=MODELS[name])
    draws = [delays.stages(seed, CLIENTS, event) for seed, event in ((0, 0), (1, 0), (0, 1))]
    values = [float(value) for stages in draws for stage in stages[:2] for value in stage]
    assert len(set(values)) == len(values)


def test_draws_depend_on_ids_and_values_on_positions() -> None:
    delays = Delays(training=lognormal([1.0, 100.0], sigma=0.1))
    here = delays.stages(0, jnp.array([0, 1]), 0, ids=jnp.array([8, 9])).training
    swapped = delays.stages(0, jnp.array([1, 0]), 0, ids=jnp.array([8, 9])).training
    assert (here * jnp.array([100.0, 0.01])).tolist() == pytest.approx(swapped.tolist(), rel=1e-5)


def test_medians_and_means() -> None:
    """The median of 20,000 log-normal delays and the mean of exponential ones are those that were asked for."""
    many = jnp.arange(20_000)
    drawn = Delays(training=lognormal(10.0, sigma=0.5), upload=exponential(4.0)).stages(0, many, 0)
    assert float(jnp.median(drawn.training)) == pytest.approx(10, rel=0.02)
    assert float(jnp.std(jnp.log(drawn.training))) == pytest.approx(0.5, rel=0.02)
    assert float(jnp.mean(drawn.upload)) == pytest.approx(4, rel=0.03)
    assert float(jnp.mean(drawn.upload > 4 * np.log(2))) == pytest.approx(0.5, abs=0.02)


def test_work_multiplies_what_is_given_per_sample_and_per_megabyte() -> None:
    """0.02 s for each of 50 samples, and 2 s for each of 1.5 megabytes in both directions: 1 + 3 + 3 seconds."""
    link = constant(2, per="megabyte")
    delays = Delays(download=link, training=constant(0.02, per="sample"), upload=link)
    assert int(delays.milliseconds(0, 0, 0, work=Work(50, 1.5))) == 7000


def test_equal_models_have_equal_fingerprints() -> None:
    texts = [Delays(training=model).fingerprint() for model in (*MODELS.values(), constant(3.0), constant(4.0))]
    assert texts[0] == texts[-2]
    assert len(set(texts)) == len(texts) - 1
    assert Delays(upload=1).fingerprint() != Delays(download=1).fingerprint()


def test_the_number_of_clients() -> None:
    assert Delays(training=3).num_clients is None
    assert Delays(training=constant([1, 2]), upload=1).num_clients == 2
    with pytest.raises(ConfigError, match=r"different numbers of clients, \[2, 3\]"):
        _ = Delays(training=constant([1, 2]), upload=constant([1, 2, 3])).num_clients


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: constant(-1), "seconds=-1.0: must be finite, 0 or larger"),
        (lambda: constant([1, float("nan")]), "seconds=nan: must be finite"),
        (lambda: constant([[1.0]]), "not an array of shape"),
        (lambda: constant("a"), "seconds='a': give a number"),
        (lambda: constant(1, per="batch"), "per='batch': choose one of task, sample, megabyte"),  # type: ignore[arg-type]
        (lambda: lognormal([1, 2], sigma=[1, 2, 3]), r"different numbers of clients, \[2, 3\]"),
    ],
)
def test_arguments_are_checked(make: "type[Duration]", message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[call-arg]


def test_empirical_durations_are_the_clients_own_values() -> None:
    """Client 0 has two values, each of which is drawn in about half of the tasks; client 1 has one."""
    delays = Delays(training=empirical([[30.0, 10.0], [20.0]]))
    drawn = np.array([delays.stages(0, jnp.arange(2), event).training for event in range(400)])
    assert set(drawn[:, 0].tolist()) == {10.0, 30.0}
    assert set(drawn[:, 1].tolist()) == {20.0}
    assert 0.4 < np.mean(drawn[:, 0] == 10.0) < 0.6
    assert delays.num_clients == 2


def test_empirical_durations_fail_where_the_drawn_value_did() -> None:
    """Client 0 fails in the tasks that take 10 or 15 seconds; the draws depend on ids, not on positions."""
    delays = Delays(training=empirical([[30.0, 10.0, 15.0], [20.0]], fails=[[False, True, True], [False]]), upload=1)
    clients, ids = jnp.arange(2), jnp.array([5, 8])
    seconds = np.array([delays.stages(0, clients, event, ids=ids).training for event in range(300)])
    fails = np.array([delays.fails(0, clients, event, ids=ids) for event in range(300)])
    np.testing.assert_array_equal(fails[:, 0], seconds[:, 0] < 20)
    assert not fails[:, 1].any()
    assert 0.57 < fails[:, 0].mean() < 0.77
    never = Delays(training=empirical([[30.0, 10.0, 15.0], [20.0]]), upload=1)
    assert never.fingerprint() != delays.fingerprint()
    assert not never.fails(0, clients, 0).any()


def test_recorded_durations_are_those_of_the_task() -> None:
    """The third task has the last row of the table. Client 1 fails in the first task, after 2 seconds."""
    delays = Delays(training=recorded([[1.0, 2.0], [3.0, 4.0]], fails=[[False, True], [False, False]]))
    clients = jnp.arange(2)
    assert [delays.milliseconds(7, clients, event).tolist() for event in range(3)] == [
        [1000, 2000],
        [3000, 4000],
        [3000, 4000],
    ]
    assert [delays.fails(7, clients, event).tolist() for event in range(2)] == [[False, True], [False, False]]
    assert Delays(training=constant(1.0)).fails(7, clients, 0).tolist() == [False, False]
    assert delays.num_clients == 2
    assert delays.fingerprint() != Delays(training=recorded([[1.0, 2.0], [3.0, 4.0]])).fingerprint()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: empirical([]), "there is no value for nobody"),
        (lambda: empirical([[1.0], []]), "there is no value for client 1; give at least one"),
        (lambda: empirical([[-1.0]]), "client 0: -1.0 seconds; they must be finite, 0 or larger"),
        (lambda: empirical([[1.0, 2.0]], fails=[[True]]), "fails: give one value for each of the seconds"),
        (lambda: recorded([1.0]), r"give tables of the same shape .* not \(1,\) and \(1,\)"),
        (lambda: recorded([[1.0]], fails=[[True, False]]), r"not \(1, 1\) and \(1, 2\)"),
        (lambda: recorded([["x"]]), "are not numbers"),
    ],
)
def test_measured_durations_are_checked(make: Callable[[], Duration], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
