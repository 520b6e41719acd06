"""ACED: ACE without the updates that are too old (Chang et al. 2025)."""

from dataclasses import replace

from fedlatest.algorithms.ace import ace
from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.staleness import check_whole
from fedlatest.algorithms.weighting import Weighting


def aced(*, max_age: int = 100, server_step: float = 1.0, weighting: Weighting = "loss") -> Algorithm:
    r"""After every arrival the server steps along the average of the clients' latest updates that are not too old.

        A = {i that have arrived : t - t_i <= max_age}
        x = x + server_step (1/|A|) \sum_{i in A} u_i

    t is the number of server steps before this one, and t_i that at which client i started the training of its latest
    update: the age is that of the update, whether or not its client has started again since. An update that is too old,
    also one that arrives now, is forgotten: the client counts again once it arrives with a new one. If nobody is left
    in A, the model stays as it is. The differences from the paper are those of `ace`; `first_step="everyone"` is not
    available.

    Each client's latest update is remembered. An upload has the size of the model.

    Args:
        max_age: tau_algo, the largest age of an update in server steps.
        server_step: eta, the server's step size.
        weighting: See `ace`.

    >>> aced(max_age=50).max_age
    50
    """
    base = ace(server_step=server_step, weighting=weighting)
    age = check_whole("max_age", max_age)
    settings = {**base.numbers, "max_age": age, "weighting": weighting}
    return replace(base, name="aced", title="ACED", max_age=age, settings=settings)
