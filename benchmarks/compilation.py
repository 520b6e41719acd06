"""How much is compiled a second time: in one process, and in a second process: `python -m benchmarks.compilation`.

Two calls of `simulate` with equal shapes but other numbers, and the same `fedlatest run` twice. The cache of compiled
programs is empty at the beginning. A program that is found in the cache is not a compilation.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import describe_machine

COMPILE = "/jax/core/compile/backend_compile_duration"  # also when the program is found in the cache
CACHE_HIT = "/jax/compilation_cache/cache_hits"


class Compilations:
    """Counts compilations in this process, and the seconds that they and reading the cache take."""

    def __init__(self) -> None:
        import jax

        self.programs, self.hits, self.seconds = 0, 0, 0.0
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        if event == COMPILE:
            self.programs += 1
            self.seconds += duration_secs

    def _on_event(self, event: str, **_: Any) -> None:
        self.hits += event == CACHE_HIT

    def report(self) -> "Counts":
        """Return what was counted so far."""
        return Counts(self.programs - self.hits, self.hits, self.seconds)


class Counts(NamedTuple):
    """Compilations, programs found in the cache, and the seconds of both."""

    compiled: int
    found: int
    seconds: float

    def since(self, earlier: "Counts") -> "Counts":
        """Return what was counted after `earlier`."""
        return Counts(self.compiled - earlier.compiled, self.found - earlier.found, self.seconds - earlier.seconds)


def two_simulations() -> list[dict[str, Any]]:
    """Two calls of `simulate` in this process: equal shapes, another learning rate and other models' values."""
    import numpy as np

    from benchmarks import workloads
    from fedlatest import diurnal, fedlaavg, logistic, simulate

    counter, rows = Compilations(), []
    for learning_rate in (0.01, 0.02):
        before, begun = counter.report(), time.perf_counter()
        simulate(
            workloads.images(100, 20),
            logistic(num_features=workloads.PIXELS, num_classes=workloads.CLASSES),
            fedlaavg(),
            diurnal(np.arange(100) < 10, period=10),
            rounds=40,
            cohort_size=10,
            learning_rate=learning_rate,
        )
        rows.append({**counter.report().since(before)._asdict(), "wall": time.perf_counter() - begun})
    return rows


def one_command(folder: Path) -> dict[str, Any]:
    """`fedlatest run quickstart` in this process."""
    from fedlatest.cli import main as fedlatest

    counter, begun = Compilations(), time.perf_counter()
    sys.argv = ["fedlatest", "run", "quickstart", "--force", "--out", str(folder)]
    stdout, sys.stdout = sys.stdout, sys.stderr
    try:
        fedlatest()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.stdout = stdout
    return {**counter.report()._asdict(), "wall": time.perf_counter() - begun}


def main() -> None:
    if sys.argv[1:2] == ["--simulate"]:
        print(json.dumps(two_simulations()))
        return
    if sys.argv[1:2] == ["--command"]:
        print(json.dumps([one_command(Path(sys.argv[2]))]))
        return
    print(describe_machine(), "\n")
    print("| what | programs compiled | found in the cache | seconds of both | seconds in all |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        names = ("first simulate()", "second simulate() in one process")
        for name, row in zip(names, _in_a_process(folder, "--simulate"), strict=True):
            _print(name, row)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first `fedlatest run quickstart`", "second `fedlatest run quickstart`"):
            [row] = _in_a_process(folder, "--command", str(Path(folder) / "run"))
            _print(name, row)


def _in_a_process(cache: str, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.compilation", *arguments]
    jax_cache = ("JAX_COMPILATION", "JAX_PERSISTENT")  # would stand instead of ours
    own = {name: value for name, value in os.environ.items() if not name.startswith(jax_cache)}
    environment = {"NPROC": "1", **own, "FEDLATEST_CACHE": cache}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return list(json.loads(done.stdout.splitlines()[-1]))


def _print(name: str, row: dict[str, Any]) -> None:
    print(f"| {name} | {row['compiled']} | {row['found']} | {row['seconds']:.2f} | {row['wall']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
