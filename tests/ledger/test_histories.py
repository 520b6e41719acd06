"""Any history of messages and faults leaves the ledger's sum equal to the values that counted, each exactly once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.ledger.naive import NaiveLedger, naive_answer
from tests.ledger.world import World, play

# How often each act is drawn; the first is what hypothesis shrinks to. A history has the plain acts and one to three
# kinds of faults: with all of them at once, few would come far enough for the rarer meetings.
PLAIN = {"wait": 1, "meet": 5, "hello": 1, "issue": 5, "arrive": 9, "answer": 9, "close": 5, "whole_round": 5}
FAULTS = {
    "network": {"lose_instruction": 3, "lose_reply": 4},
    "epochs": {"resync": 4, "expire": 2},
    "leaving": {"leave": 6, "expire": 3},
    "server": {"kill_server": 2, "light_server_fuse": 6, "second_server": 1},
    "client": {"light_client_fuse": 8},
    "disk": {"copy_disk": 3, "set_back_disk": 4, "lose_disk": 1, "damage_disk": 1},
    "ledger": {"backup": 3, "restore": 4},
}
numbers = st.integers(0, 63)


def _histories(kinds: set[str]) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    often = [PLAIN, *(FAULTS[kind] for kind in sorted(kinds))]
    names = [name for some in often for name, times in some.items() for _ in range(times)]
    return st.lists(st.tuples(st.sampled_from(names), numbers, numbers), min_size=20, max_size=40)


acts = st.sets(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=3).flatmap(_histories)
worlds = st.fixed_dictionaries({"memory": st.sampled_from(["client", "server"]), "num_clients": st.integers(2, 4)})
without_deadline = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(without_deadline, max_examples=300)
@given(setting=worlds, history=acts)
def test_any_history_counts_every_difference_once(setting: dict[str, Any], history: list[tuple[str, int, int]]) -> None:
    play(World(**setting), history)


def test_any_history_on_a_file(tmp_path: Path) -> None:
    num = 0

    @settings(without_deadline, max_examples=15)
    @given(setting=worlds, history=acts)
    def run(setting: dict[str, Any], history: list[tuple[str, int, int]]) -> None:
        nonlocal num
        num += 1
        world = World(**setting, path=tmp_path / f"{num}.db")
        try:
            play(world, history)
        finally:
            world.connection.close()

    run()


@pytest.mark.slow
def test_ten_thousand_histories(capsys: pytest.CaptureFixture[str]) -> None:
    happened: Counter[str] = Counter()

    @settings(without_deadline, max_examples=10_000, database=None)
    @given(setting=worlds, history=acts)
    def run(setting: dict[str, Any], history: list[tuple[str, int, int]]) -> None:
        world = World(**setting)
        play(world, history)
        happened.update(world.happened)
        happened["histories"] += 1
        happened["acts"] += len(history)

    run()
    with capsys.disabled():
        print()
        for what, often in sorted(happened.items()):
            print(f"{often:9d}  {what}")
    assert happened["histories"] >= 10_000


def _play_naively(histories: st.SearchStrategy[list[tuple[str, int, int]]]) -> None:
    """The control: base each difference on the last one sent, apply what bears a fresh ticket."""

    @settings(without_deadline, max_examples=100, database=None, derandomize=True, phases=[Phase.generate])
    @given(history=histories)
    def run(history: list[tuple[str, int, int]]) -> None:
        play(World(memory="client", num_clients=2, kind=NaiveLedger, answer=naive_answer), history)

    run()


def test_the_naive_protocol_holds_while_nothing_goes_wrong() -> None:
    calm = st.tuples(st.sampled_from(["wait", "meet", "whole_round", "copy_disk", "backup"]), numbers, st.just(3))
    _play_naively(st.lists(calm, max_size=20))


def test_the_naive_protocol_fails() -> None:
    with pytest.raises(AssertionError, match="the sum is not that of the values that counted"):
        _play_naively(acts)
