"""The identity of a job: its configuration and the layout of its model, which server and clients must share."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fedlatest.errors import ConfigError
from fedlatest.ledger.participation import check_privacy

Arrays = Mapping[str, npt.NDArray[Any]]
Memory = Literal["client", "server", "none"]
_OPTIONAL = {
    "privacy",
    "secure",
}  # settings that are left out if they are None: hashes of jobs without them do not change


@dataclass(frozen=True)
class JobConfig:
    """The settings of a job that cannot change while it exists; servers and clients with other settings are rejected.

    The field names are stored in the ledger and sent to clients: renaming one makes existing jobs unreadable.

    Args:
        algorithm: name of the algorithm.
        settings: settings of the algorithm.
        memory: where the clients' latest updates are stored: "client", on each client's disk only; "server", at the
            server as well; "none", nowhere, for an algorithm without remembered state.
        unit: step of the fixed-point numbers: updates are rounded to multiples of it.
        clip_norm: scale updates down to at most this Euclidean norm; None for no limit.
        seed: seed of the random choices at the server.
        weighs: whether clients send their update times their weight (number of samples).
        secure: settings of secure aggregation (`SecureAggregation`); None if uploads are not masked.
        privacy: settings of differential privacy; None for a job without. `rounds`, `min_separation` and
            `max_participations` are required, and the ledger enforces them. With `share_metrics`, clients send the
            metrics of their training, which are not private. The others describe the noise.

    Raises:
        ConfigError: a setting is out of range.
    """

    algorithm: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    memory: Memory = "client"
    unit: float = 2.0**-16
    clip_norm: float | None = None
    seed: int = 0
    weighs: bool = False
    secure: Mapping[str, Any] | None = None
    privacy: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.memory not in get_args(Memory):
            raise ConfigError(f"memory={self.memory!r}: choose one of {', '.join(get_args(Memory))}")
        if not 2.0**-40 <= self.unit <= 2.0**10:
            raise ConfigError(f"unit={self.unit}: must be between 2^-40 and 2^10")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm={self.clip_norm}: must be above 0, or None for no clipping")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed={self.seed}: must be between 0 and 2^32 - 1")
        if self.secure is not None and self.memory == "server":
            raise ConfigError("memory='server': with secure aggregation the server cannot store single updates")
        if self.privacy is not None:
            check_privacy(self.privacy, self.clip_norm)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values for JSON; 10 and 10.0 give the same result."""
        clip_norm = None if self.clip_norm is None else float(self.clip_norm)
        values = {**asdict(self), "settings": dict(self.settings), "unit": float(self.unit), "clip_norm": clip_norm}
        return {name: value for name, value in values.items() if value is not None or name not in _OPTIONAL}

    @property
    def hash(self) -> str:
        """A hash of the settings that is the same on every machine."""
        return hash_of(self.as_dict())


class ArraySpec(NamedTuple):
    """Name, shape and type of one array of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Layout(NamedTuple):
    """The arrays of a model, in the model's order.

    Training changes the floating-point arrays. Integer arrays, such as the step counter of a batch normalisation, stay
    as they are.
    """

    specs: tuple[ArraySpec, ...]

    @classmethod
    def of(cls, arrays: Arrays) -> "Layout":
        """Return the layout of a model.

        >>> Layout.of({"w": np.zeros((2, 3), np.float32)}).size
        6
        """
        found = {name: np.asarray(array) for name, array in arrays.items()}
        for name, array in found.items():
            if array.dtype.kind not in "fiu":
                raise ConfigError(f"array {name} is of type {array.dtype}: a model's arrays must be float or integer")
        return cls(tuple(ArraySpec(name, tuple(array.shape), array.dtype.str) for name, array in found.items()))

    @property
    def trained(self) -> tuple[ArraySpec, ...]:
        """The arrays that training changes, in the order in which `flatten` joins them: sorted by name."""
        return tuple(sorted(spec for spec in self.specs if np.dtype(spec.dtype).kind == "f"))

    @property
    def size(self) -> int:
        """The number of trained numbers, which is the length of `flatten`'s result."""
        return sum(_size(spec) for spec in self.trained)

    @property
    def hash(self) -> str:
        """A hash of the layout that is the same on every machine and for every order of the arrays."""
        return hash_of(sorted(list(spec) for spec in self.specs))

    def flatten(self, arrays: Arrays) -> npt.NDArray[np.float32]:
        """Join all trained arrays into one of shape [size], in single precision; `arrays` may be in any order."""
        found = Layout.of(arrays)
        if sorted(found.specs) != sorted(self.specs):
            raise ConfigError(f"the model is not the job's: its layout is {found.hash}, the job's {self.hash}")
        if not self.trained:
            raise ConfigError("the model has no floating-point array: there is nothing to train")
        return np.concatenate([np.asarray(arrays[spec.name], np.float32).reshape(-1) for spec in self.trained])

    def untrained(self, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that training does not change."""
        return {spec.name: np.asarray(arrays[spec.name]) for spec in self.specs if spec not in self.trained}

    def unflatten(self, flat: npt.NDArray[Any], untrained: Arrays) -> dict[str, npt.NDArray[Any]]:
        """Return the model with the trained numbers `flat`, in the model's shapes, types and order."""
        ends = np.cumsum([_size(spec) for spec in self.trained])
        trained = {
            spec.name: flat[end - _size(spec) : end].reshape(spec.shape).astype(spec.dtype)
            for spec, end in zip(self.trained, ends, strict=True)
        }
        return {spec.name: trained[spec.name] if spec.name in trained else untrained[spec.name] for spec in self.specs}


def hash_of(value: Any) -> str:
    """Return a hash of 128 bits of a value that JSON can represent.

    >>> hash_of({"b": 1, "a": 2}) == hash_of({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def _size(spec: ArraySpec) -> int:
    return int(np.prod(spec.shape, dtype=np.int64))
