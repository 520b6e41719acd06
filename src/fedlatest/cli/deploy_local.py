"""What `deploy local` does: settings into a federation, a job, and a table at the end."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fedlatest.availability import AVAILABILITY, Availability
from fedlatest.availability.named import ClientInfo
from fedlatest.cli.app import out
from fedlatest.cli.deployment_table import Board
from fedlatest.deployment.deployment_folder import open_folder, refuse_nesting
from fedlatest.deployment.fault_injection import Chaos, plan_chaos
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.scaffold import TEMPLATE, app_config, write_app
from fedlatest.deployment.supervise import Attendance, JobView, conduct
from fedlatest.errors import ConfigError
from fedlatest.experiments.settings import did_you_mean, keywords, parse_value, split_pair

USUALLY = {"availability": "diurnal", "period": "5"}  # the first half of the nodes for five rounds, then the others


class Request(NamedTuple):
    """What the command line asks for."""

    app: Path | None  # the digits if not said
    folder: Path
    nodes: int
    rounds: int | None
    tls: bool
    seed: int
    settings: Sequence[str]
    node_kills: int
    superlink_kills: int


def run_locally(request: Request, *, resume: bool, force: bool) -> None:
    """Run the job to its end; complaints about the request come before anything is started or deleted."""
    if request.nodes < 1:
        raise ConfigError(f"--nodes {request.nodes}: must be at least 1")
    config, availability, about = _settings(request)
    rounds = config["rounds"]
    if rounds < 1:
        raise ConfigError(f"--rounds {rounds}: must be at least 1")
    attendance = Attendance.of(availability, rounds=rounds, seed=request.seed)
    app = request.app or request.folder / "app"
    if request.app is not None:
        refuse_nesting(request.app, request.folder)
    federation = LocalFederation(request.folder, app=app, num_nodes=request.nodes, tls=request.tls)
    plan = plan_chaos(
        federation.names, rounds=rounds, node_kills=request.node_kills, superlink_kills=request.superlink_kills,
        seed=request.seed,
    )  # fmt: skip
    chaos = Chaos(plan)
    with open_folder(request.folder, _manifest(request, config, about), resume=resume, force=force):
        if request.app is None and not app.exists():
            write_app(app)
        with Board(federation, rounds) as board, federation:
            view = conduct(federation, config, attendance=attendance, chaos=chaos, on_progress=board.hear)
    _summarise(request, view, chaos)


def _settings(request: Request) -> tuple[dict[str, Any], Availability, dict[str, Any]]:
    """The app's values and the availability model: defaults, then each KEY=VALUE, which belongs to one of the two.

    The third is what the availability model was made of.
    """
    said = dict(map(split_pair, request.settings))
    if "availability" not in said:
        said = {**USUALLY, **said}
    name = said.pop("availability")
    if name not in AVAILABILITY:
        raise ConfigError(f"availability={name}: unknown{did_you_mean(name, AVAILABILITY)}")
    known, keys = app_config(request.app or Path(str(TEMPLATE))), keywords(AVAILABILITY[name], f"availability={name}")
    given = {"rounds": request.rounds, "seed": request.seed if "seed" in known else None}
    config = {"rounds": known["rounds"], **{key: value for key, value in given.items() if value is not None}}
    options: dict[str, Any] = {}
    for key, text in said.items():
        if key in keys:
            options[key] = parse_value(key, text, keys[key].type)
        elif key in known and key != "job":
            config[key] = parse_value(key, text, type(known[key]))
        else:
            raise ConfigError(_unknown(key, ["availability", *keys, *(own for own in known if own != "job")]))
    for key, (_, default, owner) in keys.items():
        if default is inspect.Parameter.empty and key not in options:
            raise ConfigError(f"{key}: {owner} needs it; add --set {key}=...")
    return config, AVAILABILITY[name](_clients(request), **options), {"name": name, **options}


def _unknown(key: str, known: Sequence[str]) -> str:
    owners = [f"availability={name}" for name, make in AVAILABILITY.items() if key in keywords(make)]
    if owners:
        return f"{key}: is a key of {' and '.join(owners)}, which this deployment does not use"
    return f"{key}: unknown key{did_you_mean(key, known)}"


def _clients(request: Request) -> ClientInfo:
    """Nodes as availability models see them: the first half bears label 0, the second label 1."""
    labels = np.arange(request.nodes) * 2 // request.nodes
    return ClientInfo(labels.astype(np.int64), 2, request.seed)


def _manifest(request: Request, config: dict[str, Any], availability: dict[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in config.items() if key != "rounds"}
    return {
        "app": str(request.app.absolute()) if request.app else "digits",
        "nodes": request.nodes, "tls": request.tls, "seed": request.seed,
        "rounds": config["rounds"], "config": others,
        "availability": availability,
        "chaos": {"node_kills": request.node_kills, "superlink_kills": request.superlink_kills},
    }  # fmt: skip


def _summarise(request: Request, view: JobView, chaos: Chaos) -> None:
    table = Table("client", box=None, header_style="bold", pad_edge=False)
    for column in ("rounds taken part in", "staleness at the end"):
        table.add_column(column, justify="right")
    for client in sorted({*view.num_applied, *view.staleness}, key=lambda name: (len(name), name)):
        table.add_row(client, str(view.num_applied.get(client, 0)), str(view.staleness.get(client, "-")))
    out.print(table)
    spent = f"{view.seconds / view.merged_rounds:.1f} s a round" if view.merged_rounds else "no round"
    loss = "-" if view.test_loss is None else f"{view.test_loss:.4f}"
    accuracy = "-" if view.test_accuracy is None else f"{view.test_accuracy:.4f}"
    out.print(f"rounds: {view.rounds}, runs: {len(view.runs)}, {spent}; test loss {loss}, accuracy {accuracy}")
    if chaos.done or chaos.left:
        out.print(f"chaos: {len(chaos.done)} kills, {len(chaos.left)} left over (target was not there)")
    out.print(f"job: {request.folder / 'job'}, logs: {request.folder / 'logs'}", soft_wrap=True)
    out.print(f"what happened to the processes: {request.folder / 'deployment.jsonl'}", soft_wrap=True)
