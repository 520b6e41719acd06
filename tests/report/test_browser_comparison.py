"""Comparison of runs on the HTML page, in a real browser: table, overlay, axes, downloads, address and theme."""

import csv
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, quote

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from fedlatest.report import read_runs, write_page
from fedlatest.runs import RunFolder
from fedlatest.runs.run_folder import MANIFEST
from tests.report.recorded_runs import FOUR_CLIENTS, cohorts, finish, write_run
from tests.report.test_browser import browser, emulate, log, press, pytestmark, texts, visit, wait

__all__ = ["browser", "pytestmark"]

PERIODS = (4, 8, 16)
TWO_ROUNDS = FOUR_CLIENTS._replace(column_edges=np.array([0, 1, 2]))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedLaAvg and FedAvg with three periods and two seeds; a participation takes 2 MB and 1 MB."""
    root = tmp_path_factory.mktemp("runs")
    for period in PERIODS:
        for name, size in (("fedlaavg", 2_000_000), ("fedavg", 1_000_000)):
            folder = write_run(root / f"{name}-{period}", name, seeds=2, period=period)
            finish(folder, cohorts(*[[[0, 1], [1], [3], [0, 2]]] * 2))
            add_costs(folder, size)
    return write_page(read_runs([root]), root / "page.html")


def add_costs(folder: RunFolder, size: int) -> None:
    path = folder / MANIFEST
    path.write_text(path.read_text().replace('"seconds"', f'"costs": {{"up": {size}, "down": 0}}, "seconds"', 1))


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """The page, newly opened in light mode at 1280 pixels; downloads go to `tmp_path`."""
    emulate(browser, width=1280, scheme="light")
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    open_page(browser, page)
    yield browser
    assert log(browser, "browser") == []


def open_page(browser: webdriver.Chrome, page: Path, fragment: str = "") -> None:
    browser.get("about:blank")
    browser.get(page.as_uri() + fragment)


def names(browser: webdriver.Chrome) -> list[str]:
    """Return the names of the visible rows of the table."""
    rows = browser.find_elements(By.CSS_SELECTOR, "#summary tbody tr:not([hidden]) th")
    return [str(row.get_attribute("textContent")) for row in rows]


def choose(browser: webdriver.Chrome, selector: str, text: str) -> None:
    Select(browser.find_element(By.CSS_SELECTOR, selector)).select_by_visible_text(text)


def selected(browser: webdriver.Chrome) -> dict[str, list[str]]:
    """Return what the address says is selected."""
    fragment = browser.current_url.partition("#")[2]
    return parse_qs(fragment.partition("?")[2])


def downloaded(browser: webdriver.Chrome, path: Path) -> bytes:
    wait(browser, lambda: path.is_file() and path.stat().st_size)
    return path.read_bytes()


def test_table_is_sorted_by_a_column(opened: webdriver.Chrome) -> None:
    """The first press sorts numbers in descending order, the second in ascending, the third restores the order."""
    section = visit(opened, "runs", until="thead button")
    before = names(opened)
    header = '[data-column="value-period"]'
    order = [text.rpartition("=")[2] for text in before]
    assert sorted(order) == ["16", "16", "4", "4", "8", "8"]
    down = ["16", "16", "8", "8", "4", "4"]
    for direction, expected in (("descending", down), ("ascending", down[::-1])):
        press(section, f"{header} button")
        assert section.find_element(By.CSS_SELECTOR, header).get_attribute("aria-sort") == direction
        assert [text.rpartition("=")[2] for text in names(opened)] == expected
    press(section, f"{header} button")
    assert names(opened) == before
    press(section, '[data-column="run"] button')
    assert names(opened) == sorted(before)


def test_filter_applies_to_table_and_charts(opened: webdriver.Chrome) -> None:
    visit(opened, "curves")
    choose(opened, "#setting", "All settings")
    field = opened.find_element(By.ID, "filter")
    for text, count in (("fedavg", 3), ("period=8", 2), ("-fedavg period>4", 2), ("megabytes>7", 3), ("no such", 0)):
        field.clear()
        field.send_keys(text)
        assert len(names(opened)) == count, text
        assert len(opened.find_elements(By.CSS_SELECTOR, "#curves .plot .line")) == count, text
        assert texts(opened.find_element(By.ID, "runs"), ".count") == [f"{count} of 6 runs"]


def test_settings_are_overlaid(opened: webdriver.Chrome) -> None:
    """All settings in one chart: six lines, coloured by algorithm or by period."""
    curves = visit(opened, "curves")
    assert len(curves.find_elements(By.CSS_SELECTOR, ".plot .line")) == 2
    choose(opened, "#setting", "All settings")
    strokes = "return new Set([...document.querySelectorAll('#curves .line')].map(l => l.getAttribute('stroke'))).size"
    assert len(curves.find_elements(By.CSS_SELECTOR, ".plot .line")) == 6
    assert "FedAvg · period=16" in texts(curves, ".legend button")
    assert opened.execute_script(strokes) == 2
    choose(opened, "#curves .controls label:nth-of-type(2) select", "period")
    assert opened.execute_script(strokes) == 3
    wait(opened, lambda: selected(opened) == {"setting": ["*"], "colour": ["period"]})


def test_axes(opened: webdriver.Chrome) -> None:
    """Six participations take 6 MB with FedAvg and 12 MB with FedLaAvg; wall time is an axis too."""
    curves = visit(opened, "curves")
    axis = "#curves .controls label select"
    assert [option.text for option in Select(opened.find_element(By.CSS_SELECTOR, axis)).options] == [
        "rounds", "wall time", "bytes",
    ]  # fmt: skip
    choose(opened, axis, "bytes")
    assert "MB sent and received" in texts(curves, ".title")
    assert texts(curves, ".ranges output") == ["0", "12"]
    ends = "return [...document.querySelectorAll('#curves .line')].map(l => l.getBBox().x + l.getBBox().width)"
    far, near = sorted(opened.execute_script(ends), reverse=True)
    assert near < 0.6 * far
    choose(opened, axis, "wall time")
    assert "wall time (s)" in texts(curves, ".title")


def test_hyperparameter_against_a_number(opened: webdriver.Chrome) -> None:
    section = visit(opened, "parameters")
    assert texts(section, ".legend button") == ["FedAvg", "FedLaAvg"]
    assert len(section.find_elements(By.CSS_SELECTOR, ".plot circle")) == 6
    assert len(section.find_elements(By.CSS_SELECTOR, ".plot .line")) == 2
    assert texts(section, ".tick-x") == ["4", "8", "16"]
    assert "period" in texts(section, ".title")
    choose(opened, "#parameters .controls label:nth-of-type(1) select", "MB")
    assert "MB" in texts(section, ".title")
    choose(opened, "#parameters .controls label:nth-of-type(2) select", "algorithm")
    assert texts(section, ".tick-x") == ["FedAvg", "FedLaAvg"]
    assert len(section.find_elements(By.CSS_SELECTOR, ".plot circle")) == 6
    assert not section.find_elements(By.CSS_SELECTOR, ".plot .line")  # algorithms are no numbers: nothing joins them
    assert texts(section, ".legend button") == ["period=4", "period=8", "period=16"]


def test_values_that_span_decades_are_on_a_logarithmic_axis(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """0.001, 0.1 and 10 are equally far apart; a text and a truth value have points and no line."""
    for i, rate in enumerate((0.001, 0.1, 10.0)):
        finish(write_run(tmp_path / str(i), learning_rate=rate, augmentation="none", balanced=False))
    finish(write_run(tmp_path / "text", learning_rate=0.1, augmentation="crop", balanced=False))
    finish(write_run(tmp_path / "truth", learning_rate=0.1, augmentation="none", balanced=True))
    open_page(opened, write_page(read_runs([tmp_path]), tmp_path / "page.html"))
    section = visit(opened, "parameters")
    assert texts(section, ".tick-x") == ["0.001", "0.1", "10"]
    first, second, third = [float(str(x.get_attribute("x"))) for x in section.find_elements(By.CLASS_NAME, "tick-x")]
    assert second - first == pytest.approx(third - second, abs=15)  # the last text ends at the edge
    assert len(section.find_elements(By.CSS_SELECTOR, ".plot .line")) == 1
    for key, ticks in (("augmentation", ["crop", "none"]), ("balanced", ["false", "true"])):
        choose(opened, "#parameters .controls label:nth-of-type(2) select", key)
        assert texts(section, ".tick-x") == ticks
        assert len(section.find_elements(By.CSS_SELECTOR, ".plot circle")) == 2
        assert not section.find_elements(By.CSS_SELECTOR, ".plot .line")


def test_algorithms_with_keys_of_their_own_are_compared(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """A key of which each algorithm has one value does not keep the algorithms apart."""
    for name, key in (("fedlaavg", "oldest"), ("fedavg", "weighted"), ("fedprox", "weighted")):
        finish(write_run(tmp_path / name, name, selection=key))
    open_page(opened, write_page(read_runs([tmp_path]), tmp_path / "page.html"), "#parameters?key=algorithm")
    assert texts(visit(opened, "parameters"), ".tick-x") == ["FedAvg", "FedLaAvg", "FedProx"]


def cards(browser: webdriver.Chrome) -> dict[str, tuple[str, str]]:
    """Return value and detail of each headline number by its title."""
    found = browser.find_elements(By.CSS_SELECTOR, "#headline .card")
    return {texts(card, "span")[0]: (texts(card, "b")[0], "; ".join(texts(card, "small"))) for card in found}


def test_headline_follows_the_filter(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """Runs that are filtered out or hidden in the legend do not count; sequential SGD never counts as the best."""
    for name, rounds, largest in (("fedlaavg", 4, 3), ("fedavg", 2, 7), ("sequential", 6, 0)):
        folder = write_run(tmp_path / name, name, rounds=rounds, seeds=2)
        finish(folder, cohorts(*[[[0, 1], [1], [3], [0, 2]]] * 2), largest_staleness=largest)
    open_page(opened, write_page(read_runs([tmp_path]), tmp_path / "page.html"))
    best = "best late accuracy (federated runs)"
    note = "± 95% interval over 2 seeds"
    assert cards(opened)[best] == ("0.4050 ± 0.0635", f"FedLaAvg; {note}")
    assert cards(opened)["largest staleness"] == ("7 rounds", "FedAvg")
    assert cards(opened)["runs"] == ("3", "all finished")
    field = opened.find_element(By.ID, "filter")
    field.send_keys("fed")
    assert cards(opened)["best late accuracy (selected runs)"] == ("0.4050 ± 0.0635", f"FedLaAvg; {note}")
    assert cards(opened)["runs"] == ("2 of 3", "all finished")
    press(visit(opened, "curves"), '.legend [data-key="fedlaavg"]')
    assert cards(opened)["late accuracy"] == ("0.2050 ± 0.0635", f"FedAvg; {note}")
    field.send_keys(" nothing")
    assert cards(opened) == {"runs": ("0 of 3", "all finished")}


def test_theory_columns_are_behind_a_switch(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """E and the bound are hidden at first; what they mean is said in the heading and below the table."""
    finish(write_run(tmp_path / "a"), smallest_e=5, staleness_bound=9)
    page = write_page(read_runs([tmp_path]), tmp_path / "page.html")
    open_page(opened, page)
    section = visit(opened, "runs", until="thead button")
    columns = [section.find_element(By.CSS_SELECTOR, f'[data-column="{name}"]') for name in ("smallest_e", "bound")]
    assert not any(column.is_displayed() for column in columns)
    press(section, "#theory")
    assert all(column.is_displayed() for column in columns)
    assert "Assumption 4" in str(columns[0].get_attribute("title"))
    assert "Lemma 1" in str(columns[1].get_attribute("title"))
    assert {"E", "bound I"} < set(texts(section, "dt"))
    wait(opened, lambda: selected(opened) == {"theory": ["shown"]})
    open_page(opened, page, "#runs?theory=shown")
    assert "bound I" in visit(opened, "runs", until="thead button").text
    finish(write_run(tmp_path / "b/none"))
    open_page(opened, write_page(read_runs([tmp_path / "b"]), tmp_path / "page.html"), "#runs?theory=shown")
    assert not opened.find_elements(By.ID, "theory")
    assert "bound I" not in visit(opened, "runs", until="thead button").find_element(By.TAG_NAME, "thead").text


@pytest.mark.parametrize("rounds", [0, 2])
def test_axes_of_rounds_have_integers(opened: webdriver.Chrome, tmp_path: Path, rounds: int) -> None:
    """After one or two evaluations the axes have no round -1 and no round twice."""
    folder = write_run(tmp_path / "a", rounds=rounds)
    folder.describe(TWO_ROUNDS)
    open_page(opened, write_page(read_runs([tmp_path]), tmp_path / "page.html"))
    assert texts(visit(opened, "curves"), ".tick-x") == [str(round) for round in range(rounds + 1)]
    picture = texts(visit(opened, "availability"), ".plot text")
    assert picture == ["0", "1", "0", "1", "2", "round", "clients by label"]
    if rounds:
        staleness = texts(visit(opened, "staleness"), ".chart .plot .tick-y")
        assert [tick for tick in staleness if tick.count(".") == 0] == ["0", "1", "2"]


def test_downloads(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """The CSV of a chart, its SVG with light colours and a legend, its PNG, and the CSV of the table."""
    curves = visit(opened, "curves")
    press(curves, '[data-download="CSV"]')
    rows = list(csv.reader(downloaded(opened, tmp_path / "curves.csv").decode().splitlines()))
    assert rows[0] == ["run", "round", "test accuracy", "lowest", "highest"]
    assert rows[3][:2] == ["FedLaAvg", "4"]
    assert [float(cell) for cell in rows[3][2:]] == pytest.approx([0.405, 0.4, 0.41])
    assert len(rows) == 1 + 2 * 3
    press(curves, '[data-download="SVG"]')
    image = ElementTree.fromstring(downloaded(opened, tmp_path / "curves.svg"))
    written = ["".join(part.itertext()) for part in image.iter("{http://www.w3.org/2000/svg}text")]
    assert {"FedLaAvg", "FedAvg", "test accuracy"} <= set(written)
    assert b"var(" not in (tmp_path / "curves.svg").read_bytes()
    press(curves, '[data-download="PNG"]')
    assert downloaded(opened, tmp_path / "curves.png").startswith(b"\x89PNG")
    press(opened.find_element(By.ID, "runs"), '[data-download="CSV"]')
    table = list(csv.DictReader(downloaded(opened, tmp_path / "runs.csv").decode().splitlines()))
    assert len(table) == 6
    assert float(table[0]["late_accuracy_ci95_half_width"]) == pytest.approx(0.0635310, rel=1e-4)


def test_the_address_restores_the_view(opened: webdriver.Chrome, page: Path) -> None:
    """Metric, axis, setting, filter, order, hidden runs, zoom and theme are in the address and restored from it."""
    curves = visit(opened, "curves")
    press(curves, '[value="train_loss"]')
    choose(opened, "#curves .controls label select", "wall time")
    choose(opened, "#setting", "All settings")
    press(curves, '.legend [data-key="fedavg-4"]')
    press(opened.find_element(By.ID, "runs"), '[data-column="swing"] button')
    opened.find_element(By.ID, "filter").send_keys("period<16")
    press(opened.find_element(By.CLASS_NAME, "bar"), "#theme")
    expected = {
        "metric": "train_loss", "scale": "log", "x": "seconds", "setting": "*", "hide": "fedavg-4", "sort": "-swing",
        "filter": "period<16", "theme": "dark",
    }  # fmt: skip
    wait(opened, lambda: selected(opened) == {name: [value] for name, value in expected.items()})
    address = opened.current_url
    opened.get("about:blank")
    opened.get(address)
    curves = visit(opened, "curves")
    assert "training loss (log)" in texts(curves, ".title")
    assert len(curves.find_elements(By.CSS_SELECTOR, ".plot .line")) == 3
    assert len(names(opened)) == 4
    assert opened.find_element(By.ID, "filter").get_property("value") == "period<16"
    assert opened.execute_script("return document.documentElement.dataset.theme") == "dark"
    open_page(opened, page, "#curves?range=1..3")
    assert texts(visit(opened, "curves"), ".ranges output") == ["1", "3"]
    opened.find_element(By.CSS_SELECTOR, '.links a[href="#runs"]').click()
    wait(opened, lambda: "#runs?range=1..3" in opened.current_url)


def test_an_address_with_unknown_selections(opened: webdriver.Chrome, page: Path) -> None:
    """Unknown names and markup in the address are ignored or shown as text."""
    evil = quote("<img src=x onerror=alert(1)>")
    query = (
        f"metric={evil}&x=nonsense&setting={evil}&sort=-{evil}&key=no&summary=no&colour=no&theme={evil}&filter={evil}"
    )
    open_page(opened, page, f"#nothing?{query}&range=a..b&hide={evil}&without=x")
    visit(opened, "curves")
    assert names(opened) == []
    assert not opened.find_elements(By.TAG_NAME, "img")


def test_theme_button(opened: webdriver.Chrome) -> None:
    """The button changes the colours and returns to those of the system."""
    colour = "return getComputedStyle(document.body).backgroundColor"
    visit(opened, "availability")
    light = opened.execute_script(colour)
    picture = opened.execute_script("return document.querySelector('canvas').toDataURL()")
    press(opened.find_element(By.CLASS_NAME, "bar"), "#theme")
    assert opened.execute_script(colour) != light
    assert opened.execute_script("return document.querySelector('canvas').toDataURL()") != picture
    press(opened.find_element(By.CLASS_NAME, "bar"), "#theme")
    assert opened.execute_script(colour) == light


@pytest.mark.parametrize("width", [400, 1000, 1400, 1900])
def test_nothing_is_clipped(opened: webdriver.Chrome, page: Path, width: int) -> None:
    """Every link of the navigation is on the screen, the page does not scroll sideways and uses the width."""
    emulate(opened, width=width, scheme="light")
    open_page(opened, page)
    right = opened.execute_script(
        "return [...document.querySelectorAll('.links a, .tools *')].filter(a => !a.hidden)"
        ".map(a => a.getBoundingClientRect().right)"
    )
    assert max(right) <= width
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    assert visit(opened, "curves").find_element(By.CLASS_NAME, "plot").size["width"] >= min(0.85 * width, 1600)


def test_numbers_come_first_on_a_phone(opened: webdriver.Chrome, page: Path) -> None:
    """Wide: figure above the table. Narrow: the table above the figure, and the best number on the first screen."""
    top = "return [...arguments].map(id => document.getElementById(id).getBoundingClientRect().top + scrollY)"
    headline, curves, runs = opened.execute_script(top, "headline", "curves", "runs")
    assert headline < curves < runs
    emulate(opened, width=400, scheme="light")
    open_page(opened, page)
    headline, curves, runs = opened.execute_script(top, "headline", "curves", "runs")
    assert headline < runs < curves
    assert headline < 700
