"""Simulated runs that several tests of the report read."""

import numpy as np
import pytest

from fedlatest import diurnal, fedavg, fedlaavg, sequential, simulate
from fedlatest.report import RunRecord, read_runs
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(8, seed=1)
DAY = diurnal(np.arange(8) < 3, period=4)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    """Runs of FedLaAvg, FedAvg and sequential SGD, by the algorithm's name."""
    folder = tmp_path_factory.mktemp("runs")
    for algorithm in (fedlaavg(), fedavg(), sequential()):
        simulate(
            FEDERATION, MODEL, algorithm, DAY, rounds=20, cohort_size=3, num_local_steps=2, batch_size=3,
            evaluate_every=5, seeds=(0, 1), out=folder / algorithm.name,
        )  # fmt: skip
    return {record.path.name: record for record in read_runs([folder])}
