"""The server step of an asynchronous algorithm relative to that of synchronous rounds."""

import jax.numpy as jnp

from fedlatest.algorithms import Algorithm


def server_scale(algorithm: Algorithm, at_work: int) -> float:
    """Return the factor of the default server step with which an algorithm progresses as in synchronous rounds.

    An asynchronous algorithm that remembers the clients' updates takes a step along the average over all clients after
    every B arrivals instead of after a round of K clients: B / K of the default gives the same progress per arrival.
    Other algorithms keep their default.

    Args:
        algorithm: The algorithm.
        at_work: K, the largest number of clients at work or the size of a cohort.

    >>> from fedlatest.algorithms import ca2fl, fedavg, fedbuff
    >>> [server_scale(algorithm, 20) for algorithm in (ca2fl(buffer=5), fedbuff(buffer=5), fedavg())]
    [0.25, 1.0, 1.0]
    """
    if algorithm.buffer is None or not algorithm.client_state(jnp.zeros(1)).remembered:
        return 1.0
    return algorithm.buffer / at_work
