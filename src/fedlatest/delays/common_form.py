"""One form of constant and log-normal delays, so that experiments with either share a compiled program."""

import jax.numpy as jnp

from fedlatest.delays.models import Delays, Duration


def in_common_form(delays: Delays, num_clients: int) -> Delays:
    """Return the same delays, bit for bit, with constant durations written as log-normal ones without spread.

    Stages that take no time, and durations of other kinds or units, stay as they are.

    Args:
        delays: The delays.
        num_clients: The number of clients.

    >>> delays = in_common_form(Delays(training=3), 2)
    >>> delays.training.kind, delays.milliseconds(0, jnp.arange(2), 0).tolist()
    ('lognormal', [3000, 3000])
    """
    return Delays(*(_in_common_form(each, num_clients) for each in (delays.download, delays.training, delays.upload)))


def _in_common_form(duration: Duration | float, num_clients: int) -> Duration | float:
    if not isinstance(duration, Duration) or duration.per != "task" or duration.kind not in ("constant", "lognormal"):
        return duration
    if duration.kind == "constant" and duration.seconds.ndim == 0 and float(duration.seconds) == 0:
        return duration
    seconds, spread = (jnp.broadcast_to(values, (num_clients,)) for values in (duration.seconds, duration.spread))
    return Duration(seconds, spread, "lognormal")
