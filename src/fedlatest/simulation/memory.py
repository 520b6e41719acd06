"""How much memory a device has left, and how much a tree of arrays takes."""

import os
from pathlib import Path
from typing import Any

import jax

CGROUP_LIMITS = (  # version 2, then version 1: limit, usage, and the key of reclaimable file cache in memory.stat
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)


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
    device = jax.devices()[0]
    if device.platform != "cpu":
        statistics = device.memory_stats() or {}
        limit = statistics.get("bytes_limit")
        return None if limit is None else int(limit) - int(statistics.get("bytes_in_use", 0))
    found = [room for room in (_system_room(root), _cgroup_room(root)) if room is not None]
    return min(found, default=None)


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
    folder = root / "sys/fs/cgroup"
    for limit, usage, reclaimable in CGROUP_LIMITS:
        try:
            allowed, used = ((folder / name).read_text().strip() for name in (limit, usage))
        except OSError:
            continue
        if not allowed.isdigit():  # "max": no limit
            continue
        return int(allowed) - int(used) + _statistic((folder / limit).with_name("memory.stat"), reclaimable)
    return None


def _statistic(path: Path, key: str) -> int:
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return 0
    return next((int(value) for name, value in lines if name == key), 0)
