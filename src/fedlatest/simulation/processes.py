"""Several processes that run one simulation together, on one or several hosts (`jax.distributed`).

Every process runs the same program on its own devices. Only the first one reads and writes the run folder; the others
receive what it read. With a single process nothing is exchanged.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedlatest.errors import ConfigError, FedlatestError, ProcessError

CONNECT_SECONDS = 300  # how long a process waits for the others at the start
MAX_THREADS = 16  # that write run folders
HEARTBEAT_SECONDS = 30  # a process that does not respond for so long counts as dead

Value = TypeVar("Value")
_block_numbers = count()


def connect(coordinator: str | None = None, num_processes: int | None = None, process: int | None = None) -> None:
    """Connect this process to the others; must be called before JAX is used.

    Args:
        coordinator: Address and port of the first process, such as "node1:5000". If all arguments are left out, they
            are taken from the environment of Slurm or Open MPI.
        num_processes: How many processes there are.
        process: The number of this process, 0 .. num_processes - 1.

    Raises:
        ConfigError: If the arguments are incomplete and the environment does not provide them.
        ProcessError: If the other processes do not connect in time.
    """
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process,
            initialization_timeout=CONNECT_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"the hosts cannot be connected ({error}); give the address of the coordinator, the number of hosts and "
            "the number of this one, or start the processes with srun or mpirun"
        ) from error
    except RuntimeError as error:
        raise ProcessError(f"the processes could not connect ({_first_line(error)})") from error
    with clear_errors():
        open_connections(Mesh(np.array(jax.devices()), ("devices",)))


def open_connections(mesh: Mesh) -> None:
    """Let the processes exchange a number over the devices of a mesh, and among themselves.

    JAX connects the processes at their first exchange and gives up if one of them arrives 30 seconds after another.
    That would happen if they first had to load data or to compile a program.
    """
    if jax.process_count() > 1:
        [axis], everywhere = mesh.axis_names, NamedSharding(mesh, PartitionSpec())
        ones = jax.make_array_from_callback((), everywhere, lambda index: np.int32(1))
        add = jax.shard_map(
            partial(jax.lax.psum, axis_name=axis),
            mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False,
        )  # fmt: skip
        jax.block_until_ready(jax.jit(add)(ones))
        in_any(False)
        _broadcast(np.int32(0))


def is_first() -> bool:
    """Return whether this is the process that reads and writes files and reports to the user."""
    return jax.process_index() == 0


def from_first(make: Callable[[], Value]) -> Value:
    """Return the value that the first process makes; only there the function is called.

    Args:
        make: Returns a value that JSON can express.

    Raises:
        FedlatestError: If the function raises one; it is then raised in every process.
        ProcessError: In the other processes, if the function raises any other exception in the first.
    """
    if jax.process_count() == 1:
        return make()
    answer: dict[str, Any] = {}
    failure: BaseException | None = None
    if is_first():
        try:
            answer = {"value": make()}
        except BaseException as error:  # the others wait for an answer
            failure = error
            answer = {"error": type(error).__name__, "message": str(error)}
    answer = json.loads(_broadcast_bytes(json.dumps(answer).encode()))
    if "error" in answer:
        raise failure or _same_error(answer["error"], answer["message"])
    return answer["value"]


def _same_error(name: str, message: str) -> FedlatestError:
    """Return the error that the first process has raised; a ProcessError if it is none of ours."""
    kinds = [FedlatestError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.__name__ == name:
            return kind(message)
    return ProcessError(f"the first process has stopped ({name}: {message})")


def in_any(*flags: bool) -> tuple[bool, ...]:
    """Return for each flag whether it is set in any process."""
    if jax.process_count() == 1:
        return flags
    every = multihost_utils.process_allgather(np.array(flags, np.int32))
    return tuple(bool(flag) for flag in np.any(every, axis=0))


def is_terminating() -> bool:
    """Return whether to stop because a process has received SIGTERM; all processes must call this after every block.

    JAX catches the signal if there are several processes, and agrees with the others on the next block.
    """
    if jax.process_count() == 1 or not jax.config.values["jax_enable_preemption_service"]:
        return False
    return multihost_utils.reached_preemption_sync_point(next(_block_numbers))


def arrays_from_first(tree: Any, like: Any) -> Any:
    """Return the NumPy arrays that the first process has; the others pass None.

    Args:
        tree: The arrays; only used in the first process.
        like: A tree of their shapes and types.
    """
    if jax.process_count() == 1:
        return tree
    if not is_first():
        tree = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    return jax.tree.map(_broadcast, tree)


def place(array: Any, like: jax.ShapeDtypeStruct, sharding: NamedSharding) -> jax.Array:
    """Return an array that the first process has as an array on all devices; the others pass None.

    Args:
        array: NumPy array [trials, rows, ...]; if it has fewer rows than the result, zeros follow.
        like: Shape and type of the result.
        sharding: How it is divided; a divided axis is the second.
    """
    held: list[jax.Array] = []
    indices = sharding.devices_indices_map(like.shape)
    for index in dict.fromkeys(map(_hashable, indices.values())):
        block = None
        shape = tuple(len(range(size)[slice(*part)]) for part, size in zip(index, like.shape, strict=True))
        if is_first():
            block = np.zeros(shape, like.dtype)
            found = np.asarray(array[tuple(slice(*part) for part in index)])
            block[tuple(slice(0, size) for size in found.shape)] = found
        block = arrays_from_first(block, jax.ShapeDtypeStruct(shape, like.dtype))
        held += [
            jax.device_put(block, device) for device, own in indices.items()
            if _hashable(own) == index and device in sharding.addressable_devices
        ]  # fmt: skip
    return jax.make_array_from_single_device_arrays(like.shape, sharding, held)


def fetch_rows(array: jax.Array, trial: int, first: int, *, size: int) -> np.ndarray[Any, Any]:
    """Return rows first .. first + size - 1 of one trial, [1, size, ...]; all processes must call this together.

    Args:
        array: [trials, rows, ...], divided along its second axis.
        trial: The trial.
        first: The first row.
        size: The number of rows.
    """
    assert isinstance(array.sharding, NamedSharding)
    everywhere = NamedSharding(array.sharding.mesh, PartitionSpec())
    return np.asarray(_cut(everywhere)(array, np.int32(trial), np.int32(first), size=size))


@contextmanager
def clear_errors() -> Iterator[None]:
    """Raise ProcessError instead of JAX's errors about a connection to a process that has ended."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1 or not any(word in str(error) for word in ("Gloo", "NCCL", "UNAVAILABLE")):
            raise
        raise ProcessError(
            f"process {jax.process_index()}: another process of this simulation has ended or cannot be reached "
            f"({_first_line(error)}); read its messages, then start all processes again with --resume"
        ) from error


