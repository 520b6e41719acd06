"""How much memory a device has left, and how much a tree of arrays or a computation takes."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

CGROUP_FILES = {  # by version: limit, usage, and the key of reclaimable file cache in memory.stat
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def nbytes(tree: Any) -> int:
    """Return the size of all arrays, or shapes of arrays, in a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that this process may still use on the default device; None where that is not known.

    On a CPU this is what the system can give without swapping, within the limit of the control group (a container's
    limit) that the process runs in.

    Args:
        root: The root of the file system, for tests.
    """
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return available_host_bytes(root)
    limit, statistics = device_bytes(), device.memory_stats() or {}
    return None if limit is None else limit - int(statistics.get("bytes_in_use", 0))


def device_bytes() -> int | None:
    """Return how much memory JAX may use on the default device, an accelerator; None where that is not known."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return None if limit is None else int(limit)


def available_host_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory of the host that this process may still use; None where that is not known."""
    found = [room for room in (_system_room(root), _cgroup_room(root)) if room is not None]
    return min(found, default=None)


def peak_bytes(function: Callable[..., Any], *arguments: Any) -> int:
    """Return the largest total size of a function's intermediate results and outputs that are live at the same time.

    Every operation of the function's jaxpr counts as if it ran on its own; XLA fuses operations and usually needs less.

    Args:
        function: A function that JAX can trace.
        *arguments: Arrays, or shapes of arrays.

    >>> peak_bytes(lambda x: (x + 1) * 2, jax.ShapeDtypeStruct((1000,), "float32"))
    8000
    """
    return _peak(jax.make_jaxpr(function)(*arguments).jaxpr)


def _peak(jaxpr: Any) -> int:
    last_use = {var: number for number, equation in enumerate(jaxpr.eqns) for var in _variables(equation.invars)}
    last_use |= dict.fromkeys(_variables(jaxpr.outvars), len(jaxpr.eqns))
    made: dict[Any, int] = {}  # what is live, without the arguments
    peak = 0
    for number, equation in enumerate(jaxpr.eqns):
        inner = max((_peak(body) for body in _bodies(equation.params.values())), default=0)
        made |= {var: nbytes(var.aval) for var in equation.outvars}
        peak = max(peak, sum(made.values()) + inner)
        made = {var: size for var, size in made.items() if last_use.get(var, -1) > number}
    return peak


def _variables(atoms: Iterable[Any]) -> list[Any]:
    return [atom for atom in atoms if not hasattr(atom, "val")]  # literals are no variables


def _bodies(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the jaxprs among the parameters of an operation: bodies of loops, branches, called functions."""
    for value in values:
        if hasattr(value, "eqns"):
            yield value
        elif hasattr(value, "jaxpr"):
            yield value.jaxpr
        elif isinstance(value, tuple | list):
            yield from _bodies(value)


def _system_room(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
    values = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return values[0] if values else None


def _cgroup_room(root: Path) -> int | None:
    """Return what the tightest of the process's control group and the groups around it leaves."""
    rooms = [
        room
        for version, folder in _cgroup_folders(root)
        if (room := _room_in_group(folder, *CGROUP_FILES[version])) is not None
    ]
    return min(rooms, default=None)


def _cgroup_folders(root: Path) -> list[tuple[int, Path]]:
    """Return the folders, with their version, of the process's memory group and of all groups around it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/", "0:memory:/"]
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        version, top = (2, root / "sys/fs/cgroup") if controllers == "" else (1, root / "sys/fs/cgroup/memory")
        folder = top / path.strip("/")
        found += [(version, group) for group in (folder, *folder.parents) if group.is_relative_to(top)]
    return found


def _room_in_group(folder: Path, limit: str, usage: str, reclaimable: str) -> int | None:
    try:
        allowed, used = ((folder / name).read_text().strip() for name in (limit, usage))
    except OSError:
        return None
    if not allowed.isdigit():  # "max": no limit
        return None
    return int(allowed) - int(used) + _statistic(folder / "memory.stat", reclaimable)


def _statistic(path: Path, key: str) -> int:
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return 0
    return next((int(value) for name, value in lines if name == key), 0)
