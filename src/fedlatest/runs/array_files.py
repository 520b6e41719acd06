"""Files of named arrays (safetensors and .npz); loading them never executes code."""

import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from fedlatest.bounded_reading import DECOMPRESSION_ERRORS, read_npz
from fedlatest.errors import RunFolderError
from fedlatest.files import write_atomically

CHECKSUM, NO_CHECKSUM = "crc32", "00000000"  # a key of the metadata, and its value while the checksum is computed
BYTES_AT_ONCE = 2**22
MAX_NPZ_BYTES = 2**31  # that come out of all arrays of a compressed file
SAFETENSORS_TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
}  # fmt: skip


def save_arrays(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Save named arrays and some metadata as a safetensors file, atomically and without copying the arrays.

    The metadata also hold a checksum of the whole file, for `ArrayFile.check`.

    Args:
        path: The file.
        arrays: An array, or a list of arrays that are joined along their first axis, by name. Anything with `shape`,
            `dtype` and a conversion to NumPy will do; it is converted when its turn comes. If it has a method
            `blocks`, this is called instead and yields the array in parts that fit into memory, in order.
        metadata: Texts by name.
    """
    parts = {name: list(value) if isinstance(value, list) else [value] for name, value in arrays.items()}
    write_atomically(path, lambda draft: _write_safetensors(draft, parts, dict(metadata)))


def in_file_order(parts: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the names in the order in which `save_arrays` converts and writes their arrays: widest types first."""
    return sorted(parts, key=lambda name: (-np.dtype(parts[name][0].dtype).itemsize, name))


def _write_safetensors(path: Path, parts: Mapping[str, list[Any]], metadata: dict[str, str]) -> None:
    """Write the safetensors format: header length, JSON header, arrays one after the other (widest types first)."""
    header: dict[str, Any] = {"__metadata__": {CHECKSUM: NO_CHECKSUM, **metadata}}
    order, offset = in_file_order(parts), 0
    for name in order:
        first, dtype = parts[name][0], np.dtype(parts[name][0].dtype)
        rows = sum(part.shape[0] for part in parts[name]) if first.shape else 0
        shape = [rows, *first.shape[1:]] if first.shape else []
        end = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if dtype.name not in SAFETENSORS_TYPES:
            raise RunFolderError(f"{path.name}: {name} has the type {dtype.name}, which cannot be stored")
        header[name] = {"dtype": SAFETENSORS_TYPES[dtype.name], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        start = len(text).to_bytes(8, "little") + text
        file.write(start)
        checksum = zlib.crc32(start)
        for name in order:
            for part in parts[name]:
                for block in part.blocks() if hasattr(part, "blocks") else (part,):
                    array = np.ascontiguousarray(block)
                    little = array if sys.byteorder == "little" else array.byteswap()
                    content = little.reshape(-1).view(np.uint8).data
                    file.write(content)
                    checksum = zlib.crc32(content, checksum)
        file.seek(start.index(_checksum_entry(NO_CHECKSUM)))
        file.write(_checksum_entry(f"{checksum:08x}"))


def _checksum_entry(checksum: str) -> bytes:
    return f'"{CHECKSUM}": "{checksum}"'.encode()


class ArrayFile(Mapping[str, np.ndarray[Any, Any]]):
    """The named arrays of a safetensors file, each read when it is asked for.

    Raises:
        RunFolderError: If the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            file: Any = safe_open(path, framework="numpy")
            self._file, self.metadata, self._names = file, dict(file.metadata() or {}), list(file.keys())
            self._checksum = self.metadata.pop(CHECKSUM, None)
        except (OSError, SafetensorError) as error:
            raise RunFolderError(f"{path}: cannot be read ({error})") from error

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._names:
            raise KeyError(name)
        try:
            return self._file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise RunFolderError(f"{self.path}: cannot be read ({error})") from error

    def check(self) -> None:
        """Raise RunFolderError if the content of the file does not match its checksum, if it has one."""
        if self._checksum is None:  # written by an earlier version
            return
        try:
            with self.path.open("rb") as file:
                size = file.read(8)
                start = size + file.read(int.from_bytes(size, "little"))
                entry, blank = _checksum_entry(self._checksum), _checksum_entry(NO_CHECKSUM)
                checksum = zlib.crc32(start.replace(entry, blank, 1))
                while block := file.read(BYTES_AT_ONCE):
                    checksum = zlib.crc32(block, checksum)
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be read ({error})") from error
        if f"{checksum:08x}" != self._checksum:
            raise RunFolderError(f"{self.path}: damaged (its content does not match its checksum)")

    def mapped(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return an array as a view of the file, of which only the parts that are used are read; None if missing."""
        if name not in self._names:
            return None
        entry, start = self._header[0][name], self._header[1]
        if entry["dtype"] == "BF16":
            import ml_dtypes  # registers the type with NumPy

            dtype = np.dtype(ml_dtypes.bfloat16)
        else:
            dtype = np.dtype(next(name for name, code in SAFETENSORS_TYPES.items() if code == entry["dtype"]))
        begin, end = entry["data_offsets"]
        if begin == end:
            return np.zeros(entry["shape"], dtype)
        try:
            view = np.memmap(self.path, np.uint8, mode="r", offset=start + begin, shape=(end - begin,))
        except OSError as error:
            raise RunFolderError(f"{self.path}: cannot be read ({error})") from error
        return np.asarray(view).view(dtype.newbyteorder("<")).reshape(entry["shape"])

    @cached_property
    def _header(self) -> tuple[dict[str, Any], int]:
        """The header, whose validity was checked when the file was opened, and where the arrays begin."""
        with self.path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return json.loads(file.read(size)), 8 + size

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Return all named arrays and the metadata of a safetensors file; raise RunFolderError if it is damaged."""
    file = ArrayFile(path)
    file.check()
    return dict(file), file.metadata


def save_npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Save named arrays as a compressed .npz file, atomically."""

    def write(draft: Path) -> None:
        with draft.open("wb") as file:
            np.savez_compressed(file, **arrays)

    write_atomically(path, write)


def load_npz(
    path: Path, names: Sequence[str], defaults: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> list[np.ndarray[Any, Any]]:
    """Return named arrays of a .npz file.

    Args:
        path: The file to read; pickled content is rejected.
        names: The arrays to return, in this order.
        defaults: Arrays to use for names that the file does not contain.

    Raises:
        RunFolderError: If the file cannot be read, is larger than MAX_NPZ_BYTES, or lacks an array that has no default.
    """
    optional = defaults or {}
    try:
        content = {**optional, **read_npz(path, limit=MAX_NPZ_BYTES, names=names)}
        return [content[name] for name in names]
    except (*DECOMPRESSION_ERRORS, ValueError, KeyError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from error
