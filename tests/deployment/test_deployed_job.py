"""The digits app as real processes with TLS and keys, under kill -9 at random times: it finishes, the audit holds, and
the accuracy is that of a job without faults."""

import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from flwr.app import ArrayRecord, MetricRecord

from fedlatest.deployment.fault_injection import Fault, FaultInjector, plan_faults
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.scaffold import write_app
from fedlatest.deployment.supervise import supervise
from fedlatest.deployment.template.digits import client_app, task
from fedlatest.flower import FedLaAvg, LocalGrid, Timeouts, from_record, to_record
from fedlatest.ledger.audit import Audit, audit
from fedlatest.ledger.event_log import Event, read_events
from fedlatest.ledger.job_folder import find_ledger, find_stores
from tests.deployment.marked_processes import MARK, marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

NODES, COHORT = 5, 3
TRAINING = {"seed": 0, "local-steps": 50, "batch-size": 10, "learning-rate": 0.1}


class Outcome(NamedTuple):
    accuracy: float
    audit: Audit
    num_runs: int
    num_faults: int
    events: list[Event]


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no process of a test is still running at its end."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    assert marked(str(tmp_path)) == []


def deploy(
    folder: Path,
    *,
    rounds: int,
    seed: int,
    nodes: int = NODES,
    tls: bool = True,
    deadline: float = 30.0,  # on a machine with other work, replies have taken more than 12 s
    plan: tuple[Fault, ...] | None = None,
    settings: Mapping[str, Any] | None = None,
    **numbers: int,
) -> Outcome:
    """Run the job with a plan of faults, or with the given numbers of faults of each kind, and audit it."""
    write_app(folder / "app")
    federation = LocalFederation(folder, app=folder / "app", num_nodes=nodes, tls=tls)
    if plan is None:
        plan = plan_faults(federation.names, rounds=rounds, seed=seed, pause=deadline + 3, **numbers)
    faults = FaultInjector(plan)
    config = {
        **TRAINING, "rounds": rounds, "cohort-size": min(COHORT, nodes), "deadline": deadline, "min-clients": nodes,
        **(settings or {}),
    }  # fmt: skip
    with federation:
        status = supervise(federation, config, faults=faults)
    assert status.test_accuracy is not None
    ledger = find_ledger(folder)
    found = audit(ledger, find_stores(ledger))
    return Outcome(
        status.test_accuracy, found, len(status.runs), len(faults.injected), read_events(folder / "job/events.jsonl")
    )


def without_faults(folder: Path, *, rounds: int) -> float:
    """Return the accuracy of the same job in one process without faults."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    grid = LocalGrid()
    for number in range(NODES):
        node_config = {"state-dir": str(folder / f"{number}"), "partition-id": number, "num-partitions": NODES}
        grid.add(client_app.app, node_config, run_config=TRAINING)
    test = task.load_test()

    def evaluate(server_round: int, model: ArrayRecord) -> MetricRecord:
        return MetricRecord({**task.evaluate(from_record(model), *test)})

    strategy = FedLaAvg(job=folder / "job", cohort_size=COHORT, min_clients=NODES, timeouts=Timeouts(poll=0.001))
    result = strategy.start(grid, to_record(task.initial_model()), num_rounds=rounds, evaluate_fn=evaluate)
    accuracy = result.evaluate_metrics_serverapp[rounds]["accuracy"]
    assert isinstance(accuracy, float)
    return accuracy


def check(found: Outcome, *, rounds: int, faults: int, at_least: int, nodes: int = NODES) -> None:
    assert found.audit.holds
    assert found.audit.round == rounds
    assert len(found.audit.in_sum) == nodes
    assert at_least <= found.num_faults <= faults
    assert [event for event in found.events if event["event"] in ("lost", "restored", "resync")] == []


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
def test_a_job_finishes_despite_kills(tmp_path: Path) -> None:
    """Twenty rounds, three kills of nodes and two of the SuperLink."""
    found = deploy(tmp_path / "with_faults", rounds=20, node_kills=3, superlink_kills=2, seed=1)
    check(found, rounds=20, faults=5, at_least=4)
    assert found.num_runs > 1, "the SuperLink was killed, so the job continued in a new run"
    assert abs(found.accuracy - without_faults(tmp_path / "without_faults", rounds=20)) <= 0.02


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
def test_a_job_finishes_although_its_server_app_is_killed(tmp_path: Path) -> None:
    """Only the app is killed, once; its SuperLink and the nodes go on, and a new run continues the job."""
    found = deploy(tmp_path, rounds=5, nodes=2, tls=False, app_kills=1, seed=0)
    check(found, rounds=5, faults=1, at_least=1, nodes=2)
    assert found.num_runs == 2


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
def test_a_job_finishes_although_a_node_is_paused_for_longer_than_a_round(tmp_path: Path) -> None:
    """Rounds go on without the paused node; its late reply is accepted or refused, and the sum stays exact."""
    # At once after the start of the round: a node starts its ClientApp first, so it cannot have replied yet.
    pause = Fault(round=1, after=0.0, target="node1", down=16.0, kind="pause")
    found = deploy(tmp_path, rounds=6, nodes=2, tls=False, deadline=12.0, plan=(pause,), seed=0)
    check(found, rounds=6, faults=1, at_least=1, nodes=2)
    assert found.num_runs == 1
    assert [event for event in found.events if event["event"] == "merged" and event["unanswered"]]


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
def test_a_secure_job_finishes_despite_kills(tmp_path: Path) -> None:
    """Masked uploads; a node, the SuperLink and the server app are killed. Every round counts completely or not at all:
    the sum is exact, and the number of updates in it is that of the sessions that were unmasked."""
    settings = {"secure": True, "cohort-size": 4, "min-cohort": 2}
    found = deploy(tmp_path, rounds=8, seed=4, settings=settings, node_kills=1, superlink_kills=1, app_kills=1)
    check(found, rounds=8, faults=3, at_least=2)
    assert found.num_runs > 1
    merged = [event for event in found.events if event["event"] == "merged"]
    assert {len(event["applied"]) for event in merged} <= {0, 2, 3, 4}
    assert found.accuracy > 0.6, "after eight rounds without faults it is about 0.85"


@pytest.mark.slow
@pytest.mark.usefixtures("mark")
def test_rounds_of_a_secure_job_count_after_all_nodes_were_paused(tmp_path: Path) -> None:
    """All nodes are paused (SIGSTOP) for two deadlines and more, as in an outage of the network."""
    pauses = tuple(Fault(round=1, after=0.0, target=f"node{k}", down=24.0, kind="pause") for k in range(3))
    settings = {"secure": True, "cohort-size": 3, "min-cohort": 3}
    found = deploy(tmp_path, rounds=9, nodes=3, tls=False, deadline=8.0, plan=pauses, settings=settings, seed=0)
    check(found, rounds=9, faults=3, at_least=3, nodes=3)
    counted = [bool(event["applied"]) for event in found.events if event["event"] == "merged"]
    assert not all(counted[:4])
    assert sum(counted[4:]) >= 2


@pytest.mark.chaos
@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize("seed", [2, 3])
def test_a_long_job_finishes_despite_many_kills(seed: int, tmp_path: Path) -> None:
    """Sixty rounds, twelve kills of nodes and five of the SuperLink."""
    found = deploy(tmp_path / "with_faults", rounds=60, node_kills=12, superlink_kills=5, seed=seed)
    check(found, rounds=60, faults=17, at_least=13)
    assert found.num_runs > 1, "the SuperLink was killed, so the job continued in a new run"
    assert abs(found.accuracy - without_faults(tmp_path / "without_faults", rounds=60)) <= 0.02
