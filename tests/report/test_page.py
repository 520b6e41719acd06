"""The HTML page: its numbers, its sentences, and that no text in it is interpreted as markup."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.report import Claim, PublishedCurve, page_data, read_runs, write_page
from fedlatest.report.findings import findings
from fedlatest.report.grouping import find_settings, name_runs
from fedlatest.report.page_data import LEVELS, MOST_EVALUATIONS
from fedlatest.report.run_summaries import SUMMARIES
from tests.command_line import fedlatest_here
from tests.report.recorded_runs import FOUR_CLIENTS, cohorts, data_of, finish, write_run


def test_data_of_a_run(tmp_path: Path) -> None:
    """Curves per seed, shares of pairs by staleness (10 of 16 are at least 1, ...), pictures in 64 levels.

    With FOUR_ROUNDS the clients' staleness is 0 1 2 0, 0 0 1 2, 1 2 3 0 and 1 2 0 1: 0 six times, 1 five times, 2 four
    times, 3 once.
    """
    folder = write_run(tmp_path / "a", seeds=2)
    finish(folder, cohorts(*[[[0, 1], [1], [3], [0, 2]]] * 2), staleness_bound=7)
    published = {tmp_path / "a": PublishedCurve(np.array([0, 4]), np.array([2.0, np.nan]), np.array([0.1, 0.123456]))}
    data = data_of(write_page(read_runs([tmp_path]), tmp_path / "page.html", published=published))
    [run], [shown] = data["runs"], data["maps"]
    assert run["rounds"] == [0, 2, 4]
    assert run["curves"]["test_accuracy"] == [[0, 0.2, 0.4], [0.01, 0.21, 0.41]]
    assert run["published"] == {"rounds": [0, 4], "train_loss": [2, None], "test_accuracy": [0.1, 0.123456]}
    assert run["staleness"]["rounds"] == [2, 4]
    assert run["staleness"]["bound"] == 7
    assert run["staleness"]["values"] == [0, 1, 2, 3]
    assert run["staleness"]["at_least"] == [1, 0.625, 0.3125, 0.0625]
    assert run["map"] == {"number": 0, "took_part": "_gg_", "most": 0.5}
    assert shown["available"] == "_A" + "A" + LEVELS[round(63 * 51 / 255)]
    assert shown["labels"] == [[0, 0], [1, 2]]
    assert run["labels"] == {"rounds": [0, 4], "names": [0], "accuracy": [[0.1, 0.9]]}


def test_runs_that_are_not_finished(tmp_path: Path) -> None:
    """A running run, a diverged one, one that is evaluated once and a pooled one: the page shows what is known."""
    write_run(tmp_path / "running").describe(FOUR_CLIENTS)
    write_run(tmp_path / "diverged", "fedavg").mark_diverged("round 4: client 3 is not finite", round=4)
    write_run(tmp_path / "short", "fedprox", rounds=0)
    finish(write_run(tmp_path / "pooled", "sequential"))
    page = write_page(read_runs([tmp_path]), tmp_path / "page.html")
    text, runs = page.read_text(), {run["label"]: run for run in data_of(page)["runs"]}
    assert "FedLaAvg, in running, is still running, at round 4." in text
    assert "diverged: round 4: client 3 is not finite" in text
    assert "still running</span>" in text
    assert runs["FedLaAvg"]["participation"] is None
    assert runs["FedLaAvg"]["map"]["took_part"] is None
    assert runs["FedAvg"]["map"] is None
    assert runs["Sequential SGD"]["staleness"] is None
    assert runs["Sequential SGD"]["participation"] is None


def test_findings(tmp_path: Path) -> None:
    finish(write_run(tmp_path / "a"), staleness_bound=9, smallest_e=5)
    finish(write_run(tmp_path / "b", "fedavg"), largest_staleness=12)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    sentences = findings(runs, settings, name_runs(runs, settings))
    assert sentences[0].startswith("FedLaAvg has the best late test accuracy, 0.4000 on average")
    assert "12 rounds (FedAvg)" in sentences[1]
    assert (
        sentences[2]
        == "FedLaAvg's largest staleness, 4, stays within Lemma 1's bound of 9 (Assumption 4 holds with E = 5)."
    )


def test_findings_of_a_failed_assumption(tmp_path: Path) -> None:
    """The table contains E and I where they are known; the findings name a client that was never available."""
    finish(write_run(tmp_path / "a"), staleness_bound=9, smallest_e=5, assumption_holds=True)
    absent: dict[str, Any] = {"num_never_available": 3, "never_available": [7, 8, 9]}
    finish(write_run(tmp_path / "b", "fedavg"), assumption_holds=False, **absent)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    sentences = findings(runs, settings, name_runs(runs, settings))
    assert sentences[-1].startswith("Assumption 4 does not hold in b (FedAvg): client 7 and 2 other clients were never")
    text = write_page(runs, tmp_path / "page.html").read_text()
    assert re.search(r">bound I</th>", text)
    assert re.findall(r">([^<]*)</td>", text)[len(SUMMARIES) :][:3] == ["4", "5", "9"]


def test_findings_of_a_sample_of_clients(tmp_path: Path) -> None:
    """E of a sample is a lower bound, in the table and in the findings; a client that is missing refutes it."""
    finish(write_run(tmp_path / "a"), smallest_e=5, assumption_holds=None, clients_examined=1000)
    absent: dict[str, Any] = {"num_never_available": 3, "never_available": [7, 8, 9], "clients_examined": 1000}
    finish(write_run(tmp_path / "b", "fedavg"), assumption_holds=False, **absent)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    sentences = findings(runs, settings, name_runs(runs, settings))
    assert sentences[-2] == (
        "Every client in a sample of 1,000 clients was available at least once in any 5 rounds of a (FedLaAvg); "
        "E of all clients may be larger, so Lemma 1's bound is not stated."
    )
    assert "were never available in a sample of 1,000 clients, so Lemma 1" in sentences[-1]
    text = write_page(runs, tmp_path / "page.html").read_text()
    assert ">at least 5</td>" in text


def test_the_page_says_that_a_picture_is_a_sample(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    finish(folder)
    assert '"sample":""' in write_page(read_runs([tmp_path / "a"]), tmp_path / "page.html").read_text()
    folder.describe(FOUR_CLIENTS._replace(sample=np.array([2, 4])))
    text = write_page(read_runs([tmp_path / "a"]), tmp_path / "page.html").read_text()
    assert '"sample":"a sample: 2 of 4 clients"' in text


def test_markup_in_names_is_escaped(tmp_path: Path) -> None:
    """Markup in an algorithm's name, a title or a claim is shown as text; no text can close a script element."""
    evil = "</script><img src=x onerror=alert(1)>"
    finish(write_run(tmp_path / "a", evil))
    claims = [Claim(evil, evil, evil, evil, None)]
    text = write_page(read_runs([tmp_path]), tmp_path / "page.html", claims=claims, title=evil).read_text()
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert data_of(tmp_path / "page.html")["runs"][0]["label"] == evil


