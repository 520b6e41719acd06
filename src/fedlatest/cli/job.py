"""`audit`, `trace`, `backup` and `restore`: commands on the ledger of a deployed job."""

from pathlib import Path
from typing import Annotated

import typer

from fedlatest.cli.app import app, err, out


@app.command()
def audit(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    store: Annotated[
        list[Path] | None, typer.Option("--store", help="State folder of a client; may be repeated.")
    ] = None,
) -> None:
    """Check that the server's sum equals the sum of the clients' updates exactly."""
    from fedlatest.ledger.audit import audit as run_audit
    from fedlatest.ledger.job_folder import find_ledger, find_stores, open_store

    ledger = find_ledger(job)
    found = run_audit(ledger, [open_store(folder) for folder in store] if store else find_stores(ledger))
    out.print(f"{ledger}: {found.round} rounds, epoch {found.epoch}, {found.num_clients} clients", soft_wrap=True)
    if found.memory == "none":
        out.print("the algorithm remembers nothing, so there is no sum to check")
        return
    where = "the server's copies" if found.memory == "server" else "the clients' own stores"
    out.print(f"in the sum: {len(found.in_sum)} clients; read from {where}", soft_wrap=True)
    for client in found.damaged:
        err.print(f"{client}: its update is not the one in the ledger", soft_wrap=True, style="red")
    if found.unreached:
        named = ", ".join(found.unreached[:5]) + (", ..." if len(found.unreached) > 5 else "")
        err.print(
            f"not found: {len(found.unreached)} clients ({named}); give their state folders with --store",
            soft_wrap=True,
        )
        err.print("the audit is incomplete" if not found.damaged else "the audit failed", style="red")
    elif found.holds:
        out.print("the sum equals the updates exactly", style="green")
    else:
        err.print(f"the sum differs from the updates by {found.max_difference} units", style="red")
    if not found.holds:
        raise typer.Exit(1)


@app.command()
def trace(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    to: Annotated[Path, typer.Option("--out", help="The trace to write: CSV with client,start,end.")] = Path(
        "trace.csv"
    ),
    seconds: Annotated[bool, typer.Option("--seconds", help="Write times in seconds instead of rounds.")] = False,
) -> None:
    """Write which clients were available when, in the format that `--set availability=trace` replays."""
    from fedlatest.flower.recorded_availability import write_trace
    from fedlatest.ledger.job_folder import find_ledger

    num_clients = write_trace(find_ledger(job), to, seconds=seconds)
    out.print(f"trace: {to} ({num_clients} clients)", soft_wrap=True)
    out.print(
        f"to replay it: fedlatest run quickstart --set availability=trace --set trace={to} --set wrap=true "
        f"--set partition=dirichlet --set num_clients={num_clients} --set participation=0.5"
        f"{' --set round_length=60' if seconds else ''}",
        soft_wrap=True,
    )


@app.command()
def backup(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    copy: Annotated[Path, typer.Argument(help="The copy to write; it must not exist.")],
) -> None:
    """Copy the ledger of a job consistently; the server may be running."""
    from fedlatest.ledger.job_folder import back_up, find_ledger

    back_up(find_ledger(job), copy)
    out.print(f"copy: {copy}", soft_wrap=True)


@app.command()
def restore(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    copy: Annotated[Path, typer.Argument(help="A copy that `fedlatest backup` has written.")],
) -> None:
    """Replace the ledger of a job by a copy; no server may be running. The next run reconciles the clients with it."""
    from fedlatest.ledger.job_folder import LEDGER, find_ledger
    from fedlatest.ledger.job_folder import restore as restore_ledger

    path = job / LEDGER if job.is_dir() and not (job / "job").is_dir() else find_ledger(job)
    restore_ledger(path, copy)
    out.print(f"{path}: restored; the next run continues from it", soft_wrap=True)
