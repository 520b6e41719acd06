"""The client's side of the protocol: how a client handles an instruction, and what it stores before it replies.

Guarantee: an update is on the client's disk before its difference is sent, and it stays there until the server
reports that a newer one is in the sum. Whichever message is lost, client and server know a common base at the next
contact. `tests/ledger/test_client.py` loses each message of an exchange; `tests/ledger/test_histories.py` tests
random histories.
"""

import logging
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, DeclinedError, FedlatestError, ProtocolError
from fedlatest.ledger.client_store import ClientState, ClientStore, StoredUpdate
from fedlatest.ledger.fixed_point import (
    MAX_UNITS,
    UPLOAD_DTYPE,
    FixedPoint,
    largest_magnitude,
    norm,
    to_fixed_point,
    to_fixed_point_within,
)
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.job_config import Arrays, Layout, hash_of
from fedlatest.ledger.messages import LEAVING, Instruction, Reply, ReplyKind, Ticket, check_protocol
from fedlatest.ledger.participation import ParticipationLimits, shares_metrics
from fedlatest.ledger.secure_settings import sends_weight

if TYPE_CHECKING:
    from fedlatest.secure import SessionView

# `fedlatest.ledger.secure_client` is imported where it is needed: only secure jobs need the library `cryptography`.
SALT_BYTES = 16
EARLY_HASH_LENGTH = 16  # hexadecimal digits
log = logging.getLogger("fedlatest")


class LocalUpdate(NamedTuple):
    """The result of local training: the fixed-point update, the client's weight (number of samples) and metrics."""

    update: FixedPoint
    weight: float
    metrics: dict[str, float]
    seconds: float | None = None  # of training, measured by `handle_instruction`


