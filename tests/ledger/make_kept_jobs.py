"""Writes jobs of the installed version of fedlatest, which later versions must continue (`test_kept_jobs.py`).

    python -m tests.ledger.make_kept_jobs

The files of the current schema are in `data/schemaN`; run the command after every change of the schema, the protocol or
the files of a client, and keep those of earlier versions. It uses only what versions since schema 2 have, so that
`PYTHONPATH=OLD/src python tests/ledger/make_kept_jobs.py FOLDER` writes the jobs of an earlier version. A job that the
version does not support is left out.

A job is one file of JSON: the ledger as SQL, the files of each client in hexadecimal digits, and the updates in the
sum.
"""

import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fedlatest.errors import LedgerError
from fedlatest.ledger import ClientStore, Instruction, JobConfig, Layout, Ledger, LocalUpdate, handle_instruction
from fedlatest.ledger.client_store import FolderStorage

LAYOUT = Layout.of({"x": np.zeros(2, np.float32)})
ARRAYS = {"x": np.zeros(2, np.float32)}
KEPT = Path(__file__).parent / "data" / "schema3"
PRIVACY = {"rounds": 20, "min_separation": 1, "max_participations": 10, "share_metrics": False}
JOBS: dict[str, dict[str, Any]] = {
    "plain": {"memory": "client"},
    "server": {"memory": "server"},
    "private": {"memory": "client", "privacy": PRIVACY, "clip_norm": 1000.0},
    "secure": {"memory": "client", "secure": {"min_cohort": 3, "num_decryptors": 3, "share_metrics": False}},
}
ROUNDS: list[dict[str, list[int]]] = [
    {"a": [1, 2], "b": [10, 20], "c": [100, 200]},
    {"a": [3, -4], "b": [-30, 40], "c": [5, 6]},
    {"a": [7, 8], "b": [70, 80], "d": [0, 9]},
]


class Server:
    """A server with its clients, which store their updates in folders.

    Args:
        path: the ledger's file.
        folder: has a folder for each client.
        settings: of the job.
    """

    def __init__(self, path: Path, folder: Path, settings: dict[str, Any]) -> None:
        config = JobConfig("fedlaavg", unit=1.0, **settings)
        self.folder, self.tokens = folder, 0
        self.ledger = Ledger.open(path, config=config, layout=LAYOUT, arrays=lambda: ARRAYS, token=self._token)

    def store(self, client: str) -> ClientStore:
        return ClientStore(FolderStorage(self.folder / client))

    def reply(self, instruction: Instruction, update: list[int] | None = None) -> Any:
        """Return a client's reply if training results in `update`."""

        def train() -> LocalUpdate:
            return LocalUpdate(np.array(update, np.int32), 2.0, {})

        return handle_instruction(self.store(instruction.client), instruction, train=train, weight=2.0)

    def greet(self, client: str) -> str:
        return str(self.ledger.handle_hello(self.reply(self.ledger.instruction(client, "hello"))).outcome)

    def round(self, updates: dict[str, list[int]]) -> list[str]:
        """Run a round and return the outcome of each upload."""
        secure = getattr(self.ledger, "secure", None)
        if secure is None:
            issued = self.ledger.issue(list(updates))
            outcomes = [self._handle(issued[client], update) for client, update in updates.items()]
        else:
            asked = secure.open(list(updates), decryptors=list(updates))
            outcomes = [self._handle(asked[client], update) for client, update in updates.items()]
            for request in secure.requests().values():
                self.ledger.handle_shares(self.reply(request))
            outcomes = [f"{outcome} {secure_end}" for secure_end in [secure.end().why] for outcome in outcomes]
        self.ledger.close_round(ARRAYS, available=list(updates))
        return outcomes

    def _handle(self, instruction: Instruction, update: list[int]) -> str:
        return str(self.ledger.handle_reply(self.reply(instruction, update)).outcome)

    def _token(self) -> str:
        self.tokens += 1
        return f"{self.tokens:x}"


def make_job(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Run a job in an empty folder and return its file."""
    folder.mkdir(parents=True)
    server = Server(folder / "ledger.sqlite", folder / "nodes", settings)
    for client in "abcd":
        server.greet(client)
    for updates in ROUNDS:
        server.round(updates)
    pending = server.ledger.issue(["b"])["b"] if "secure" not in settings else None
    if pending is not None:
        server.reply(pending, [1000, 1000])  # lost: b stores two updates
    server.ledger.database.close()
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        lines = list(connection.iterdump())
    files = sorted(path for path in (folder / "nodes").glob("*/**/*") if path.is_file() and path.name != ".lock")
    clients: dict[str, dict[str, str]] = {}
    for path in files:
        client, _, name = path.relative_to(folder / "nodes").as_posix().partition("/")
        clients.setdefault(client, {})[name] = path.read_bytes().hex()
    newest = {client: update for updates in ROUNDS for client, update in updates.items()}
    return {"settings": settings, "in_sum": newest, "ledger": lines, "clients": clients}


def main(target: Path, scratch: Path) -> None:
    """Write the jobs that this version supports to `target`."""
    target.mkdir(parents=True, exist_ok=True)
    for name, settings in JOBS.items():
        try:
            content = make_job(scratch / name, settings)
        except (TypeError, LedgerError) as error:
            print(f"{name}: not supported by this version ({error})")
            continue
        (target / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]) if sys.argv[1:] else KEPT, Path(scratch))