def test_the_title_is_the_name_of_the_folders(tmp_path: Path) -> None:
    """Title and heading of the page of one run, of two, and of a folder of many that the command line is given."""
    for name in "abcd":
        finish(write_run(tmp_path / "my runs" / name))
    for folders, title in ((["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c", "d"], "my runs")):
        page = write_page(read_runs([tmp_path / "my runs" / name for name in folders]), tmp_path / "page.html")
        assert f"<title>{title}</title>" in page.read_text()
        assert f"<h1>{title}</h1>" in page.read_text()
    assert fedlatest_here("report", ".", cwd=tmp_path / "my runs").returncode == 0
    assert "<title>my runs</title>" in (tmp_path / "my runs/report.html").read_text()


def test_names_with_commas_are_told_apart(tmp_path: Path) -> None:
    """A list of names is separated by semicolons if a name contains a comma; its setting follows after a dot."""
    for period in (4, 8):
        for name, title in (("fedlaavg", "FedLaAvg"), ("fresh", "FedLaAvg, fresh"), ("fedavg", "FedAvg")):
            finish(write_run(tmp_path / f"{name}-{period}", name, title=title, period=period))
    page = write_page(read_runs([tmp_path]), tmp_path / "page.html")
    assert "6 runs of FedLaAvg; FedAvg; and FedLaAvg, fresh in 2 settings" in page.read_text()
    assert "FedLaAvg, fresh · period=8" in [run["full"] for run in data_of(page)["runs"]]