def fixed_point_update(
    instruction: Instruction, layout: Layout, broadcast: Arrays, local: Arrays, weight: float
) -> FixedPoint:
    """Return a client's update x_local - x as the job's configuration asks for it.

    The update is clipped to `clip_norm`, multiplied by the weight if `weighs` is set, and rounded to multiples of
    `unit`. In a private job it is rounded towards zero, so that the norm stays at most `clip_norm`. This is the only
    place where a deployed client computes an update.

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
    update = layout.flatten(local)
    update -= layout.flatten(broadcast)
    if settings.get("privacy") is not None:
        return to_fixed_point_within(update, settings["unit"], settings["clip_norm"])
    _clip(update, settings["clip_norm"])
    if settings["weighs"]:
        update *= np.float32(weight)
    return to_fixed_point(update, settings["unit"])


def handle_instruction(
    store: ClientStore,
    instruction: Instruction,
    *,
    train: Callable[[], LocalUpdate],
    weight: float = 0.0,
    min_cohort: int = 1,
) -> Reply:
    """Carry out an instruction and return the reply. Errors of fedlatest are reported in the reply, not raised.

    Args:
        store: the client's durable state.
        instruction: the instruction.
        train: trains and returns the update, whose array may be changed afterwards; called only if the instruction
            requires training. It may raise DeclinedError to decline the round.
        weight: the client's number of samples, if it is known before training; sent with a hello.
        min_cohort: the smallest cohort in whose sum an update may be revealed. A job without secure aggregation
            reveals every single one.

    Returns:
        The reply to send. If it is an upload, the update is already durable in `store`.
    """
    unknown = ClientState(instruction.client, instruction.config, instruction.epoch)
    try:
        stored = store.load(instruction.job, verify=False)
    except FedlatestError as error:
        return _reply("failed", instruction, unknown, why=str(error))
    if stored is not None and _is_early_hash_of(instruction.config, stored.config):
        stored = replace(stored, config=instruction.config)
        with store.lock():
            store.save_state(instruction.job, stored)
    state = stored or unknown
    if state.config != instruction.config:
        why = f"this client joined the job with the config {state.config}, the server now has {instruction.config}"
        return _reply("failed", instruction, state, why=why)
    allowed = instruction.settings["secure"]["min_cohort"] if _is_secure(instruction) else 1
    if allowed < min_cohort:
        why = f"this client requires secure aggregation over {min_cohort} or more clients; the job allows {allowed}"
        return _reply("failed", instruction, state, why=why)
    if state.client != instruction.client:
        return _reply("failed", instruction, state, why=f"this is client {state.client}, not {instruction.client}")
    try:
        is_secure = _is_secure(instruction)
        check_protocol(instruction.protocol, sender="server", receiver="client", is_secure=is_secure)
        _check_settings(instruction)
        if _is_outdated(instruction, state):
            return _ahead(store, instruction, state)
        if instruction.kind == "unmask":
            return _unmask(store, instruction, state)
        if instruction.ticket is None:
            return _handle_hello(store, instruction, stored, state, weight)
        return _handle_ticket(store, instruction, stored, state, train)
    except DeclinedError as error:
        return _reply("declined", instruction, state, why=str(error))
    except FedlatestError as error:
        facts: dict[str, Any] = {}
        if _is_secure(instruction):
            with suppress(FedlatestError):
                facts = _public_facts(store, instruction.job)  # the reason may be that the server knows another key
        return _reply("failed", instruction, state, why=str(error), **facts)


def _handle_hello(
    store: ClientStore, instruction: Instruction, stored: ClientState | None, state: ClientState, weight: float
) -> Reply:
    if stored is None:
        with store.lock():
            if store.load(instruction.job, verify=False) is None:
                store.save_state(instruction.job, state)  # lets the client leave the job before its first round
    intact = store.load(instruction.job) or state
    why = LEAVING if state.leaving else ""
    weight = intact.updates[-1].weight if intact.updates else weight
    facts = _public_facts(store, instruction.job) if _is_secure(instruction) else {}
    known = weight if sends_weight(instruction.settings) else 0.0
    return _reply("hello", instruction, intact, weight=known, why=why, **facts)


def _unmask(store: ClientStore, instruction: Instruction, state: ClientState) -> Reply:
    """Reveal shares of masks as a decryptor."""
    from fedlatest.ledger.secure_client import answer_unmask

    return _reply("unmasked", instruction, state, payload=answer_unmask(store, instruction))


def _public_facts(store: ClientStore, job: str) -> dict[str, Any]:
    from fedlatest.ledger.secure_client import public_facts

    return public_facts(store, job)


def _check_settings(instruction: Instruction) -> None:
    """Raise ProtocolError if the settings in an instruction are not those that its hash stands for.

    A client remembers the hash when it joins a job. So the server can change neither the minimum of a cohort later nor
    that uploads are masked.
    """
    settings = {name: value for name, value in instruction.settings.items() if name != "size"}
    if hash_of(settings) != instruction.config:
        raise ProtocolError("the settings in the instruction are not those of the job")


def _is_early_hash_of(config: str, early: str) -> bool:
    """Whether a stored hash is that of the configuration, but of 64 bits, as versions before 2026-11-17 computed it."""
    return len(early) == EARLY_HASH_LENGTH and config.startswith(early) and len(config) > EARLY_HASH_LENGTH


def _is_secure(instruction: Instruction) -> bool:
    return instruction.settings.get("secure") is not None


def _session_of(store: ClientStore, instruction: Instruction) -> "SessionView | None":
    """Return the session in which a secure upload is masked; None in a job without secure aggregation."""
    if not _is_secure(instruction):
        return None
    from fedlatest.ledger.secure_client import check_session

    return check_session(store, instruction)


def _handle_ticket(
    store: ClientStore,
    instruction: Instruction,
    stored: ClientState | None,
    state: ClientState,
    train: Callable[[], LocalUpdate],
) -> Reply:
    assert instruction.ticket is not None
    session = _session_of(store, instruction)
    earlier = state.updates
    if instruction.epoch != state.epoch:  # a new epoch starts from an empty sum
        state = replace(state, epoch=instruction.epoch, highest_ticket=0, updates=())
    sends_difference = instruction.settings.get("memory", "client") == "client"
    base = _find(state, instruction.applied, instruction.applied_digest) if sends_difference else None
    base_update = store.read_update(instruction.job, base) if base is not None else None
    if sends_difference and instruction.applied is not None and base_update is None:
        _check_unchanged(store, instruction, stored)
        state = replace(state, updates=tuple(u for u in state.updates if u.ticket != instruction.applied))
        why = f"the update under ticket {instruction.applied.number} is in the sum, but it is not on this client's disk"
        return _reply("lost", instruction, state, why=why)
    if _is_pending(instruction.ticket, state):  # a repeated instruction gets the same reply again
        pending = state.updates[-1]
        _check_same_session(session, pending)
        update = store.read_update(instruction.job, pending)
        if update is None:
            _check_unchanged(store, instruction, stored)
            return _ahead(store, instruction, state)
        result = LocalUpdate(update, pending.weight, {})
        return _upload(store, instruction, session, state, base, base_update, pending, result)
    if state.leaving and session is not None:  # the server cannot see a difference, so it starts a new epoch
        return _reply("goodbye", instruction, state)
    if not state.leaving:
        state = _count_participation(state, instruction)
    if state.leaving:
        result = LocalUpdate(np.zeros(instruction.settings["size"], np.int32), 0.0, {})
    elif instruction.kind == "rebase":
        result = _newest_intact(store, instruction.job, earlier)
    else:
        result = _train(train, instruction)
        if not shares_metrics(instruction.settings.get("privacy"), instruction.settings.get("secure")):
            result = result._replace(metrics={}, seconds=None)
        if not sends_weight(instruction.settings):
            result = result._replace(weight=1.0)
    salt, bound_to = ("", "") if session is None else (os.urandom(SALT_BYTES).hex(), session.hash.hex())
    new = StoredUpdate(instruction.ticket, digest_of(result.update, salt), result.weight, salt, bound_to)
    kept = tuple(update for update in state.updates if update is base)
    state = replace(state, highest_ticket=instruction.ticket.number, updates=kept)
    with store.lock():
        _check_unchanged(store, instruction, stored)
        store.save_update(instruction.job, state, new, result.update)
    return _upload(store, instruction, session, state, base, base_update, new, result)


def _train(train: Callable[[], LocalUpdate], instruction: Instruction) -> LocalUpdate:
    """Train and check the result.

    In a secure or private job, the server is not told why training failed: the text may show data.
    """
    began = time.monotonic()
    try:
        result = _checked(train(), instruction.settings["size"])
        return result._replace(seconds=round(time.monotonic() - began, 3))
    except DeclinedError:
        raise
    except Exception as error:  # also one of the user's code: Flower would send its text to the server
        if not _is_secure(instruction) and instruction.settings.get("privacy") is None:
            raise
        log.warning("fedlatest: training failed: %s", error)
        raise ProtocolError(f"training failed ({type(error).__name__}); the client's log has the reason") from None


def _check_same_session(session: "SessionView | None", pending: StoredUpdate) -> None:
    """Raise ProtocolError if an update would be masked for a second session.

    If the same updates were in the sums of two sessions, the difference of the sums could be one client's update.
    """
    if session is not None and session.hash.hex() != pending.session:
        raise ProtocolError("the update under this ticket was masked for another session")


def _count_participation(state: ClientState, instruction: Instruction) -> ClientState:
    """Return the state after another upload in a private job; raise DeclinedError if there were too many.

    The server enforces the same limits, unless its ledger was restored from a backup and has forgotten some rounds.
    """
    limits = ParticipationLimits.of(instruction.settings.get("privacy"))
    if limits is None:
        return state
    limits.check_own_count(state.participations, state.last_participation, instruction.round)
    return replace(state, participations=state.participations + 1, last_participation=instruction.round)


def _check_unchanged(store: ClientStore, instruction: Instruction, stored: ClientState | None) -> None:
    """Raise ProtocolError if another process has changed the state since it was read."""
    if store.load(instruction.job, verify=False) != stored:
        raise ProtocolError("another instruction was handled in the meantime; this result is discarded")


def _newest_intact(store: ClientStore, job: str, updates: tuple[StoredUpdate, ...]) -> LocalUpdate:
    """Return the newest stored update that is not damaged, with its own weight."""
    for stored in reversed(updates):
        update = store.read_update(job, stored)
        if update is not None:
            return LocalUpdate(update, stored.weight, {})
    raise DeclinedError("there is no stored update to upload again")


def _upload(
    store: ClientStore,
    instruction: Instruction,
    session: "SessionView | None",
    state: ClientState,
    base: StoredUpdate | None,
    base_update: FixedPoint | None,
    new: StoredUpdate,
    result: LocalUpdate,
) -> Reply:
    """Return the reply with the new update, or with its difference to the one that is in the sum.

    The digest protects a whole update, so only a difference needs a checksum. In a secure job, the upload is masked.
    """
    # A repeated upload from before the request to leave is not zero and stays an upload.
    leaves = state.leaving and session is None and not result.update.any()
    upload = result.update
    if base_update is not None:
        target = upload if upload.flags.writeable else None  # in place where possible: updates may be large
        upload = np.subtract(upload, base_update, out=target)
    trained = instruction.kind == "train" and not leaves
    kind: ReplyKind = "goodbye" if leaves else "upload"
    common: dict[str, Any] = {"base": base and base.ticket, "trained": trained, "update_digest": new.digest}
    common |= {"weight": result.weight, "metrics": result.metrics, "training_seconds": result.seconds}
    if session is not None:
        from fedlatest.ledger.secure_client import mask

        masked = mask(store, instruction, session, upload)
        checksum = checksum_of(masked.numbers.view(UPLOAD_DTYPE))
        sent = {"checksum": checksum, "upload": masked.numbers, "payload": masked.payload}
        return _reply(kind, instruction, state, **common, **sent)
    checksum = "" if base_update is None else checksum_of(upload)
    return _reply(kind, instruction, state, **common, checksum=checksum, upload=upload)


def _ahead(store: ClientStore, instruction: Instruction, state: ClientState) -> Reply:
    """Return the reply to an outdated instruction, with the tickets of the updates that are intact."""
    why = f"this client has seen ticket {state.highest_ticket} of epoch {state.epoch.number}"
    facts = _public_facts(store, instruction.job) if _is_secure(instruction) and instruction.ticket is None else {}
    return _reply("ahead", instruction, store.load(instruction.job) or state, why=why, **facts)


def _find(state: ClientState, ticket: Ticket | None, digest: str) -> StoredUpdate | None:
    return next((stored for stored in state.updates if (stored.ticket, stored.digest) == (ticket, digest)), None)


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
    if largest_magnitude(update) > MAX_UNITS:
        raise ConfigError(f"the update has a number above {MAX_UNITS} units")
    if not 0 < result.weight < math.inf:
        raise ConfigError(f"weight={result.weight}: must be finite and above 0")
    return LocalUpdate(update, float(result.weight), {name: float(value) for name, value in result.metrics.items()})


def _clip(update: npt.NDArray[np.float32], limit: float | None) -> None:
    """Scale the update down in place so that its Euclidean norm is at most the limit."""
    length = 0.0 if limit is None else norm(update, 1.0)
    if limit is not None and length > limit:
        update *= np.float32(limit / length)
