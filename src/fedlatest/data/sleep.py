"""When an account sleeps: the hours of the day in which it sends the fewest tweets."""

import numpy as np
import numpy.typing as npt

from fedlatest.errors import DataError

DAY = 24 * 60 * 60  # in seconds


def sleep_window(seconds: npt.ArrayLike, *, hours: float = 8.0) -> int:
    """The second of the day at which the quietest `hours` begin, given the times of day at which tweets were sent.

    The window is [start, start + hours), across midnight if need be. Where it could be shifted without gaining a tweet
    it lies in the middle of that slack; of several slacks in that of the longest, of equal ones the earliest.

    >>> sleep_window([12 * 3600]) / 3600  # awake at noon, asleep from 20:00 to 4:00
    20.0
    """
    sent = np.asarray(seconds, np.int64)
    length = round(hours * 3600)
    if sent.ndim != 1 or (sent.size and not (sent.min() >= 0 and sent.max() < DAY)):
        raise DataError("seconds: give times of day, in [0, 86400)")
    if not 0 < length < DAY:
        raise DataError(f"hours={hours}: a window is shorter than a day and longer than nothing")
    if sent.size == 0:
        return 0
    # A tweet at s is in the window while start is in (s - length, s]; between these points the count does not change.
    starts = np.unique(np.concatenate([(sent - length + 1) % DAY, (sent + 1) % DAY]))
    counts = _num_in_windows(np.sort(sent), starts, length)
    lengths = np.diff(np.append(starts, starts[0] + DAY))
    return _middle_of_the_longest(starts, lengths, counts == counts.min())


def _num_in_windows(sent: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """How many tweets each window [start, start + length) holds, around midnight too."""
    twice = np.concatenate([sent, sent + DAY])
    return np.searchsorted(twice, starts + length) - np.searchsorted(twice, starts)


def _middle_of_the_longest(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], quiet: npt.NDArray[np.bool_]
) -> int:
    """The middle of the longest run of quiet stretches, which may run across midnight."""
    if quiet.all():
        return 0
    first = int(np.flatnonzero(~quiet)[0])  # begin after a stretch that is not quiet: then no run is cut in two
    order = (np.arange(len(starts)) + first) % len(starts)
    best_start, best_length, run_start, run_length = 0, 0, 0, 0
    for i in order:
        if not quiet[i]:
            run_length = 0
            continue
        if run_length == 0:
            run_start = int(starts[i])
        run_length += int(lengths[i])
        if (run_length, -run_start) > (best_length, -best_start):
            best_start, best_length = run_start, run_length
    return (best_start + (best_length - 1) // 2) % DAY
