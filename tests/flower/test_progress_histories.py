"""After any history of faults of a job with its round loop, a round counts within `ROUNDS_UNTIL_PROGRESS` rounds."""

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from fedlatest.algorithms import fedlaavg
from fedlatest.flower import SecureAggregation, Timeouts
from fedlatest.privacy import Privacy
from tests.flower.small_job import SmallJob, lose
from tests.flower.test_progress import spoil
from tests.flower.test_secure_job import kind_of

ROUNDS_UNTIL_PROGRESS = 8  # R in docs/guarantees.md
CLIENTS = "abcde"
UNWEIGHTED = fedlaavg(weighting="none", empty_round="hold")
PRIVACY = Privacy(epsilon=50.0, delta=1e-5, clip_norm=1.0, rounds=200)
JOBS: dict[str, dict[str, Any]] = {
    "plain": {"memory": "client"},
    "server": {"memory": "server"},
    "private": {"privacy": PRIVACY, "algorithm": UNWEIGHTED},
    "secure": {"secure": SecureAggregation(min_cohort=3, num_decryptors=5)},
}


class FaultyJob(SmallJob):
    """A job whose faults are the methods `do_NAME`; each lasts for the rounds until the next one."""

    def __init__(self, folder: Path, draw: random.Random, kind: str) -> None:
        timeouts = Timeouts(deadline=6, poll=1, late_reply=draw.choice([6, 12]))
        super().__init__(folder, clients=CLIENTS, cohort_size=draw.choice([3, 4, 5]), timeouts=timeouts, **JOBS[kind])
        self.draw = draw

    def stop_faults(self) -> None:
        """Bring all nodes online; all replies arrive."""
        self.grid.on_reply = lambda node, message: message
        self.online(CLIENTS)

    def some_nodes(self) -> list[int]:
        """Return the nodes of one to four clients."""
        return [self.nodes[name] for name in self.draw.sample(CLIENTS, self.draw.randint(1, 4))]

    def do_nothing(self) -> None:
        """Let all clients answer."""

    def do_outage(self) -> None:
        """Lose all replies."""
        self.grid.on_reply = lose

    def do_offline(self) -> None:
        """Disconnect some nodes."""
        self.online("".join(self.draw.sample(CLIENTS, self.draw.randint(0, 4))))

    def do_silent(self) -> None:
        """Lose the replies of some clients."""
        silent = self.some_nodes()
        self.grid.on_reply = lambda node, message: None if node in silent else message

    def do_silent_decryptors(self) -> None:
        """Lose the shares of some decryptors."""
        silent = self.some_nodes()
        self.grid.on_reply = lambda node, message: (
            None if node in silent and kind_of(message) == "unmasked" else message
        )

    def do_wrong_masks(self) -> None:
        """Let some clients use other masks than they share."""
        nodes = self.some_nodes()

        def change(node: int, message: Message) -> Message:
            return spoil(message) if node in nodes and kind_of(message) == "upload" else message

        if self.ledger.secure is not None:
            self.grid.on_reply = change

    def do_lose_keys(self) -> None:
        """Delete the key files of some clients, which stay connected."""
        for path in self.folder.glob("nodes/*/state/secure-*.json"):
            if self.draw.random() < 0.5:
                path.unlink()

    def do_lose_disks(self) -> None:
        """Empty the disks of some clients, which stay connected."""
        for path in self.folder.glob("nodes/*/state"):
            if self.draw.random() < 0.4:
                shutil.rmtree(path)

    def do_leave(self) -> None:
        """Let a client ask to leave; it is asked for its goodbye when it trains."""
        if self.draw.random() < 0.5:
            self.store("a").leave(self.ledger.job)

    def do_restart(self) -> None:
        """Start a new server."""
        self.ledger.close()
        self.reopen()


FAULTS = sorted(name for name in vars(FaultyJob) if name.startswith("do_"))


def run_history(folder: Path, seed: int, kind: str) -> Counter[str]:
    """Run random faults for one to three rounds each, then none, and return how often each event happened."""
    draw, statistics = random.Random(seed), Counter[str]()
    job = FaultyJob(folder, draw, kind)
    for _ in range(draw.randint(2, 6)):
        fault = draw.choice(FAULTS)
        statistics[fault] += 1
        job.stop_faults()
        getattr(job, fault)()
        for _ in range(draw.randint(1, 3)):
            statistics["counted" if job.run_round().has_upload else "nothing counted"] += 1
    job.stop_faults()
    for number in range(1, ROUNDS_UNTIL_PROGRESS + 1):
        outcome = job.run_round()
        if outcome.accepted or outcome.rebased:
            statistics[f"progress in round {number}"] += 1
            job.ledger.close()
            return statistics
    raise AssertionError("no round counts although there are no faults any more")


def run_histories(folder: Path, seeds: range, kind: str) -> Counter[str]:
    """Run one history per seed."""
    statistics = Counter[str]()
    for seed in seeds:
        try:
            statistics.update(run_history(folder / str(seed), seed, kind))
        except BaseException as error:
            error.add_note(f"seed {seed}, {kind}")
            raise
    return statistics


@pytest.mark.parametrize("kind", JOBS)
def test_rounds_count_again_after_random_faults(kind: str, tmp_path: Path) -> None:
    run_histories(tmp_path, range(12 if kind == "secure" else 4), kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", JOBS)
def test_rounds_count_again_after_many_random_faults(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statistics = run_histories(tmp_path, range(1000, 1250), kind)
    with capsys.disabled():
        print()
        for event, count in sorted(statistics.items()):
            print(f"{count:9d}  {event}")
