"""The LSTM's kernel for a CPU: lstm.c, compiled for this machine when it is first needed, and kept."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

SOURCE = Path(__file__).with_name("lstm.c")
FLAGS = ("-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
FOR_THIS_MACHINE = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler takes
SWITCH = "FEDLATEST_NATIVE"  # 0: do without

Weights = tuple[jax.Array, ...]  # input, hidden and bias of the lower layer, then of the upper


def ready(num_inputs: int, hidden: int) -> bool:
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


@cache
def _target(num_inputs: int, hidden: int) -> str | None:
    """The name under which XLA knows the kernel for these sizes, or None if it could not be had."""
    try:
        library = _library(num_inputs, hidden)
    except (OSError, subprocess.SubprocessError) as error:
        warnings.warn(f"the LSTM trains many times slower here: its kernel cannot be compiled ({error})", stacklevel=2)
        return None
    name = f"fedlatest_{library.stem}"
    handlers = ctypes.CDLL(str(library))
    for what in ("forward", "backward"):
        capsule = jax.ffi.pycapsule(getattr(handlers, f"lstm_{what}"))
        jax.ffi.register_ffi_target(f"{name}_{what}", capsule, platform="cpu")
    return name


def _library(num_inputs: int, hidden: int) -> Path:
    """The compiled kernel, from the cache if it is there; its name says what it was made of, machine included."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler found; install gcc or clang")
    sizes = (f"-DINPUTS={num_inputs}", f"-DHIDDEN={hidden}", f"-I{jax.ffi.include_dir()}")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    made_of = "\n".join([SOURCE.read_text(), version, _processor(), *FLAGS, *sizes])
    name = f"lstm_{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.so"
    for folder in _folders():
        library = folder / name
        try:
            if not library.exists():
                _compile(partial(_command, compiler, sizes), library)
        except PermissionError:
            continue
        return library
    raise PermissionError("no folder to write to")


def _command(compiler: str, sizes: tuple[str, ...], machine: tuple[str, ...], to: Path) -> list[str]:
    return [compiler, *FLAGS, *machine, *sizes, str(SOURCE), "-o", str(to)]


def _compile(command: Any, library: Path) -> None:
    """Compile beside the place and move there at once: two processes that do so together do no harm."""
    library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        for machine in FOR_THIS_MACHINE:
            done = subprocess.run(command(machine, made), capture_output=True, text=True, check=False)
            if done.returncode == 0:
                made.replace(library)
                return
        raise OSError(f"{Path(command((), made)[0]).name}: {done.stderr.strip()[:300]}")


def _folders() -> Iterator[Path]:
    """Where compiled kernels are kept, and where they go if nothing can be kept there."""
    import pooch

    yield Path(os.environ.get("FEDLATEST_CACHE") or pooch.os_cache("fedlatest")) / "kernels"
    yield Path(tempfile.mkdtemp(prefix="fedlatest-kernels-"))


def _processor() -> str:
    """What `native` stands for: a cache may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        import platform

        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
