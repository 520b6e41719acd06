"""The application that commands are added to, and how it ends."""

import os
import sys
import warnings
from importlib.metadata import entry_points
from typing import Annotated

import jax
import typer
import typer.core
from rich.console import Console
from rich.text import Text

from fedlatest import __version__
from fedlatest.errors import ConfigError, FedlatestError

typer.core.HAS_RICH = (
    False  # its help is not asked for, and typer before 0.21 would escape brackets for it all the same
)
app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
out = Console()
err = Console(stderr=True)


def main() -> None:
    """Entry point: a user's mistake is one or two lines, never a traceback, and so is a warning."""
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


def use_device(device: str | None) -> None:
    """Take `cpu`, `gpu` or, if None, JAX's choice."""
    if device not in (None, "cpu", "gpu"):
        raise ConfigError(f"--device {device}: choose cpu or gpu")
    if device == "cpu" or not entry_points(group="jax_plugins"):  # where accelerators plug in
        # One thread trains the small models of a cohort faster than several: XLA would split every little product, and
        # the threads would wait for each other. Read when JAX first starts; a user's own value stands.
        os.environ.setdefault("NPROC", "1")
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if device == "gpu" and jax.default_backend() != "gpu":
        raise ConfigError("--device gpu: JAX finds no GPU here; pip install 'fedlatest[gpu]' on a machine with one")
