"""What a job is: the settings that server and clients must share for as long as it lives."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError

Memory = Literal["client", "server", "none"]


@dataclass(frozen=True)
class JobConfig:
    """The identity of a job beside its model; a server or client with another is refused.

    `memory` says where clients' latest values are kept: on their own disks, at the server as well (a copy a client), or
    nowhere for an algorithm that remembers nothing. `unit` is the grid's step: values are whole multiples of it.
    `weighs` says whether clients send their updates times their samples.
    """

    algorithm: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: Memory = "client"
    unit: float = 2.0**-16
    clip_norm: float | None = None
    seed: int = 0
    weighs: bool = False

    def __post_init__(self) -> None:
        if self.memory not in get_args(Memory):
            raise ConfigError(f"memory={self.memory!r}: choose one of {', '.join(get_args(Memory))}")
        if not 2.0**-40 <= self.unit <= 2.0**10:
            raise ConfigError(f"unit={self.unit}: the grid's step is in 2^-40 .. 2^10")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm={self.clip_norm}: must be above 0, or None for no clipping")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed={self.seed}: a seed is in 0 .. 2^32 - 1")

    def as_dict(self) -> dict[str, Any]:
        """As JSON writes it; 10 and 10.0 are the same limit."""
        clip_norm = None if self.clip_norm is None else float(self.clip_norm)
        return {**asdict(self), "settings": dict(self.settings), "unit": float(self.unit), "clip_norm": clip_norm}

    @property
    def hash(self) -> str:
        """A name for it that is the same on every machine."""
        return hash_of(self.as_dict())


Arrays = Mapping[str, npt.NDArray[Any]]


class Place(NamedTuple):
    """One array of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Layout(NamedTuple):
    """The arrays of a model in their order. Whole numbers, such as the counter of a batch norm, are not trained."""

    places: tuple[Place, ...]

    @classmethod
    def of(cls, arrays: Arrays) -> "Layout":
        """Read it off a model.

        >>> Layout.of({"w": np.zeros((2, 3), np.float32)}).size
        6
        """
        for name, array in arrays.items():
            if np.asarray(array).dtype.kind not in "fiu":
                raise ConfigError(f"array {name} is of type {np.asarray(array).dtype}: a model is made of numbers")
        found = [Place(name, tuple(array.shape), array.dtype.str) for name, array in _as_arrays(arrays).items()]
        return cls(tuple(found))

    @property
    def trained(self) -> tuple[Place, ...]:
        """The arrays that training moves, as they lie in a vector: by name, in whatever order a model has them."""
        return tuple(sorted(place for place in self.places if np.dtype(place.dtype).kind == "f"))

    @property
    def size(self) -> int:
        """How many numbers training moves."""
        return sum(_size(place) for place in self.trained)

    @property
    def hash(self) -> str:
        """A name for it that is the same on every machine, in whatever order the arrays come."""
        return hash_of(sorted(list(place) for place in self.places))

    def flatten(self, arrays: Arrays) -> npt.NDArray[np.float32]:
        """All trained numbers in a row, in single precision; the arrays may come in another order."""
        found = Layout.of(arrays)
        if sorted(found.places) != sorted(self.places):
            raise ConfigError(f"the model is not the job's: its layout is {found.hash}, the job's {self.hash}")
        if not self.trained:
            raise ConfigError("the model holds no array of floating point numbers: there is nothing to train")
        return np.concatenate([np.asarray(arrays[place.name], np.float32).reshape(-1) for place in self.trained])

    def fixed(self, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
        """The arrays that training leaves alone."""
        return {place.name: np.asarray(arrays[place.name]) for place in self.places if place not in self.trained}

    def unflatten(self, vector: npt.NDArray[Any], fixed: Arrays) -> dict[str, npt.NDArray[Any]]:
        """The model whose trained numbers lie in a vector, in its own shapes, types and order."""
        ends = np.cumsum([_size(place) for place in self.trained])
        moved = {
            place.name: vector[end - _size(place) : end].reshape(place.shape).astype(place.dtype)
            for place, end in zip(self.trained, ends, strict=True)
        }
        return {place.name: moved[place.name] if place.name in moved else fixed[place.name] for place in self.places}


def hash_of(value: Any) -> str:
    """A short digest of anything that JSON can write.

    >>> hash_of({"b": 1, "a": 2}) == hash_of({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _as_arrays(arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    return {name: np.asarray(array) for name, array in arrays.items()}


def _size(place: Place) -> int:
    return int(np.prod(place.shape, dtype=np.int64))
