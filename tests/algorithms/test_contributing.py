"""The example of CONTRIBUTING.md is a complete algorithm."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np

from fedlatest import always, fedavg, simulate
from fedlatest.algorithms.base import Algorithm
from tests.problems import MODEL, small_federation

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def example(folder: Path) -> Any:
    """Return the factory in the first Python block of CONTRIBUTING.md."""
    [code] = re.findall(r"```python\n(.*?)```", CONTRIBUTING.read_text(encoding="utf-8"), re.DOTALL)
    path = folder / "cautious.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("cautious", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cautious


def test_the_example_runs_and_is_fedavg_if_everyone_takes_part(tmp_path: Path) -> None:
    cautious = example(tmp_path)
    algorithm: Algorithm = cautious(weighting="none")
    assert algorithm.obstacles_to_deployment() == []
    federation = small_federation(6)
    results = [
        simulate(federation, MODEL, each, always(6), rounds=4, cohort_size=6, evaluate_every=4)
        for each in (algorithm, fedavg(weighting="none"))
    ]
    for ours, theirs in zip(results[0].params.values(), results[1].params.values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
