"""Checks of replies: whether one may be accepted, and whether it shows that a client or the ledger lost data."""

import math
import re
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from fedlatest.errors import ProtocolError
from fedlatest.ledger.client_table import ClientRow
from fedlatest.ledger.fixed_point import MAX_UNITS, UPLOAD_DTYPE, largest_magnitude, norm, sum_of_squares
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.job_config import JobConfig, Layout
from fedlatest.ledger.messages import Epoch, Reply, Ticket, check_protocol

MIN_WEIGHT, MAX_WEIGHT = 2.0**-10, 2.0**30
MAX_ID_LENGTH = 200
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")


def check_job(reply: Reply, *, job: str, config: str, layout: str, is_secure: bool = False) -> None:
    """Raise ProtocolError if a reply belongs to another job, or is of a protocol that does not fit to it.

    Args:
        reply: the reply.
        job: id of this job.
        config: hash of this job's configuration.
        layout: hash of this job's model layout.
        is_secure: whether uploads are masked.
    """
    check_protocol(reply.protocol, sender="client", receiver="server", is_secure=is_secure)
    for name, found, expected in (
        ("job", reply.job, job),
        ("config", reply.config, config),
        ("model layout", reply.layout, layout),
    ):
        if found != expected:
            why = f" ({reply.why})" if reply.why else ""
            raise ProtocolError(f"the reply's {name} is {found}, the job's is {expected}{why}")


def check_ticket(reply: Reply, client: ClientRow) -> None:
    """Raise ProtocolError unless a reply carries the ticket that was issued to its client last."""
    if reply.ticket is not None and reply.ticket == client.applied:
        raise ProtocolError(f"ticket {reply.ticket.number} was already used")
    if reply.ticket is None or reply.ticket != client.issued:
        issued = "no ticket was issued" if client.issued is None else f"the last one issued is {client.issued.number}"
        raise ProtocolError(f"the reply has {_describe(reply.ticket)}; {issued}")


def check_weight(weight: float, *, max_weight: float = MAX_WEIGHT) -> None:
    """Raise ProtocolError unless a client's weight is in a range in which single precision can divide by it."""
    if not MIN_WEIGHT <= weight <= max_weight:
        raise ProtocolError(f"the weight is {weight:g}; it must be in {MIN_WEIGHT:g} .. {max_weight:g}")


def check_hello(reply: Reply, *, max_weight: float = MAX_WEIGHT) -> None:
    """Raise ProtocolError if the client's id or weight in a hello is not valid; 0 stands for an unknown weight."""
    if not 1 <= len(reply.client) <= MAX_ID_LENGTH:
        raise ProtocolError(f"the client's id has {len(reply.client)} characters; it must have 1 .. {MAX_ID_LENGTH}")
    if reply.weight:
        check_weight(reply.weight, max_weight=max_weight)


def check_upload(
    reply: Reply,
    client: ClientRow,
    *,
    epoch: Epoch,
    config: JobConfig,
    layout: Layout,
    max_weight: float = MAX_WEIGHT,
) -> None:
    """Raise ProtocolError unless an upload starts from the update that is in the sum and is a valid array.

    Args:
        reply: the reply, of kind "upload" or "goodbye".
        client: the client's row in the ledger.
        epoch: the current epoch.
        config: the job's configuration.
        layout: the model's layout.
        max_weight: the largest weight of a client.
    """
    check_base(reply, client, epoch=epoch, config=config)
    if reply.kind == "upload":
        check_weight(reply.weight, max_weight=max_weight)
    _check_array(reply, layout.size)
    if config.privacy is not None and config.clip_norm is not None and reply.base is None:
        assert reply.upload is not None
        if sum_of_squares(reply.upload) * Fraction(config.unit) ** 2 > Fraction(config.clip_norm) ** 2:
            raise ProtocolError(f"the norm of the update exceeds clip_norm={config.clip_norm:g} of this private job")
    if config.clip_norm is not None:
        assert reply.upload is not None
        limit = _max_norm(reply, client, config.clip_norm, config, layout.size)
        length = norm(reply.upload, config.unit)
        if length > limit:
            raise ProtocolError(f"the norm of the upload is {length:.4g}; at most {limit:.4g} is allowed")


def check_base(reply: Reply, client: ClientRow, *, epoch: Epoch, config: JobConfig) -> None:
    """Raise ProtocolError unless an upload starts from the update that is in the sum.

    Args:
        reply: the reply, of kind "upload" or "goodbye".
        client: the client's row in the ledger.
        epoch: the current epoch.
        config: the job's configuration.
    """
    if reply.epoch != epoch:
        raise ProtocolError(f"the upload is of epoch {reply.epoch.number}, the job is in epoch {epoch.number}")
    if config.memory == "client" and reply.base != client.applied:
        raise ProtocolError(f"the upload starts from {_describe(reply.base)}, the sum has {_describe(client.applied)}")
    if config.memory != "client" and reply.base is not None:
        raise ProtocolError("the upload is a difference; the job requires whole updates")


