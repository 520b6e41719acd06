"""The client's side of the protocol: how a client handles an instruction, and what it stores before it replies.

Guarantee: an update is on the client's disk before its difference is sent, and it stays there until the server
reports that a newer one is in the sum. Whichever message is lost, client and server know a common base at the next
contact. `tests/ledger/test_client.py` loses each message of an exchange; `tests/ledger/test_histories.py` tests
random histories.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, DeclinedError, FedlatestError, ProtocolError
from fedlatest.ledger.client_store import ClientState, ClientStore, StoredUpdate
from fedlatest.ledger.fixed_point import MAX_UNITS, UPLOAD_DTYPE, FixedPoint, to_fixed_point
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.job_config import Arrays, Layout
from fedlatest.ledger.messages import LEAVING, Instruction, Reply, ReplyKind, Ticket


class LocalUpdate(NamedTuple):
    """The result of local training: the fixed-point update, the client's weight (number of samples) and metrics."""

    update: FixedPoint
    weight: float
    metrics: dict[str, float]


def fixed_point_update(
    instruction: Instruction, layout: Layout, broadcast: Arrays, local: Arrays, weight: float
) -> FixedPoint:
    """Return a client's update x_local - x as the job's configuration asks for it.

    The update is clipped to `clip_norm`, multiplied by the weight if `weighs` is set, and rounded to multiples of
    `unit`. This is the only place where a deployed client computes an update.

    Args:
        instruction: carries the job's settings.
        layout: the layout of both models.
        broadcast: the model x that the client received.
        local: the model x_local after local training.
        weight: the client's number of samples.

    Returns:
        An array of shape [layout.size].
    """
    settings = instruction.settings
    update = _clip(layout.flatten(local) - layout.flatten(broadcast), settings["clip_norm"])
    return to_fixed_point(update * np.float32(weight) if settings["weighs"] else update, settings["unit"])


def handle_instruction(
    store: ClientStore,
    instruction: Instruction,
    *,
    train: Callable[[], LocalUpdate],
    weight: float = 0.0,
) -> Reply:
    """Carry out an instruction and return the reply. Errors of fedlatest are reported in the reply, not raised.

    Args:
        store: the client's durable state.
        instruction: the instruction.
        train: trains and returns the update; called only if the instruction requires training. It may raise
            DeclinedError to decline the round.
        weight: the client's number of samples, if it is known before training; sent with a hello.

    Returns:
        The reply to send. If it is an upload, the update is already durable in `store`.
    """
    stored = store.load(instruction.job)
    state = stored or ClientState(instruction.client, instruction.config, instruction.epoch)
    if state.config != instruction.config:
        why = f"this client joined the job with the config {state.config}, the server now has {instruction.config}"
        return _reply("failed", instruction, state, why=why)
    if state.client != instruction.client:
        return _reply("failed", instruction, state, why=f"this is client {state.client}, not {instruction.client}")
    if _is_outdated(instruction, state):
        why = f"this client has seen ticket {state.highest_ticket} of epoch {state.epoch.number}"
        return _reply("ahead", instruction, state, why=why)
    try:
        if instruction.ticket is None:
            return _handle_hello(store, instruction, stored, state, weight)
        return _handle_ticket(store, instruction, stored, state, train)
    except DeclinedError as error:
        return _reply("declined", instruction, state, why=str(error))
    except FedlatestError as error:
        return _reply("failed", instruction, state, why=str(error))


def _handle_hello(
    store: ClientStore, instruction: Instruction, stored: ClientState | None, state: ClientState, weight: float
) -> Reply:
    if stored is None:
        with store.lock():
            if store.load(instruction.job) is None:
                store.save_state(instruction.job, state)  # lets the client leave the job before its first round
    why = LEAVING if state.leaving else ""
    return _reply("hello", instruction, state, weight=state.weight or weight, why=why)


