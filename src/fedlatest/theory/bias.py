"""Appendix A: the bias that flexible participation gathers while some clients are away."""

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError


def accumulated_bias(available: npt.ArrayLike, *, kept: npt.ArrayLike | None = None) -> int:
    """M_R: in how many of R rounds the clients contribute unequally; `available` is bool[R, N].

    Flexible participation scales incomplete work up to complete work, so the contributions of a round are equal unless
    some clients are here and others are not: nothing can be scaled up to something. Its guarantee needs M_R / R to go
    to 0. `kept` (bool[N]) leaves out clients that were kicked out. (For the absent client
    of Example 1 the text has s = 1; it means s = 0.)

    >>> accumulated_bias([[True, False], [False, True], [True, True]])
    2
    """
    table = np.asarray(available)
    if table.dtype != np.bool_ or table.ndim != 2 or table.size == 0:
        raise ConfigError(f"available: give true or false for each round and client, not an array {table.shape}")
    if kept is not None:
        keep = np.asarray(kept)
        if keep.dtype != np.bool_ or keep.shape != (table.shape[1],) or not keep.any():
            raise ConfigError(f"kept: give true or false for each of the {table.shape[1]} clients, and keep somebody")
        table = table[:, keep]
    return int((table.any(axis=1) & ~table.all(axis=1)).sum())
