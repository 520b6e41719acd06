"""Clients that are copies of the devices of a trace: which device, shifted by how many days, against a slow replay."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import ConfigError, DataError, Interval, trace
from fedlatest.availability import AVAILABILITY, ClientInfo
from fedlatest.availability.trace import Devices, devices_of_clients

DAY = 4  # rounds
# Three days; device 1 is never available, and device 3 only in the unfinished fourth day.
RECORDED = [Interval(0, 0, 1), Interval(0, 5, 7), Interval(2, 3, 9), Interval(0, 11, 13), Interval(3, 12, 13)]
DEVICES = np.array([
    [1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
], bool)  # fmt: skip
Table = npt.NDArray[np.bool_]


def shifts_of(client: Table, device: Table) -> set[int]:
    """By which whole days a device can have been shifted to give a client."""
    return {day for day in range(3) if (np.roll(device, -day * DAY) == client).all()}


def copies(num_clients: int, devices: Devices, seed: int = 0, **others: Any) -> Table:
    """[N, 12] the availability of the clients in three days."""
    model = trace(RECORDED, num_clients=num_clients, devices=devices, day_length=DAY, seed=seed, **others)
    return model.table(12).T


def test_repeated_devices_are_shifted_by_different_days() -> None:
    """Clients 0-3 are the devices; clients i + 4 and i + 8 are device i, shifted by 1 and 2 days in some order."""
    table = copies(12, "repeat")
    assert table[:4].tolist() == DEVICES.tolist()
    for device in (0, 2):
        shifts = [shifts_of(table[device + 4 * copy], DEVICES[device]) for copy in range(3)]
        assert sorted(map(sorted, shifts)) == [[0], [1], [2]]
    assert not table[[1, 3, 5, 7, 9, 11]].any()
    assert copies(2, "repeat").tolist() == DEVICES[:2].tolist()


def test_a_fourth_copy_repeats_the_first() -> None:
    table = copies(16, "repeat")
    assert table[12:].tolist() == DEVICES.tolist()


def test_shifts_depend_on_the_seed_and_the_device() -> None:
    tables = {copies(12, "repeat", seed).tobytes() for seed in range(30)}
    assert len(tables) == 4  # devices 0 and 2 are first shifted by 1 or by 2 days, independently


def test_sampled_devices_are_used_equally_often() -> None:
    """Of 8 clients, two are copies of device 0, two of device 2, and four are never available."""
    for seed in range(5):
        table = copies(8, "sample", seed)
        for first in (0, 4):
            part = table[first : first + 4]
            assert sorted(part.sum(axis=1).tolist()) == [0, 0, 4, 6]
        assert not shifts_of(table[:4][table[:4].sum(axis=1) == 4][0], DEVICES[0]) - {0}
    assert len({copies(8, "sample", seed).tobytes() for seed in range(20)}) > 10


def test_devices_that_are_never_available_can_be_dropped() -> None:
    assert copies(4, "repeat", drop_absent=True)[:2].tolist() == DEVICES[[0, 2]].tolist()
    assert copies(9, "sample", drop_absent=True).any(axis=1).all()
    exact = trace(RECORDED, num_clients=4, drop_absent=True).table(13).T
    assert exact.any(axis=1).tolist() == [True, True, True, False]  # device 3 is available on the fourth day
    with pytest.raises(DataError, match="the trace has 3 devices, but the federation has 2 clients"):
        trace(RECORDED, num_clients=2, drop_absent=True)


@pytest.mark.parametrize("wrap", [True, False])
def test_copies_repeat_after_whole_days_or_end(wrap: bool) -> None:
    model = trace(RECORDED, num_clients=11, devices="repeat", day_length=DAY, wrap=wrap)
    table = model.table(30)
    assert table[12:24].tolist() == (table[:12].tolist() if wrap else np.zeros((12, 11), bool).tolist())
    assert table[24:].any() == wrap


def test_a_day_that_is_nearly_over_counts() -> None:
    """The last end is in round 7.6 of two days of four rounds: 1.9 days count as two, 1.8 days as one."""
    for end, days in ((7.6, 2), (7.2, 1)):
        model = trace(
            [Interval(0, 0, 1), Interval(0, 6, end)], num_clients=1, devices="repeat", day_length=4, wrap=True
        )
        assert np.flatnonzero(model.table(8)[:, 0]).tolist() == ([0, 6, 7] if days == 2 else [0, 4])


def test_days_that_are_not_whole_rounds_are_rounded() -> None:
    """Days of 10 in rounds of 4 are 2.5 rounds: two days are 5 rounds, and a shift by one day is 2 rounds."""
    recorded = [Interval(0, 0, 4), Interval(0, 19, 20)]
    table = trace(recorded, num_clients=2, devices="repeat", day_length=10, round_length=4).table(5)
    assert table[:, 0].tolist() == [True, False, False, False, False]
    assert table[:, 1].tolist() == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"devices": "repeat"}, r"^day_length=86400: the trace lasts only 13, less than a day; set day_length"),
        ({"devices": "sample", "day_length": 0.0}, r"^day_length=0\.0: must be a finite number above 0"),
        ({"devices": "twice"}, "^devices=twice: choose one of exact, repeat, sample"),
        ({"devices": "repeat", "day_length": 4, "round_length": 1e-9}, r"^round_length=1e-09: .* than 1073741824"),
    ],
)
def test_invalid_arguments_are_named(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trace(RECORDED, num_clients=4, **keys)  # type: ignore[arg-type]


def test_a_day_length_without_copies_is_an_error() -> None:
    clients = ClientInfo(np.zeros(2, int), 2, seed=0)
    with pytest.raises(ConfigError, match=r"^day_length=5\.0: has no effect with devices=exact"):
        AVAILABILITY["trace"](clients, trace="a.csv", day_length=5.0)


@pytest.fixture
def phones() -> str:
    """The name of the recorded phones; skips the test if they are not there."""
    named, name = os.environ.get("FEDLATEST_DATA"), "phones-300.csv.gz"
    if not named or not (Path(named) / "traces" / name).exists():
        pytest.skip(f"FEDLATEST_DATA does not name a folder with traces/{name} in it")
    return name


def test_a_thousand_clients_from_recorded_phones(phones: str) -> None:
    """Rounds of ten minutes, six days; three phones are never available, and each phone is used three or four times."""
    clients = ClientInfo(np.zeros(1000, int), 10, seed=3)
    keys = {"trace": phones, "devices": "repeat", "round_length": 600.0, "wrap": True}
    model = AVAILABILITY["trace"](clients, **keys)
    rates = model.mean_rates(864)
    assert 0.15 < rates.mean() < 0.17
    assert 9 <= (rates == 0).sum() <= 12
    assert rates[:300].tolist() == rates[300:600].tolist() == rates[600:900].tolist()
    table = model.table(864)
    assert len({table[:, client].tobytes() for client in range(1000)}) == 1001 - (rates == 0).sum()
    assert (AVAILABILITY["trace"](clients, **keys, drop_absent=True).mean_rates(864) > 0).all()


@pytest.mark.parametrize("drop_absent", [False, True])
@pytest.mark.parametrize("devices", ["repeat", "sample"])
def test_the_devices_of_clients_are_those_whose_availability_they_have(devices: Devices, drop_absent: bool) -> None:
    """Each client's availability is that of the named device, shifted by whole days."""
    names = ["zoe", "nobody", "ann", "bob"]
    named = [Interval(names[int(client)], start, end) for client, start, end in RECORDED]
    options: dict[str, Any] = {"num_clients": 12, "devices": devices, "day_length": DAY, "drop_absent": drop_absent}
    table = trace(named, **options, seed=3).table(12).T
    found = devices_of_clients(named, **options, seed=3)
    assert len(found) == 12
    for name, row in zip(found, table, strict=True):
        assert name is not None
        assert shifts_of(row, DEVICES[names.index(name)])
    assert set(found) == ({"zoe", "ann"} if drop_absent else {"zoe", "ann", "bob"})


def test_the_devices_of_clients_that_are_the_devices() -> None:
    assert devices_of_clients(RECORDED, num_clients=6) == ["0", None, "2", "3", None, None]
    assert devices_of_clients(RECORDED, num_clients=4, drop_absent=True) == ["0", "2", "3", None]
    named = [Interval("b", 0, 1), Interval("a", 1, 2)]
    assert devices_of_clients(named, names=["a", "b", "c"]) == ["a", "b", None]
