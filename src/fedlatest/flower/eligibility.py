"""Conditions under which a node may train or evaluate: functions, shell commands and hours of the day."""

import subprocess
from collections.abc import Callable
from datetime import datetime, time

from fedlatest.errors import ConfigError, DeclinedError

Eligible = Callable[[], bool | str]
"""Returns True if the node is eligible now, otherwise the reason (or False)."""


def check_eligible(eligible: Eligible) -> None:
    """Raise DeclinedError with the reason if the node is not eligible now."""
    result = eligible()
    if result is not True:
        raise DeclinedError(result if isinstance(result, str) and result else "not eligible now")


def by_command(command: str, *, timeout: float = 10.0) -> Eligible:
    """Make a condition that holds while a shell command exits with status 0.

    If it exits with another status, the first line of its output is the reason.

    >>> by_command("echo on battery; exit 1")()
    'on battery'
    """

    def check() -> bool | str:
        try:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return f"`{command}` did not finish within {timeout:g} s"
        lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
        reason = lines[0] if lines else f"`{command}` exited with status {done.returncode}"
        return True if done.returncode == 0 else reason

    return check


def by_hours(hours: str, *, now: Callable[[], datetime] = datetime.now) -> Eligible:
    """Make a condition that holds at some hours of the day, such as "22:00-06:00".

    The end is excluded, and the hours may span midnight.

    >>> by_hours("22:00-06:00", now=lambda: datetime(2026, 1, 1, 23, 30))()
    True
    """
    first, _, last = hours.partition("-")
    try:
        start, end = time.fromisoformat(first.strip()), time.fromisoformat(last.strip())
    except ValueError:
        raise ConfigError(f"hours={hours!r}: expected START-END such as 22:00-06:00") from None

    def check() -> bool | str:
        moment = now().time()
        inside = start <= moment < end if start <= end else moment >= start or moment < end
        return inside or f"outside its hours {hours}"

    return check


def all_of(*conditions: Eligible) -> Eligible:
    """Make a condition that holds if all of the given ones hold; the first that does not gives the reason."""

    def check() -> bool | str:
        results = (condition() for condition in conditions)
        return next((result for result in results if result is not True), True)

    return check
