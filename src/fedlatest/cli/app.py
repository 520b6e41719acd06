"""The application that commands are added to, and how it ends."""

import sys
import warnings
from typing import Annotated

import typer
import typer.core
from rich.console import Console
from rich.text import Text

from fedlatest import __version__
from fedlatest.errors import FedlatestError

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
