"""Reads pickles of plain data without unpickling them.

`pickle.load` runs whatever code a file asks for. This reader disassembles the file with `pickletools.genops`, which
runs nothing, and builds only dicts, lists, tuples, numbers, texts, booleans and None. Any other instruction, such as
importing or calling a function, is an error.
"""

import pickletools
from pathlib import Path
from typing import Any

from fedlatest.errors import DataError

_IGNORED = {"PROTO", "FRAME"}
_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read_plain_pickle(path: Path) -> Any:
    """Return the data of a pickle that consists of dicts, lists, tuples, numbers, texts, booleans and None.

    Keys of dicts are numbers, texts, booleans or None. Nothing in the file is executed.

    Raises:
        DataError: The file cannot be read, is damaged, or contains anything else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        return _build(content)
    except _RefusedError as refused:
        raise DataError(
            f"{path}: refused, because it contains the pickle instruction {refused}; only dicts, lists, tuples, "
            "numbers and texts are read, since other instructions can run code"
        ) from None
    except Exception as error:  # pickletools raises errors of many types about damaged files
        raise DataError(f"{path}: is not a complete pickle ({type(error).__name__}: {error})") from error


class _RefusedError(Exception):
    """The pickle contains an instruction that is not accepted."""


def _build(content: bytes) -> Any:
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "STOP":
            break
        if not machine.execute(opcode.name, argument):
            raise _RefusedError(opcode.name)
    return machine.result()


class _Machine:
    """The stack of a pickle that is being read. Wrong files raise IndexError, KeyError, TypeError or ValueError."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # the stacks below each mark
        self._memo: dict[int, Any] = {}

    def execute(self, name: str, argument: Any) -> bool:
        """Execute an instruction; return whether it is one of those that are accepted."""
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self._memo[int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo[int(argument)])
        elif name == "MARK":
            self._outer.append(stack)
            self._stack = []
        elif name == "APPEND":
            value = stack.pop()
            _typed(list, stack[-1]).append(value)
        elif name == "APPENDS":
            values = self._take_marked()
            _typed(list, self._stack[-1]).extend(values)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _set_items(_typed(dict, stack[-1]), [key, value])
        elif name == "SETITEMS":
            values = self._take_marked()
            _set_items(_typed(dict, self._stack[-1]), values)
        else:
            return self._build(name)
        return True

    def _build(self, name: str) -> bool:
        """Execute an instruction that creates a container or a constant; return whether it is such an instruction."""
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name == "EMPTY_DICT":
            self._stack.append({})
        elif name == "EMPTY_LIST":
            self._stack.append([])
        elif name in _TUPLES:
            size = _TUPLES[name]
            values = [self._stack.pop() for _ in range(size)]
            self._stack.append(tuple(reversed(values)))
        elif name == "TUPLE":
            values = self._take_marked()
            self._stack.append(tuple(values))
        elif name == "LIST":
            values = self._take_marked()
            self._stack.append(values)
        elif name == "DICT":
            values, built = self._take_marked(), dict[Any, Any]()
            _set_items(built, values)
            self._stack.append(built)
        else:
            return name in _IGNORED
        return True

    def result(self) -> Any:
        """Return the only value on the stack."""
        [value] = self._stack
        if self._outer:
            raise ValueError("a mark is left")
        return value

    def _take_marked(self) -> list[Any]:
        """Remove the last mark and return what lies above it."""
        values, self._stack = self._stack, self._outer.pop()
        return values


def _typed(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected a {kind.__name__}, found a {type(value).__name__}")
    return value


def _set_items(target: dict[Any, Any], values: list[Any]) -> None:
    keys = values[::2]
    if not all(
        key is None or isinstance(key, int | float | str) for key in keys
    ):  # hashing nested tuples can take long
        raise TypeError("a key is neither a number nor a text")
    target.update(zip(keys, values[1::2], strict=True))
