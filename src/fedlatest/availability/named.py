"""The registry of named availability models, used by recipes and the command line.

Each builder takes what is known about the clients and returns a model. Its keywords are the keys that `--set` accepts,
and the first line of its docstring is what `fedlatest list` prints.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedlatest.availability import composition, patterns, stochastic
from fedlatest.availability import trace as traces
from fedlatest.availability.base import Availability
from fedlatest.availability.client_info import LEAVING, ClientInfo, check_share
from fedlatest.availability.trace_files import Interval, find_trace, number_clients, read_trace
from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.data.sentiment140.accounts import sleep_window
from fedlatest.errors import ConfigError, DataError

Rates = Literal["uniform", "labels"]
RATE, SPREAD, LABEL_MAX, LABEL_MAX_REST = 0.5, 0.0, 1.0, 0.5  # defaults of keys that several models have
CORRELATION, BLOCK, DIGITS = 50.0, 100, 1


def _always(clients: ClientInfo) -> Availability:
    """Every client in every round."""
    return patterns.always(clients.num_clients)


def _diurnal(clients: ClientInfo, *, period: int = BLOCK, digits: int = DIGITS) -> Availability:
    """Clients of labels 0 .. digits-1 for `period` rounds, the others for the next `period`."""
    return patterns.diurnal(clients.first_labels(digits), period=period)


def _alternating(clients: ClientInfo, *, t1: int = 100, t2: int = 100, digits: int = DIGITS) -> Availability:
    """Clients of labels 0 .. digits-1 for t1 rounds, the others for the next t2."""
    return patterns.alternating(clients.first_labels(digits), t1=t1, t2=t2)


def _windows(clients: ClientInfo, *, window_hours: float = 8.0, rounds_per_day: int = 120) -> Availability:
    """One daily window per client with a uniformly drawn start; rounds_per_day rounds are 24 h."""
    if not 0 < window_hours <= 24:
        raise ConfigError(f"window_hours={window_hours}: must be above 0 and at most 24")
    start = np.random.default_rng(clients.seed).integers(0, SECONDS_PER_DAY, clients.num_clients) / 3600
    return patterns.windows(start, hours=window_hours, rounds_per_day=rounds_per_day)


def _sleep(clients: ClientInfo, *, window_hours: float = 8.0, rounds_per_day: int = 120) -> Availability:
    """The hours of the day in which each client created the fewest samples; rounds_per_day rounds are 24 h."""
    if clients.sample_times is None:
        raise ConfigError("availability=sleep: this data set has no sample times; use availability=windows instead")
    if not 1 <= window_hours * 3600 < SECONDS_PER_DAY:
        raise ConfigError(f"window_hours={window_hours}: must be at least 1 second and less than 24 hours")
    start = [sleep_window(times, hours=window_hours) / 3600 for times in clients.sample_times]
    return patterns.windows(start, hours=window_hours, rounds_per_day=rounds_per_day)


def _bernoulli(
    clients: ClientInfo,
    *,
    rate: float = RATE,
    spread: float = SPREAD,
    rate_by: Rates = "uniform",
    label_max: float = LABEL_MAX,
    label_max_rest: float = LABEL_MAX_REST,
) -> Availability:
    """An independent draw per client and round; rates are uniform in rate +- spread, or follow the labels."""
    return stochastic.bernoulli(_client_rates(clients, rate_by, rate, spread, label_max, label_max_rest))


def _markov(
    clients: ClientInfo,
    *,
    share: float = RATE,
    spread: float = SPREAD,
    correlation: float = CORRELATION,
    rate_by: Rates = "uniform",
    label_max: float = LABEL_MAX,
    label_max_rest: float = LABEL_MAX_REST,
) -> Availability:
    """On/off Markov chains: on for `share` +- spread of the time, correlated over about `correlation` rounds."""
    shares = _client_rates(clients, rate_by, share, spread, label_max, label_max_rest, name="share")
    return stochastic.markov(shares, correlation=correlation)


def _sine(
    clients: ClientInfo,
    *,
    rate: float = RATE,
    spread: float = SPREAD,
    amplitude: float = 0.3,
    period: int = 20,
    rate_by: Rates = "uniform",
    label_max: float = LABEL_MAX,
    label_max_rest: float = LABEL_MAX_REST,
) -> Availability:
    """Independent draws whose probability varies between rate (1 - 2 amplitude) and rate every `period` rounds."""
    largest = _client_rates(clients, rate_by, rate, spread, label_max, label_max_rest)
    return stochastic.sine(largest, amplitude=amplitude, period=period)


def _interleaved_sine(
    clients: ClientInfo,
    *,
    rate: float = RATE,
    spread: float = SPREAD,
    amplitude: float = 0.3,
    period: int = 20,
    min_rate: float = 0.1,
    rate_by: Rates = "uniform",
    label_max: float = LABEL_MAX,
    label_max_rest: float = LABEL_MAX_REST,
) -> Availability:
    """The draws of sine, with probability 0 wherever it would be below `min_rate`."""
    largest = _client_rates(clients, rate_by, rate, spread, label_max, label_max_rest)
    return stochastic.interleaved_sine(largest, amplitude=amplitude, period=period, min_rate=min_rate)


def _staircase(
    clients: ClientInfo,
    *,
    rate: float = RATE,
    spread: float = SPREAD,
    low: float = 0.4,
    period: int = 20,
    rate_by: Rates = "uniform",
    label_max: float = LABEL_MAX,
    label_max_rest: float = LABEL_MAX_REST,
) -> Availability:
    """Independent draws with probability rate for half of every `period` rounds, and rate * low for the other half."""
    high = _client_rates(clients, rate_by, rate, spread, label_max, label_max_rest)
    return stochastic.staircase(high, low=low, period=period)


def _labels(clients: ClientInfo, *, low: float = 0.1, high: float = 0.9) -> Availability:
    """Independent draws whose probability grows linearly from `low` for label 0 to `high` for the last label."""
    check_share("low", low)
    check_share("high", high)
    return stochastic.label_rates(clients.labels, np.linspace(low, high, clients.num_labels))


def _lifetime(
    clients: ClientInfo, *, late: float = 0.2, arrival: int = 100, leaving: float = 0.0, departure: int = 1000
) -> Availability:
    """A share `late` of the clients arrives in round `arrival`; a share `leaving` departs in round `departure`."""
    check_share("late", late)
    check_share("leaving", leaving)
    for name, round in (("arrival", arrival), ("departure", departure)):
        if not 0 <= round < composition.FOREVER:
            raise ConfigError(f"{name}={round}: must be in 0 .. {composition.FOREVER - 1}")
    draw = np.random.default_rng(clients.seed).uniform(size=(2, clients.num_clients))
    return composition.lifetime(
        np.where(draw[0] < late, arrival, 0), departure=np.where(draw[1] < leaving, departure, composition.FOREVER)
    )


def _departures(
    clients: ClientInfo,
    *,
    intermittent: Literal["bernoulli", "markov", "diurnal"] = "bernoulli",
    leaving: float = 0.3,
    departure: int = 500,
    leavers: Literal["random", "labels"] = "random",
    rate: float = RATE,
    spread: float = SPREAD,
    correlation: float = CORRELATION,
    period: int = BLOCK,
    digits: int = DIGITS,
    rate_by: Rates = "uniform",
    label_max: float = LABEL_MAX,
    label_max_rest: float = LABEL_MAX_REST,
) -> Availability:
    """Intermittent clients (bernoulli, markov or diurnal), of which a share `leaving` departs in round `departure`."""
    check_share("leaving", leaving)
    if not 0 <= departure < composition.FOREVER:
        raise ConfigError(f"departure={departure}: must be in 0 .. {composition.FOREVER - 1}")
    if intermittent != "markov":
        _refuse_changed({"correlation": (correlation, CORRELATION)}, f"intermittent={intermittent}")
    if intermittent == "diurnal":
        of_rates = {"rate_by": (rate_by, "uniform"), "rate": (rate, RATE), "spread": (spread, SPREAD)}
        of_labels = {"label_max": (label_max, LABEL_MAX), "label_max_rest": (label_max_rest, LABEL_MAX_REST)}
        _refuse_changed({**of_rates, **of_labels}, "intermittent=diurnal")
        present = _diurnal(clients, period=period, digits=digits)
    else:
        _refuse_changed({"period": (period, BLOCK), "digits": (digits, DIGITS)}, f"intermittent={intermittent}")
        means = _client_rates(clients, rate_by, rate, spread, label_max, label_max_rest)
        if intermittent == "markov":
            present = stochastic.markov(means, correlation=correlation)
        else:
            present = stochastic.bernoulli(means)
    num_leaving = round(leaving * clients.num_clients)
    order = np.random.default_rng((clients.seed, LEAVING)).permutation(clients.num_clients)
    if leavers == "labels":
        order = order[np.argsort(clients.labels[order], kind="stable")]
    end = np.full(clients.num_clients, composition.FOREVER)
    end[order[:num_leaving]] = departure
    return present & composition.lifetime(np.zeros(clients.num_clients, int), departure=end)


def _trace(
    clients: ClientInfo,
    *,
    trace: str,
    wrap: bool = False,
    round_length: float = 1.0,
    devices: Literal["exact", "repeat", "sample"] = "exact",
    day_length: float = SECONDS_PER_DAY,
    drop_absent: bool = False,
) -> Availability:
    """Recorded intervals of a file (client,start,end); a round lasts `round_length` of its time units."""
    if devices == "exact":
        _refuse_changed({"day_length": (day_length, SECONDS_PER_DAY)}, "devices=exact")
    intervals, names = _read_named_trace(trace, clients)
    if names is None:
        intervals, _ = number_clients(intervals)
    return traces.trace(
        intervals,
        num_clients=clients.num_clients,
        names=names,
        wrap=wrap,
        round_length=round_length,
        devices=devices,
        day_length=day_length,
        drop_absent=drop_absent,
        seed=clients.seed,
    )


def recorded_devices(clients: ClientInfo, values: Mapping[str, Any]) -> list[str | None]:
    """Return the name of the recorded device that each client follows under `availability=trace`, None without one.

    Args:
        clients: What is known about the clients.
        values: The keys of the model `trace`; others are ignored.
    """
    intervals, names = _read_named_trace(values["trace"], clients)
    own = {key: values[key] for key in ("round_length", "devices", "day_length", "drop_absent") if key in values}
    numbered = intervals if names is not None else number_clients(intervals)[0]
    name_of = {str(here.client): str(there.client) for here, there in zip(numbered, intervals, strict=True)}
    found = traces.devices_of_clients(
        numbered, num_clients=clients.num_clients, names=names, seed=clients.seed, **own
    )  # fmt: skip
    return [None if name is None else name_of[name] for name in found]


def _read_named_trace(trace: str, clients: ClientInfo) -> tuple[list[Interval], npt.NDArray[np.str_] | None]:
    """Return the intervals of a file, and the names of the clients if the file names its devices."""
    intervals = read_trace(find_trace(trace))
    if not intervals:
        raise DataError(f"trace={trace}: contains no interval")
    return intervals, clients.names if any(isinstance(interval.client, str) for interval in intervals) else None


def _client_rates(
    clients: ClientInfo,
    rate_by: Rates,
    rate: float,
    spread: float,
    label_max: float,
    label_max_rest: float,
    *,
    name: str = "rate",
) -> npt.NDArray[np.float64]:
    """Return [N] the rates that the keys describe; raise ConfigError for a key that has no effect on them.

    Args:
        clients: What is known about the clients.
        rate_by: Whether rates are uniform in rate +- spread or follow from the clients' labels.
        rate: Mean rate.
        spread: Largest deviation from the mean.
        label_max: Largest rate of the first half of the labels.
        label_max_rest: Largest rate of the other labels.
        name: The key that sets `rate`.
    """
    of_labels = {"label_max": (label_max, LABEL_MAX), "label_max_rest": (label_max_rest, LABEL_MAX_REST)}
    of_uniform = {name: (rate, RATE), "spread": (spread, SPREAD)}
    _refuse_changed(of_labels if rate_by == "uniform" else of_uniform, f"rate_by={rate_by}")
    if rate_by == "uniform":
        return clients.rates(name, rate, spread)
    return clients.rates_from_labels(label_max, label_max_rest)


def _refuse_changed(keys: Mapping[str, tuple[object, object]], setting: str) -> None:
    """Raise ConfigError if a key (its value and default) is set although `setting` makes it ineffective."""
    for key, (value, default) in keys.items():
        if value != default:
            raise ConfigError(f"{key}={value}: has no effect with {setting}; leave it out or change {setting}")


AVAILABILITY: dict[str, Callable[..., Availability]] = {
    builder.__name__.removeprefix("_"): builder
    for builder in (
        _always, _diurnal, _alternating, _windows, _sleep, _bernoulli, _markov, _sine, _interleaved_sine, _staircase,
        _labels, _lifetime, _departures, _trace,
    )
}  # fmt: skip
