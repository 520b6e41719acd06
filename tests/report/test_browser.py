"""The HTML page of simulated runs in a real browser."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from fedlatest.experiments import RECIPES
from fedlatest.report import Claim, PublishedCurve, read_runs, write_page
from tests.report.recorded_runs import FOUR_CLIENTS, write_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium-driver)"
)

SMALL = ["rounds=30", "num_clients=20", "local_steps=2", "evaluate_every=5"]
SECTIONS = ("curves", "parameters", "availability", "staleness", "participation", "labels")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on two settings: FedLaAvg, FedAvg and sequential SGD with period 4, the first two also with period 8."""
    root = tmp_path_factory.mktemp("runs")
    quickstart = RECIPES["quickstart"]
    samples = quickstart.load(None)
    for period, chosen in ((4, ("fedlaavg", "fedavg", "sequential")), (8, ("fedlaavg", "fedavg"))):
        for experiment in quickstart.experiments([*SMALL, f"period={period}"]):
            if experiment.name in chosen:
                experiment.run(samples, seeds=[0, 1], out=root / f"{experiment.name}-{period}")
    runs = read_runs([root])
    ours = next(run for run in runs if run.path.name == "fedlaavg-4").metrics
    loss, accuracy = (ours.column(name).mean(axis=0) for name in ("train_loss", "test_accuracy"))
    return write_page(
        runs,
        root / "page.html",
        claims=[Claim("a group", "a claim", "measured", "published", True)],
        published={root / "fedlaavg-4": PublishedCurve(ours.rounds, loss, accuracy)},
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    for preference in ("background-networking", "component-update", "sync"):
        options.add_argument(f"--disable-{preference}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def opened(browser: webdriver.Chrome, page: Path) -> Iterator[webdriver.Chrome]:
    """The page, newly opened in light mode at 1280 pixels; afterwards the browser must have logged no error."""
    emulate(browser, width=1280, scheme="light")
    browser.get("about:blank")  # otherwise the address would only change its fragment
    browser.get(page.as_uri())
    yield browser
    assert log(browser, "browser") == []


def emulate(browser: webdriver.Chrome, *, width: int, scheme: str) -> None:
    """Set the size and colour scheme of the screen, and turn animations off."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def visit(browser: webdriver.Chrome, section: str, *, until: str = ".plot svg") -> WebElement:
    """Scroll to a section and wait until it is drawn."""
    element = browser.find_element(By.ID, section)
    browser.execute_script("arguments[0].scrollIntoView()", element)
    wait(browser, lambda: element.find_elements(By.CSS_SELECTOR, until))
    return element


def wait(browser: webdriver.Chrome, ready: Callable[[], Any]) -> None:
    WebDriverWait(browser, 10, poll_frequency=0.05).until(lambda _: ready())


def texts(element: WebElement, selector: str) -> list[str]:
    return [str(part.get_attribute("textContent")) for part in element.find_elements(By.CSS_SELECTOR, selector)]


def press(element: WebElement, selector: str) -> None:
    button = element.find_element(By.CSS_SELECTOR, selector)
    button.parent.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()


def drag(plot: WebElement) -> None:
    """Drag the pointer from the middle to the right."""
    actions = ActionChains(plot.parent, duration=20)
    actions.move_to_element(plot).click_and_hold().move_by_offset(200, 0).release().perform()


def log(browser: webdriver.Chrome, kind: str) -> list[Any]:
    """Return the entries of the browser's log since the last call."""
    return browser.get_log(kind)  # type: ignore[no-untyped-call]


def test_all_charts_are_drawn(opened: webdriver.Chrome) -> None:
    """Every chart contains lines of some length, every picture pixels of several colours."""
    for name in SECTIONS:
        visit(opened, name)
    plots = opened.find_elements(By.CSS_SELECTOR, ".plot")
    assert len(plots) == 1 + 1 + 2 + 3 + 1 + 1
    assert all(plot.size["width"] > 300 and plot.size["height"] > 150 for plot in plots)
    lengths = opened.execute_script(
        "return [...document.querySelectorAll('.plot')].filter(p => !p.querySelector('canvas'))"
        ".map(p => [...p.querySelectorAll('.line')].map(line => line.getTotalLength()))"
    )
    assert [len(lines) for lines in lengths] == [3, 2, 2, 2, 2, 2, 10]
    assert all(length > 50 for lines in lengths for length in lines)
    colours = opened.execute_script(
        "return [...document.querySelectorAll('.plot canvas')].map(c => new Set(new Uint32Array("
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)"
    )
    assert len(colours) == 2
    assert min(colours) >= 2
    assert texts(opened.find_element(By.ID, "claims"), ".verdict") == ["✓ holds"]


def test_page_requests_nothing(opened: webdriver.Chrome, page: Path) -> None:
    """The browser requests the page itself and nothing else."""
    for name in SECTIONS:
        visit(opened, name)
    time.sleep(0.2)
    assert opened.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    requests = [
        entry["message"] for entry in log(opened, "performance") if "Network.requestWillBeSent" in entry["message"]
    ]
    assert requests
    assert all(page.as_uri() in message or '"url":"data:,"' in message for message in requests)


def test_legend_hides_and_shows_a_curve(opened: webdriver.Chrome) -> None:
    curves = visit(opened, "curves")
    keys = [button.get_attribute("data-key") for button in curves.find_elements(By.CSS_SELECTOR, ".legend button")]
    assert texts(curves, ".legend button") == ["FedLaAvg", "FedAvg", "Sequential SGD"]
    assert len(curves.find_elements(By.CSS_SELECTOR, ".band")) == 3
    assert len(curves.find_elements(By.CSS_SELECTOR, ".published")) == 1
    for pressed, left in (("false", 2), ("true", 3)):
        press(curves, f'.legend [data-key="{keys[1]}"]')
        assert (
            curves.find_element(By.CSS_SELECTOR, f'.legend [data-key="{keys[1]}"]').get_attribute("aria-pressed")
            == pressed
        )
        assert len(curves.find_elements(By.CSS_SELECTOR, ".plot .line")) == left
        assert len(curves.find_elements(By.CSS_SELECTOR, f'.plot .line[data-key="{keys[1]}"]')) == left - 2
    for key in keys:
        press(curves, f'.legend [data-key="{key}"]')
    assert texts(curves, ".nothing") == ["No data to show."]


def test_scale_metric_and_seeds(opened: webdriver.Chrome) -> None:
    """Linear and log axes differ; each metric has its own title; two seeds of three runs are six lines."""
    curves = visit(opened, "curves")
    linear = texts(curves, ".tick-y")
    press(curves, '[value="log"]')
    assert texts(curves, ".tick-y") != linear
    assert "test accuracy (log)" in texts(curves, ".title")
    press(curves, '[value="linear"]')
    assert texts(curves, ".tick-y") == linear
    path = curves.find_element(By.CSS_SELECTOR, ".line").get_attribute("d")
    press(curves, '[value="train_loss"]')
    assert "training loss (log)" in texts(curves, ".title")
    assert curves.find_element(By.CSS_SELECTOR, ".line").get_attribute("d") != path
    press(curves, '[value="each"]')
    assert len(curves.find_elements(By.CSS_SELECTOR, ".line")) == 6
    assert not curves.find_elements(By.CSS_SELECTOR, ".band")
    press(curves, '[data-seed="1"]')
    assert len(curves.find_elements(By.CSS_SELECTOR, ".line")) == 3
    press(curves, '[value="hidden"]')
    assert not curves.find_elements(By.CSS_SELECTOR, ".published")


def test_dragging_zooms_and_the_button_resets(opened: webdriver.Chrome) -> None:
    curves = visit(opened, "curves")
    everything = texts(curves, ".tick-x")
    plot = curves.find_element(By.CSS_SELECTOR, ".plot")
    drag(plot)
    assert texts(curves, ".tick-x") != everything
    assert curves.find_element(By.CSS_SELECTOR, ".ranges input").get_property("value") != "0"
    press(curves, ".reset")
    assert texts(curves, ".tick-x") == everything
    drag(plot)
    assert texts(curves, ".tick-x") != everything
    ActionChains(opened, duration=20).move_to_element(plot).double_click().perform()
    assert texts(curves, ".tick-x") == everything


def test_sliders_zoom(opened: webdriver.Chrome) -> None:
    curves = visit(opened, "curves")
    everything = texts(curves, ".tick-x")
    curves.find_element(By.CSS_SELECTOR, ".ranges input").send_keys(Keys.ARROW_RIGHT * 8)
    assert texts(curves, ".tick-x") != everything
    assert texts(curves, ".ranges output") == ["8", "30"]


def test_pointer_shows_values(opened: webdriver.Chrome) -> None:
    """The middle of the plot is near round 15 of 30; the tooltip lists every curve."""
    curves = visit(opened, "curves")
    ActionChains(opened, duration=20).move_to_element(curves.find_element(By.CSS_SELECTOR, ".plot")).perform()
    tip = curves.find_element(By.CSS_SELECTOR, ".tip")
    assert tip.is_displayed()
    assert texts(tip, "b") == ["round 15"]
    assert sorted(texts(tip, "td:nth-child(2)")) == ["FedAvg", "FedLaAvg", "Sequential SGD"]


def test_keyboard(opened: webdriver.Chrome) -> None:
    """Arrow keys move the cursor and announce values, plus and minus zoom, 0 shows all rounds; pictures too."""
    curves = visit(opened, "curves")
    plot = curves.find_element(By.CSS_SELECTOR, ".plot")
    announcer = opened.find_element(By.ID, "announcer")
    everything = texts(curves, ".tick-x")
    plot.send_keys(Keys.ARROW_RIGHT)
    assert str(announcer.get_attribute("textContent")).startswith("round 0: ")
    plot.send_keys(Keys.ARROW_RIGHT)
    words = str(announcer.get_attribute("textContent"))
    assert words.startswith("round 5: ")
    assert "FedLaAvg 0." in words
    plot.send_keys("+")
    assert texts(curves, ".tick-x") != everything
    plot.send_keys("0")
    assert texts(curves, ".tick-x") == everything
    picture = visit(opened, "availability").find_element(By.CSS_SELECTOR, ".plot")
    picture.send_keys(Keys.ARROW_RIGHT)
    wait(opened, lambda: "available: 100%" in str(announcer.get_attribute("textContent")))


def test_choosing_a_setting_and_a_run(opened: webdriver.Chrome) -> None:
    """The other setting has other runs and another picture; selecting a run changes the chart of labels."""
    for name in SECTIONS:
        visit(opened, name)
    chooser = Select(opened.find_element(By.ID, "setting"))
    assert [option.text for option in chooser.options] == ["All settings", "period=4", "period=8"]
    before = opened.execute_script("return document.querySelector('canvas').toDataURL()")
    chooser.select_by_visible_text("period=8")
    curves = opened.find_element(By.ID, "curves")
    assert not curves.find_elements(By.CSS_SELECTOR, ".published")
    assert opened.execute_script("return document.querySelector('canvas').toDataURL()") != before
    labels = opened.find_element(By.ID, "labels")
    path = labels.find_element(By.CSS_SELECTOR, ".line").get_attribute("d")
    Select(labels.find_element(By.TAG_NAME, "select")).select_by_visible_text("FedAvg")
    assert labels.find_element(By.CSS_SELECTOR, ".line").get_attribute("d") != path


def test_runs_that_are_not_finished(browser: webdriver.Chrome, opened: webdriver.Chrome, tmp_path: Path) -> None:
    """A running run, a diverged one, one that is evaluated once and a pooled one: sentences replace missing charts."""
    write_run(tmp_path / "running").describe(FOUR_CLIENTS)
    write_run(tmp_path / "diverged", "fedavg").mark_diverged("round 4: client 3 is not finite", round=4)
    write_run(tmp_path / "short", "fedprox", rounds=0)
    write_run(tmp_path / "pooled", "sequential")
    browser.get(write_page(read_runs([tmp_path]), tmp_path / "page.html").as_uri())
    assert len(visit(browser, "curves").find_elements(By.CSS_SELECTOR, ".line")) == 4
    assert "is still running" in texts(visit(browser, "availability"), ".content .caption")[0]
    assert "not shown for FedLaAvg, FedAvg" in texts(visit(browser, "staleness"), ".content .caption")[0]
    for name, words in (("participation", "after a run is finished"), ("labels", "recorded its accuracy per label")):
        assert words in texts(visit(browser, name, until=".content .caption"), ".content .caption")[0]


def test_narrow_screen(browser: webdriver.Chrome, opened: webdriver.Chrome, page: Path) -> None:
    """At a width of 360 pixels the page does not scroll horizontally."""
    emulate(browser, width=360, scheme="light")
    browser.get(page.as_uri())
    for name in SECTIONS:
        visit(browser, name)
    for details in browser.find_elements(By.TAG_NAME, "summary"):
        browser.execute_script("arguments[0].parentElement.open = true", details)
    assert browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [360, 360]


def test_dark_mode(opened: webdriver.Chrome) -> None:
    """Background, text and black lines change colour; the pictures are redrawn."""
    visit(opened, "availability")
    colours = (
        "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color, "
        "getComputedStyle([...document.querySelectorAll('#curves .line')].pop()).stroke, "
        "document.querySelector('canvas').toDataURL()]"
    )
    light = opened.execute_script(colours)
    emulate(opened, width=1280, scheme="dark")
    wait(opened, lambda: opened.execute_script(colours)[3] != light[3])
    assert all(one != other for one, other in zip(light, opened.execute_script(colours), strict=True))
