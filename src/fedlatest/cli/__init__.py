"""The command line: each command parses its options, calls the other packages and prints the result.

May import every other package. Modules here import what a command needs when it runs, so that `fedlatest --help`
starts without JAX, Flower and matplotlib.
"""

from fedlatest.cli import (  # noqa: F401  (each adds its commands)
    advise,
    arena,
    convert_trace,
    deploy,
    diagnose,
    explain,
    explain_stability,
    job,
    listing,
    replay,
    report,
    reproduce,
    run,
    sweep,
    watch,
)
from fedlatest.cli.app import main

__all__ = ["main"]
