"""Where things lie in a job's folder, and in the folder of a deployment on one machine around it."""

from pathlib import Path

from fedlatest.errors import LedgerError
from fedlatest.ledger.disk import Folder
from fedlatest.ledger.store import ClientStore

LEDGER = "ledger.sqlite"


def find_ledger(path: Path) -> Path:
    """The ledger of a job, named by its file, its folder, or the folder of a deployment that holds the job."""
    for candidate in (path, path / LEDGER, path / "job" / LEDGER):
        if candidate.is_file():
            return candidate
    raise LedgerError(f"{path}: holds no job (no {LEDGER}); name the folder that the server's `job` setting names")


def find_stores(ledger: Path) -> list[ClientStore]:
    """The stores of clients on this machine that lie where `fedlatest deploy local` puts them."""
    nodes = ledger.parent.parent / "nodes"
    return [open_store(folder) for folder in sorted(nodes.glob("*/state"))]


def open_store(folder: Path) -> ClientStore:
    """A client's store, which must be there."""
    if not folder.is_dir():
        raise LedgerError(f"{folder}: is not a client's state folder")
    return ClientStore(Folder(folder))


def leave_jobs(folder: Path) -> list[str]:
    """Ask to be taken out of all jobs that a client's state folder knows of; their ids."""
    store = open_store(folder)
    known = sorted(path.parent.name for path in folder.glob("*/state.json"))
    return [job for job in known if store.leave(job)]
