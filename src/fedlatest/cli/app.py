"""The typer application that the commands are added to, its entry point, and the choice of a device."""

import os
import sys
import warnings
from importlib.metadata import entry_points
from typing import Annotated

import typer
import typer.core
from rich.console import Console
from rich.text import Text

from fedlatest.errors import ConfigError, FedlatestError
from fedlatest.version import __version__

typer.core.HAS_RICH = False  # plain help; typer before 0.21 would escape brackets even with rich_markup_mode=None
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
out = Console()
err = Console(stderr=True)


def main() -> None:
    """Run the command line; print user errors and warnings as one or two lines instead of a traceback."""
    warnings.showwarning = lambda message, *_, **__: err.print(Text(str(message), style="yellow"), soft_wrap=True)
    try:
        app()
    except FedlatestError as error:
        err.print(Text(f"error: {error}", style="red"), soft_wrap=True)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def about(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Federated learning for clients that come and go."""
    if version:
        out.print(f"fedlatest {__version__}")
        raise typer.Exit


def show_notes(notes: list[str]) -> None:
    """Print messages for the user about the data or the cluster."""
    for note in notes:
        err.print(Text(note, style="yellow"), soft_wrap=True)


def use_device(device: str | None) -> None:
    """Make JAX use `cpu` or `gpu`; None leaves the choice to JAX."""
    if device not in (None, "cpu", "gpu"):
        raise ConfigError(f"--device {device}: choose cpu or gpu")
    if device == "cpu" or not entry_points(group="jax_plugins"):  # accelerators register themselves in this group
        # A single thread trains the small models of a cohort faster: XLA would split every small matrix product over
        # the threads, which then wait for each other. JAX reads NPROC when it starts; a value set by the user stays.
        os.environ.setdefault("NPROC", "1")

    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if device == "gpu" and jax.default_backend() != "gpu":
        raise ConfigError("--device gpu: JAX finds no GPU; install 'fedlatest[gpu]' on a machine that has one")
