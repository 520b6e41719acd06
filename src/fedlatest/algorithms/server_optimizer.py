"""The server's step: add a multiple of the combined update, or pass it through an optax transformation first."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedlatest.algorithms.base import InitServer, Params, RoundFacts, add, keep_model, where
from fedlatest.errors import ConfigError
from fedlatest.identity import describe

ServerStep = Callable[[Any, Params, Any, RoundFacts], Any]


class OptimizedServer(NamedTuple):
    """Server state with the state of an optimizer."""

    params: Params
    optimizer: Any


def make_server_step(optimizer: optax.GradientTransformation | None) -> tuple[InitServer, ServerStep]:
    """Return `init_server` and the function that moves the server along a combined update.

    The function is step(server, update, moves, facts) -> server: x = x + server_step * update, or, with an optimizer,
    x = x + server_step * transform(update). The step is one of the algorithm's `numbers`. Where `moves` is false (the
    update must then be 0), neither the model nor the optimizer's state changes.

    Args:
        optimizer: An optax transformation without learning rate and sign, such as `optax.scale_by_adam()` or
            `optax.trace(0.9)`; None for a plain step.
    """
    if optimizer is None:
        return keep_model, _plain_step
    check_transformation("server_optimizer", optimizer)
    transform = optimizer

    def init_server(params: Params, num_clients: int) -> OptimizedServer:
        del num_clients
        return OptimizedServer(params, transform.init(params))

    def step(server: OptimizedServer, update: Params, moves: Any, facts: RoundFacts) -> OptimizedServer:
        direction, state = transform.update(update, server.optimizer, server.params)
        moved = OptimizedServer(add(server.params, direction, facts.numbers["server_step"]), state)
        return where(moves, moved, server)

    return init_server, step


def _plain_step(server: Any, update: Params, moves: Any, facts: RoundFacts) -> Any:
    del moves  # the update of a round in which the server does not move is 0
    return server._replace(params=add(server.params, update, facts.numbers["server_step"]))


def server_numbers(server_step: float) -> dict[str, float]:
    """Return the server's step size as a number that an algorithm reads from the facts.

    Raises:
        ConfigError: If it is not a finite number above 0.
    """
    check_positive("server_step", server_step)
    return {"server_step": server_step}


def server_settings(optimizer: optax.GradientTransformation | None, numbers: dict[str, float]) -> dict[str, Any]:
    """Return what an algorithm records about the server's step."""
    return numbers if optimizer is None else {"server_optimizer": describe(optimizer), **numbers}


def check_positive(name: str, value: float) -> None:
    """Raise ConfigError if an argument is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name}={value!r}: must be a finite number above 0")


def check_transformation(name: str, optimizer: optax.GradientTransformation) -> None:
    """Raise ConfigError if an optimizer applies a learning rate and a sign by itself, as `optax.adam(0.1)` does.

    >>> check_transformation("client_optimizer", optax.trace(0.9))
    """
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise ConfigError(f"{name}={optimizer!r}: give an optax transformation, such as optax.scale_by_adam()")
    ones = jnp.ones(1)
    try:
        first, _ = optimizer.update(ones, optimizer.init(ones), ones)
    except (ValueError, TypeError, KeyError):  # one for parameters of a certain structure: it cannot be tried here
        return
    if float(jax.tree.leaves(first)[0][0]) < 0:
        raise ConfigError(
            f"{name}: applies a learning rate and a sign by itself; pass a transformation of the direction, such as "
            "optax.scale_by_adam() instead of optax.adam(...), and give the learning rate as an argument"
        )
