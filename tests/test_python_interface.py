"""Mistakes in Python code give one clear error each; results are easy to look at."""

import builtins
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedlatest
from fedlatest import ConfigError, DataError, MissingExtraError, Result, Samples
from fedlatest.runs import Metrics, Row
from fedlatest.simulation import printed_progress

FEATURES, LABELS = np.zeros((6, 3), np.float32), np.array([0, 1, 2, 0, 1, 2])
SAMPLES = Samples("hand", FEATURES, LABELS, FEATURES, LABELS)
FEDERATION = SAMPLES.to_federation(fedlatest.iid(LABELS, num_clients=2, seed=0))
PARTS: dict[str, Any] = {
    "federation": FEDERATION,
    "model": fedlatest.logistic(num_features=3, num_classes=3),
    "algorithm": fedlatest.fedlaavg(),
    "availability": fedlatest.always(2),
}
ONE_HOT = Samples("hand", FEATURES, np.eye(3)[LABELS], FEATURES, np.eye(3)[LABELS])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algorithm": fedlatest.fedlaavg},
            "algorithm: fedlaavg is a function that makes one; call it, as in",
        ),
        ({"algorithm": "fedavg"}, "algorithm: expected what a factory returns, such as fedlaavg(), not a str"),
        ({"availability": np.ones(2)}, "availability: expected what a factory returns, such as bernoulli(rates) or"),
        ({"availability": np.ones((9, 2))}, "availability: expected what a factory returns"),
        ({"model": fedlatest.logistic(num_features=4, num_classes=3)}, "the model (name=logistic, num_features=4"),
        ({"federation": ONE_HOT.to_federation(fedlatest.iid(LABELS, num_clients=2, seed=0))}, "the labels have the"),
        ({"rounds": 2.7}, "rounds=2.7: must be a whole number"),
        ({"batch_size": "5"}, "batch_size='5': must be a whole number"),
        ({"seeds": (0.5,)}, "seeds=0.5: must be a whole number"),
        ({"learning_rate": float("inf")}, "learning_rate=inf: must be a finite number above 0, or a schedule"),
        ({"learning_rate": "fast"}, "learning_rate='fast': must be a finite number above 0, or a schedule"),
    ],
)
def test_wrong_arguments_of_simulate(changes: dict[str, Any], message: str) -> None:
    arguments = {**PARTS, "rounds": 1, "cohort_size": 1, **changes}
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        fedlatest.simulate(**arguments)


def test_labels_of_another_form() -> None:
    with pytest.raises(DataError, match=r"^hand: labels must be an array, not a list; convert it with np\.asarray$"):
        SAMPLES._replace(labels=LABELS.tolist()).to_federation(fedlatest.iid(LABELS, num_clients=2, seed=0))
    features: Any = FEATURES.tolist()
    with pytest.raises(DataError, match=r"^hand: test_features must be an array, not a list"):
        SAMPLES._replace(test_features=features).to_federation(fedlatest.iid(LABELS, num_clients=2, seed=0))
    for partition in (fedlatest.iid, fedlatest.by_label, fedlatest.dirichlet):
        as_list = partition(LABELS.tolist(), num_clients=3, seed=0)
        np.testing.assert_array_equal(as_list.order, partition(LABELS, num_clients=3, seed=0).order)
        with pytest.raises(ConfigError, match=r"^labels: must be one label per sample, .* labels\.argmax\(axis=1\)$"):
            partition(np.eye(3)[LABELS], num_clients=3, seed=0)
    with pytest.raises(ConfigError, match=r"^clients: must be one name or number for each sample"):
        fedlatest.by_client(np.eye(2))


def test_progress_is_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still: on a busy computer, a run of two rounds may take longer than the time between lines."""
    monkeypatch.setattr(printed_progress, "time", SimpleNamespace(monotonic=lambda: 0.0))
    seen = []
    result = fedlatest.simulate(
        **PARTS, rounds=2, cohort_size=1, progress=True, on_progress=lambda progress: seen.append(progress.round)
    )
    assert capsys.readouterr().err == "compiling\nround 2/2, test accuracy 0.3333\n"
    assert seen[-1] == 2
    assert repr(result) == ("Result(rounds=2, seeds=1, final test accuracy 0.3333, largest_staleness=1, folder=None)")


def test_the_representation_of_a_result_is_short() -> None:
    metrics = Metrics([Row(seed, 40, 0.0, 1.0, 0.5, 1.0, 0.25 * seed) for seed in range(4)])
    text = (
        "Result(rounds=40, seeds=4, final test accuracy 0.0000, 0.2500, 0.5000, ..., largest_staleness=7, folder=None)"
    )
    assert repr(Result(metrics, {"weight": np.zeros(1000)}, 7, None)) == text


def test_metrics_as_a_data_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics([Row(0, 0, 0.5, 1.0, 0.5, 1.0, 0.25)])
    pytest.importorskip("pandas")
    frame = metrics.to_pandas()
    assert frame.columns[:3].tolist() == ["seed", "round", "seconds"]
    assert frame["test_accuracy"].tolist() == [0.25]

    def without_pandas(name: str, *arguments: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return original(name, *arguments)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MissingExtraError, match=r"^to_pandas needs packages .* pip install '\.\[pandas\]'"):
        metrics.to_pandas()
