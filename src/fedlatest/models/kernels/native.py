"""The LSTM kernel for CPUs: lstm.c, compiled for this machine when it is first needed, and cached."""

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

from fedlatest.data.cache import write_shared
from fedlatest.errors import FedlatestError
from fedlatest.paths import cache_folder

SOURCE = Path(__file__).with_name("lstm.c")
FLAGS = ("-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
MACHINE_FLAGS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler accepts is used
COMPILERS = ("cc", "gcc", "clang")  # tried in this order after the environment variable CC
SWITCH = "FEDLATEST_NATIVE"  # environment variable; 0 disables the kernel
COMPILE_TIMEOUT = 120  # seconds

Weights = tuple[jax.Array, ...]  # input, hidden and bias of the lower layer, then of the upper layer


def is_usable(num_inputs: int, hidden: int) -> bool:
    """Return whether the kernel for these sizes can be used; compiles it if necessary, and warns once if that fails."""
    return os.environ.get(SWITCH, "1") != "0" and _target(num_inputs, hidden) is not None


@jax.custom_vjp
def last_hidden(weights: Weights, vectors: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return [texts, hidden] the state of the upper layer after the last word.

    Args:
        weights: Weights of both layers.
        vectors: float32 [texts, words, inputs] word vectors.
        lengths: int32 [texts] number of words.
    """
    shape = jax.ShapeDtypeStruct((vectors.shape[0], weights[1].shape[0]), jnp.float32)
    return _call("forward", shape, weights, vectors, lengths)


def _forward(weights: Weights, vectors: jax.Array, lengths: jax.Array) -> tuple[jax.Array, Any]:
    hidden = weights[1].shape[0]
    last = jax.ShapeDtypeStruct((vectors.shape[0], hidden), jnp.float32)
    traces = jax.ShapeDtypeStruct((*vectors.shape[:2], 12 * hidden), jnp.float32)
    state, computed_traces = _call("forward", (last, traces), weights, vectors, lengths)
    return state, (weights, vectors, lengths, computed_traces)


def _backward(residuals: Any, gradient: jax.Array) -> tuple[Weights, None, None]:
    weights, vectors, lengths, traces = residuals
    shapes = tuple(jax.ShapeDtypeStruct(weight.shape, jnp.float32) for weight in weights)
    return tuple(_call("backward", shapes, weights, vectors, lengths, traces, gradient)), None, None


last_hidden.defvjp(_forward, _backward)


def _call(handler: str, shapes: Any, weights: Weights, *arrays: jax.Array) -> Any:
    target = _target(weights[0].shape[0], weights[1].shape[0])
    # Under vmap all arguments get a leading axis of models, over which the kernel loops itself.
    call: Any = jax.ffi.ffi_call(f"{target}_{handler}", shapes, vmap_method="broadcast_all")
    return call(*weights, *arrays)


def _target(num_inputs: int, hidden: int) -> str | None:
    """Return the name under which the kernel for these sizes is registered in XLA, or None if it is not usable."""
    with _REGISTRATION:  # XLA accepts each name only once
        return _register(num_inputs, hidden)


_REGISTRATION = Lock()


@cache
def _register(num_inputs: int, hidden: int) -> str | None:
    try:
        name, library = _build(num_inputs, hidden)
        handlers = {handler: getattr(library, f"lstm_{handler}") for handler in ("forward", "backward")}
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError, _CompilerError) as error:
        warnings.warn(f"the LSTM will train many times slower: its kernel cannot be compiled ({error})", stacklevel=4)
        return None
    for handler, function in handlers.items():
        jax.ffi.register_ffi_target(f"{name}_{handler}", jax.ffi.pycapsule(function), platform="cpu")
    return name


class _CompilerError(Exception):
    """The compiler failed; the message is its output."""


def _build(num_inputs: int, hidden: int) -> tuple[str, ctypes.CDLL]:
    """Return the name of the kernel and the loaded library."""
    sizes = (f"-DINPUTS={num_inputs}", f"-DHIDDEN={hidden}", f"-I{jax.ffi.include_dir()}")
    for machine_flags in MACHINE_FLAGS:
        command = (*_find_compiler(), *FLAGS, *machine_flags, *sizes, str(SOURCE))
        try:
            name = _kernel_name(command)
            return name, _load(command, name)
        except _CompilerError as error:
            last_error = error
    raise last_error


def _find_compiler() -> list[str]:
    for candidate in (os.environ.get("CC"), *COMPILERS):
        words = shlex.split(candidate or "")  # CC may contain options
        found = shutil.which(words[0]) if words else None
        if found:
            return [found, *words[1:]]
    raise FileNotFoundError("no C compiler found; install gcc or clang")


def _kernel_name(command: tuple[str, ...]) -> str:
    """Return a name with a hash of everything that the kernel depends on.

    The cache may be older than the source, and different machines may share it.
    """
    macros = _run((*command, "-E", "-dM"))  # they include compiler version, processor features and XLA's API version
    content = "\n".join([SOURCE.read_text(), macros, *command])
    return f"fedlatest_lstm_{hashlib.sha256(content.encode()).hexdigest()[:24]}"


def _load(command: tuple[str, ...], name: str) -> ctypes.CDLL:
    """Return the library from the cache, compiled if necessary; without a usable cache, compile for this process."""
    try:
        return _load_cached(command, cache_folder() / "kernels" / f"{name}.so")
    except (OSError, FedlatestError):
        with tempfile.TemporaryDirectory(prefix="fedlatest-", ignore_cleanup_errors=True) as folder:
            library = Path(folder) / f"{name}.so"
            _compile(command, library)
            return ctypes.CDLL(str(library))


def _load_cached(command: tuple[str, ...], library: Path) -> ctypes.CDLL:
    folder = library.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder)
    try:
        return ctypes.CDLL(str(library))
    except OSError:  # missing or damaged
        write_shared(library, lambda draft: _compile(command, draft))
        return ctypes.CDLL(str(library))


def _check_private(folder: Path) -> None:
    """Raise PermissionError if other users could have placed a library in the folder, because it will be executed."""
    if sys.platform != "win32":
        status = folder.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(f"{folder}: other users can write to it")


def _compile(command: tuple[str, ...], library: Path) -> None:
    _run((*command, "-o", str(library)))


def _run(command: tuple[str, ...]) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=COMPILE_TIMEOUT, check=False
    )
    if result.returncode:
        raise _CompilerError(f"{Path(command[0]).name}: {result.stderr.strip()[:300]}")
    return result.stdout
