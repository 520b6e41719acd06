"""An extension of griffe, which reads the docstrings for the reference: examples and comments of fields.

Docstrings end with doctests, which Markdown would show as quotations, and most fields of a NamedTuple are described in
a comment at the end of the line.
"""

import re
from pathlib import Path
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

EXAMPLE = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"[^#]*#\s+(?P<text>[^\"']+)$")


class ReadableDocstrings(Extension):
    """Marks doctests as code and takes comments at the end of a line as the docstring of a field."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = mark_examples(obj.docstring.value)
        elif isinstance(obj, Attribute) and obj.lineno is not None and isinstance(obj.filepath, Path):
            comment = COMMENT.match(obj.filepath.read_text(encoding="utf-8").splitlines()[obj.lineno - 1])
            if comment is not None:
                text = comment["text"].strip()
                obj.docstring = Docstring(f"{text[0].upper()}{text[1:]}", parent=obj, lineno=obj.lineno)


def mark_examples(text: str) -> str:
    r"""Return a docstring whose doctests are fenced code blocks.

    >>> mark_examples("Return 2.\n\n>>> two()\n2\n")
    'Return 2.\n\n```pycon\n>>> two()\n2\n```\n'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