@cache
def _cut(sharding: NamedSharding) -> Callable[..., jax.Array]:
    """Return a compiled function that returns some rows of one trial to where `sharding` says."""

    def cut(array: jax.Array, trial: jax.Array, first: jax.Array, *, size: int) -> jax.Array:
        begin: list[Any] = [trial, first, *[0] * (array.ndim - 2)]
        return jax.lax.dynamic_slice(array, begin, (1, size, *array.shape[2:]))

    return jax.jit(cut, static_argnames="size", out_shardings=sharding)


def _broadcast_bytes(content: bytes) -> bytes:
    size = int(_broadcast(np.int32(len(content))))
    own = np.frombuffer(content, np.uint8) if is_first() else np.zeros(size, np.uint8)
    return _broadcast(own).tobytes()


def _broadcast(array: Any) -> np.ndarray[Any, Any]:
    return np.asarray(multihost_utils.broadcast_one_to_all(array))


def _hashable(index: tuple[slice, ...]) -> tuple[tuple[int | None, int | None], ...]:
    return tuple((part.start, part.stop) for part in index)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def for_each(items: Sequence[Value], function: Callable[[Value], None]) -> None:
    """Call a function that reads or writes folders for each item, in threads: they mostly wait for the disk.

    With several processes the calls exchange messages, whose order must be the same everywhere: one after the other.
    """
    if len(items) == 1 or jax.process_count() > 1:
        for item in items:
            function(item)
        return
    with ThreadPoolExecutor(MAX_THREADS) as threads:
        list(threads.map(function, items))
