"""The LSTM's kernel for a CPU: lstm.c, compiled for this machine when it is first needed, and kept."""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp

from fedlatest.paths import cache_folder

SOURCE = Path(__file__).with_name("lstm.c")
FLAGS = ("-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
FOR_THIS_MACHINE = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes
COMPILERS = ("cc", "gcc", "clang")  # unless the environment's CC names one
SWITCH = "FEDLATEST_NATIVE"  # 0: do without
PATIENCE = 120  # seconds for the compiler

Weights = tuple[jax.Array, ...]  # input, hidden and bias of the lower layer, then of the upper


def is_usable(num_inputs: int, hidden: int) -> bool:
    """Whether the kernel for these sizes can be used; compiles it if need be. Says once why not."""
    return os.environ.get(SWITCH, "1") != "0" and _target(num_inputs, hidden) is not None


@jax.custom_vjp
def last_hidden(weights: Weights, vectors: jax.Array, lengths: jax.Array) -> jax.Array:
    """[texts, hidden] the upper layer's state after each text's last word."""
    shape = jax.ShapeDtypeStruct((vectors.shape[0], weights[1].shape[0]), jnp.float32)
    return _call("forward", shape, weights, vectors, lengths)


def _forward(weights: Weights, vectors: jax.Array, lengths: jax.Array) -> tuple[jax.Array, Any]:
    hidden = weights[1].shape[0]
    last = jax.ShapeDtypeStruct((vectors.shape[0], hidden), jnp.float32)
    traces = jax.ShapeDtypeStruct((*vectors.shape[:2], 12 * hidden), jnp.float32)
    state, left = _call("forward", (last, traces), weights, vectors, lengths)
    return state, (weights, vectors, lengths, left)


def _backward(kept: Any, change: jax.Array) -> tuple[Weights, None, None]:
    weights, vectors, lengths, traces = kept
    shapes = tuple(jax.ShapeDtypeStruct(weight.shape, jnp.float32) for weight in weights)
    return tuple(_call("backward", shapes, weights, vectors, lengths, traces, change)), None, None


last_hidden.defvjp(_forward, _backward)


def _call(what: str, shapes: Any, weights: Weights, *arrays: jax.Array) -> Any:
    target = _target(weights[0].shape[0], weights[1].shape[0])
    # Under vmap the kernel gets everything with a leading axis of models, and goes through it itself.
    call: Any = jax.ffi.ffi_call(f"{target}_{what}", shapes, vmap_method="broadcast_all")
    return call(*weights, *arrays)


def _target(num_inputs: int, hidden: int) -> str | None:
    """The name under which XLA knows the kernel for these sizes, or None if it could not be had."""
    with _ONE_AT_A_TIME:  # XLA takes a name once
        return _register(num_inputs, hidden)


_ONE_AT_A_TIME = Lock()


@cache
def _register(num_inputs: int, hidden: int) -> str | None:
    try:
        name, library = _build(num_inputs, hidden)
        handlers = {what: getattr(library, f"lstm_{what}") for what in ("forward", "backward")}
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError, _CompilerError) as error:
        warnings.warn(f"the LSTM trains many times slower here: its kernel cannot be compiled ({error})", stacklevel=4)
        return None
    for what, handler in handlers.items():
        capsule = jax.ffi.pycapsule(handler)
        jax.ffi.register_ffi_target(f"{name}_{what}", capsule, platform="cpu")
    return name


class _CompilerError(Exception):
    """The compiler's own words."""


def _build(num_inputs: int, hidden: int) -> tuple[str, ctypes.CDLL]:
    """The kernel's name and the kernel."""
    sizes = (f"-DINPUTS={num_inputs}", f"-DHIDDEN={hidden}", f"-I{jax.ffi.include_dir()}")
    for machine in FOR_THIS_MACHINE:
        command = (*_compiler(), *FLAGS, *machine, *sizes, str(SOURCE))
        try:
            name = _name(command)
            return name, _library(command, name)
        except _CompilerError as error:
            refusal = error
    raise refusal


def _compiler() -> list[str]:
    for named in (os.environ.get("CC"), *COMPILERS):
        words = shlex.split(named or "")  # CC may hold options
        found = shutil.which(words[0]) if words else None
        if found:
            return [found, *words[1:]]
    raise FileNotFoundError("no C compiler found; install gcc or clang")


def _name(command: tuple[str, ...]) -> str:
    """Says what the kernel is made of: a cache outlives an update and may be shared by machines that differ."""
    macros = _run((*command, "-E", "-dM"))  # of the compiler's version, the processor's instructions, XLA's interface
    made_of = "\n".join([SOURCE.read_text(), macros, *command])
    return f"fedlatest_lstm_{hashlib.sha256(made_of.encode()).hexdigest()[:24]}"


def _library(command: tuple[str, ...], name: str) -> ctypes.CDLL:
    """The compiled kernel, from the cache or for it; where the cache is out of reach, for this process."""
    try:
        return _kept(command, cache_folder() / "kernels" / f"{name}.so")
    except OSError:
        with tempfile.TemporaryDirectory(prefix="fedlatest-", ignore_cleanup_errors=True) as folder:
            return ctypes.CDLL(str(_compile(command, Path(folder) / f"{name}.so")))


def _kept(command: tuple[str, ...], library: Path) -> ctypes.CDLL:
    folder = library.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder)
    try:
        return ctypes.CDLL(str(library))
    except OSError:  # not there, or damaged
        with tempfile.TemporaryDirectory(dir=folder) as draft:  # two processes at this together do no harm
            _compile(command, Path(draft) / library.name).replace(library)
        return ctypes.CDLL(str(library))


def _check_private(folder: Path) -> None:
    """What lies there will be run: nobody else may have put it there."""
    if sys.platform != "win32":
        status = folder.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(f"{folder}: others may write there")


def _compile(command: tuple[str, ...], library: Path) -> Path:
    _run((*command, "-o", str(library)))
    return library


def _run(command: tuple[str, ...]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False)
    if done.returncode:
        raise _CompilerError(f"{Path(command[0]).name}: {done.stderr.strip()[:300]}")
    return done.stdout
