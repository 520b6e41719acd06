"""`simulate`: its metrics, run folder, final models and errors."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import (
    Algorithm,
    ConfigError,
    DivergedError,
    Model,
    Progress,
    Result,
    RunFolder,
    RunFolderError,
    always,
    bernoulli,
    diurnal,
    fedavg,
    fedlaavg,
    load_model,
    mlp,
    restrict,
    sequential,
    simulate,
)
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.program import State
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(8, seed=1)
PATTERN = diurnal(np.arange(8) < 3, period=4)


def run_small(
    algorithm: Any = None, federation: Any = FEDERATION, availability: Any = PATTERN, **options: Any
) -> Result:
    defaults: dict[str, Any] = {
        "rounds": 10, "cohort_size": 3, "num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2,
        "evaluate_every": 5,
    }  # fmt: skip
    return simulate(federation, MODEL, algorithm or fedlaavg(), availability, **(defaults | options))


@pytest.fixture(scope="module")
def result() -> Result:
    """The result of a run without a folder."""
    return run_small()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """12 rounds, evaluated every fifth, of two seeds, in a folder that tests only read."""
    folder = tmp_path_factory.mktemp("runs") / "a/b"
    return folder, run_small(out=folder, seeds=(0, 7), rounds=12)


def test_evaluations_and_their_columns(run: tuple[Path, Result]) -> None:
    """Round 0, every fifth, and the last; a row per seed; columns about a round are empty before the first round."""
    with (run[0] / "metrics.csv").open() as file:
        header, *rows = csv.reader(file)
    assert ",".join(header) == (
        "seed,round,seconds,train_loss,train_accuracy,test_loss,test_accuracy,"
        "num_available,cohort_size,mean_staleness,max_staleness,average_error,time,downloads,uploads,merged"
    )
    assert [(row[0], row[1]) for row in rows] == [(seed, r) for r in ("0", "5", "10", "12") for seed in ("0", "7")]
    assert rows[0][7:11] == ["", "", "", ""]


def test_numbers_of_the_last_round(result: Result) -> None:
    """Blocks of 4: after 5 rounds the other group (5 clients) is available, and K = 3 of them trained in round 4.

    Staleness after the selection in round 4: the first group of 3 trained in rounds 0 .. 3 (K = 3, so each time all),
    so it is 1 for each of them; 3 of the others 0; the 2 never seen 5. Mean (3 * 1 + 2 * 5) / 8.
    """
    row = next(row for row in result.metrics.rows if row.round == 5)
    assert (row.num_available, row.cohort_size, row.max_staleness) == (5, 3, 5)
    assert row.mean_staleness == pytest.approx(13 / 8)


def test_scores_are_those_of_the_model(result: Result) -> None:
    """Loss and accuracy on the full sets equal those computed in NumPy from the final parameters."""
    weight, bias = (np.asarray(result.params[name][0], np.float64) for name in ("weight", "bias"))
    last = result.metrics.rows[-1]
    for features, labels, loss, accuracy in (
        (FEDERATION.features, FEDERATION.labels, last.train_loss, last.train_accuracy),
        (FEDERATION.test_features, FEDERATION.test_labels, last.test_loss, last.test_accuracy),
    ):
        logits = features @ weight.T + bias
        expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
        assert loss == pytest.approx(expected.mean(), rel=1e-5)
        assert accuracy == pytest.approx((logits.argmax(axis=1) == labels).mean())


def test_scores_do_not_depend_on_slices(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlatest.simulation.evaluation.ROWS_AT_ONCE", 7)
    jax.clear_caches()  # the constant is part of the compiled program
    sliced = run_small().metrics.rows[-1]
    jax.clear_caches()  # other tests must not find this one
    assert sliced[3:7] == pytest.approx(result.metrics.rows[-1][3:7], rel=1e-6)


@pytest.mark.parametrize("algorithm", [fedlaavg(), fedavg()])
def test_average_error_is_recorded_if_updates_are_remembered(algorithm: Algorithm) -> None:
    last = run_small(algorithm).metrics.rows[-1]
    if algorithm.client_state(jnp.zeros(1)).remembered:
        assert last.average_error is not None
        assert last.average_error < 2e-6
    else:
        assert last.average_error is None


def test_folder_of_a_finished_run(run: tuple[Path, Result]) -> None:
    path, result = run
    folder = RunFolder(path)
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "clients.npz", "labels.csv", "manifest.json", "metrics.csv", "model.safetensors", "participation.npz",
    ]  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["seeds"] == [0, 7]
    assert manifest["config"]["algorithm"] == {
        "name": "fedlaavg", "title": "FedLaAvg", "weighting": "loss", "empty_round": "step", "server_step": 1.0,
        "fresh": "average", "average_over": "all", "damping": 0.0, "selection": "oldest",
    }  # fmt: skip
    assert manifest["data"]["partition"].startswith("blake2b:")
    assert manifest["device"]["platform"] == "cpu"
    assert {"fedlatest", "jax", "numpy", "python"} <= set(manifest["versions"])
    # E = 5 for blocks of 4; I = ceil(8 / 3) * 5 - 1
    assert manifest["availability"]["smallest_e"] == 5
    assert manifest["availability"]["staleness_bound"] == 14
    assert manifest["availability"]["largest_staleness"] == result.largest_staleness <= 14


def test_cohorts_are_recorded(tmp_path: Path) -> None:
    """The recorded cohorts imply the staleness in the metrics."""
    result = run_small(out=tmp_path, seeds=(0, 7), rounds=60)
    recorded = RunFolder(tmp_path).participation()
    assert recorded.num_rounds == 60
    for index, seed in enumerate((0, 7)):
        last = np.full(8, -1)
        for round in range(60):
            cohort = recorded.cohort(seed=index, round=round)
            assert PATTERN.available(round, 0)[cohort].all()
            last[cohort] = round
            row = next((row for row in result.metrics.rows if row.seed == seed and row.round == round + 1), None)
            if row:
                assert row.max_staleness == (round - last).max()
                assert row.cohort_size == cohort.size


def test_model_loads_and_predicts(run: tuple[Path, Result]) -> None:
    path, result = run
    for seed in (0, 7):
        trained = load_model(path, seed=seed)
        predicted = trained.predict(FEDERATION.test_features)
        row = [row for row in result.metrics.rows if row.seed == seed][-1]
        assert (predicted == FEDERATION.test_labels).mean() == pytest.approx(row.test_accuracy)
    with pytest.raises(RunFolderError, match="seed=3 was not run; it holds 0, 7"):
        load_model(path, seed=3)


def test_a_custom_model_is_loaded_with_its_functions(tmp_path: Path) -> None:
    own = Model(lambda key: {"w": jnp.zeros((4, 3))}, lambda params, features: features @ params["w"])
    simulate(FEDERATION, own, fedlaavg(), PATTERN, rounds=3, cohort_size=3, out=tmp_path)
    with pytest.raises(RunFolderError, match="model of your own; pass it"):
        load_model(tmp_path)
    assert load_model(tmp_path, model=own).predict(FEDERATION.test_features).shape == (20,)
    with pytest.raises(RunFolderError, match="expected"):
        load_model(tmp_path, model=MODEL)


def test_mlp_trains() -> None:
    model = mlp(num_features=4, num_classes=3, hidden=8)
    rows = simulate(
        FEDERATION, model, sequential(), PATTERN, rounds=40, cohort_size=3, learning_rate=0.2, evaluate_every=40
    ).metrics.rows
    assert rows[-1].train_loss < 0.8 * rows[0].train_loss


def test_divergence_names_seed_round_and_client() -> None:
    """Client 5's features are huge: its first participation overflows. Seed 7 is not the first seed."""
    features = FEDERATION.features.copy()
    start, end = FEDERATION.offsets[5:7]
    features[FEDERATION.order[start:end]] = 3e38
    broken = replace(FEDERATION, features=features)
    with pytest.raises(DivergedError, match=r"client 5 in round \d+ \(seed 7\).*smaller learning_rate"):
        run_small(fedavg(), broken, always(8), seeds=(7,), learning_rate=1e3)


