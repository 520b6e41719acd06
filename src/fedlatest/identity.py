"""Identity by value of functions and of what is built from them.

Factories return closures: two calls with equal arguments give functions that compute the same but are different
objects, and two calls with different arguments give functions that share their code. Compiled programs are therefore
identified by a key that holds a function's code, its defaults, everything that it captures and the globals that it
names.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Hashable, Iterator, Mapping
from enum import Enum
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

_PLAIN = (str, bytes, bool, int, complex, type(None), type, Enum)
_LIBRARIES = ("fedlatest.", "optax.")  # their functions are described by name and captured values alone


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
        if self is other:
            return True
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

    Numbers and texts are compared by type and value, NumPy arrays by their content, containers and dataclasses by their
    parts, functions by their code, defaults, captured values and the globals of their module that they name. Everything
    else, JAX arrays included, is compared by identity.
    """
    return _key(value, ())


def describe(value: Any) -> str:
    """Return a text that names a function or a bundle of functions with the values that it captures.

    The text is stored with a run and compared when it is resumed; it is the same in every process. A function that is
    not from a library is described by a digest of its code as well.

    >>> import optax
    >>> describe(optax.linear_schedule(0.5, 0.0, 10)).startswith("polynomial_schedule(end_value=0.0, init_value=0.5")
    True
    """
    if isinstance(value, FunctionType):
        return _describe_function(value)
    if isinstance(value, MethodType):
        return f"{describe(value.__self__)}.{value.__name__}"
    if isinstance(value, functools.partial):
        return f"partial({describe(value.func)}, {describe(value.args)}, {describe(value.keywords)})"
    if isinstance(value, np.ndarray):
        return f"array({_array_digest(value)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{describe(name)}: {describe(item)}" for name, item in value.items()) + "}"
    if isinstance(value, tuple) and hasattr(value, "update") and hasattr(value, "init"):  # an optax transformation
        return "; ".join(dict.fromkeys(map(describe, (value.update, value.init))))
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(describe, value))}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
        return f"{type(value).__qualname__}{describe(parts)}"
    if isinstance(value, float | str | bytes | bool | int | complex | type(None)):
        return repr(value)
    wrapped = getattr(value, "__wrapped__", None)  # jitted functions
    return describe(wrapped) if wrapped is not None else getattr(value, "__qualname__", type(value).__qualname__)


def _describe_function(function: FunctionType) -> str:
    captured = dict(zip(function.__code__.co_freevars, map(_content, function.__closure__ or ()), strict=True))
    own = {name: item for name, item in captured.items() if item is not function}
    settings = [f"{name}={describe(item)}" for name, item in sorted(own.items())]
    if not str(function.__module__).startswith(_LIBRARIES):
        named = {name: item for name, item in _named_globals(function) if isinstance(item, float | int | str | bool)}
        content = repr((function.__code__.co_code, _constants(function.__code__), sorted(named.items())))
        settings.append(f"code={hashlib.blake2b(content.encode(), digest_size=6).hexdigest()}")
    return f"{function.__qualname__.split('.<locals>')[0]}({', '.join(settings)})"


def _constants(code: CodeType) -> list[Any]:
    return [(item.co_code, _constants(item)) if isinstance(item, CodeType) else item for item in code.co_consts]


def _key(value: Any, outer: tuple[int, ...]) -> Hashable:
    """Return the key of a value; `outer` holds the ids of the enclosing functions."""
    if isinstance(value, float):
        return float, value.hex()  # 0.0 and -0.0 differ
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, FunctionType):
        return _function_key(value, outer)
    if isinstance(value, MethodType):
        return "method", _key(value.__func__, outer), _key(value.__self__, outer)
    if isinstance(value, functools.partial):
        return "partial", *(_key(part, outer) for part in (value.func, value.args, value.keywords))
    if isinstance(value, tuple | list):
        return type(value), tuple(_key(item, outer) for item in value)
    if isinstance(value, Mapping):
        return type(value), tuple((_key(name, outer), _key(item, outer)) for name, item in value.items())
    if isinstance(value, np.ndarray):
        return "array", _array_digest(value)
    if dataclasses.is_dataclass(value):
        parts = [getattr(value, part.name) for part in dataclasses.fields(value)]
        return type(value), tuple(_key(part, outer) for part in parts)
    return _ByIdentity(value)


def _function_key(function: FunctionType, outer: tuple[int, ...]) -> Hashable:
    if id(function) in outer:  # a function that refers to itself
        return "recursive", outer.index(id(function))
    inner = (*outer, id(function))
    captured = tuple(_key(_content(cell), inner) for cell in function.__closure__ or ())
    defaults = _key((function.__defaults__, function.__kwdefaults__), inner)
    named = tuple((name, _global_key(item, function, inner)) for name, item in _named_globals(function))
    return "function", function.__code__, _ByIdentity(function.__globals__), defaults, captured, named


def _global_key(value: Any, function: FunctionType, outer: tuple[int, ...]) -> Hashable:
    """Return the key of a global; a function of another module is what it is, whoever names it."""
    if isinstance(value, FunctionType) and value.__globals__ is not function.__globals__:
        return _ByIdentity(value)
    return _key(value, outer)


def _named_globals(function: FunctionType) -> list[tuple[str, Any]]:
    """Return the globals of its module that a function, or a function inside it, names."""

    def names(code: CodeType) -> Iterator[str]:
        yield from code.co_names
        for item in code.co_consts:
            if isinstance(item, CodeType):
                yield from names(item)

    return [
        (name, function.__globals__[name])
        for name in dict.fromkeys(names(function.__code__))
        if name in function.__globals__
    ]


def _array_digest(array: np.ndarray[Any, Any]) -> str:
    content = hashlib.blake2b(f"{array.dtype.str}{array.shape}".encode(), digest_size=16)
    content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.dtype != object else b"")
    return content.hexdigest()


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is not assigned yet
        return None
