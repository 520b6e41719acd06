"""Durations that were measured: drawn from each client's own values, or from a table of all tasks."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike as Values

from fedlatest.delays.models import Duration
from fedlatest.errors import ConfigError


def empirical(seconds: Sequence[Values], *, fails: Sequence[Values] | None = None) -> Duration:
    """Return a duration that is drawn from a client's own values, each equally likely, for every task.

    Args:
        seconds: For each client its values, at least one.
        fails: For each client and value, whether the client does not answer in a task with this value: the server
            stops waiting for it after these seconds. By default nobody fails.

    >>> empirical([[1.0, 3.0], [10.0]]).draw(jnp.float32([0.6, 0.6]), jnp.arange(2), None).tolist()
    [3.0, 10.0]
    """
    values = [_seconds(f"client {client}", own).reshape(-1) for client, own in enumerate(seconds)]
    failing = [np.zeros(own.shape, bool) for own in values]
    if fails is not None:
        failing = [np.asarray(own, bool).reshape(-1) for own in fails]
    counts = np.array([len(own) for own in values])
    if not values or not counts.all():
        client = "nobody" if not values else f"client {int(np.argmin(counts))}"
        raise ConfigError(f"seconds: there is no value for {client}; give at least one for each client")
    if [len(own) for own in failing] != counts.tolist():
        raise ConfigError("fails: give one value for each of the seconds of each client")
    table = np.zeros((len(values), counts.max()), np.float32)
    for row, own, flags in zip(table, values, failing, strict=True):
        row[: len(own)] = own[np.lexsort((own, flags))]
    spread = np.stack([counts, [np.count_nonzero(~flags) for flags in failing]], axis=1)
    return Duration(jnp.asarray(table), jnp.asarray(spread, jnp.float32), "empirical")


def recorded(seconds: Values, *, fails: Values | None = None) -> Duration:
    """Return a duration from a table with one row per task (a round, or a dispatch) and one column per client.

    Args:
        seconds: [tasks, N] the seconds; tasks after the last row have the last one.
        fails: [tasks, N] where a client does not answer: the server stops waiting for it after these seconds. By
            default nobody fails.

    >>> recorded([[1.0, 2.0], [3.0, 4.0]]).draw(jnp.zeros(2), jnp.arange(2), None, event=1).tolist()
    [3.0, 4.0]
    """
    table = _seconds("seconds", seconds)
    failing = np.zeros(table.shape, bool) if fails is None else np.asarray(fails, bool)
    if table.ndim != 2 or not table.size or failing.shape != table.shape:
        raise ConfigError(
            f"seconds, fails: give tables of the same shape [tasks, clients], not {table.shape} and {failing.shape}"
        )
    return Duration(jnp.asarray(table), jnp.asarray(failing, jnp.float32), "recorded")


def _seconds(name: str, values: Any) -> npt.NDArray[np.float32]:
    try:
        array = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: the seconds {values!r} are not numbers") from None
    if not (np.isfinite(array) & (array >= 0)).all():
        wrong = array[~(np.isfinite(array) & (array >= 0))].flat[0]
        raise ConfigError(f"{name}: {wrong} seconds; they must be finite, 0 or larger")
    return array
