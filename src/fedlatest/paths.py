"""Locations of files: the data folder given by the user, and the cache for downloads and compiled kernels."""

import os
from pathlib import Path

DATA, CACHE = "FEDLATEST_DATA", "FEDLATEST_CACHE"  # names of environment variables


def data_folder(folder: Path | str | None) -> Path | None:
    """Return `folder`, or the folder in the environment variable FEDLATEST_DATA, or None if neither is set."""
    chosen = folder or os.environ.get(DATA)
    return Path(chosen) if chosen else None


def cache_folder() -> Path:
    """Return the folder for downloads, parsed files and compiled kernels.

    This is the environment variable FEDLATEST_CACHE, or else the cache folder of the operating system.
    """
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen)
    import pooch  # slow to import and only needed here

    return Path(pooch.os_cache("fedlatest"))
