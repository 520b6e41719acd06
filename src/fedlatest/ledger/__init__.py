"""The ledger: whose update is in the average, counted exactly once, whatever gets lost on the way.

It knows nothing of Flower: any transport can carry it. `docs/deploy.md` says what holds.
"""

from fedlatest.ledger.client import Trained, answer
from fedlatest.ledger.client_store import ClientStore, Disk, Folder, durable_id
from fedlatest.ledger.job_config import JobConfig, Layout
from fedlatest.ledger.ledger import Ledger, RoundSums, Verdict
from fedlatest.ledger.membership import Member
from fedlatest.ledger.messages import Epoch, Instruction, Reply, Ticket, decode_instruction, decode_reply, encode

__all__ = [
    "ClientStore",
    "Disk",
    "Epoch",
    "Folder",
    "Instruction",
    "JobConfig",
    "Layout",
    "Ledger",
    "Member",
    "Reply",
    "RoundSums",
    "Ticket",
    "Trained",
    "Verdict",
    "answer",
    "decode_instruction",
    "decode_reply",
    "durable_id",
    "encode",
]
