"""The limits of a private job: what counts as a participation, what is refused, and what survives which loss."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.errors import BudgetError, ConfigError
from fedlatest.ledger import JobConfig, Ledger
from fedlatest.ledger.backup import back_up, restore
from fedlatest.ledger.database import Database
from fedlatest.ledger.event_log import append_event
from fedlatest.ledger.fixed_point import MAX_UNITS, sum_of_squares, to_fixed_point_within
from tests.ledger.job import ARRAYS, LAYOUT, Job

EVENTS = "events.jsonl"


def private(*clients: str, separation: int = 1, most: int = 100, rounds: int = 1000, **more: Any) -> Job:
    limits = {"rounds": rounds, "min_separation": separation, "max_participations": most}
    return Job(*clients, clip_norm=1e6, privacy=limits, **more)


def count(job: Job, client: str) -> tuple[int, int | None]:
    row = job.ledger.table.get_former(client)
    assert row is not None
    return row.participations, row.last_participation


@pytest.mark.parametrize("memory", ["none", "client", "server"])
def test_client_is_not_asked_before_its_separation(memory: str) -> None:
    job = private("a", "b", separation=3, memory=memory)
    assert job.round({"a": [1, 1]}) == ["accepted"]  # round 0
    for _ in range(2):
        assert job.ledger.issue(["a", "b"]).keys() == {"b"}
        job.close_round()
    assert job.ledger.issue(["a", "b"]).keys() == {"a", "b"}  # round 3
    assert count(job, "a") == (1, 0)


def test_late_reply_counts_in_the_round_in_which_it_is_applied() -> None:
    """Asked in round 0 and applied in round 2: the next participation is in round 5 at the earliest."""
    job = private("a", separation=3)
    reply = job.reply(job.issue("a"), 1, 1)
    job.close_round()
    job.close_round()
    assert job.ledger.handle_reply(reply).outcome == "accepted"
    job.close_round()
    assert count(job, "a") == (1, 2)
    for _ in (3, 4):
        assert not job.ledger.issue(["a"])
        job.close_round()
    assert job.ledger.issue(["a"])


def test_upload_that_is_lost_or_of_a_discarded_round_does_not_count() -> None:
    job = private("a")
    assert job.upload("a", 1, 1).outcome == "accepted"
    job.ledger.resync()  # discards the open round
    job.close_round()
    assert count(job, "a") == (0, None)


def test_rebase_counts_and_is_refused_above_the_maximum() -> None:
    job = private("a", most=2)
    job.round({"a": [1, 1]})
    job.ledger.resync()
    assert job.ledger.handle_reply(job.reply(job.issue("a", "rebase"))).outcome == "accepted"
    job.close_round()
    assert count(job, "a") == (2, 1)
    job.ledger.resync()
    instruction = job.issue("a", "rebase")
    forged = job.reply(instruction)
    assert forged.kind == "declined"
    assert "this client has taken part in 2 rounds; at most 2 are allowed" in forged.why
    job.storages["a"].files.clear()  # a client without its own count
    verdict = job.ledger.handle_reply(job.reply(job.issue("a", "rebase"), 1, 1))
    assert verdict.outcome in ("declined", "refused")


def test_upload_above_the_maximum_is_refused() -> None:
    """The client has lost its disk, and so its own count; the ledger still knows it."""
    job = private("a", most=1, memory="none")
    job.round({"a": [1, 1]})
    row = job.ledger.table.get("a")
    assert row is not None
    job.storages["a"].files.clear()
    instruction = job.issue("a", "rebase")
    trained = instruction.__class__(**{**instruction.__dict__, "kind": "train"})
    verdict = job.ledger.handle_reply(job.reply(trained, 1, 1))
    assert verdict == ("refused", "the client has taken part in 1 rounds; at most 1 are allowed")


@pytest.mark.parametrize("memory", ["none", "client", "server"])
def test_goodbye_is_never_refused_and_does_not_count(memory: str) -> None:
    job = private("a", "b", most=1, separation=5, memory=memory)
    job.round({"a": [1, 1]})
    job.store("a").leave(job.ledger.job)
    job.exchange_hello("a")
    assert job.ledger.handle_reply(job.reply(job.issue("a", "rebase"))).outcome == "left"
    job.close_round()
    assert (count(job, "a"), job.total) == ((1, 0), [0, 0])


@pytest.mark.parametrize("event", ["epoch", "lost disk", "left", "expired", "expelled", "restart"])
def test_count_is_never_reset(event: str) -> None:
    job = private("a", "b", most=1)
    job.round({"a": [1, 1]})
    if event == "epoch":
        job.ledger.resync()
    elif event == "lost disk":
        job.storages["a"].files.clear()
    elif event == "left":
        job.store("a").leave(job.ledger.job)
        job.ledger.handle_reply(job.reply(job.issue("a", "rebase")))
        job.close_round()
        job.store("a").cancel_leave(job.ledger.job)
    elif event == "expired":
        job.time += 100
        assert "a" in job.ledger.expire(seconds=10)
    elif event == "expelled":
        job.database.execute("INSERT INTO expelled VALUES ('a')")
        job.ledger.remove_expelled()
        job.database.execute("DELETE FROM expelled")
        job.ledger.remove_expelled()
    else:
        job.ledger = job.open()
    job.exchange_hello("a")
    assert count(job, "a") == (1, 0)
    assert not job.ledger.issue(["a"])


def test_client_declines_after_the_ledger_was_restored() -> None:
    """The ledger has forgotten round 0; the client has not."""
    job = private("a", most=1)
    before = job.database.connection.serialize()
    job.round({"a": [1, 1]})
    job.database.connection.deserialize(before)
    job.ledger = job.open()
    assert count(job, "a") == (0, None)
    for _ in range(3):  # the ledger notices first that the client has seen its ticket
        job.exchange_hello("a")
        reply = job.reply(job.issue("a"), 1, 1)
        job.ledger.handle_reply(reply)
        job.close_round()
    assert reply.kind == "declined"
    assert count(job, "a") == (0, None)


def test_round_beyond_the_budget_is_not_closed() -> None:
    job = private("a", rounds=2)
    job.round({"a": [1, 1]})
    job.round({"a": [2, 2]})
    message = "the privacy budget is spent: 2 rounds were released, 2 are allowed"
    with pytest.raises(BudgetError, match=message):
        job.ledger.check_budget()
    with pytest.raises(BudgetError, match=message):
        job.close_round()
    assert job.ledger.round == 2


def test_round_without_any_client_that_may_take_part_is_refused() -> None:
    job = private("a", most=1)
    job.ledger.check_budget()
    job.round({"a": [1, 1]})
    with pytest.raises(BudgetError, match="each of the 1 clients has taken part in 1 rounds, which is the maximum"):
        job.ledger.check_budget()


@pytest.mark.parametrize("ledger_is_lost", [False, True])
def test_restore_continues_the_number_of_releases(tmp_path: Path, *, ledger_is_lost: bool) -> None:
    """Two rounds, a backup after the first one, a restore: the second round stays released. If only the event log is
    left, one more counts, because it is written after the ledger."""
    path = tmp_path / "ledger.sqlite"
    released = 3 if ledger_is_lost else 2
    limits = {"rounds": released + 1, "min_separation": 1, "max_participations": 3}
    config = JobConfig("fedlaavg", unit=1.0, clip_norm=1e6, privacy=limits)

    def open_ledger() -> Ledger:
        return Ledger.open(path, config=config, layout=LAYOUT, arrays=lambda: ARRAYS)

    ledger = open_ledger()
    for round in range(2):
        ledger.draw_noise_seed()
        ledger.close_round(ARRAYS)
        append_event(tmp_path / EVENTS, "merged", round=round, job=ledger.job, releases=ledger.releases)
        if round == 0:
            back_up(path, tmp_path / "copy")
    ledger.close()
    if ledger_is_lost:
        path.write_bytes(b"")
    restore(path, tmp_path / "copy")
    ledger = open_ledger()
    assert (ledger.round, ledger.releases, ledger.noise_seed(1)) == (1, released, None)
    ledger.close_round(ARRAYS)
    with pytest.raises(BudgetError, match=f"{released + 1} rounds were released"):
        ledger.check_budget()
    ledger.close()


def test_seed_of_the_noise_is_stored_with_its_round_and_never_repeated() -> None:
    job = private("a")
    first, second = job.ledger.draw_noise_seed(), job.ledger.draw_noise_seed()
    assert len(second) == 32
    assert first != second
    job.close_round()
    job.close_round()
    assert [job.ledger.noise_seed(ago) for ago in (1, 2, 3)] == [None, second, None]
    job.ledger = job.open()
    assert job.ledger.noise_seed(2) == second


@pytest.mark.parametrize("share", [None, False, True])
def test_metrics_are_sent_only_if_the_job_allows_it(share: bool | None) -> None:
    limits = {"rounds": 9, "min_separation": 1, "max_participations": 9}
    job = Job("a", clip_norm=1e6, privacy={**limits, **({} if share is None else {"share_metrics": share})})
    reply = job.reply(job.issue("a"), 1, 1, metrics={"loss": 0.5})
    assert reply.metrics == ({"loss": 0.5} if share else {})
    assert (reply.training_seconds is not None) == bool(share)


@pytest.mark.parametrize(
    "wrong",
    [
        {"privacy": {"rounds": 3, "min_separation": 1}, "clip_norm": 1.0},
        {"privacy": {"rounds": 0, "min_separation": 1, "max_participations": 1}, "clip_norm": 1.0},
        {"privacy": {"rounds": 3, "min_separation": 1, "max_participations": 1}},
    ],
)
def test_incomplete_settings_raise(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"max_participations=None|rounds=0|clip_norm=None"):
        JobConfig("fedlaavg", **wrong)


def test_upload_one_unit_above_the_clipping_norm_is_refused() -> None:
    """In a private job the limit has no tolerance: 3, 4 has the norm 5; 3, 5 has not."""
    limits = {"rounds": 9, "min_separation": 1, "max_participations": 9}
    job = Job("a", memory="server", clip_norm=5.0, privacy=limits)
    assert "exceeds clip_norm=5" in job.upload("a", 3, 5).why
    assert job.upload("a", 3, 4).outcome == "accepted"


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8),
    st.floats(2.0**-20, 1e6),
    st.sampled_from([2.0**-24, 2.0**-16, 0.1, 1.0]),
)
def test_rounding_never_pushes_the_norm_above_the_limit(values: list[float], limit: float, unit: float) -> None:
    numbers = to_fixed_point_within(np.array(values, np.float32), unit, limit)
    squares = sum(int(number) ** 2 for number in numbers)
    assert squares == sum_of_squares(numbers)
    assert squares * Fraction(unit) ** 2 <= Fraction(limit) ** 2
    if np.linalg.norm(np.array(values)) <= limit and max(map(abs, values)) < MAX_UNITS * unit:
        np.testing.assert_allclose(numbers * unit, values, atol=1.01 * unit, rtol=1e-6)


def test_existing_jobs_keep_their_hash() -> None:
    assert "privacy" not in JobConfig("fedlaavg").as_dict()
    job = Job("a", database=Database.open(":memory:"))
    assert job.ledger.noise_plan is None
