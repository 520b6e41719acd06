"""The formats on disk and on the network, written out: a change here makes existing jobs unreadable."""

import json
from dataclasses import replace

import numpy as np

from fedlatest.ledger import ClientStore, Epoch, Instruction, JobConfig, Reply, Ticket, encode
from fedlatest.ledger.client_store import ClientState, StoredUpdate
from fedlatest.ledger.messages import decode_instruction, decode_reply
from fedlatest.ledger.schema import TABLES
from tests.ledger.faults import FaultyStorage
from tests.ledger.job import Job

JOB = "a" * 32


def test_header_of_an_instruction() -> None:
    message = Instruction(
        "train",
        JOB,
        Epoch(1, "e"),
        "config",
        "layout",
        "me",
        round=7,
        ticket=Ticket(3, "c"),
        applied=Ticket(2, "b"),
        applied_digest="d",
        settings={"memory": "client"},
    )
    header = (
        f'{{"ask": "train", "job": "{JOB}", "epoch": [1, "e"], "config": "config", "layout": "layout", '
        '"client": "me", "round": 7, "ticket": [3, "c"], "applied": [2, "b"], "value": "d", '
        '"settings": {"memory": "client"}}'
    )
    assert encode(message) == header
    assert decode_instruction(header) == message


def test_header_of_a_reply() -> None:
    message = Reply(
        "upload",
        JOB,
        Epoch(1, "e"),
        "config",
        "layout",
        "me",
        round=7,
        ticket=Ticket(3, "c"),
        base=Ticket(2, "b"),
        held_tickets=(Ticket(2, "b"), Ticket(3, "c")),
        highest_ticket=3,
        weight=2.0,
        checksum="s",
        update_digest="d",
        metrics={"loss": 0.5},
    )
    header = (
        f'{{"say": "upload", "job": "{JOB}", "epoch": [1, "e"], "config": "config", "layout": "layout", '
        '"client": "me", "round": 7, "ticket": [3, "c"], "base": [2, "b"], "held": [[2, "b"], [3, "c"]], "seen": 3, '
        '"trained": true, "weight": 2.0, "checksum": "s", "value": "d", "why": "", "metrics": {"loss": 0.5}, '
        '"public_key": "", "session": 0}'
    )
    assert encode(message) == header
    assert decode_reply(header).__dict__ == message.__dict__
    timed = replace(message, training_seconds=1.5)
    with_seconds = header.replace('"public_key"', '"seconds": 1.5, "public_key"')
    assert encode(timed) == with_seconds
    assert decode_reply(with_seconds).__dict__ == timed.__dict__


def test_files_of_a_client() -> None:
    """The update [1, 2] is stored as little-endian 32-bit integers, in a file named after its ticket."""
    storage = FaultyStorage()
    state = ClientState("me", "config", Epoch(1, "e"), highest_ticket=4, leaving=True)
    digest = "1d97a11655431ca64f52349a08a0fd8a7ff47f363a84d02ddd45dbee7984c3d2"
    stored = StoredUpdate(Ticket(5, "b"), digest, 2.0)
    ClientStore(storage).save_update(JOB, state, stored, np.array([1, 2], np.int32))
    content = {
        "format": 2,
        "client": "me",
        "config": "config",
        "epoch": [1, "e"],
        "seen": 4,
        "slots": [[5, "b", digest, 2.0]],
        "leaving": True,
        "checksum": "ad6644fdeb653512",
    }
    assert storage.files == {
        f"{JOB}/5-b.value": b"\x01\0\0\0\x02\0\0\0",
        f"{JOB}/state.json": json.dumps(content, indent=1).encode(),
    }


def test_config_of_a_job() -> None:
    assert JobConfig("fedlaavg").as_dict() == {
        "algorithm": "fedlaavg",
        "settings": {},
        "memory": "client",
        "unit": 2.0**-16,
        "clip_norm": None,
        "seed": 0,
        "weighs": False,
    }
    assert JobConfig("fedlaavg").hash == "7fdea3d807e5a29ad795e4702ae1557e"


def test_tables_and_owners_of_arrays_in_a_ledger() -> None:
    job = Job("a", memory="server")
    job.round({"a": [1, 2]})
    columns = {
        table: [name for _, name, *_ in job.database.rows(f"PRAGMA table_info({table})")]
        for (table,) in job.database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert columns == {
        "job": ["id", "schema", "config", "layout", "created", "noise_plan", "checksum_seed"],
        "state": ["round", "boot", "epoch", "token", "uptime", "session", "releases", "ending_epoch"],
        "clients": [
            *("number", "client", "name", "member", "contributed", "weight", "seen"),
            *("last_round", "misses", "losses", "rest_until"),
            *("issued", "issued_nonce", "applied", "applied_nonce", "digest", "public_key"),
            *("participations", "last_participation", "checksum"),
        ],
        "expelled": ["client"],
        "arrays": ["owner", "name", "chunk", "dtype", "shape", "checksum", "file", "content"],
        "rounds": ["round", "epoch", "time", "uptime", "available", "took_part", "reachable", "noise_seed"],
        "tasks": ["round", "began", "cohort_size", "deadline", "selections", "tasks"],
        "evaluations": ["round", "metrics"],
    }
    assert TABLES.count("CREATE TABLE") == len(columns)
    assert job.database.rows("SELECT owner, name, dtype FROM arrays ORDER BY owner") == [
        ("client 0", "value", "<i4"),
        ("server", "x", "<f4"),
        ("sum", "total", "<i8"),
    ]
