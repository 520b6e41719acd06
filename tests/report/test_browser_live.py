"""The live page in a real browser: it changes with the runs, and what is selected stays selected."""

from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from fedlatest.report.live_page import LivePage
from fedlatest.runs import Row, RunFolder
from tests.report.recorded_runs import finish, write_run
from tests.report.test_browser import browser, emulate, log, press, pytestmark, texts, visit
from tests.report.test_live import served

__all__ = ["browser", "pytestmark"]


def test_live_page(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The page waits for the first run; evaluations, a second run and the end of the server then appear."""
    replaced = [StaleElementReferenceException]  # a row that was found just before an update
    wait = WebDriverWait(browser, 20, poll_frequency=0.1, ignored_exceptions=replaced).until
    emulate(browser, width=1280, scheme="light")
    with served(LivePage([tmp_path], title="live", note=lambda: "a note")) as server:
        browser.get(server.url)
        assert "waits for one" in browser.find_element(By.TAG_NAME, "body").text
        folder = write_run(tmp_path / "a")
        wait(lambda _: browser.find_elements(By.ID, "curves"))
        curves = visit(browser, "curves")
        press(curves, '[value="train_loss"]')
        browser.execute_script("window.sameDocument = true")
        before = texts(curves, ".ranges output")
        folder.record([Row(0, 6, 0.2, 0.1, 0.5, 1.0, 0.6, 3, 2, 1.5, 2)])
        wait(lambda _: texts(curves, ".ranges output") == ["0", "6"])
        assert before == ["0", "4"]
        assert "training loss (log)" in texts(curves, ".title")
        write_run(tmp_path / "b", "fedavg")
        wait(lambda _: len(browser.find_elements(By.CSS_SELECTOR, "#summary tbody tr")) == 2)
        assert len(curves.find_elements(By.CSS_SELECTOR, ".plot .line")) == 2
        assert texts(browser.find_element(By.TAG_NAME, "header"), "#live")[0].endswith("· a note")
        press(browser.find_element(By.ID, "runs"), '[data-column="final_accuracy"] button')
        field = browser.find_element(By.ID, "filter")
        field.send_keys("fed")
        folder.record([Row(0, 8, 0.3, 0.1, 0.5, 1.0, 0.9, 3, 2, 1.5, 2)])
        wait(lambda _: "0.9000" in browser.find_element(By.CSS_SELECTOR, "#summary tbody tr").text)
        assert browser.execute_script("return document.activeElement.id") == "filter"
        assert field.get_property("value") == "fed"
        assert browser.execute_script("return window.sameDocument") is True
        finish(folder)
        finish(RunFolder(tmp_path / "b"))
        wait(lambda _: browser.find_element(By.ID, "live").text == "all runs finished · a note")
        assert browser.find_element(By.ID, "live").get_attribute("class") == "finished"
        assert log(browser, "browser") == []
    wait(lambda _: "no connection" in browser.find_element(By.ID, "live").text)
    log(browser, "browser")  # the refused connection
