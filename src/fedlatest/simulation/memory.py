"""How much memory a device has left, and how much a tree of arrays takes."""

import os
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
