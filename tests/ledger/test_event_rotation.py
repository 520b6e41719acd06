"""Event logs that are rotated while others read them, and what may be in them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.ledger import event_log
from fedlatest.ledger.event_log import EventReader, append_event, append_lines, event_line, read_events, rotated_name
from fedlatest.ledger.job_folder import recorded_job


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a log that is rotated when it has more than 200 bytes, which is about every fourth event."""
    monkeypatch.setattr(event_log, "MAX_BYTES", 200)
    return tmp_path / "events.jsonl"


def _append(log: Path, *numbers: int) -> None:
    for number in numbers:
        append_lines(log, [event_line("round", round=number)], rotate=True)


def _numbers(events: list[Any]) -> list[int]:
    return [event["round"] for event in events]


def test_reader_follows_rotation(log: Path) -> None:
    reader, found = EventReader(log), list[int]()
    for number in range(30):
        _append(log, number)
        if number % 7 == 0:
            found += _numbers(reader.new())
    found += _numbers(reader.new())
    assert found == list(range(30))
    assert rotated_name(log, 1).exists()


def test_only_the_newest_files_are_kept(log: Path) -> None:
    _append(log, *range(60))
    numbers = _numbers(read_events(log))
    assert numbers == list(range(numbers[0], 60))
    assert 15 <= len(numbers) <= 25
    assert sorted(path.name for path in log.parent.iterdir()) == [
        *(f"events.{number}.jsonl" for number in (1, 2, 3, 4)),
        "events.jsonl",
    ]


def test_reader_that_is_far_behind_continues_with_the_oldest_file(log: Path) -> None:
    reader = EventReader(log)
    _append(log, 0)
    assert _numbers(reader.new()) == [0]
    _append(log, *range(1, 60))
    numbers = _numbers(reader.new())
    assert numbers == list(range(numbers[0], 60))


@pytest.mark.parametrize("opens", range(5))
def test_rotation_while_the_files_are_opened_loses_no_event(
    opens: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is rotated before the reader opens its first file, its second, and so on."""
    reader = EventReader(log)
    _append(log, 0, 1)
    found = _numbers(reader.new())
    _append(log, 2)
    real, count = Path.open, [0]

    def open_file(path: Path, *arguments: Any, **options: Any) -> Any:
        if count[0] == opens:
            count[0] += 1
            event_log._rotate(log)
            _append(log, 3)
        count[0] += 1
        return real(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_file)
        found += _numbers(reader.new())
    _append(log, 4)
    found += _numbers(reader.new())
    assert found == [0, 1, 2, 3, 4]


def test_job_is_known_after_its_first_events_were_rotated_out(log: Path) -> None:
    """A job whose ledger is lost after months must not start afresh: every round records the job."""
    append_event(log, "job", job="f" * 32, rounds=1000)
    for number in range(60):
        append_lines(log, [event_line("round", round=number, job="f" * 32)], rotate=True)
    assert "job" not in {event["event"] for event in read_events(log)}
    assert recorded_job(log.parent) == "f" * 32


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    """Infinity and NaN are not JSON: other readers would reject the line."""
    path = tmp_path / "events.jsonl"
    bad = {"a": float("inf"), "b": [float("nan"), (1.5, -float("inf"))], "c": {"d": np.float64("inf")}}
    append_event(path, "merged", loss=float("nan"), metrics=bad)
    [line] = path.read_text().splitlines()
    event = json.loads(line, parse_constant=pytest.fail)
    assert (event["loss"], event["metrics"]) == (None, {"a": None, "b": [None, [1.5, None]], "c": {"d": None}})
