"""Programs that are compiled ahead, in threads, are found when they are called, and none is compiled twice."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from fedlatest import Progress, fedavg, fedlaavg, fedprox, load_digits
from fedlatest.experiments import FederationBuilder
from fedlatest.experiments.parallel_runs import Batch, BatchProgress, default_compile_threads, run_batches
from fedlatest.reproduction.mnist_figures import mnist_experiment
from fedlatest.runs import RunFolder
from fedlatest.simulation import needed_compilations, simulate_together
from fedlatest.simulation.compile_ahead import Compilation, CompileAhead
from tests.problems import small_federation
from tests.simulation.test_together import NIGHT, spec

OWN = {f"jit({name})" for name in ("initial_model", "start", "advance", "score", "average_errors")}
COMPILED = "/jax/core/compile/backend_compile_duration"


class Compiled:
    """The compilations of the engine's programs since the test began: the program and whether in the main thread."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.in_main_thread: list[str] = []
        self.changed = threading.Condition()

    def note(self, event: str, duration_secs: float, **facts: Any) -> None:
        name = facts.get("fun_name")
        if event != COMPILED or name not in OWN:
            return
        with self.changed:
            self.names.append(name)
            if threading.current_thread() is threading.main_thread():
                self.in_main_thread.append(name)
            self.changed.notify_all()


@pytest.fixture
def compiled() -> Iterator[Compiled]:
    jax.clear_caches()
    found = Compiled()
    jax.monitoring.register_event_duration_secs_listener(found.note)
    yield found
    jax.monitoring.unregister_event_duration_listener(found.note)


def test_later_programs_compile_while_a_batch_runs(compiled: Compiled, tmp_path: Path) -> None:
    """The first batch does not go on before the second one's rounds are compiled; nothing compiles in this thread."""
    settings = "num_clients=20 local_steps=2 rounds=60 evaluate_every=5"
    names = ["fedavg", "fedprox", "fedsgd"]
    experiments = [mnist_experiment(f"algorithm={name} {settings}") for name in names]
    batches = [Batch((experiment,), (tmp_path / experiment.name,)) for experiment in experiments]
    waited: list[bool] = []

    def on_progress(progress: BatchProgress) -> None:
        if progress.batch == 0 and not waited:
            with compiled.changed:
                waited.append(compiled.changed.wait_for(lambda: compiled.names.count("jit(advance)") == 3, timeout=90))

    run_batches(batches, FederationBuilder(load_digits()), [0, 1], on_progress, compile_threads=2)
    assert waited == [True]
    assert compiled.in_main_thread == []
    once = ["jit(initial_model)", "jit(score)"]  # these do not depend on the algorithm
    assert sorted(compiled.names) == sorted(["jit(advance)", "jit(start)"] * 3 + once)
    for experiment in experiments:
        folder = RunFolder(tmp_path / experiment.name)
        alone = experiment.run(load_digits(), seeds=[0, 1]).metrics
        np.testing.assert_array_equal(folder.metrics().column("train_loss"), alone.column("train_loss"))
    assert compiled.in_main_thread == []


@pytest.mark.parametrize("side_by_side", [pytest.param(False, marks=pytest.mark.slow), True])
def test_resumed_runs_on_different_data_find_their_programs(
    compiled: Compiled, side_by_side: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run is finished, one was cut at round 5 of 10, two on different data have not begun."""
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)
    other = small_federation(8, seed=2)
    specs = [spec(fedlaavg(), rate=rate) for rate in (0.1, 0.2, 0.3)]
    specs.append(spec(fedlaavg(), NIGHT, federation=other))
    folders = [tmp_path / str(number) for number in range(4)]

    def cut(progress: Progress) -> None:
        if progress.round == 5:
            raise KeyboardInterrupt

    simulate_together(specs[:1], folders[:1])
    with pytest.raises(KeyboardInterrupt):
        simulate_together(specs[1:2], folders[1:2], on_progress=cut)
    jax.clear_caches()
    compiled.in_main_thread.clear()
    with CompileAhead(2) as ahead:
        ahead.plan(partial(needed_compilations, specs, folders)).wait()
    assert "jit(advance)" in compiled.names
    simulate_together(specs, folders, resume=True)
    assert compiled.in_main_thread == []
    assert all(RunFolder(folder).finished for folder in folders)


def test_equal_programs_are_compiled_once(compiled: Compiled) -> None:
    """Algorithms that differ in numbers, and a program that is planned twice."""
    specs = [spec(fedprox(mu=0.1)), spec(fedprox(mu=0.2)), spec(fedavg())]
    with CompileAhead(2) as ahead:
        for each in (*specs, specs[0]):
            ahead.plan(partial(needed_compilations, [each], [Path("nowhere")])).wait()
    assert compiled.names.count("jit(advance)") == 2
    assert compiled.names.count("jit(score)") == 1


def test_an_error_is_left_to_the_call() -> None:
    """Neither an invalid plan nor a program that cannot be compiled stops the others."""

    def fail() -> list[Compilation]:
        raise ValueError

    add = jax.jit(lambda x, y: x + y)
    with CompileAhead(1) as ahead:
        ahead.plan(fail).wait()
        ahead.plan(lambda: [Compilation(add, (np.zeros(2), np.zeros(3)), {})]).wait()
        ahead.plan(lambda: [Compilation(add, (np.zeros(2), np.zeros(2)), {})]).wait()


def test_nothing_compiles_ahead_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the cores are busy with the rounds."""
    assert default_compile_threads() == 0
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr("fedlatest.experiments.parallel_runs.num_cores", lambda: 16)
    assert default_compile_threads() == 8
