"""One run uses all threads, and its results do not depend on how many there are or how a cohort is divided."""

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest import Federation, diurnal, fedlaavg, logistic, simulate
from tests.kernels.recurrence_backends import needs_compiler

pytestmark = needs_compiler
CLIENTS, FEATURES = 12, 700  # two blocks of columns for each thread in the sums over the cohort


def run_small(clients_at_once: int | None = None) -> Any:
    """Return the model after a few rounds in which threads share the cohort."""
    rng = np.random.default_rng(0)
    federation = Federation(
        name="small",
        features=rng.random((CLIENTS * 5, FEATURES), dtype=np.float32),
        labels=rng.integers(0, 3, CLIENTS * 5, dtype=np.int32),
        test_features=rng.random((4, FEATURES), dtype=np.float32),
        test_labels=np.arange(4, dtype=np.int32) % 3,
        order=np.arange(CLIENTS * 5, dtype=np.int32),
        offsets=np.arange(0, CLIENTS * 5 + 1, 5),
    )
    result = simulate(
        federation,
        logistic(num_features=FEATURES, num_classes=3),
        fedlaavg(),
        diurnal(np.arange(CLIENTS) < 4, period=2),
        rounds=6,
        cohort_size=8,
        num_local_steps=3,
        batch_size=2,
        evaluate_every=6,
        clients_at_once=clients_at_once,
    )
    return result.params["weight"]


def in_new_process(**environment: str) -> Any:
    script = (
        "import sys, numpy; from tests.kernels.test_threads import run_small; "
        "numpy.save(sys.stdout.buffer, run_small(), allow_pickle=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
    )
    return np.load(BytesIO(done.stdout), allow_pickle=False)


@pytest.mark.parametrize(
    "environment", [pytest.param({"NPROC": "4"}, marks=pytest.mark.slow), {"NPROC": "4", "FEDLATEST_THREADS": "2"}]
)
def test_threads_do_not_change_the_result(environment: dict[str, str]) -> None:
    np.testing.assert_array_equal(in_new_process(**environment), run_small())


@pytest.mark.parametrize("clients_at_once", [1, 3])
def test_chunks_do_not_change_the_result(clients_at_once: int) -> None:
    np.testing.assert_array_equal(run_small(clients_at_once), run_small())
