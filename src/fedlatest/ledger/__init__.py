"""The exactly-once protocol between server and clients of a deployment, and its storage.

The server keeps a sum of the clients' latest updates, and clients upload differences, so each upload must count exactly
once. The package guarantees that, whatever messages, processes or disks fail: see `fedlatest.ledger.ledger` for the
invariant and `docs/deploy.md` for what happens in each case.

It imports `fedlatest.errors`, `fedlatest.files` and, for secure jobs, `fedlatest.secure` only: any transport can carry
the messages, and any algorithm can use the sums.
"""

from fedlatest.ledger.client import LocalUpdate, fixed_point_update, handle_instruction
from fedlatest.ledger.client_store import ClientStore, DurableStorage, FolderStorage, load_or_create_client_id
from fedlatest.ledger.client_table import ClientRow
from fedlatest.ledger.job_config import JobConfig, Layout
from fedlatest.ledger.ledger import Ledger, Verdict
from fedlatest.ledger.limits import Limits
from fedlatest.ledger.messages import Epoch, Instruction, Reply, Ticket, decode_instruction, decode_reply, encode
from fedlatest.ledger.round_sums import RoundSums
from fedlatest.ledger.secure_settings import SecureAggregation

__all__ = [
    "ClientRow",
    "ClientStore",
    "DurableStorage",
    "Epoch",
    "FolderStorage",
    "Instruction",
    "JobConfig",
    "Layout",
    "Ledger",
    "Limits",
    "LocalUpdate",
    "Reply",
    "RoundSums",
    "SecureAggregation",
    "Ticket",
    "Verdict",
    "decode_instruction",
    "decode_reply",
    "encode",
    "fixed_point_update",
    "handle_instruction",
    "load_or_create_client_id",
]
