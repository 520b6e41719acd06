"""The command line: parses, calls, prints."""

from fedlatest.cli import advise, deploy, explain, job, report, reproduce, run  # noqa: F401  (each adds its commands)
from fedlatest.cli.app import main

__all__ = ["main"]
