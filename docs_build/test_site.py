"""The built site, opened from a disk in a real browser: search, copied code and folded entries."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SITE = Path(__file__).parents[1] / "site"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (Debian: chromium-driver)"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A browser, which must not have logged an error in the end."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "window-size=1280,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
        assert driver.get_log("browser") == []  # type: ignore[no-untyped-call]
    finally:
        driver.quit()


def test_search(browser: webdriver.Chrome) -> None:
    """A word of an identifier leads to its entry in the reference."""
    browser.get((SITE / "index.html").as_uri())
    query = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    query.click()
    query.send_keys("staleness bound")
    links = WebDriverWait(browser, 20).until(lambda _: browser.find_elements(By.CSS_SELECTOR, ".md-search-result a"))
    assert any("staleness_bound" in str(link.get_attribute("href")) for link in links)


def test_copied_code_has_neither_prompts_nor_outputs(browser: webdriver.Chrome) -> None:
    """The button's text is pasted into the field of the search."""
    browser.get((SITE / "algorithms.html").as_uri())
    block = "//pre[contains(., 'import optax')]"
    assert ">>> import fedlatest" in browser.find_element(By.XPATH, block).text
    browser.find_element(By.XPATH, f"{block}//button").click()
    query = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    browser.execute_script("""
        document.addEventListener("paste", event => document.body.dataset.pasted = event.clipboardData.getData("text"))
    """)
    query.click()
    webdriver.ActionChains(browser).key_down("\ue009").send_keys("v").key_up("\ue009").perform()
    assert browser.execute_script("return document.body.dataset.pasted").splitlines() == [
        "import optax",
        "import fedlatest",
        "momentum = fedlatest.fedlaavg(server_optimizer=optax.trace(0.9), server_step=0.3)",
        "momentum.numbers",
    ]


def test_a_link_opens_the_entry_of_the_reference(browser: webdriver.Chrome) -> None:
    """All other entries are folded, and open after a click."""
    browser.get((SITE / "reference/algorithms.html").as_uri() + "#fedlatest.algorithms.fedavg.fedavg")
    opened = browser.find_elements(By.CSS_SELECTOR, "details.reference[open]")
    assert len(opened) == 1
    assert "weighting" in opened[0].text
    first = browser.find_element(By.CSS_SELECTOR, "details.reference:not([open])")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", first)
    first.find_element(By.TAG_NAME, "summary").click()
    assert first.get_attribute("open") is not None
    assert browser.find_elements(By.CSS_SELECTOR, "table.formula sub")
