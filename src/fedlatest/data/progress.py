"""Who hears how far a long piece of work is."""

from collections.abc import Callable
from functools import partial

Told = Callable[[int, int | None], None]  # how many bytes are done, and of how many if that is known
ProgressCallback = Callable[[str, int, int | None], None]  # the same, after what is being done


def about(on_progress: ProgressCallback | None, what: str) -> Told | None:
    """Tell the on_progress, if there is one, about one piece of work.

    >>> told = about(print, "reading tweets")
    >>> told(10, 200)
    reading tweets 10 200
    """
    return partial(on_progress, what) if on_progress else None
