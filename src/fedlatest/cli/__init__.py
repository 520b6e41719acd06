"""The command line: each command parses its options, calls the other packages and prints the result.

May import every other package. Modules here import what a command needs when it runs, so that `fedlatest --help`
starts without JAX, Flower and matplotlib.
"""

from fedlatest.cli import advise, arena, deploy, explain, job, report, reproduce, run, sweep  # noqa: F401  (they add commands)
from fedlatest.cli.app import main

__all__ = ["main"]
