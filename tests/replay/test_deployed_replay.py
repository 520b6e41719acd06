"""A deployment of real processes, replayed with its own algorithm: the same clients are asked and answer."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import fedlatest_here
from tests.deployment.test_deployed_job import deploy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

ROUNDS = 20  # of about 6 s


@pytest.mark.parametrize("faults", [{}, {"node_pauses": 3, "node_kills": 2}], ids=["without faults", "with pauses"])
def test_own_algorithm_repeats_the_recorded_rounds(faults: Any, tmp_path: Path) -> None:
    """Required: identical sets of clients in at least 95% of the rounds, asked and answered alike."""
    outcome = deploy(tmp_path / "deployment", rounds=ROUNDS, seed=1, nodes=6, tls=False, deadline=20.0, **faults)
    done = fedlatest_here("replay", "deployment", "--algorithms", "fedlaavg,fedavg", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "out/replay.json").read_text())
    found = facts["agreement"]["fedlaavg"]
    print(found, {row["algorithm"]: row["virtual_seconds"] for row in facts["results"]}, facts["recorded_seconds"])
    assert found["rounds"] == ROUNDS
    assert found["both"] >= 0.95
    [own, other] = facts["results"]
    assert own["virtual_seconds"] == pytest.approx(facts["recorded_seconds"], rel=0.02)
    assert own["final_accuracy"] == pytest.approx(outcome.accuracy, abs=0.05)
    assert other["uploads"] > 0
