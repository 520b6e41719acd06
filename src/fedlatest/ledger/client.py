"""The client's half of the protocol: what it answers to an instruction, and what it writes down before it does.

A value is on the client's disk before its difference leaves, and a value stays there until the server says that a newer
one is in the sum. So whatever is lost on the way, the next contact finds a base that both sides know.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError, DeclinedError, FedlatestError, ProtocolError
from fedlatest.ledger.client_store import ClientStore, Held, Slot
from fedlatest.ledger.fixed_point import MOST_UNITS, ON_THE_WIRE, Vector, to_units
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.job_config import Arrays, Layout
from fedlatest.ledger.messages import LEAVING, Instruction, Reply, Ticket


class Trained(NamedTuple):
    """What training yields: the client's new value in units, its weight (samples), and what it measured."""

    value: Vector
    weight: float
    metrics: dict[str, float]


def answer(
    store: ClientStore,
    instruction: Instruction,
    *,
    train: Callable[[], Trained],
    weight: float = 0.0,
) -> Reply:
    """Answer an instruction. `train` may raise `DeclinedError`: the client may not work now, which costs nothing.

    `weight` is what the client will weigh where that is known before it trains.
    """
    known = store.load(instruction.job)
    held = known or Held(instruction.client, instruction.config, instruction.epoch)
    if held.config != instruction.config:
        why = f"this client joined the job with the config {held.config}, the server now has {instruction.config}"
        return _reply("failed", instruction, held, why=why)
    if held.client != instruction.client:
        return _reply("failed", instruction, held, why=f"this is client {held.client}, not {instruction.client}")
    if _is_behind(instruction, held):
        return _reply("ahead", instruction, held, why=f"this client knows of ticket {held.seen}, epoch {held.epoch}")
    try:
        if instruction.ticket is None:
            return _greet(store, instruction, known, held, weight)
        return _obey(store, instruction, known, held, train)
    except DeclinedError as error:
        return _reply("declined", instruction, held, why=str(error))
    except FedlatestError as error:
        return _reply("failed", instruction, held, why=str(error))


def _greet(store: ClientStore, instruction: Instruction, known: Held | None, held: Held, weight: float) -> Reply:
    if known is None:
        with store.lock():
            if store.load(instruction.job) is None:
                store.note(instruction.job, held)  # so that the job can be left before the first round
    why = LEAVING if held.leaving else ""
    return _reply("hello", instruction, held, weight=held.weight or weight, why=why)


def _is_behind(instruction: Instruction, held: Held) -> bool:
    """Whether the instruction comes from before what this client has seen: late, or of a server set back in time."""
    if instruction.epoch != held.epoch:
        return instruction.epoch.number <= held.epoch.number
    ticket = instruction.ticket
    return ticket is not None and ticket.number <= held.seen and not _is_pending(ticket, held)


def _is_pending(ticket: Ticket, held: Held) -> bool:
    return bool(held.slots) and held.slots[-1].ticket == ticket


def _obey(
    store: ClientStore,
    instruction: Instruction,
    known: Held | None,
    held: Held,
    train: Callable[[], Trained],
) -> Reply:
    assert instruction.ticket is not None
    newest = held.slots[-1] if held.slots else None
    if instruction.epoch != held.epoch:  # a new epoch: nothing of the old one is in the sum
        held = replace(held, epoch=instruction.epoch, seen=0, slots=())
    base = instruction.applied
    differences = instruction.settings.get("memory", "client") == "client"
    if differences and base is not None and Slot(base, instruction.value) not in held.slots:
        held = replace(held, slots=tuple(slot for slot in held.slots if slot.ticket != base))
        return _reply("lost", instruction, held, why=f"ticket {base.number} is in the sum, but its value is not here")
    if _is_pending(instruction.ticket, held):  # asked twice: say the same again
        value = store.value(instruction.job, instruction.ticket)
        done = Trained(value, held.weight, {})
        return _upload(store, instruction, held, base if differences else None, done)
    if held.leaving:
        done = Trained(np.zeros(instruction.settings["size"], np.int32), 0.0, {})
    elif instruction.ask == "rebase":
        if newest is None:
            raise DeclinedError("nothing is kept here that could be sent again")
        done = Trained(store.value(instruction.job, newest.ticket), held.weight, {})
    else:
        done = _sound(train(), instruction.settings["size"])
    kept = tuple(slot for slot in held.slots if differences and slot.ticket == base)
    held = replace(held, seen=instruction.ticket.number, slots=kept, weight=done.weight)
    with store.lock():
        if store.load(instruction.job) != known:  # a slow answer must not undo a quicker one
            raise ProtocolError("another instruction was answered here meanwhile")
        store.keep(instruction.job, held, instruction.ticket, done.value)
    return _upload(store, instruction, held, base if differences else None, done)


def _sound(done: Trained, size: int) -> Trained:
    """What training yields, if differences of it fit the wire; beyond that they would wrap around in silence."""
    value = np.asarray(done.value)
    if value.dtype != ON_THE_WIRE or value.shape != (size,):
        raise ConfigError(f"training yielded {value.dtype}{list(value.shape)}, not {ON_THE_WIRE}[{size}]")
    if size and max(int(value.max()), -int(value.min())) > MOST_UNITS:
        raise ConfigError(f"a value is beyond {MOST_UNITS} units")
    if not 0 < done.weight < math.inf:
        raise ConfigError(f"weight={done.weight}: a client weighs more than 0, and finitely")
    return Trained(value, float(done.weight), {name: float(number) for name, number in done.metrics.items()})


def _upload(store: ClientStore, instruction: Instruction, held: Held, base: Ticket | None, done: Trained) -> Reply:
    before = store.value(instruction.job, base) if base is not None else np.int32(0)
    vector = (done.value - before).astype(np.int32, copy=False)
    leaves = held.leaving and not done.value.any()  # not if this repeats what was said before the wish to leave
    return _reply(
        "goodbye" if leaves else "upload",
        instruction,
        held,
        base=base,
        trained=instruction.ask == "train" and not leaves,
        weight=done.weight,
        checksum=checksum_of(vector),
        value=digest_of(done.value),
        metrics=done.metrics,
        vector=vector,
    )


def _reply(say: Any, instruction: Instruction, held: Held, **more: Any) -> Reply:
    return Reply(
        say,
        job=instruction.job,
        epoch=held.epoch,
        config=held.config,
        layout=instruction.layout,
        client=held.client,
        round=instruction.round,
        ticket=instruction.ticket,
        held=held.tickets,
        seen=held.seen,
        **more,
    )


def contribution(instruction: Instruction, layout: Layout, broadcast: Arrays, local: Arrays, weight: float) -> Vector:
    """A client's new value, from the model that it was sent and the one that it trained."""
    settings = instruction.settings
    update = _within(settings["clip_norm"], layout.flatten(local) - layout.flatten(broadcast))
    return to_units(update * np.float32(weight) if settings["weighs"] else update, settings["unit"])


def _within(limit: float | None, update: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The update, shortened until its norm is within the limit."""
    length = 0.0 if limit is None else float(np.linalg.norm(update.astype(np.float64)))
    return update if limit is None or not length > limit else update * np.float32(limit / length)
