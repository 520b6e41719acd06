"""One line about the machine that a benchmark ran on."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

VECTOR_FLAGS = ("avx2", "fma", "avx512f", "avx512_vnni", "amx_tile", "asimd", "sve")


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_one_core() -> None:
    """Pin this process to the first core that it may use, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


@contextmanager
def one_core() -> Iterator[None]:
    """Pin this thread, and the processes that it starts, to the first core while the context lasts."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    use_one_core()
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def describe_machine() -> str:
    """Return CPU, cores, vector instructions, load, versions and date."""
    facts = _cpu_facts()
    name = facts.get("model name") or platform.processor() or platform.machine()
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    vectors = ", ".join(flag for flag in VECTOR_FLAGS if flag in flags) or "vector instructions unknown"
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    return (
        f"{name} ({num_cores()} cores; {vectors}), {load} when started, Python {platform.python_version()}, "
        f"JAX {version('jax')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    )


def _cpu_facts() -> dict[str, str]:
    """Return the first processor's lines of /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
