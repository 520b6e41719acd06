r"""An extension of griffe: formulas in docstrings, such as `x = x + (1/|S|) \sum_{i in S} u_i`, become HTML.

An indented block between blank lines is a formula; a line may end with a remark after four spaces or more.
"""

import html
import re
from typing import Any

from griffe import Extension, Object

BLOCK = re.compile(r"(?<=\n\n)(?:    +\S.*(?:\n|\Z))+(?=\n|\Z)")
GREEK = ("alpha", "beta", "gamma", "eta", "lambda", "pi", "tau", "omega")
SYMBOLS = {
    r"\sum": "&sum;", "&lt;=": "&le;", "&gt;=": "&ge;", "-&gt;": "&rarr;", " * ": " &middot; ", " - ": " &minus; ",
    "sqrt(": "&radic;(", "sqrt ": "&radic;", "v^)": "v&#770;)", " m^ ": " m&#770; ",
}  # fmt: skip
INDEX = r"\{[^{}]*\}|[A-Za-z0-9]+"
INDICES = re.compile(rf"((?<![A-Za-z_])[A-Za-z]|&\w+;|\bmax(?=_[a-z]\b))((?:_(?:{INDEX}))+)")
POWER = re.compile(r"\^(?:\{([^{}]*)\}|\(([^()]*)\)|(\w+|\*))")
TAG_OR_LETTER = re.compile(r"(<[^>]*>|&#?\w+;|\ba (?=[a-z]{2}))|(?<![\w'])([A-Za-z])(?!\w)")


class Formulas(Extension):
    """Shows the formulas of docstrings as mathematics."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        del kwargs
        if obj.docstring is not None:
            obj.docstring.value = with_formulas(obj.docstring.value)


def with_formulas(text: str) -> str:
    r"""Return a docstring whose formulas are tables in HTML: left side, right side, remark.

    >>> print(with_formulas("Add u.\n\n    x = x + u_i    for i in S\n\nDone."))
    Add u.
    <BLANKLINE>
    <table class="formula">
    <tr><td><i>x</i></td><td>= <i>x</i> + <i>u</i><sub><i>i</i></sub></td><td>for <i>i</i> &isin; <i>S</i></td></tr>
    </table>
    <BLANKLINE>
    Done.
    """

    def table(block: re.Match[str]) -> str:
        rows = "\n".join(_row(line) for line in block[0].splitlines())
        return f'<table class="formula">\n{rows}\n</table>\n'

    return BLOCK.sub(table, text)


def formula(text: str) -> str:
    r"""Return a formula as HTML: Greek letters, sums, indices and powers.

    >>> formula(r"\sum_{b=1}^{B} (1 + tau_b)^{-a}")
    '&sum;<sub><i>b</i>=1</sub><sup><i>B</i></sup> (1 + &tau;<sub><i>b</i></sub>)<sup>-<i>a</i></sup>'
    >>> formula("server_step u_i_new >= a real number^(1/4)")
    'server_step <i>u</i><sub><i>i</i>,new</sub> &ge; a real number<sup>1/4</sup>'
    """
    found = html.escape(text, quote=False)
    found = re.sub(rf"(?<![A-Za-z_])({'|'.join(GREEK)})(?![A-Za-z])", r"&\1;", found)
    for name, symbol in SYMBOLS.items():
        found = found.replace(name, symbol)
    found = re.sub(r"\b([a-z]) in (?=[A-Z{])", r"\1 &isin; ", found)
    found = POWER.sub(r"<sup>\1\2\3</sup>", INDICES.sub(_with_indices, found))
    found = TAG_OR_LETTER.sub(lambda part: part[1] or f"<i>{part[2]}</i>", found)
    return re.sub(r" {2,}", "&emsp;", found)


def _row(line: str) -> str:
    left, equals, rest = re.findall(r"^(?:(.+?) *(?: (= )|  ))?(.*)$", line.strip())[0]
    right, *remarks = re.split(r" {4,}", rest)
    cells = [formula(left), equals + formula(right), " ".join(map(formula, remarks))]
    return f"<tr>{''.join(f'<td>{cell.strip()}</td>' for cell in cells)}</tr>"


def _with_indices(found: re.Match[str]) -> str:
    """Return a name with its indices below it: `_i_new` as `i,new`."""
    parts = (part.strip("{}") for part in re.findall(INDEX, found[2]))
    return f"{found[1]}<sub>{','.join(INDICES.sub(_with_indices, part) for part in parts)}</sub>"
