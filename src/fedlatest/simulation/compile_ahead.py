"""Compiling programs in threads while the device works on others.

XLA releases Python's interpreter lock while it compiles, so several programs compile at the same time. JAX finds a
program that was compiled ahead when it is called with arguments of equal shapes: nothing is traced or compiled again.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NamedTuple

import jax


class Compilation(NamedTuple):
    """A call of a jitted function that will be made; only the shapes of its arguments matter."""

    jitted: Any
    arguments: tuple[Any, ...]
    static: Mapping[str, Hashable]

    @property
    def key(self) -> Hashable:
        """Equal for calls of one compiled program."""
        leaves, structure = jax.tree.flatten(self.arguments)
        shapes = tuple((leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)) for leaf in leaves)
        return self.jitted, tuple(self.static.items()), structure, shapes

    def compile(self) -> None:
        """Compile the program into JAX's cache."""
        self.jitted.lower(*self.arguments, **self.static).compile()


class Planned:
    """Compilations that were handed to a `CompileAhead`."""

    def __init__(self, started: "Future[list[Future[None]]]") -> None:
        self._started = started

    def wait(self) -> None:
        """Wait until all are compiled; an error is left to the call itself, which raises it with its context."""
        if self._started.exception() is None:
            for compilation in self._started.result():
                compilation.exception()


class CompileAhead:
    """Compiles programs in threads, in the order in which they are planned and each once; a context manager.

    When the context ends, programs that have not been started are not compiled.

    Args:
        num_threads: How many programs compile at the same time.
    """

    def __init__(self, num_threads: int) -> None:
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="plan")
        self._compilers = ThreadPoolExecutor(num_threads, thread_name_prefix="compile")
        self._started: dict[Hashable, Future[None]] = {}  # used by the planner's thread only

    def plan(self, find: Callable[[], Iterable[Compilation]]) -> Planned:
        """Compile what `find` returns, which is called in a thread too."""

        def start() -> list[Future[None]]:
            return [self._start(compilation) for compilation in find()]

        return Planned(self._planner.submit(start))

    def _start(self, compilation: Compilation) -> "Future[None]":
        key = compilation.key
        if key not in self._started:
            self._started[key] = self._compilers.submit(compilation.compile)
        return self._started[key]

    def __enter__(self) -> "CompileAhead":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._planner.shutdown(wait=False, cancel_futures=True)
        self._compilers.shutdown(wait=False, cancel_futures=True)
