"""What a reply must be to count, and what the things that a client holds say about the past."""

import math
from typing import Literal, NamedTuple

import numpy as np

from fedlatest.errors import ProtocolError
from fedlatest.ledger.fixed_point import ON_THE_WIRE, norm
from fedlatest.ledger.hashing import checksum_of, digest_of
from fedlatest.ledger.job_config import JobConfig, Layout
from fedlatest.ledger.membership import Member
from fedlatest.ledger.messages import Epoch, Reply, Ticket

LEAST_WEIGHT, MOST_WEIGHT = 2.0**-10, 2.0**30
MOST_NAME = 200


class Evidence(NamedTuple):
    """What a client's own memory says: of whom it is evidence, and the words for it."""

    of: Literal["lost", "restored"]
    why: str


def check_job(reply: Reply, *, job: str, config: str, layout: str) -> None:
    """A reply must be to this job."""
    for name, there, here in (
        ("job", reply.job, job),
        ("config", reply.config, config),
        ("model layout", reply.layout, layout),
    ):
        if there != here:
            raise ProtocolError(f"its {name} is {there}, the job's {here}{f' ({reply.why})' if reply.why else ''}")


def check_ticket(reply: Reply, member: Member) -> None:
    """A reply must be to the last thing that was asked of this client."""
    if reply.ticket is not None and reply.ticket == member.applied:
        raise ProtocolError(f"ticket {reply.ticket.number} was used already")
    if reply.ticket is None or reply.ticket != member.issued:
        there = "no ticket" if reply.ticket is None else f"ticket {reply.ticket.number}"
        here = "none is out" if member.issued is None else f"the last one was {member.issued.number}"
        raise ProtocolError(f"it bears {there}; {here}")


def check_weight(weight: float) -> None:
    """A client's samples must be a number that single precision can divide by."""
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise ProtocolError(f"its weight is {weight:g}, not in {LEAST_WEIGHT:g} .. {MOST_WEIGHT:g}")


def check_greeting(reply: Reply) -> None:
    """A client that says hello needs a name, and may say what it weighs."""
    if not 1 <= len(reply.client) <= MOST_NAME:
        raise ProtocolError(f"its name has {len(reply.client)} characters, not 1 .. {MOST_NAME}")
    if reply.weight:
        check_weight(reply.weight)


def check_upload(reply: Reply, member: Member, *, epoch: Epoch, config: JobConfig, layout: Layout) -> None:
    """An upload must start from the value that is in the sum, and be a whole vector of units."""
    if reply.epoch != epoch:
        raise ProtocolError(f"it is of epoch {reply.epoch.number}, not {epoch.number}")
    by_difference = config.memory == "client"
    if by_difference and reply.base != member.applied:
        raise ProtocolError(f"it starts from {_said(reply.base)}, in the sum is {_said(member.applied)}")
    if not by_difference and reply.base is not None:
        raise ProtocolError("it is a difference, the job wants whole values")
    if reply.say == "upload":
        check_weight(reply.weight)
    vector = reply.vector
    if not isinstance(vector, np.ndarray) or vector.dtype != ON_THE_WIRE or vector.shape != (layout.size,):
        seen = f"{vector.dtype}{list(vector.shape)}" if isinstance(vector, np.ndarray) else "nothing"
        raise ProtocolError(f"its vector is {seen}, not {ON_THE_WIRE}[{layout.size}]")
    if checksum_of(vector) != reply.checksum:
        raise ProtocolError("its vector does not have the checksum that its header names")
    if reply.base is None and reply.value != digest_of(vector):
        raise ProtocolError("its vector is a whole value, but not the one that its header names")
    if reply.say == "goodbye" and reply.value != digest_of(np.zeros_like(vector)):
        raise ProtocolError("it says goodbye and leaves a value behind")
    if config.clip_norm is not None:
        most = _most(reply, member, config.clip_norm, config, layout.size)
        length = norm(vector, config.unit)
        if length > most:
            raise ProtocolError(f"its norm is {length:.4g}, above {most:.4g}")


def _most(reply: Reply, member: Member, limit: float, config: JobConfig, size: int) -> float:
    """The largest norm that an upload of clipped updates can have: of the new value and of the one it starts from.

    Rounding to units moves each number by half a unit, single precision the norm by a little.
    """
    values = [reply.weight, *([member.weight] if reply.base is not None else [])]
    rounding = config.unit * math.sqrt(size)
    return sum(1.001 * limit * (weight if config.weighs else 1.0) + rounding for weight in values)


def look_for_evidence(
    reply: Reply, member: Member | None, *, epoch: Epoch, round: int, config: JobConfig
) -> Evidence | None:
    """Whether what a client holds shows that its disk, or the server's ledger, went back in time."""
    if reply.epoch.number > epoch.number or (reply.epoch.number == epoch.number and reply.epoch != epoch):
        why = f"it knows epoch {reply.epoch.number}, this ledger is at {epoch.number}"
        return Evidence("restored", f"{why}: the ledger was restored from a backup")
    if member is None or reply.epoch != epoch:
        return None
    if _never_issued(reply, member):
        why = f"it knows ticket {highest_ticket(reply)}, which this ledger never issued"
        return Evidence("restored", f"{why}: the ledger was restored from a backup")
    if lacks_base(reply, member, round=round, config=config):
        return Evidence("lost", "the value that is in the sum is no longer on its disk")
    return None


def lacks_base(reply: Reply, member: Member, *, round: int, config: JobConfig) -> bool:
    """Whether a client can no longer withdraw its value from the sum.

    A greeting that comes rounds late says nothing of that: other values are held by now.
    """
    is_late = reply.ticket is None and reply.round != round
    return config.memory == "client" and not is_late and member.applied is not None and member.applied not in reply.held


def highest_ticket(reply: Reply) -> int:
    """The highest number that a client has seen in its epoch."""
    return max([reply.seen, *(ticket.number for ticket in reply.held)])


def _never_issued(reply: Reply, member: Member) -> bool:
    last = member.issued.number if member.issued else 0
    knows_another = reply.say == "ahead" and reply.ticket is not None  # of the number that it was handed
    if highest_ticket(reply) > last or (knows_another and highest_ticket(reply) == last):
        return True
    return any(ticket.number == last and ticket != member.issued for ticket in reply.held)


def _said(ticket: Ticket | None) -> str:
    return "nothing" if ticket is None else f"ticket {ticket.number}"
