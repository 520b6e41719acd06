"""`deploy`: write an app, run a federation on this machine, certificates and keys, a proxy, and leaving a job."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedlatest.cli.app import app, err, out, print_next
from fedlatest.cli.command_groups import CorrectingGroup
from fedlatest.errors import ConfigError

deploy = typer.Typer(
    cls=CorrectingGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a federation of real processes with Flower.",
)
app.add_typer(deploy, name="deploy")


@deploy.command()
def init(folder: Annotated[Path, typer.Argument(help="A new or empty folder.")]) -> None:
    """Write a Flower app for handwritten digits to start from."""
    from fedlatest.deployment.scaffold import write_app

    for path in write_app(folder):
        out.print(str(path), soft_wrap=True)
    print_next("deploy", "local", "--app", folder)


@deploy.command()
def leave(
    folder: Annotated[Path, typer.Argument(help="The client's state folder.")],
    undo: Annotated[bool, typer.Option("--undo", help="Cancel the request, or rejoin after leaving.")] = False,
) -> None:
    """Let a client leave its jobs.

    Its update is removed from the sum when it is next contacted.
    """
    from fedlatest.ledger.job_folder import leave_jobs

    jobs = leave_jobs(folder, undo=undo)
    if not jobs:
        raise ConfigError(f"{folder}: this client has not joined any job")
    for job in jobs:
        leaves = "leaves at its next contact; keep its node and folder until the server's event log has `left` for it"
        out.print(f"job {job}: the client {'stays' if undo else leaves}", soft_wrap=True)


@deploy.command()
def local(
    app_folder: Annotated[
        Path | None, typer.Option("--app", help="Folder of a Flower app. [default: handwritten digits]")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Number of nodes, one client each. [default: 5; with --secure 8]")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds. [default: as in the app]")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS, and accept only nodes with registered keys.")] = False,
    secure: Annotated[
        bool, typer.Option("--secure", help="Mask the uploads: the server learns only the sum of a cohort.")
    ] = False,
    chaos: Annotated[bool, typer.Option("--chaos", help="Kill and pause processes at random times.")] = False,
    node_kills: Annotated[int, typer.Option(help="With --chaos: number of kills of nodes.")] = 3,
    superlink_kills: Annotated[int, typer.Option(help="With --chaos: number of kills of the SuperLink.")] = 1,
    app_kills: Annotated[int, typer.Option(help="With --chaos: number of kills of the server app alone.")] = 0,
    node_pauses: Annotated[
        int, typer.Option(help="With --chaos: number of pauses of nodes, longer than the deadline of a round.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(help="Seed of the availability, of --chaos, and of the app if it has a seed.")
    ] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="availability=NAME, one of its keys, or a key of the app."),
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Folder of the deployment.")] = Path("runs/deployment"),
    resume: Annotated[bool, typer.Option("--resume", help="Continue the deployment in the folder.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the deployment in the folder.")] = False,
) -> None:
    """Run a job with real processes on this machine.

    A SuperLink and nodes run until the job is finished; processes that are killed are started again.
    """
    from fedlatest.deployment.flwr_cli import require_flower

    require_flower()
    from fedlatest.cli.deploy_local import Request, run_locally

    if resume and force:
        raise ConfigError("--resume, --force: continue the deployment or replace it, not both")
    faults = {
        "node_kills": node_kills, "superlink_kills": superlink_kills, "app_kills": app_kills,
        "node_pauses": node_pauses,
    }  # fmt: skip
    request = Request(
        app=app_folder, folder=to, nodes=(8 if secure else 5) if nodes is None else nodes, rounds=rounds,
        tls=tls, secure=secure, seed=seed, settings=settings or [],
        faults=faults if chaos else dict.fromkeys(faults, 0),
    )  # fmt: skip
    try:
        with sigterm_as_interrupt():
            run_locally(request, resume=resume, force=force)
    except KeyboardInterrupt:
        again = "with --resume instead of --force" if force else "with --resume"
        err.print(f"stopped; the same command {again} continues from the last round in {to}", soft_wrap=True)
        raise typer.Exit(130) from None


@deploy.command()
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder for the keys and certificates.")],
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address by which nodes reach the server; may be repeated."),
    ] = None,
    nodes: Annotated[int, typer.Option(help="Number of node keys to add.")] = 0,
) -> None:
    """Create a CA, a server certificate and node keys.

    Later calls add nodes. No file is ever overwritten.
    """
    from fedlatest.deployment.flwr_cli import require_flower

    require_flower()
    from fedlatest.deployment.secrets import Secrets, make_secrets

    if nodes < 0:
        raise ConfigError(f"--nodes {nodes}: must be at least 0")
    before = Secrets(folder).nodes
    names = [name for name in (f"node{index}" for index in range(nodes + len(before))) if name not in before][:nodes]
    secrets = make_secrets(folder, hosts=hosts or [], nodes=names)
    out.print(f"CA and server: {secrets.ca}, {secrets.certificate}, {secrets.key}", soft_wrap=True)
    for name in names:
        out.print(f"node: {secrets.node_key(name)}, {secrets.node_public_key(name)}", soft_wrap=True)
    out.print("a node needs only ca.crt and its own private key", soft_wrap=True)


@deploy.command()
def proxy(
    folder: Annotated[Path, typer.Argument(help="A new folder for nginx's configuration.")],
    secrets: Annotated[Path, typer.Option(help="Folder that `fedlatest deploy keys` wrote.")] = Path("secrets"),
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="A name or address by which nodes reach the proxy; may be repeated. [default: all in the certificate]",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Port for nodes.")] = 8443,
    listen: Annotated[
        list[str] | None,
        typer.Option(help="An address of this machine to listen on; may be repeated. [default: 0.0.0.0]"),
    ] = None,
    superlink: Annotated[str, typer.Option(help="Address of the SuperLink, on loopback.")] = "127.0.0.1:8000",
    max_upload_mib: Annotated[int, typer.Option(help="Largest request in MiB.")] = 16,
    max_connections: Annotated[int, typer.Option(help="Largest number of connections from one address.")] = 256,
    systemd: Annotated[bool, typer.Option("--systemd", help="Also write a systemd unit.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the files of an earlier call.")] = False,
) -> None:
    """Write the configuration of an nginx in front of the SuperLink.

    It passes only requests of nodes. The command prints what to run next.
    """
    from fedlatest.deployment.flwr_cli import require_flower

    require_flower()
    from fedlatest.deployment.proxy import parse_address, write_proxy
    from fedlatest.deployment.proxy_config import CONFIG, UNIT, is_root, next_steps
    from fedlatest.deployment.secrets import Secrets

    written = write_proxy(
        folder, secrets=Secrets(secrets), hosts=hosts or [], listen=listen or ["0.0.0.0"], port=port,
        superlink=parse_address(superlink), max_upload_mib=max_upload_mib,
        max_connections=max_connections, systemd=systemd, force=force,
    )  # fmt: skip
    out.print(f"wrote {written.folder / CONFIG}", soft_wrap=True)
    if systemd:
        out.print(f"wrote {written.folder / UNIT}, to run the proxy under systemd", soft_wrap=True)
    for purpose, command in next_steps(written):
        out.print(f"{purpose}:\n    {command}", soft_wrap=True, markup=False)
    if is_root():
        err.print("warning: written as root, so nginx's workers run as root; prefer an ordinary user", soft_wrap=True)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: stop all processes and print how to continue."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
