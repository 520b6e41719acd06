"""Calls of the command line: in a new process, or in this one, which takes a tenth of the time."""

import io
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from fedlatest.cli import main

Done = subprocess.CompletedProcess[str]


def fedlatest(*arguments: str, cwd: Path, data: Path | None = None) -> Done:
    """Run `fedlatest ...` in a new process; `data` is the value of FEDLATEST_DATA."""
    environment = {name: value for name, value in os.environ.items() if name != "FEDLATEST_DATA"}
    if data:
        environment["FEDLATEST_DATA"] = str(data)
    return subprocess.run(
        [sys.executable, "-m", "fedlatest", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def next_command(done: Done) -> list[str]:
    """Return the arguments of the command that the last line of an output recommends."""
    *_, last = done.stdout.splitlines()
    assert last.startswith("next: fedlatest ")
    return shlex.split(last)[2:]


def fedlatest_here(*arguments: str, cwd: Path, data: Path | None = None) -> Done:
    """Run the same entry point in this process; an unexpected exception is raised instead of printed."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["fedlatest", *arguments])
        patch.delenv("FEDLATEST_DATA", raising=False)
        if data:
            patch.setenv("FEDLATEST_DATA", str(data))
        with pytest.raises(SystemExit) as end:
            main()
    code = end.value.code or 0
    assert isinstance(code, int)
    return Done(arguments, code, out.getvalue(), err.getvalue())
