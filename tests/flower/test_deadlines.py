"""When clients are asked, and for whom a round stays open."""

from pathlib import Path

from fedlatest.flower import Timeouts
from tests.flower.small_job import SmallJob


def test_client_that_appears_in_the_last_quarter_of_a_round_is_not_asked(tmp_path: Path) -> None:
    """The deadline is 20 s. A client that comes online after 14 s is asked; after 16 s, it could not reply in time."""
    for appears, asked in ((14, ["a"]), (16, [])):
        job = SmallJob(tmp_path / str(appears), clients="a", timeouts=Timeouts(deadline=20, poll=1))
        job.online("")

        def sleep(seconds: float, job: SmallJob = job, appears: int = appears) -> None:
            job.now += seconds
            if job.now >= appears:
                job.online("a")

        job.loop.sleep = sleep
        outcome = job.run_round()
        assert outcome.asked == asked
        assert outcome.missed == []
        assert len(job.run_round().accepted) == 1


def test_round_is_not_kept_open_for_a_client_that_missed_twice(tmp_path: Path) -> None:
    """c never replies. The first two rounds in which it is asked last for the deadline of 10 s, later ones do not."""
    job = SmallJob(tmp_path, timeouts=Timeouts(deadline=10, poll=1, late_reply=10))
    job.loop.wait_for_clients(3, timeout=30)
    dead = job.nodes["c"]
    job.grid.on_reply = lambda node, message: None if node == dead else message
    durations = []
    for _ in range(20):
        began = job.now
        if "c" in job.run_round().asked:
            durations.append(job.now - began)
    assert [duration >= 10 for duration in durations] == [True, True, *[False] * (len(durations) - 2)]
    assert len(durations) >= 3
    assert max(durations[2:]) <= 3
    assert job.audit().holds
