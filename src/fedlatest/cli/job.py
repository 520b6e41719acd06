"""`audit`, `expel`, `epoch`, `trace`, `backup` and `restore`: commands on the ledger of a deployed job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fedlatest.cli.app import app, err, out

if TYPE_CHECKING:
    from fedlatest.ledger.audit import Audit


MAX_LISTED = 20  # clients that `audit` lists without --clients


@app.command()
def audit(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    store: Annotated[
        list[Path] | None, typer.Option("--store", help="State folder of a client; may be repeated.")
    ] = None,
    clients: Annotated[
        bool, typer.Option("--clients", help=f"List the clients also if there are more than {MAX_LISTED}.")
    ] = False,
) -> None:
    """Check that the server's sum equals the sum of the clients' updates exactly, and list the clients."""
    from fedlatest.ledger.audit import audit as run_audit
    from fedlatest.ledger.job_folder import find_ledger, find_stores, open_store

    ledger = find_ledger(job)
    found = run_audit(ledger, [open_store(folder) for folder in store] if store else find_stores(ledger))
    _say(f"{ledger}: {found.round} rounds, epoch {found.epoch}, {found.num_clients} clients")
    _list_clients(found, everyone=clients)
    _print_budget(found)
    if found.memory == "none":
        _say("the algorithm remembers nothing, so there is no sum to check")
        return
    where = "the server's copies" if found.memory == "server" else "the clients' own stores"
    _say(f"in the sum: {len(found.in_sum)} clients; read from {where}")
    for client in found.damaged:
        _warn(f"{client}: its update is not the one in the ledger")
    for client in found.wrong_weight:
        _warn(f"{client}: its update has another weight than in the ledger")
    if found.unreached:
        named = ", ".join(found.unreached[:5]) + (", ..." if len(found.unreached) > 5 else "")
        _warn(f"not found: {len(found.unreached)} clients ({named}); give their state folders with --store", style="")
        _warn("the audit failed" if found.damaged or found.wrong_weight else "the audit is incomplete")
    elif found.holds:
        _say("the sum equals the updates exactly", style="green")
    elif found.max_difference:
        _warn(f"the sum differs from the updates by {found.max_difference} units")
    if not found.holds:
        raise typer.Exit(1)


def _list_clients(found: "Audit", *, everyone: bool) -> None:
    """Print one line per client: its id, the name of its key, and what the ledger knows about it."""
    if len(found.clients) > MAX_LISTED and not everyone:
        _say(f"  --clients lists the {len(found.clients)} clients")
        return
    for client in found.clients:
        name = f" ({client.name})" if client.name else ""
        last = "has not contributed" if client.last_round < 0 else f"last took part in round {client.last_round}"
        weight = f"weight {client.weight:g}" if client.weight else "weight not known"
        _say(f"  {client.id}{name}: {weight}, {last}")
    for expelled in found.expelled:
        _say(f"  {expelled}: expelled")


def _print_budget(found: "Audit") -> None:
    """Print what was spent of the privacy budget, and the limits; nothing for a job without privacy."""
    if found.noise_plan is None:
        return
    from fedlatest.privacy import NoisePlan

    plan = NoisePlan.from_dict(found.noise_plan)
    spent = plan.epsilon_after(min(found.releases, plan.rounds))
    _say(
        f"privacy: at most epsilon {spent:.4g} of {plan.epsilon:.4g} is spent (delta {plan.delta:g}), after "
        f"{found.releases} of {plan.rounds} rounds"
    )
    _say(
        f"limits of a client: {plan.max_participations} rounds, at least {plan.min_separation} apart; the most that "
        f"one has taken part in is {found.largest_count}"
    )


def _say(text: str, *, style: str = "") -> None:
    """Print a line as it is: names of clients may look like markup, or contain control characters."""
    out.print(Text(_printable(text), style=style), soft_wrap=True)


def _warn(text: str, *, style: str = "red") -> None:
    """Print a line to standard error as it is."""
    err.print(Text(_printable(text), style=style), soft_wrap=True)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@app.command()
def expel(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    client: Annotated[str, typer.Argument(help="Id of the client, or the name of its key.")],
    undo: Annotated[bool, typer.Option("--undo", help="Readmit the client.")] = False,
) -> None:
    """Remove a client and its update from a job and refuse it from now on; the server may be running."""
    from fedlatest.ledger.job_folder import expel as expel_client
    from fedlatest.ledger.job_folder import find_client, find_ledger

    ledger = find_ledger(job)
    identifier = find_client(ledger, client)
    expel_client(ledger, identifier, undo=undo)
    named = identifier if client == identifier else f"{client} ({identifier})"
    if undo:
        _say(f"{named}: is readmitted; it joins again when the server asks it")
    else:
        _say(f"{named}: is expelled; the server removes it after the current round, or when it starts")


@app.command()
def epoch(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
) -> None:
    """Start a new epoch: the sum becomes empty, and all clients send their updates again; the server may be running."""
    from fedlatest.ledger.job_folder import end_epoch, find_ledger

    number = end_epoch(find_ledger(job))
    _say(f"epoch {number} ends: the server starts a new one after the current round, or when it starts")


@app.command()
def trace(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    to: Annotated[Path, typer.Option("--out", help="The trace to write: CSV with client,start,end.")] = Path(
        "trace.csv"
    ),
    seconds: Annotated[bool, typer.Option("--seconds", help="Write times in seconds instead of rounds.")] = False,
    delays: Annotated[
        Path | None, typer.Option("--delays", help="Also write how long each client takes, for `--set delays=FILE`.")
    ] = None,
) -> None:
    """Write which clients were available when, in the format that `--set availability=trace` replays."""
    from fedlatest.flower.recorded_availability import write_trace
    from fedlatest.ledger.job_folder import find_ledger
    from fedlatest.ledger.recorded_delays import write_delays

    num_clients = write_trace(find_ledger(job), to, seconds=seconds)
    if delays is not None:
        num_known = write_delays(find_ledger(job), delays)
        others = f"; the other {num_clients - num_known} have the medians of these" if num_known < num_clients else ""
        _say(f"delays: {delays} (medians of {num_known} clients{others})")
    _say(f"trace: {to} ({num_clients} clients)")
    _say(
        f"to replay it: fedlatest run quickstart --set availability=trace --set trace={to} --set wrap=true "
        f"--set partition=dirichlet --set num_clients={num_clients} --set participation=0.5"
        f"{' --set round_length=60' if seconds else ''}"
    )


@app.command()
def backup(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    copy: Annotated[Path, typer.Argument(help="The copy to write; it must not exist.")],
) -> None:
    """Copy the ledger of a job consistently; the server may be running."""
    from fedlatest.ledger.job_folder import back_up, find_ledger

    back_up(find_ledger(job), copy)
    _say(f"copy: {copy}")


@app.command()
def restore(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    copy: Annotated[Path, typer.Argument(help="A copy that `fedlatest backup` has written.")],
) -> None:
    """Replace the ledger of a job by a copy; no server may be running. The next run reconciles the clients with it."""
    from fedlatest.ledger.job_folder import LEDGER, find_ledger
    from fedlatest.ledger.job_folder import restore as restore_ledger

    folder = job / "job" if (job / "job").is_dir() else job
    path = folder / LEDGER if folder.is_dir() else find_ledger(job)  # the ledger may be missing
    restore_ledger(path, copy)
    _say(f"{path}: restored; the next run continues from it")
