"""What an algorithm costs besides computation: bytes that travel and bytes that are kept."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlatest.algorithms.base import Algorithm, ClientFacts, RoundFacts
from fedlatest.simulation.memory import nbytes


class Costs(NamedTuple):
    """Bytes of an algorithm; numbers are counted in the types in which the simulator computes."""

    down: int
    """To one client in a round in which it takes part: the broadcast, and the values that the client alone receives."""
    up: int
    """From one client in a round in which it takes part: fresh and remembered parts."""
    client: int
    """Kept by one client between rounds: remembered and private parts."""
    server: int
    """Kept by the server: its state, with the model, and the sums of the remembered parts."""


def measure_costs(
    algorithm: Algorithm,
    params: Any,
    *,
    num_clients: int,
    cohort_size: int = 1,
    num_steps: int = 1,
    has_rates: bool = False,
) -> Costs:
    """Return the costs of an algorithm for a model, from the shapes of what its functions return.

    A client that receives the merged model at the end of a round and trains from its own model needs one broadcast;
    one that receives it in addition to the model from which it trains needs two.

    Args:
        algorithm: The algorithm.
        params: The model, or the shapes of its arrays.
        num_clients: N.
        cohort_size: K.
        num_steps: C, the number of local steps.
        has_rates: Whether the clients' participation rates are known.

    >>> from fedlatest import fedlaavg
    >>> measure_costs(fedlaavg(), jnp.zeros(10), num_clients=100)
    Costs(down=40, up=40, client=40, server=80)
    """

    def one_round(params: Any) -> tuple[Any, ...]:
        server, client = algorithm.init_server(params, num_clients), algorithm.client_state(params)
        numbers = {name: jnp.float32(number) for name, number in algorithm.numbers.items()}
        zero, zeros = jnp.int32(0), jnp.zeros(num_clients, jnp.int32)
        rates = jnp.ones(num_clients) if has_rates else None
        facts = RoundFacts(
            round=zero,
            seed=jnp.uint32(0),
            num_clients=num_clients,
            cohort_size=cohort_size,
            ids=zeros,
            last_round=zeros,
            numbers=numbers,
            total_weight=num_clients,
            learning_rate=jnp.float32(1),
            num_steps=num_steps,
            rates=rates,
            available=jnp.ones(num_clients, bool),
        )
        briefs = {} if algorithm.brief is None else algorithm.brief(server, facts)
        brief = {name: values[0] for name, values in briefs.items()}
        about = ClientFacts(
            round=zero,
            id=zero,
            weight=jnp.float32(1),
            num_steps=num_steps,
            numbers=numbers,
            seed=facts.seed,
            learning_rate=facts.learning_rate,
            last_round=zero,
            rate=None if rates is None else rates[0],
            brief=brief,
        )
        broadcast = algorithm.broadcast(server)
        sent = algorithm.contribute(broadcast, params, client, about)
        return broadcast, brief, (sent.fresh, sent.remembered), client, (server, client.remembered)

    broadcast, brief, sent, client, server = jax.eval_shape(one_round, params)
    num_broadcasts = 2 if algorithm.after_merge is not None and algorithm.start is None else 1
    return Costs(num_broadcasts * nbytes(broadcast) + nbytes(brief), nbytes(sent), nbytes(client), nbytes(server))
