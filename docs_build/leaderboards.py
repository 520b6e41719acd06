"""A hook of MkDocs that shades the cells of leaderboards and lets their first column stay in view.

The tables of docs/leaderboards.md are plain Markdown, as `fedlatest arena` writes them. The comment before a table
marks it as a leaderboard, and names what those columns show that are named after availability cases.
"""

import re
from xml.etree import ElementTree

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from fedlatest.report.leaderboard_shades import shades

TABLE = re.compile(r"<!-- leaderboard(?:: (?P<measure>[^>]+?))? -->\s*(?P<table><table>.*?</table>)", re.DOTALL)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with shaded leaderboards."""
    del page, config, files
    return TABLE.sub(lambda found: shaded(found["table"], found["measure"] or ""), html)


def shaded(html: str, measure: str) -> str:
    """Return a table as HTML in a box that scrolls, with the classes near-0 to near-3 for cells near to the best.

    Args:
        html: The table that Markdown made.
        measure: What the columns after the mean rank, or else after the method, show; "" if their heads say it.

    >>> head = "<thead><tr><th>method</th><th>mean rank</th><th>always</th></tr></thead>"
    >>> rows = "<tr><td>A</td><td>1</td><td><strong>0.92</strong></td></tr><tr><td>B</td><td>2</td><td>0.91</td></tr>"
    >>> found = shaded(f"<table>{head}<tbody>{rows}</tbody></table>", "test accuracy")
    >>> re.findall('<td class="([^"]+)">(.*?)</td>', found)
    [('near-0', '<strong>0.92</strong>'), ('near-1', '0.91')]
    """
    table = ElementTree.fromstring(html)
    table.set("class", "leaderboard")
    head = ["".join(cell.itertext()) for cell in table.iter("th")]
    measures = [measure if measure and name not in ("method", "mean rank") else name for name in head]
    rows = [row.findall("td") for row in table.iterfind("tbody/tr")]
    levels = shades(measures, [["".join(cell.itertext()) for cell in row] for row in rows])
    for cells, row in zip(rows, levels, strict=True):
        cells[0].tag = "th"
        cells[0].set("scope", "row")
        for cell, level in zip(cells, row, strict=True):
            if level is not None:
                cell.set("class", f"near-{level}")
    text = ElementTree.tostring(table, encoding="unicode", method="html")
    return f'<div class="leaderboard" tabindex="0" role="region" aria-label="Leaderboard">{text}</div>'
