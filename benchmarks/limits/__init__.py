"""The limits to compare with: one round as a fused C program, and the peak of the machine. Built when first needed.

`build` compiles a program of this folder for this machine, `measure` runs it with a number of threads.
"""

import functools
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import one_core

FOLDER = Path(__file__).parent
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp")


class Peak(NamedTuple):
    """What the machine can do with some threads, measured."""

    threads: int
    gflops: float  # multiply-adds count as two
    gigabytes: float  # read from memory, per second


def compiler() -> str | None:
    """Return the C compiler: the environment variable CC, or cc; None if there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


@functools.cache
def build(name: str, *defines: str) -> Path:
    """Compile NAME.c of this folder with some macros defined, such as COHORT=5, and return the program.

    Raises:
        RuntimeError: If there is no compiler, or it fails.
    """
    found = compiler()
    if found is None:
        raise RuntimeError("there is no C compiler (set CC, or install one as cc)")
    program = Path(_build_folder()) / "-".join([name, *defines])
    source, options = str(FOLDER / f"{name}.c"), [f"-D{define}" for define in defines]
    command = [found, *FLAGS, *options, source, "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{found} cannot compile {name}.c: {done.stderr.strip().splitlines()[-1]}")
    return program


def measure(program: Path, *arguments: str, threads: int) -> dict[str, float]:
    """Run a program with a number of threads, one of them pinned to a core, and return the JSON that it prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with one_core() if threads == 1 else nullcontext():  # the program inherits the core of this thread
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout))


@functools.cache
def peak(threads: int) -> Peak:
    """Measure the peak of the machine with a number of threads; on a busy machine, at least that of one thread."""
    found = measure(build("machine_peak"), threads=threads)
    least = Peak(1, 0.0, 0.0) if threads == 1 else peak(1)
    return Peak(threads, max(found["gflops"], least.gflops), max(found["gigabytes"], least.gigabytes))


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def _build_folder() -> str:
    if not _FOLDERS:
        _FOLDERS.append(tempfile.TemporaryDirectory(prefix="fedlatest-limits-"))
    return _FOLDERS[0].name
