"""Event logs while they grow, and after a crash; what a job's events add up to."""

from pathlib import Path

from fedlatest.deployment.supervise import JobStatus
from fedlatest.ledger.event_log import Event, EventReader, append_event, read_events


def test_each_call_gives_what_is_new_and_a_cut_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert reader.new() == []
    append_event(path, "round", round=0)
    with path.open("a") as file:
        file.write('{"event": "rou')
    assert [event["round"] for event in reader.new()] == [0]
    assert reader.new() == []
    with path.open("a") as file:
        file.write('nd", "round": 1}\n')
    assert [event["round"] for event in reader.new()] == [1]


def test_a_line_that_a_crash_cut_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "round", "round": 0}\n{"event": "mer{"event": "job", "rounds": 3}\n[1]\n')
    append_event(path, "round", round=1)
    assert [event["round"] for event in read_events(path)] == [0, 1]
    assert read_events(tmp_path / "none") == []


def test_a_view_adds_up_a_job_over_two_runs() -> None:
    """Two runs; node1 took part in both merged rounds, node0 in one, so its staleness is 1."""
    view = JobStatus()
    events: list[Event] = [
        {"event": "job", "rounds": 2, "round": 0, "run": 11},
        {"event": "round", "round": 0},
        {"event": "asked", "round": 0, "clients": ["node0", "node1"]},
        {"event": "merged", "round": 0, "applied": ["node0", "node1"], "train_loss": 2.0, "seconds": 5.0},
        {"event": "round", "round": 1},
        {"event": "job", "rounds": 2, "round": 1, "run": 12},
        {"event": "round", "round": 1},
        {"event": "asked", "round": 1, "clients": ["node1"]},
        {"event": "merged", "round": 1, "applied": ["node1"], "train_loss": None, "seconds": 7.0},
        {"event": "evaluated", "round": 1, "test_loss": 0.5, "test_accuracy": 0.75},
        {"event": "news from the future"},
        {"event": "finished", "round": 2},
    ]  # fmt: skip
    for event in events:
        view.update(event)
    assert (view.rounds, view.round, view.runs, view.finished) == (2, 1, [11, 12], True)
    assert (view.asked, view.staleness, view.num_applied) == (
        ["node1"],
        {"node0": 1, "node1": 0},
        {"node0": 1, "node1": 2},
    )
    assert (view.merged_rounds, view.seconds, view.train_loss, view.test_accuracy) == (2, 12.0, 2.0, 0.75)
