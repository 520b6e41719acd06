"""A naive protocol that is wrong; the random histories must find its error."""

from collections.abc import Callable
from typing import Any

from fedlatest.errors import FedlatestError
from fedlatest.ledger import ClientStore, Instruction, Ledger, LocalUpdate, Reply, Verdict
from fedlatest.ledger.client_store import ClientState, StoredUpdate
from fedlatest.ledger.hashing import digest_of


def naive_handle_instruction(
    store: ClientStore,
    instruction: Instruction,
    *,
    train: Callable[[], LocalUpdate],
    weight: float = 0.0,
) -> Reply:
    """Subtract the update that was sent last, whether it is in the sum or not."""
    state = store.load(instruction.job) or ClientState(instruction.client, instruction.config, instruction.epoch)
    identity = (instruction.job, instruction.epoch, instruction.config, instruction.layout, instruction.client)
    if instruction.ticket is None:
        return Reply("hello", *identity, weight=weight)
    last = store.read_update(instruction.job, state.updates[-1]) if state.updates else None
    try:
        result = train()
    except FedlatestError:
        return Reply("failed", *identity, instruction.round, instruction.ticket)
    state = ClientState(instruction.client, instruction.config, instruction.epoch)
    stored = StoredUpdate(instruction.ticket, digest_of(result.update), result.weight)
    store.save_update(instruction.job, state, stored, result.update)
    fields: dict[str, Any] = {
        "weight": result.weight,
        "update_digest": stored.digest,
        "upload": result.update if last is None else result.update - last,
    }
    return Reply("upload", *identity, instruction.round, instruction.ticket, **fields)


class NaiveLedger(Ledger):
    """A ledger that accepts every upload with an unused ticket."""

    def handle_reply(self, reply: Reply) -> Verdict:
        """Accept an upload under the last issued ticket, without checking its base."""
        client = self.table.get(reply.client)
        if client is None or reply.client in self._accepted or reply.ticket in (None, client.applied):
            return Verdict("refused")
        if reply.ticket != client.issued or reply.kind != "upload":
            return Verdict("refused")
        self._accept(reply, client)
        return Verdict("accepted")
