"""Kernels in C: compiled for this machine when they are first needed, cached on disk, and registered in XLA."""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import jax

from fedlatest.data.cache import write_shared
from fedlatest.errors import FedlatestError
from fedlatest.paths import cache_folder, is_private

FOLDER = Path(__file__).parent
FLAGS = ("-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
MACHINE_FLAGS = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler accepts is used
COMPILERS = ("cc", "gcc", "clang")  # tried in this order after the environment variable CC
SWITCH = "FEDLATEST_NATIVE"  # environment variable; 0 disables the kernels
COMPILE_TIMEOUT = 120  # seconds


class Kernel(NamedTuple):
    """A C source with the sizes that it is compiled for.

    Args:
        source: File name of the source in this folder. Its handlers are named after it: `lstm_forward` in lstm.c.
        handlers: The functions that XLA calls, without that prefix.
        sizes: Names and values of the macros that the source expects.
    """

    source: str
    handlers: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def prefix(self) -> str:
        """The common part of the names of the handlers."""
        return self.source.removesuffix(".c")


def is_usable(kernel: Kernel) -> bool:
    """Return whether a kernel can be used; compiles it if necessary, and warns once if that fails."""
    return os.environ.get(SWITCH, "1") != "0" and _name(kernel) is not None


def call(kernel: Kernel, handler: str, shapes: Any, *arguments: Any, **options: Any) -> Any:
    """Call a handler of a usable kernel.

    Args:
        kernel: The kernel.
        handler: Which of its handlers.
        shapes: The shapes and types of the results.
        arguments: The arrays that the handler takes.
        options: Passed to `jax.ffi.ffi_call`, such as `vmap_method`.
    """
    target: Any = jax.ffi.ffi_call(f"{_name(kernel)}_{handler}", shapes, **options)
    return target(*arguments)


def _name(kernel: Kernel) -> str | None:
    """Return the name under which a kernel is registered in XLA, or None if it is not usable."""
    with _REGISTRATION:  # XLA accepts each name only once
        return _register(kernel)


_REGISTRATION = Lock()
_REGISTERED: set[str] = set()


@cache
def _register(kernel: Kernel) -> str | None:
    try:
        name, library = _build(kernel)
        handlers = {handler: getattr(library, f"{kernel.prefix}_{handler}") for handler in kernel.handlers}
    except (OSError, ValueError, AttributeError, subprocess.SubprocessError, _CompilerError) as error:
        warnings.warn(
            f"the kernel {kernel.source} cannot be compiled, so slower JAX code is used ({error}); {SWITCH}=0 disables "
            "the kernels and this warning",
            stacklevel=4,
        )
        return None
    for handler, function in handlers.items():
        target = f"{name}_{handler}"
        if target not in _REGISTERED:  # equal kernels have equal names
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(function), platform="cpu")
            _REGISTERED.add(target)
    return name


class _CompilerError(Exception):
    """The compiler failed; the message is its output."""


def _build(kernel: Kernel) -> tuple[str, ctypes.CDLL]:
    """Return the name of the kernel and the loaded library."""
    sizes = (*(f"-D{name}={size}" for name, size in kernel.sizes), f"-I{jax.ffi.include_dir()}")
    for machine_flags in MACHINE_FLAGS:
        command = (*_find_compiler(), *FLAGS, *machine_flags, *sizes, str(FOLDER / kernel.source))
        try:
            name = _kernel_name(kernel, command)
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


def _kernel_name(kernel: Kernel, command: tuple[str, ...]) -> str:
    """Return a name with a hash of everything that the kernel depends on.

    The cache may be older than the source, and different machines may share it.
    """
    macros = _run((*command, "-E", "-dM"))  # they include compiler version, processor features and XLA's API version
    sources = [path.read_text() for path in (FOLDER / kernel.source, *sorted(FOLDER.glob("*.h")))]
    content = "\n".join([*sources, macros, *command])
    return f"fedlatest_{kernel.prefix}_{hashlib.sha256(content.encode()).hexdigest()[:24]}"


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
    if not is_private(library.parent):
        raise PermissionError(f"{library.parent}: not a folder that only this user can write to")
    try:
        return ctypes.CDLL(str(library))
    except OSError:  # missing or damaged
        write_shared(library, lambda draft: _compile(command, draft))
        return ctypes.CDLL(str(library))


def _compile(command: tuple[str, ...], library: Path) -> None:
    _run((*command, "-o", str(library)))


def _run(command: tuple[str, ...]) -> str:
    result = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=COMPILE_TIMEOUT, check=False
    )
    if result.returncode:
        raise _CompilerError(f"{Path(command[0]).name}: {result.stderr.strip()[:300]}")
    return result.stdout
