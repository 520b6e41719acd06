"""The client's half, led by hand: what it says, and what it does not let out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import DeclinedError, DivergedError
from fedlatest.ledger import Instruction, Trained, answer, encode
from fedlatest.ledger.fixed_point import MOST_UNITS
from tests.ledger.job import Job


def test_asked_twice_it_says_the_same_again() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.ask("a")
    first, again = job.obey(instruction, 3, 4), job.obey(instruction, 5, 6)
    assert first.vector is not None
    assert again.vector is not None
    assert first.vector.tolist() == again.vector.tolist() == [2, 2]
    assert encode(first) == encode(replace(again, held=first.held, seen=first.seen))


@pytest.mark.parametrize("lost", ["instruction", "reply", "acknowledgement"])
def test_whatever_is_lost_heals_at_the_next_contact(lost: str) -> None:
    """[1, 2] counts; of [3, 4] something is lost; then [7, 8] is what the client has, and what the sum holds."""
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.ask("a")
    if lost != "instruction":
        reply = job.obey(instruction, 3, 4)
        if lost == "acknowledgement":
            assert job.ledger.take(reply).outcome == "taken"
            job.close()
            job.ask("a")  # it would have told the client
    assert job.round({"a": [7, 8]}) == ["taken"]
    assert job.total == [7, 8]


def test_it_answers_an_old_instruction_with_nothing_that_counts() -> None:
    job = Job("a")
    old = job.ask("a")
    assert job.round({"a": [1, 2]}) == ["taken"]
    reply = job.obey(old, 9, 9)
    assert (reply.say, reply.vector) == ("ahead", None)
    assert job.ledger.take(reply).outcome == "refused"


def test_it_belongs_to_one_config_and_one_name() -> None:
    job = Job("a")
    job.round({"a": [1, 2]})
    instruction = job.ask("a")
    other = job.obey(replace(instruction, config="c0ffee"), 3, 4)
    assert (other.say, other.why) == (
        "failed",
        f"this client joined the job with the config {job.config.hash}, the server now has c0ffee",
    )
    store = job.store("a")
    stranger = answer(store, replace(instruction, client="z"), train=lambda: pytest.fail("it must not train"))
    assert (stranger.say, stranger.why) == ("failed", "this is client a, not z")


def _answer(job: Job, instruction: Instruction, done: Any) -> Any:
    def train() -> Any:
        if isinstance(done, Exception):
            raise done
        return done

    return answer(job.store("a"), instruction, train=train)


@pytest.mark.parametrize(
    ("done", "say", "why"),
    [
        (DeclinedError("on battery"), "declined", "on battery"),
        (DivergedError("not finite"), "failed", "not finite"),
        (Trained(np.zeros(3, np.int32), 1.0, {}), "failed", "training yielded int32[3], not int32[2]"),
        (Trained(np.zeros(2, np.float32), 1.0, {}), "failed", "training yielded float32[2], not int32[2]"),
        (Trained(np.array([0, 2**30], np.int32), 1.0, {}), "failed", f"a value is beyond {MOST_UNITS} units"),
        (Trained(np.array([0, -(2**31)], np.int32), 1.0, {}), "failed", f"a value is beyond {MOST_UNITS} units"),
        (Trained(np.zeros(2, np.int32), 0.0, {}), "failed", "weight=0.0: a client weighs more than 0, and finitely"),
        (Trained(np.zeros(2, np.int32), np.inf, {}), "failed", "weight=inf: a client weighs more than 0, and finitely"),
    ],
)
def test_training_that_yields_nothing_sound_changes_nothing(done: Any, say: str, why: str) -> None:
    """A value beyond 30 bits would make a difference that does not fit 32, and wrap around in silence."""
    job = Job("a")
    job.round({"a": [1, 2]})
    before = dict(job.disks["a"].files)
    reply = _answer(job, job.ask("a"), done)
    assert (reply.say, reply.why) == (say, why)
    assert job.disks["a"].files == before


def test_the_largest_values_count_exactly() -> None:
    job = Job("a")
    assert job.round({"a": [MOST_UNITS, -MOST_UNITS]}) == ["taken"]
    assert job.round({"a": [-MOST_UNITS, MOST_UNITS]}) == ["taken"]
    assert job.total == [-MOST_UNITS, MOST_UNITS]


def test_numbers_of_numpy_can_be_sent() -> None:
    job = Job("a")
    half: Any = np.float32(0.5)
    done = Trained(np.array([1, 2], np.int32), 4 * half, {"loss": half})
    reply = _answer(job, job.ask("a"), done)
    assert (reply.weight, reply.metrics) == (2.0, {"loss": 0.5})
    assert '"loss": 0.5' in encode(reply)


def test_a_kept_value_is_sent_again_without_training() -> None:
    """After a new epoch, `rebase` puts the value back into the sum; it was not trained, and its round stays."""
    job = Job("a")
    job.round({"a": [1, 2]})
    job.ledger.resync()
    assert job.total == [0, 0]
    assert job.ledger.take(job.obey(job.ask("a", "rebase"), 9, 9)).outcome == "taken"
    assert job.ledger.sums().num == 0
    job.close()
    assert job.total == [1, 2]
    [member] = job.ledger.members()
    assert member.last_round == 0


def test_what_is_not_kept_cannot_be_sent_again() -> None:
    job = Job("a", "b")
    assert job.obey(job.ask("a", "rebase"), 9, 9).say == "declined"
    job.round({"b": [1, 2]})
    job.ledger.resync()
    [name] = [name for name in job.disks["b"].files if name.endswith(".value")]
    job.disks["b"].put(name, b"damaged!")
    assert job.obey(job.ask("b", "rebase"), 9, 9).say == "declined"


def test_a_slow_answer_does_not_undo_a_quicker_one() -> None:
    """The client trains for the first ticket when the second is handed out, answered and applied."""
    job = Job("a")
    slow = job.ask("a")

    def train() -> Trained:
        assert job.round({"a": [3, 4]}) == ["taken"]
        return Trained(np.array([1, 2], np.int32), 1.0, {})

    reply = answer(job.store("a"), slow, train=train)
    assert (reply.say, reply.why) == ("failed", "another instruction was answered here meanwhile")
    assert job.ledger.take(reply).outcome == "refused"
    assert job.round({"a": [5, 6]}) == ["taken"]
    assert job.total == [5, 6]
