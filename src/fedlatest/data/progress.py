"""Types of the callbacks that report the progress of loading a data set."""

from collections.abc import Callable
from functools import partial

ProgressCallback = Callable[[str, int, int | None], None]  # (task, bytes done, bytes in total or None if unknown)
BytesCallback = Callable[[int, int | None], None]  # the same for one task: (bytes done, bytes in total or None)


def for_task(on_progress: ProgressCallback | None, task: str) -> BytesCallback | None:
    """Return a callback that reports the progress of one task to `on_progress`, or None if that is None.

    >>> on_bytes = for_task(print, "reading tweets")
    >>> on_bytes(10, 200)
    reading tweets 10 200
    """
    return partial(on_progress, task) if on_progress else None
