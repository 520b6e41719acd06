"""Where files lie: data in the folder that the user names; downloads and compiled kernels in the cache."""

import os
from pathlib import Path

DATA, CACHE = "FEDLATEST_DATA", "FEDLATEST_CACHE"  # names of environment variables


def named_folder(folder: Path | str | None) -> Path | None:
    """The folder given, or else the one that the environment's FEDLATEST_DATA names; None if there is neither."""
    named = folder or os.environ.get(DATA)
    return Path(named) if named else None


def cache_folder() -> Path:
    """Where downloads and parsed files are kept: FEDLATEST_CACHE, or the system's place for caches."""
    named = os.environ.get(CACHE)
    if named:
        return Path(named)
    import pooch  # slow to import, and only this needs it

    return Path(pooch.os_cache("fedlatest"))