def test_divergence_names_the_right_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed is its own batch on a CPU; only the model of seed 9 overflows."""
    spec = ExperimentSpec(
        FEDERATION, MODEL, fedavg(), always(8), 3, num_local_steps=2, batch_size=3, learning_rate=0.2, seeds=[4, 9]
    )
    engine = Engine([spec])
    first, second = engine.start()
    poisoned: State = second._replace(
        server=second.server._replace(params={name: leaf * np.inf for name, leaf in second.server.params.items()})
    )
    states, _ = engine.advance([first, poisoned], 5)
    healthy, failed = engine.failures(states)
    assert healthy is None
    assert "in round 0 (seed 9)" in str(failed)


def test_progress_callback() -> None:
    heard: list[Progress] = []
    run_small(on_progress=heard.append, rounds=120, evaluate_every=60)
    assert [progress.round for progress in heard] == [0, 50, 60, 110, 120]
    assert [len(progress.rows) for progress in heard] == [1, 0, 1, 0, 1]
    assert heard[-1].seconds_left == 0
    # samples and the state of 8 clients: more than 1000 bytes, less than a MiB
    assert 1000 < heard[0].bytes_needed < 2**20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds=0"),
        ({"evaluate_every": 0}, "evaluate_every=0"),
        ({"cohort_size": 9}, r"cohort_size=9: choose 1 \.\. 8"),
        ({"cohort_size": 0}, "cohort_size=0"),
        ({"cohort_size": None}, "either cohort_size"),
        ({"participation": 0.5}, "either cohort_size"),
        ({"cohort_size": None, "participation": 1.5}, r"participation=1\.5"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"num_local_steps": 0}, "num_local_steps=0"),
        ({"learning_rate": 0.0}, r"learning_rate=0\.0"),
        ({"learning_rate": math.nan}, "learning_rate=nan"),
        ({"seeds": ()}, r"seeds=\(\)"),
        ({"seeds": (1, 1)}, r"seeds=\(1, 1\)"),
        ({"seeds": (-1,)}, r"seeds=\(-1,\)"),
        ({"availability": bernoulli([0.5])}, "availability covers 1 clients, the federation has 8"),
        ({"resume": True}, "only a run with `out`"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run_small(**options)


def test_a_folder_with_other_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for force in (False, True):
        with pytest.raises(RunFolderError, match="not empty and holds no run"):
            run_small(out=tmp_path, force=force)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_force_deletes_only_files_of_a_run(tmp_path: Path) -> None:
    run_small(out=tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    run_small(out=tmp_path, force=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_tensorboard(tmp_path: Path) -> None:
    run_small(out=tmp_path, tensorboard=True, seeds=(0, 7))
    assert len(list(tmp_path.glob("tensorboard/seed-*/events*"))) == 2


def test_bound_is_over_all_seeds_and_only_where_the_lemma_applies(tmp_path: Path) -> None:
    """Random availability differs between seeds; E is the largest of theirs. FedAvg has no bound, pooled data no E."""
    coins = bernoulli(np.full(8, 0.3))
    run_small(availability=coins, out=tmp_path / "a", seeds=(0, 1, 2, 3), rounds=60)
    facts = RunFolder(tmp_path / "a").manifest["availability"]
    found = [coins.assumption(60, seed).smallest_e or 0 for seed in range(4)]
    assert facts["smallest_e"] == max(found) > min(found)
    assert facts["largest_staleness"] <= facts["staleness_bound"] == 3 * max(found) - 1
    run_small(fedavg(), out=tmp_path / "b")
    assert RunFolder(tmp_path / "b").manifest["availability"]["staleness_bound"] is None
    run_small(sequential(), out=tmp_path / "c")
    assert RunFolder(tmp_path / "c").manifest["availability"]["smallest_e"] is None
    assert facts["assumption_holds"]
    assert RunFolder(tmp_path / "c").manifest["availability"]["assumption_holds"] is None
    run_small(availability=restrict(always(8), np.arange(8) != 5), out=tmp_path / "d")
    absent = RunFolder(tmp_path / "d").manifest["availability"]
    assert (absent["assumption_holds"], absent["never_available"], absent["staleness_bound"]) == (False, [5], None)


def test_a_model_may_be_any_callable() -> None:
    """An object that cannot be hashed, such as a module that holds arrays, works like a plain function."""

    class Own:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, key: Any) -> Any:
            return MODEL.init(key)

    models = (MODEL, Model(Own(), MODEL.apply))
    [plain], [own] = (Engine([ExperimentSpec(FEDERATION, model, fedavg(), PATTERN, 3)]).start() for model in models)
    np.testing.assert_array_equal(plain.server.params["weight"], own.server.params["weight"])


def test_low_precision_models_keep_their_type() -> None:
    half = Model(
        lambda key: {"w": jnp.zeros((4, 3), jnp.bfloat16)},
        lambda params, features: (features.astype(jnp.bfloat16) @ params["w"]).astype(jnp.float32),
    )
    for algorithm in (fedlaavg(), fedavg()):
        result = simulate(FEDERATION, half, algorithm, PATTERN, rounds=4, cohort_size=3)
        assert result.params["w"].dtype == jnp.bfloat16
        assert np.abs(result.params["w"].astype(np.float32)).max() > 0


def test_too_few_outputs_are_refused() -> None:
    with pytest.raises(ConfigError, match="the model has 2 outputs, the data 3 labels"):
        simulate(FEDERATION, mlp(num_features=4, num_classes=2), fedlaavg(), PATTERN, rounds=1, cohort_size=3)


def test_a_run_that_does_not_fit_into_memory_is_refused() -> None:
    """8 clients that each remember a model of 2^37 numbers: 4 TiB, printed in GiB."""
    huge = Model(lambda key: {"w": jnp.zeros((2**34, 8))}, lambda params, features: features[:, :3])
    with pytest.raises(
        ConfigError,
        match=r"needs \d{4,}\.\d GiB of memory in addition to its data, .* GiB are available; use fewer clients",
    ):
        simulate(FEDERATION, huge, fedlaavg(), PATTERN, rounds=1, cohort_size=3)


def test_numpy_numbers_are_numbers(tmp_path: Path) -> None:
    run_small(out=tmp_path, seeds=np.arange(2), learning_rate=np.float32(0.25), num_local_steps=np.int64(2))
    assert RunFolder(tmp_path).manifest["seeds"] == [0, 1]


def test_estimated_time_excludes_compilation() -> None:
    """Blocks of 50 and of 10 rounds: no estimate until a length occurs a second time."""
    heard: list[Progress] = []
    run_small(on_progress=heard.append, rounds=180, evaluate_every=60)
    assert [progress.seconds_left is None for progress in heard] == [True, True, True, False, False, False, False]
    assert all((progress.seconds_left or 0) < 5 for progress in heard)
