"""The implementation of `deploy local`: check the settings, run the job, print a summary."""

import inspect
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from fedlatest.availability import AVAILABILITY, Availability, ClientInfo
from fedlatest.cli.app import err, out, print_next
from fedlatest.cli.deployment_table import NEVER_CONNECTED, ProgressTable
from fedlatest.deployment.deployment_folder import check_not_nested, open_folder
from fedlatest.deployment.fault_injection import FaultInjector, plan_faults
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.private_files import private_umask
from fedlatest.deployment.scaffold import TEMPLATE, app_config, write_app
from fedlatest.deployment.supervise import JobStatus, NodeSchedule, supervise
from fedlatest.errors import ConfigError
from fedlatest.experiments.key_names import ALIASES
from fedlatest.experiments.settings import keywords, parse_value, split_pair, suggest_name
from fedlatest.ledger.secure_settings import MIN_DECRYPTORS
from fedlatest.suggestions import did_you_mean

PAUSE_SECONDS = 30.0  # of a node, if the app has no key `deadline`
SECURE_COHORT = 4  # with --secure: one of the four may drop out
DEFAULTS = {"availability": "diurnal", "period": "5"}  # the two halves of the nodes alternate every five rounds


class Request(NamedTuple):
    """The options of the command."""

    app: Path | None  # None for the digits app
    folder: Path
    nodes: int
    rounds: int | None
    tls: bool
    secure: bool
    seed: int
    settings: Sequence[str]
    faults: Mapping[str, int]  # number of faults of each kind, the arguments of plan_faults


def run_locally(request: Request, *, resume: bool, force: bool) -> None:
    """Run the job until it is finished; invalid options are reported before anything is started or deleted."""
    if request.nodes < 1:
        raise ConfigError(f"--nodes {request.nodes}: must be at least 1")
    config, availability, described = _settings(request)
    rounds = config["rounds"]
    if rounds < 1:
        raise ConfigError(f"--rounds {rounds}: must be at least 1")
    schedule = NodeSchedule.from_model(availability, rounds=rounds, seed=request.seed)
    if request.secure:
        _check_nodes_for_secure(request, schedule, rounds)
    app = request.app or request.folder / "app"
    if request.app is not None:
        check_not_nested(request.app, request.folder)
    federation = LocalFederation(request.folder, app=app, num_nodes=request.nodes, tls=request.tls)
    plan = plan_faults(
        federation.names, rounds=rounds, seed=request.seed, pause=_deadline(request, config), **request.faults
    )
    faults = FaultInjector(plan)
    manifest = _manifest(request, config, described)
    with private_umask(), open_folder(request.folder, manifest, resume=resume, force=force):
        if request.app is None and not app.exists():
            write_app(app)
        with ProgressTable(federation, rounds) as table, federation:
            status = supervise(federation, config, schedule=schedule, faults=faults, on_progress=table.update)
    _print_summary(request, status, faults, never={*federation.names} - table.connected)


def _settings(request: Request) -> tuple[dict[str, Any], Availability, dict[str, Any]]:
    """Split the settings KEY=VALUE into those of the app and those of the availability model.

    Returns:
        The app's run config, the availability model, and the name and arguments of that model.
    """
    given = dict(map(split_pair, request.settings))
    if "availability" not in given:
        given = {**DEFAULTS, **given}
    name = given.pop("availability")
    if name not in AVAILABILITY:
        raise ConfigError(f"availability={name}: unknown{suggest_name('availability', name)}")
    known, keys = app_config(request.app or Path(str(TEMPLATE))), keywords(AVAILABILITY[name], f"availability={name}")
    config: dict[str, Any] = {"rounds": known["rounds"] if request.rounds is None else request.rounds}
    if "seed" in known:
        config["seed"] = request.seed
    if "registered-only" in known and request.tls:
        config["registered-only"] = True
    if request.secure:
        if "secure" not in known:
            raise ConfigError("--secure: the app has no key `secure` in [tool.flwr.app.config] of its pyproject.toml")
        config |= {"secure": True, "cohort-size": SECURE_COHORT}
    options: dict[str, Any] = {}
    for key, text in given.items():
        if key in keys:
            options[key] = parse_value(key, text, keys[key].type)
        elif key in known and key != "job":
            config[key] = parse_value(key, text, type(known[key]))
        else:
            raise ConfigError(_unknown(key, ["availability", *keys, *(other for other in known if other != "job")]))
    for key, (_, default, owner) in keys.items():
        if default is inspect.Parameter.empty and key not in options:
            raise ConfigError(f"{key}: required by {owner}; add --set {key}=...")
    return config, AVAILABILITY[name](_clients(request), **options), {"name": name, **options}


