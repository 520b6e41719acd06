"""Locations of files: the data folder given by the user, and the cache for downloads and compiled code."""

import os
import sys
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


def is_private(folder: Path) -> bool:
    """Return whether only this user can write to a folder, so that code in it may be executed; creates the folder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    if sys.platform == "win32":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK)
