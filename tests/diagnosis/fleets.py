"""Synthetic fleets whose diagnosis is known."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.diagnosis import Fleet, fleet_of_table

DAY = 48  # rounds
DAYS = 10


def fleet(available: npt.ArrayLike, *, round_seconds: float | None = None, **known: Any) -> Fleet:
    """Return a fleet of a table with clients 0, 1, 2, ... and, if it is given, a length of rounds in seconds."""
    table = np.asarray(available, bool)
    names = [str(client) for client in range(table.shape[1])]
    if round_seconds is None:
        made = fleet_of_table(table, names=names, source="synthetic")
    else:
        moments = round_seconds * np.arange(len(table) + 1)
        made = fleet_of_table(table, names=names, source="synthetic", moments=moments, unit=1.0)
    return dataclasses.replace(made, **known)


def random_fleet(rates: npt.ArrayLike, *, rounds: int = DAY * DAYS, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Return a table of independent draws with the rate of each client."""
    rate = np.asarray(rates, float)
    return np.random.default_rng(seed).random((rounds, rate.size)) < rate


def by_day_and_night(num_clients: int = 40, *, day: int = DAY, days: int = DAYS) -> npt.NDArray[np.bool_]:
    """Return a table in which the first half of the clients is available by day, and the second half by night."""
    is_day = np.arange(day * days) % day < day // 2
    first = np.arange(num_clients) < num_clients // 2
    return is_day[:, None] == first


def halves(num_clients: int = 40) -> list[str]:
    """Return the label 0 for the first half of the clients, and 1 for the second half."""
    return ["0" if client < num_clients // 2 else "1" for client in range(num_clients)]
