"""The console of the commands, which prints text from users, clients and files as it is.

rich would interpret `[...]` in such text as markup, and raises MarkupError for a text such as `no samples in [/data]`.
Terminals would execute its control characters.
"""

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment

WIDTH_OF_FILES = 240  # characters in a line of a table that is not shown on a terminal
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all control characters except tab and line feed


class PlainConsole(Console):
    """A console without markup and emoji codes that prints control characters in escaped form, such as `\\x1b`.

    Styles are given by `style=` or by `rich.text.Text`; those, and the movements of live displays, are not changed.
    """

    def __init__(self, **options: Any) -> None:
        self._has_width = "width" in options
        super().__init__(markup=False, emoji=False, **options)

    @property
    def size(self) -> ConsoleDimensions:
        """The size of the terminal; without one, a row of a table has one line, whatever its length."""
        width, height = super().size
        return ConsoleDimensions(width if self.is_terminal or self._has_width else WIDTH_OF_FILES, height)

    @size.setter
    def size(self, size: tuple[int, int]) -> None:
        self._has_width, (self._width, self._height) = True, size

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object with all control characters in its text escaped."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_control(segment.text), segment.style)


def escape_control(text: str) -> str:
    r"""Replace control characters, except tabs and line feeds, by escape sequences that a terminal prints.

    >>> escape_control("\x1b[2J no samples in [/data]")
    '\\x1b[2J no samples in [/data]'
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
