"""`audit`, `trace`, `backup` and `restore`: what a deployed job can prove and teach, and how it is kept safe."""

from pathlib import Path
from typing import Annotated

import typer

from fedlatest.cli.app import app, err, out


@app.command()
def audit(
    job: Annotated[Path, typer.Argument(help="A job's folder, or a deployment's that holds it.")],
    store: Annotated[
        list[Path] | None, typer.Option("--store", help="A client's state folder; again for more.")
    ] = None,
) -> None:
    """Prove that the sum equals the updates that the ledger says are in it, to the last bit."""
    from fedlatest.ledger.audit import audit as look
    from fedlatest.ledger.job_folder import find_ledger, find_stores, open_store

    ledger = find_ledger(job)
    found = look(ledger, [open_store(folder) for folder in store] if store else find_stores(ledger))
    out.print(f"{ledger}: {found.round} rounds, epoch {found.epoch}, {found.num_clients} clients", soft_wrap=True)
    if found.memory == "none":
        out.print("the algorithm remembers nothing: there is no sum to prove")
        return
    where = "the server's copies" if found.memory == "server" else "the clients' own stores"
    out.print(f"in the sum: {len(found.in_sum)} clients; looked up in {where}", soft_wrap=True)
    for client in found.damaged:
        err.print(f"{client}: its value is not the one that the ledger names", soft_wrap=True, style="red")
    if found.unreached:
        named = ", ".join(found.unreached[:5]) + (", ..." if len(found.unreached) > 5 else "")
        err.print(
            f"not at hand: {len(found.unreached)} ({named}); name their state folders with --store", soft_wrap=True
        )
        err.print("nothing is proved" if not found.damaged else "the audit failed", style="red")
    elif found.holds:
        out.print("the sum equals the updates, to the last bit", style="green")
    else:
        err.print(f"the sum is off by {found.max_difference} units", style="red")
    if not found.holds:
        raise typer.Exit(1)


@app.command()
def trace(
    job: Annotated[Path, typer.Argument(help="A job's folder, or a deployment's that holds it.")],
    to: Annotated[Path, typer.Option("--out", help="The trace: CSV with client,start,end.")] = Path("trace.csv"),
    seconds: Annotated[bool, typer.Option("--seconds", help="Times in seconds, not in rounds.")] = False,
) -> None:
    """Write who was here when, in the format that `--set availability=trace` replays."""
    from fedlatest.flower.recorded_availability import write_attendance
    from fedlatest.ledger.job_folder import find_ledger

    num_clients = write_attendance(find_ledger(job), to, seconds=seconds)
    out.print(f"trace: {to} ({num_clients} clients)", soft_wrap=True)
    out.print(
        f"replay it: fedlatest run quickstart --set availability=trace --set trace={to} --set wrap=true "
        f"--set partition=dirichlet --set num_clients={num_clients} --set participation=0.5"
        f"{' --set round_length=60' if seconds else ''}",
        soft_wrap=True,
    )


@app.command()
def backup(
    job: Annotated[Path, typer.Argument(help="A job's folder, or a deployment's that holds it.")],
    copy: Annotated[Path, typer.Argument(help="The copy, a file that is not there yet.")],
) -> None:
    """Copy a job's ledger as it is at one moment; the server may be at work."""
    from fedlatest.ledger.job_folder import back_up, find_ledger

    back_up(find_ledger(job), copy)
    out.print(f"copy: {copy}", soft_wrap=True)


@app.command()
def restore(
    job: Annotated[Path, typer.Argument(help="A job's folder, or a deployment's that holds it.")],
    copy: Annotated[Path, typer.Argument(help="A copy that `fedlatest backup` made.")],
) -> None:
    """Put a copy in the place of a job's ledger; no server may be at work. Clients notice, and the job heals."""
    from fedlatest.ledger.job_folder import LEDGER, find_ledger
    from fedlatest.ledger.job_folder import restore as put_back

    path = job / LEDGER if job.is_dir() and not (job / "job").is_dir() else find_ledger(job)
    put_back(path, copy)
    out.print(f"{path}: is the copy now; the next run goes on from it", soft_wrap=True)