def test_the_best_of_the_federated_algorithms_is_called_so(tmp_path: Path) -> None:
    finish(write_run(tmp_path / "a"))
    finish(write_run(tmp_path / "b", "fedavg"))
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    assert findings(runs, settings, name_runs(runs, settings))[0].startswith(
        "FedLaAvg has the best late test accuracy,"
    )
    finish(write_run(tmp_path / "pooled", "sequential"))
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    assert findings(runs, settings, name_runs(runs, settings))[0].startswith(
        "FedLaAvg has the best late test accuracy of the federated algorithms, 0.4000 on average (Sequential SGD, on "
        "pooled data: 0.4000)"
    )


def test_claims(tmp_path: Path) -> None:
    """Claims are grouped, with a verdict in words each; without claims the section is left out."""
    finish(write_run(tmp_path / "a"))
    runs = read_runs([tmp_path])
    assert 'id="claims"' not in write_page(runs, tmp_path / "none.html").read_text()
    claims = [Claim("one", "x", "1", "2", True), Claim("two", "y", "1", "2", None), Claim("one", "z", "1", "2", False)]
    text = write_page(runs, tmp_path / "page.html", claims=claims).read_text()
    assert "1 of 2 judged claims hold. 1 not judged." in text
    assert re.findall(r"<h3>(one|two)</h3>", text) == ["one", "two"]
    for words in ("✓ holds", "✗ does not hold", "not judged"):
        assert words in text


def test_page_requests_nothing(tmp_path: Path) -> None:
    """The page contains no address that a browser would request, and a policy that forbids requests."""
    finish(write_run(tmp_path / "a"))
    text = write_page(read_runs([tmp_path]), tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"https?:", text)
    assert set(re.findall(r'(?:src|href)="([^#"][^"]*)"', text)) == {"data:,"}
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(", text)


def test_long_curves_are_thinned(tmp_path: Path) -> None:
    """Of more evaluations than a chart has pixels, evenly spaced ones are kept, with the first and the last."""
    finish(write_run(tmp_path / "a", rounds=4000))
    [run] = data_of(write_page(read_runs([tmp_path]), tmp_path / "page.html"))["runs"]
    assert len(run["rounds"]) == MOST_EVALUATIONS == len(run["curves"]["train_loss"][0])
    assert run["rounds"][::799] == [0, 4000]
    assert "Runs have up to 2,001 evaluations; 800 of each are drawn." in (tmp_path / "page.html").read_text()


def test_command_line(tmp_path: Path) -> None:
    """The command prints the path and size of the page; an error is one line."""
    finish(write_run(tmp_path / "a"))
    done = fedlatest_here("report", "a", "--title", "a title", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"report: report\.html \(\d\.\d MB\)\n", done.stdout)
    assert "<h1>a title</h1>" in (tmp_path / "report.html").read_text()
    for arguments, answer in ((("b",), "holds no run"), (("a", "--out", "x.pdf"), "ends in .html")):
        wrong = fedlatest_here("report", *arguments, cwd=tmp_path)
        assert wrong.returncode == 1
        assert answer in wrong.stderr
        assert len(wrong.stderr.splitlines()) == 1


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no runs were given"):
        write_page([], tmp_path / "page.html")
    finish(write_run(tmp_path / "a"))
    runs = read_runs([tmp_path])
    with pytest.raises(ConfigError, match=r"page\.pdf: .* ends in \.html"):
        write_page(runs, tmp_path / "page.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="could not be written"):
        write_page(runs, tmp_path / "file/page.html")


def test_a_page_of_many_runs_has_no_pictures_of_participation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of who was available are shared by runs; those of who took part are not, and would fill the page."""
    for name in ("a", "b"):
        finish(write_run(tmp_path / name))
    few = data_of(write_page(read_runs([tmp_path]), tmp_path / "page.html"))["runs"]
    monkeypatch.setattr(page_data, "MOST_PICTURES", 1)
    many = data_of(write_page(read_runs([tmp_path]), tmp_path / "page.html"))["runs"]
    assert all(run["map"]["took_part"] for run in few)
    assert [run["map"]["took_part"] for run in many] == [None, None]
    assert [run["participation"] for run in many] == [run["participation"] for run in few]