def _handle_ticket(
    store: ClientStore,
    instruction: Instruction,
    stored: ClientState | None,
    state: ClientState,
    train: Callable[[], LocalUpdate],
) -> Reply:
    assert instruction.ticket is not None
    newest = state.updates[-1] if state.updates else None
    if instruction.epoch != state.epoch:  # a new epoch starts from an empty sum
        state = replace(state, epoch=instruction.epoch, highest_ticket=0, updates=())
    sends_difference = instruction.settings.get("memory", "client") == "client"
    base = instruction.applied if sends_difference else None
    if base is not None and StoredUpdate(base, instruction.applied_digest) not in state.updates:
        state = replace(state, updates=tuple(update for update in state.updates if update.ticket != base))
        why = f"the update under ticket {base.number} is in the sum, but it is not on this client's disk"
        return _reply("lost", instruction, state, why=why)
    if _is_pending(instruction.ticket, state):  # a repeated instruction gets the same reply again
        pending = LocalUpdate(store.load_update(instruction.job, instruction.ticket), state.weight, {})
        return _upload(store, instruction, state, base, pending)
    if state.leaving:
        result = LocalUpdate(np.zeros(instruction.settings["size"], np.int32), 0.0, {})
    elif instruction.kind == "rebase":
        if newest is None:
            raise DeclinedError("there is no stored update to upload again")
        result = LocalUpdate(store.load_update(instruction.job, newest.ticket), state.weight, {})
    else:
        result = _checked(train(), instruction.settings["size"])
    kept = tuple(update for update in state.updates if update.ticket == base)
    state = replace(state, highest_ticket=instruction.ticket.number, updates=kept, weight=result.weight)
    with store.lock():
        if store.load(instruction.job) != stored:
            raise ProtocolError("another instruction was handled in the meantime; this result is discarded")
        store.save_update(instruction.job, state, instruction.ticket, result.update)
    return _upload(store, instruction, state, base, result)


def _upload(
    store: ClientStore, instruction: Instruction, state: ClientState, base: Ticket | None, result: LocalUpdate
) -> Reply:
    subtracted = store.load_update(instruction.job, base) if base is not None else np.int32(0)
    upload = (result.update - subtracted).astype(np.int32, copy=False)
    # A repeated upload from before the request to leave is not zero and stays an upload.
    leaves = state.leaving and not result.update.any()
    return _reply(
        "goodbye" if leaves else "upload",
        instruction,
        state,
        base=base,
        trained=instruction.kind == "train" and not leaves,
        weight=result.weight,
        checksum=checksum_of(upload),
        update_digest=digest_of(result.update),
        metrics=result.metrics,
        upload=upload,
    )


def _reply(kind: ReplyKind, instruction: Instruction, state: ClientState, **more: Any) -> Reply:
    return Reply(
        kind,
        job=instruction.job,
        epoch=state.epoch,
        config=state.config,
        layout=instruction.layout,
        client=state.client,
        round=instruction.round,
        ticket=instruction.ticket,
        held_tickets=state.tickets,
        highest_ticket=state.highest_ticket,
        **more,
    )


def _is_outdated(instruction: Instruction, state: ClientState) -> bool:
    """Whether the instruction is older than the client's state: delayed, or from a server restored from a backup."""
    if instruction.epoch != state.epoch:
        return instruction.epoch.number <= state.epoch.number
    ticket = instruction.ticket
    return ticket is not None and ticket.number <= state.highest_ticket and not _is_pending(ticket, state)


def _is_pending(ticket: Ticket, state: ClientState) -> bool:
    return bool(state.updates) and state.updates[-1].ticket == ticket


def _checked(result: LocalUpdate, size: int) -> LocalUpdate:
    """Return the result of training; raise ConfigError if differences of such updates would overflow 32 bits."""
    update = np.asarray(result.update)
    if update.dtype != UPLOAD_DTYPE or update.shape != (size,):
        raise ConfigError(f"training returned {update.dtype}{list(update.shape)}, not {UPLOAD_DTYPE}[{size}]")
    if size and max(int(update.max()), -int(update.min())) > MAX_UNITS:
        raise ConfigError(f"the update has a number above {MAX_UNITS} units")
    if not 0 < result.weight < math.inf:
        raise ConfigError(f"weight={result.weight}: must be finite and above 0")
    return LocalUpdate(update, float(result.weight), {name: float(value) for name, value in result.metrics.items()})


def _clip(update: npt.NDArray[Any], limit: float | None) -> npt.NDArray[Any]:
    """Scale the update down so that its Euclidean norm is at most the limit."""
    length = 0.0 if limit is None else float(np.linalg.norm(update.astype(np.float64)))
    return update if limit is None or not length > limit else update * np.float32(limit / length)
