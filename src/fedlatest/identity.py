"""Identity by value of functions and of what is built from them.

Factories return closures: two calls with equal arguments give functions that compute the same but are different
objects, and two calls with different arguments give functions that share their code. Compiled programs are therefore
identified by a key that holds a function's code, its defaults and everything that it captures.
"""

import dataclasses
import functools
from collections.abc import Hashable, Mapping
from enum import Enum
from types import FunctionType, MethodType
from typing import Any

_PLAIN = (str, bytes, bool, int, float, complex, type(None), type, Enum)


class ByValue:
    """A value that is hashed and compared by its `value_key`, for use as a static argument of `jax.jit`.

    >>> def make(factor):
    ...     return lambda x: factor * x
    >>> ByValue(make(2)) == ByValue(make(2)), ByValue(make(2)) == ByValue(make(3))
    (True, False)
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._key = value_key(value)
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue) and self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash


class _ByIdentity:
    """An object that is compared by identity and kept alive, so that its address is not used again."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def value_key(value: Any) -> Hashable:
    """Return a hashable key; equal keys mean that two values compute the same.

    Numbers and texts are compared by type and value, containers and dataclasses by their parts, functions by their
    code, defaults, globals and captured values. Everything else, arrays included, is compared by identity.
    """
    return _key(value, ())


def describe(value: Any) -> str:
    """Return a short text that names a function or a bundle of functions with the plain values that it captures.

    The text is stored with a run; it is the same in every process.

    >>> def decay(start, factor):
    ...     return lambda round: start * factor**round
    >>> describe(decay(0.1, 0.5))
    'decay(factor=0.5, start=0.1)'
    """
    if isinstance(value, tuple):  # optax transformations: (init, update); the last one captures the settings
        return describe(value[-1])
    if isinstance(value, functools.partial):
        settings = ", ".join([*map(repr, value.args), *(f"{name}={item!r}" for name, item in value.keywords.items())])
        return f"{describe(value.func)}({settings})"
    if not isinstance(value, FunctionType):
        return getattr(value, "__qualname__", type(value).__qualname__)
    cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    captured = {name: _content(cell) for name, cell in cells}
    parts = [f"{name}={_text(item)}" for name, item in sorted(captured.items()) if _text(item)]
    return f"{value.__qualname__.split('.<locals>')[0]}({', '.join(parts)})"


def _text(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, list | tuple) and all(isinstance(item, FunctionType | tuple) for item in value):
        return f"[{', '.join(map(describe, value))}]"
    return describe(value) if isinstance(value, FunctionType) else ""


def _key(value: Any, outer: tuple[int, ...]) -> Hashable:
    """Return the key of a value; `outer` holds the ids of the enclosing functions."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, FunctionType):
        if id(value) in outer:  # a function that captures itself
            return "recursive", outer.index(id(value))
        inner = (*outer, id(value))
        captured = tuple(_key(_content(cell), inner) for cell in value.__closure__ or ())
        defaults = _key((value.__defaults__, value.__kwdefaults__), inner)
        return "function", value.__code__, _ByIdentity(value.__globals__), defaults, captured
    if isinstance(value, MethodType):
        return "method", _key(value.__func__, outer), _key(value.__self__, outer)
    if isinstance(value, functools.partial):
        return "partial", *(_key(part, outer) for part in (value.func, value.args, value.keywords))
    if isinstance(value, tuple | list):
        return type(value), tuple(_key(item, outer) for item in value)
    if isinstance(value, Mapping):
        return type(value), tuple((_key(name, outer), _key(item, outer)) for name, item in value.items())
    if dataclasses.is_dataclass(value):
        parts = [getattr(value, part.name) for part in dataclasses.fields(value)]
        return type(value), tuple(_key(part, outer) for part in parts)
    return _ByIdentity(value)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return None