def _check_nodes_for_secure(request: Request, schedule: NodeSchedule, rounds: int) -> None:
    """Raise ConfigError if there are too few nodes for masks; print a warning if there are in some rounds."""
    if request.nodes < MIN_DECRYPTORS:
        raise ConfigError(f"--nodes {request.nodes}: --secure needs at least {MIN_DECRYPTORS} nodes")
    few = int(np.sum(schedule.table.sum(axis=1) < MIN_DECRYPTORS))
    if few:
        err.print(
            f"warning: in {few} of {rounds} rounds fewer than {MIN_DECRYPTORS} nodes are available, so nothing counts "
            "in them; use more --nodes",
            soft_wrap=True,
        )


def _unknown(key: str, known: Sequence[str]) -> str:
    owners = [f"availability={name}" for name, make in AVAILABILITY.items() if key in keywords(make)]
    if owners:
        return f"{key}: is a key of {' and '.join(owners)}, which this deployment does not use"
    return f"{key}: unknown key{did_you_mean(key, known, aliases=ALIASES)}"


def _clients(request: Request) -> ClientInfo:
    """Describe the nodes to availability models: the first half has label 0, the second half label 1."""
    labels = np.arange(request.nodes) * 2 // request.nodes
    return ClientInfo(labels.astype(np.int64), 2, request.seed)


def _manifest(request: Request, config: dict[str, Any], availability: dict[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in config.items() if key != "rounds"}
    return {
        "app": str(request.app.absolute()) if request.app else "digits",
        "nodes": request.nodes, "tls": request.tls, "seed": request.seed,
        **({"secure": True} if request.secure else {}),
        "rounds": config["rounds"], "config": others,
        "availability": availability,
        "chaos": dict(request.faults),
    }  # fmt: skip


def _deadline(request: Request, config: Mapping[str, Any]) -> float:
    """Return the deadline of a round: that of the app if it has one. A pause has to be longer."""
    known = app_config(request.app or Path(str(TEMPLATE)))
    return float(config.get("deadline", known.get("deadline", PAUSE_SECONDS)))


def _print_summary(request: Request, status: JobStatus, faults: FaultInjector, *, never: Set[str]) -> None:
    """Print a table of the clients, in which those in `never` have never been connected, and where files are."""
    table = Table("client", box=None, header_style="bold", pad_edge=False)
    for column in ("rounds", "final staleness"):
        table.add_column(column, justify="right")
    for client in sorted({*status.num_applied, *status.staleness, *never}, key=lambda name: (len(name), name)):
        unknown = NEVER_CONNECTED if client in never else "never took part"
        table.add_row(client, str(status.num_applied.get(client, 0)), str(status.staleness.get(client, unknown)))
    out.print(table)
    duration = f"{status.seconds / status.merged_rounds:.1f} s per round" if status.merged_rounds else "no rounds"
    loss = "-" if status.test_loss is None else f"{status.test_loss:.4f}"
    accuracy = "-" if status.test_accuracy is None else f"{status.test_accuracy:.4f}"
    out.print(f"rounds: {status.rounds}, runs: {len(status.runs)}, {duration}; test loss {loss}, accuracy {accuracy}")
    if faults.injected or faults.pending:
        out.print(f"chaos: {len(faults.injected)} faults, {len(faults.pending)} not possible (target was not running)")
    out.print(f"job: {request.folder / 'job'}, logs: {request.folder / 'logs'}", soft_wrap=True)
    out.print(f"events of the processes: {request.folder / 'deployment.jsonl'}", soft_wrap=True)
    print_next("audit", request.folder)