def check_public_key(public_key: str) -> None:
    """Raise ProtocolError unless a client of a secure job has a public key of 32 bytes."""
    if not _PUBLIC_KEY.fullmatch(public_key):
        raise ProtocolError(f"the job is secure: a public key is required, not {public_key[:80]!r}")


def _check_array(reply: Reply, size: int) -> None:
    upload = reply.upload
    if not isinstance(upload, np.ndarray) or upload.dtype != UPLOAD_DTYPE or upload.shape != (size,):
        found = f"{upload.dtype}{list(upload.shape)}" if isinstance(upload, np.ndarray) else "missing"
        raise ProtocolError(f"the upload is {found}, not {UPLOAD_DTYPE}[{size}]")
    if reply.base is not None and checksum_of(upload) != reply.checksum:
        raise ProtocolError("the upload does not match the checksum in its header")
    if reply.base is None and reply.update_digest != digest_of(upload):
        raise ProtocolError("the upload is a whole update, but does not match the digest in its header")
    if reply.base is None and largest_magnitude(upload) > MAX_UNITS:
        raise ProtocolError(f"the upload is a whole update and has a number above {MAX_UNITS} units")
    if reply.kind == "goodbye" and reply.update_digest != digest_of(np.zeros_like(upload)):
        raise ProtocolError("the goodbye does not remove the client's update from the sum")


def _max_norm(reply: Reply, client: ClientRow, clip_norm: float, config: JobConfig, size: int) -> float:
    """Return the largest norm of an upload of clipped updates: of the new update plus the one it starts from.

    Rounding to units changes each number by at most half a unit; single precision changes the norm by less than 0.1%.
    """
    weights = [reply.weight, *([client.weight] if reply.base is not None else [])]
    rounding = config.unit * math.sqrt(size)
    return sum(1.001 * clip_norm * (weight if config.weighs else 1.0) + rounding for weight in weights)


class Inconsistency(NamedTuple):
    """A client's state that contradicts the ledger."""

    kind: Literal["lost", "restored"]  # the client lost its update, or the ledger was restored from a backup
    why: str


def find_inconsistency(
    reply: Reply, client: ClientRow | None, *, epoch: Epoch, round: int, config: JobConfig
) -> Inconsistency | None:
    """Return how the state that a client reports contradicts the ledger, or None if it does not.

    Args:
        reply: the reply with the client's state.
        client: the client's row in the ledger; None if it has not joined.
        epoch: the current epoch.
        round: the current round.
        config: the job's configuration.
    """
    if reply.epoch.number > epoch.number or (reply.epoch.number == epoch.number and reply.epoch != epoch):
        why = f"the client has seen epoch {reply.epoch.number}, which this ledger (epoch {epoch.number}) did not start"
        return Inconsistency("restored", f"{why}: the ledger was restored from a backup")
    if client is None or reply.epoch != epoch:
        return None
    if _has_unknown_ticket(reply, client):
        why = f"the client has seen ticket {highest_ticket(reply)}, which this ledger did not issue"
        return Inconsistency("restored", f"{why}: the ledger was restored from a backup")
    if lacks_base(reply, client, round=round, config=config):
        return Inconsistency("lost", "the update in the sum is no longer on the client's disk")
    return None


def lacks_base(reply: Reply, client: ClientRow, *, round: int, config: JobConfig) -> bool:
    """Return whether a client can no longer subtract its update from the sum.

    A hello of an earlier round is ignored: the client may store other updates by now.

    Args:
        reply: the reply with the client's state.
        client: the client's row in the ledger.
        round: the current round.
        config: the job's configuration.
    """
    if config.memory != "client" or client.applied is None or (reply.ticket is None and reply.round != round):
        return False
    return client.applied not in reply.held_tickets


def highest_ticket(reply: Reply) -> int:
    """Return the highest ticket number that a client has seen in its epoch."""
    return max([reply.highest_ticket, *(ticket.number for ticket in reply.held_tickets)])


def _has_unknown_ticket(reply: Reply, client: ClientRow) -> bool:
    last = client.issued.number if client.issued else 0
    # "ahead" in reply to a ticket says that the client knows another ticket of that number or of a higher one.
    is_ahead = reply.kind == "ahead" and reply.ticket is not None
    if highest_ticket(reply) > last or (is_ahead and highest_ticket(reply) == last):
        return True
    return any(ticket.number == last and ticket != client.issued for ticket in reply.held_tickets)


def _describe(ticket: Ticket | None) -> str:
    return "no ticket" if ticket is None else f"ticket {ticket.number}"
