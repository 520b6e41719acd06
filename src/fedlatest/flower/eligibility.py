"""When a node may work: a function, or a command that says so by its exit status."""

import subprocess
from collections.abc import Callable
from datetime import datetime, time
from typing import NamedTuple

from fedlatest.errors import ConfigError, DeclinedError

Eligible = Callable[[], bool | str]
"""True, or the reason why not."""


def check_eligible(eligible: Eligible | None) -> None:
    """Decline if the node may not work now."""
    answer = True if eligible is None else eligible()
    if answer is not True:
        raise DeclinedError(answer if isinstance(answer, str) and answer else "not eligible now")


def by_command(command: str, *, seconds: float = 10.0) -> Eligible:
    """Eligible while a shell command exits with 0; its first line of output is the reason when it does not.

    >>> by_command("echo on battery; exit 1")()
    'on battery'
    """

    def ask() -> bool | str:
        try:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return f"`{command}` did not answer within {seconds:g} s"
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return True if done.returncode == 0 else (said[0] if said else f"`{command}` said no ({done.returncode})")

    return ask


class Hours(NamedTuple):
    """A part of the day, which may go over midnight."""

    start: time
    end: time

    def hold(self, moment: time) -> bool:
        """Whether a moment is in it."""
        if self.start <= self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end


def by_hours(text: str, *, now: Callable[[], datetime] = datetime.now) -> Eligible:
    """Eligible within hours of the day, such as "22:00-06:00".

    >>> by_hours("22:00-06:00", now=lambda: datetime(2026, 1, 1, 23, 30))()
    True
    """
    start, _, end = text.partition("-")
    try:
        hours = Hours(time.fromisoformat(start.strip()), time.fromisoformat(end.strip()))
    except ValueError:
        raise ConfigError(f"hours={text!r}: expected START-END such as 22:00-06:00") from None
    return lambda: hours.hold(now().time()) or f"outside its hours {text}"


def all_of(*conditions: Eligible) -> Eligible:
    """Eligible when every condition holds; the first that does not is the reason."""

    def ask() -> bool | str:
        answers = (condition() for condition in conditions)
        return next((answer for answer in answers if answer is not True), True)

    return ask
