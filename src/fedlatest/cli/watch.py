"""The command `watch`: the report as a live page while runs go on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fedlatest.cli.app import app, err, out
from fedlatest.errors import ConfigError, RunFolderError

LOOPBACK = "127.0.0.1"


@app.command()
def watch(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, folders of run folders, or a deployment.")],
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default only this machine can reach it.")
    ] = LOOPBACK,
    title: Annotated[str | None, typer.Option(help="Title of the page (default: the folder's name).")] = None,
) -> None:
    """Show the report of runs as a page that updates itself.

    The page is served to the browsers of this machine until Ctrl-C.
    """
    from fedlatest.report.live_page import LivePage
    from fedlatest.report.live_server import LiveServer
    from fedlatest.report.run_labels import folder_title

    for folder in folders:
        if not folder.is_dir():
            raise RunFolderError(
                f"{folder}: is not a folder; give the folder of a run, of several runs or of a deployment"
            )
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port {port}: expected a number from 0 to 65535")
    page = LivePage(folders, title=title or folder_title(folders), note=_deployment_note(folders))
    with LiveServer(page, host=host, port=port) as server:
        out.print(f"report: {server.url} (Ctrl-C ends it)", soft_wrap=True)
        if host not in (LOOPBACK, "::1", "localhost"):
            err.print(Text(f"everyone who can reach {host} can read these runs", style="yellow"), soft_wrap=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            out.print("stopped")


def _deployment_note(folders: Sequence[Path]) -> Callable[[], str]:
    """Return a function that describes the state of the deployments in some folders from their event logs."""
    from fedlatest.ledger.event_log import EventReader
    from fedlatest.ledger.job_folder import EVENTS

    places = [folder / name for folder in folders for name in (EVENTS, f"job/{EVENTS}", f"../{EVENTS}")]
    readers = {place: EventReader(place) for place in places}
    facts: dict[Path, dict[str, object]] = {}

    def describe() -> str:
        for place, reader in readers.items():
            for event in reader.new():
                known = facts.setdefault(place, {})
                kind = event["event"]
                if kind == "job":
                    known.update(rounds=event.get("rounds"), finished=False)
                elif kind == "round":
                    known.update(round=event.get("round"), asked=None)
                elif kind == "asked":
                    known.update(asked=len(event.get("clients", [])))
                elif kind == "finished":
                    known.update(finished=True)
        return "; ".join(_describe_job(known) for known in facts.values())

    return describe


def _describe_job(known: dict[str, object]) -> str:
    """Return the state of a deployed job.

    >>> _describe_job({"rounds": 20, "round": 3, "asked": 4})
    'deployment: round 3 of 20, 4 clients asked'
    """
    if known.get("finished"):
        return "deployment: finished"
    parts = []
    if known.get("round") is not None:
        of = f" of {known['rounds']}" if known.get("rounds") is not None else ""
        parts.append(f"round {known['round']}{of}")
    if known.get("asked") is not None:
        parts.append(f"{known['asked']} {'client' if known['asked'] == 1 else 'clients'} asked")
    return f"deployment: {', '.join(parts) or 'no round yet'}"
