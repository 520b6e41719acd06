"""The page of an arena in a real browser: nothing is wider than the screen, and wide tables keep their first column."""

from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from fedlatest.report import write_page
from fedlatest.report.leaderboard import Leaderboard, write_arena
from tests.report.test_browser import browser, emulate, log, pytestmark
from tests.report.test_timed_leaderboard import rising, write_method

__all__ = ["browser", "pytestmark"]

METHODS = [f"fedlaavg_fresh-answers={number}" for number in range(4)]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of four methods in virtual time, whose tables have 15 columns, with a warning about the search."""
    root = tmp_path_factory.mktemp("arena")
    for method in METHODS:
        write_method(root, method, [rising(2), rising(3), rising(2)])
    trial = {"case": "case", "method": METHODS[0], "learning_rate": 0.0316, "server_step": 3.16, "score": 0.5}
    search = [{**trial, "best": True, "at_edge": True}]
    methods = dict.fromkeys(METHODS, "")
    write_arena(root, {"dataset": "x", "cases": {"case": "until=9"}, "methods": methods, "search": search})
    board = Leaderboard(root)
    return write_page(board.runs, root / "page.html", title="Arena", leaderboard=board)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_the_leaderboard_fits_the_screen(browser: webdriver.Chrome, arena: Path, width: int, scheme: str) -> None:
    """On a wide screen all columns are visible; on a phone tables scroll, and the method stays where it is."""
    emulate(browser, width=width, scheme=scheme)
    browser.get(arena.as_uri())
    found: dict[str, Any] = browser.execute_script("""
        for (const part of document.querySelectorAll("#leaderboard details")) part.open = true;
        const boxes = [...document.querySelectorAll("#leaderboard .wide")];
        const wide = boxes.map((box) => box.scrollWidth > box.clientWidth + 1);
        const left = () => boxes[3].querySelector("tbody th").getBoundingClientRect().left, before = left();
        boxes[3].scrollLeft = 300;
        const page = document.documentElement.scrollWidth;
        return { page, wide, scrolled: boxes[3].scrollLeft, before, after: left() };
    """)
    assert found["page"] <= width
    assert found["before"] == found["after"]
    assert found["wide"][3] == (width == 400)
    assert (found["scrolled"] > 0) == (width == 400)
    if width == 1400:
        assert not any(found["wide"])
    assert log(browser, "browser") == []
