"""The protocol that one would write first: it is wrong, and the histories must find that out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedlatest.errors import FedlatestError
from fedlatest.ledger import ClientStore, Instruction, Ledger, Reply, Trained, Verdict
from fedlatest.ledger.client_store import Held
from fedlatest.ledger.hashing import digest_of


def naive_answer(
    store: ClientStore,
    instruction: Instruction,
    *,
    train: Callable[[], Trained],
    weight: float = 0.0,
) -> Reply:
    """Base each difference on the last value that was sent."""
    held = store.load(instruction.job) or Held(instruction.client, instruction.config, instruction.epoch)
    about = (instruction.job, instruction.epoch, instruction.config, instruction.layout, instruction.client)
    if instruction.ticket is None:
        return Reply("hello", *about, weight=weight)
    before = store.value(instruction.job, held.tickets[-1]) if held.slots else np.int32(0)
    try:
        done = train()
    except FedlatestError:
        return Reply("failed", *about, instruction.round, instruction.ticket)
    held = Held(instruction.client, instruction.config, instruction.epoch)
    store.keep(instruction.job, held, instruction.ticket, done.value)
    sent: dict[str, Any] = {"weight": done.weight, "value": digest_of(done.value), "vector": done.value - before}
    return Reply("upload", *about, instruction.round, instruction.ticket, **sent)


class NaiveLedger(Ledger):
    """Apply whatever bears a fresh ticket."""

    def take(self, reply: Reply) -> Verdict:
        """Take a reply whose ticket is the last one, and was not used."""
        member = self.roster.member(reply.client)
        if member is None or reply.client in self._taken or reply.ticket in (None, member.applied):
            return Verdict("refused")
        if reply.ticket != member.issued or reply.say != "upload":
            return Verdict("refused")
        self._add(reply, member)
        return Verdict("taken")
