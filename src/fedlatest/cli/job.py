"""`audit`, `expel`, `epoch`, `trace`, `backup` and `restore`: commands on the ledger of a deployed job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from fedlatest.cli.app import app, err, out, print_next

if TYPE_CHECKING:
    from fedlatest.ledger.audit import Audit


MAX_QUICKSTART = 1000  # clients among whom the digits of the quickstart can be divided
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
    """Check that the server's sum equals the clients' updates.

    They must be equal exactly. The command also lists the clients.
    """
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
    if (ledger.parent / "run").is_dir():
        print_next("report", ledger.parent / "run")


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
    """Remove a client from a job and refuse it from now on.

    Its update leaves the sum. The server may be running.
    """
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
    """Write which clients of a job were available when.

    The file has the format that `--set availability=trace` replays.
    """
    from fedlatest.flower.recorded_availability import write_trace
    from fedlatest.ledger.job_folder import find_ledger
    from fedlatest.ledger.recorded_delays import write_delays

    num_clients = write_trace(find_ledger(job), to, seconds=seconds)
    if delays is not None:
        num_known = write_delays(find_ledger(job), delays)
        others = f"; the other {num_clients - num_known} have the medians of these" if num_known < num_clients else ""
        _say(f"delays: {delays} (medians of {num_known} clients{others})")
    _say(f"trace: {to} ({num_clients} clients)")
    print_next_run(to, num_clients, round_length=60 if seconds else 1)


def print_next_run(trace: Path, num_clients: int, *, round_length: float) -> None:
    """Print the command that simulates training with the availability of a trace.

    If the digits of the quickstart are too few for its clients, print the command that predicts the stability instead.

    Args:
        trace: The file.
        num_clients: Number of clients of the trace.
        round_length: Length of a round in the trace's unit of time.
    """
    length = f"{round_length:.12g}"
    if num_clients > MAX_QUICKSTART:
        cohort = str(num_clients // 10)
        print_next("explain", "stability", "--trace", trace, "--round-length", length, "--cohort", cohort)
        return
    settings = [
        "availability=trace", f"trace={trace}", "wrap=true", f"round_length={length}",
        "partition=dirichlet", f"num_clients={num_clients}", "participation=0.5",
    ]  # fmt: skip
    print_next("run", "quickstart", *(part for setting in settings for part in ("--set", setting)))


@app.command()
def backup(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    copy: Annotated[Path, typer.Argument(help="The copy to write; it must not exist.")],
) -> None:
    """Copy the ledger of a job; its server may be running."""
    from fedlatest.ledger.backup import back_up, hash_file
    from fedlatest.ledger.job_folder import find_ledger

    back_up(find_ledger(job), copy)
    _say(f"copy: {copy}")
    _say(f"its SHA-256, which `fedlatest restore` checks: {hash_file(copy)}")


@app.command()
def restore(
    job: Annotated[Path, typer.Argument(help="Folder of a job, or of the deployment that contains it.")],
    copy: Annotated[Path, typer.Argument(help="A copy that `fedlatest backup` has written.")],
) -> None:
    """Replace the ledger of a job by a copy.

    The copy is checked first, and the old ledger is kept. No server may be running. The next run reconciles the clients
    with the copy.
    """
    from fedlatest.ledger.backup import hash_file
    from fedlatest.ledger.backup import restore as restore_ledger
    from fedlatest.ledger.job_folder import LEDGER, find_ledger

    folder = job / "job" if (job / "job").is_dir() else job
    path = find_ledger(job) if job.is_file() else folder / LEDGER  # the ledger or its folder may be missing
    restored = restore_ledger(path, copy)
    if not restored.has_hash:
        _warn(
            f"{copy}: there is no {hash_file(copy).name} beside it, so changes of single numbers remain unnoticed",
            style="yellow",
        )
    _say(f"{path}: restored; the next run continues from it")
    if restored.kept is not None:
        _say(f"the old ledger is in {restored.kept}; delete this folder when you do not need it any more")
