"""The typer application that the commands are added to, its entry point, and the choice of a device."""

import os
import shlex
import sys
import time
import warnings
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
import typer.core
from rich.padding import Padding
from rich.text import Text

from fedlatest.cli.command_groups import GroupedCommands
from fedlatest.cli.console import PlainConsole
from fedlatest.errors import ConfigError, FedlatestError
from fedlatest.version import __version__

typer.core.HAS_RICH = False  # plain help; typer before 0.21 would escape brackets even with rich_markup_mode=None
app = typer.Typer(cls=GroupedCommands, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
out = PlainConsole()
err = PlainConsole(stderr=True)
LONGEST_WAIT = 3600  # seconds that one device of a process may wait for another


def main() -> None:
    """Run the command line; print user errors and warnings as one or two lines instead of a traceback."""
    warnings.showwarning = lambda message, *_, **__: err.print(Text(str(message), style="yellow"), soft_wrap=True)
    try:
        app(prog_name="fedlatest")
    except FedlatestError as error:
        err.quiet = False
        err.print(Text(f"error: {error}", style="red"), soft_wrap=True)
        _leave_other_processes()
        sys.exit(1)


def _leave_other_processes() -> None:
    """End this process at once if it simulates together with others, so that they end too and do not wait for it."""
    jax = sys.modules.get("jax")
    if jax is not None and jax.distributed.is_initialized():
        time.sleep(1)  # if the error is common to all processes, each can print it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Federated learning for clients that come and go.

    Start with `fedlatest run quickstart`.
    """
    if version:
        out.print(f"fedlatest {__version__}")
        raise typer.Exit


def print_prose(sentence: str, *, indent: int = 0) -> None:
    """Print a sentence: wrapped between words on a terminal, on one line otherwise."""
    if out.is_terminal:
        out.print(Padding(Text(sentence), (0, 0, 0, indent)))
    else:
        out.print(Text(" " * indent + sentence), soft_wrap=True)


def print_next(*arguments: str | Path) -> None:
    """Print the command that a user may want to run next, quoted for a shell; the last line of a command's output.

    Args:
        *arguments: The arguments of `fedlatest`.
    """
    out.print(Text(f"next: {command_line(*arguments)}"), soft_wrap=True)


def command_line(*arguments: str | Path) -> str:
    """Return a call of `fedlatest` as one types it.

    >>> command_line("report", Path("runs/my run"))
    "fedlatest report 'runs/my run'"
    """
    return shlex.join(["fedlatest", *map(str, arguments)])


def show_notes(notes: list[str]) -> None:
    """Print messages for the user about the data or the cluster."""
    for note in notes:
        err.print(Text(note, style="yellow"), soft_wrap=True)


def use_device(device: str | None) -> None:
    """Make JAX use `cpu` or `gpu`; None leaves the choice to JAX."""
    configure_device(device)
    check_device(device)


def configure_device(device: str | None, *, num_cpu_devices: int = 1) -> None:
    """Configure JAX, which must not have been used yet; no device is started.

    Args:
        device: `cpu` or `gpu`; None leaves the choice to JAX.
        num_cpu_devices: Into how many JAX devices the CPU is divided, if it is the CPU that JAX will use.
    """
    if device not in (None, "cpu", "gpu"):
        raise ConfigError(f"--device {device}: choose cpu or gpu")
    on_cpu = device == "cpu" or not entry_points(group="jax_plugins")  # accelerators register themselves in this group
    if on_cpu and num_cpu_devices > 1:
        os.environ.setdefault("NPROC", str(num_cpu_devices))  # one thread per device; JAX reads NPROC when it starts
        # XLA would end the process if one device waited 40 seconds for another.
        flag = f"--xla_cpu_collective_call_terminate_timeout_seconds={LONGEST_WAIT}"
        os.environ["XLA_FLAGS"] = f"{flag} {os.environ.get('XLA_FLAGS', '')}".strip()

    import jax

    if on_cpu and num_cpu_devices > 1:
        jax.config.update("jax_num_cpu_devices", num_cpu_devices)
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")


def check_device(device: str | None) -> None:
    """Raise ConfigError if there is no device of the kind."""
    import jax

    if device == "gpu" and jax.default_backend() != "gpu":
        raise ConfigError("--device gpu: JAX finds no GPU; install 'fedlatest[gpu]' on a machine that has one")
    assert device != "cpu" or jax.default_backend() == "cpu", "JAX was used before the device was chosen"
