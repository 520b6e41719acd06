"""The HTML report: its numbers, its words, and that nothing in a name breaks out of it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.report import Claim, PublishedCurve, read_runs, write_page
from fedlatest.report.findings import findings, what_was_run
from fedlatest.report.grouping import find_settings, look_of, name_runs
from fedlatest.report.page_data import LEVELS, MOST_EVALUATIONS
from fedlatest.report.staleness import jain_index, picture, staleness_counts, times_chosen
from fedlatest.runs import ClientRecord, LabelRow, Participation, Row, RunFolder
from tests.command_line import fedlatest_here


def cohorts(*seeds: list[list[int]]) -> Participation:
    """Participation of hand-written cohorts, one list of rounds per seed."""
    offsets, flat = [], list[int]()
    for rounds in seeds:
        row = [len(flat)]
        for clients in rounds:
            flat += clients
            row.append(len(flat))
        offsets.append(row)
    return Participation(np.array(flat, np.uint8), np.array(offsets))


FOUR_CLIENTS = ClientRecord(
    labels=np.array([1, 0, 1, 0], np.int32),
    sizes=np.full(4, 5),
    order=np.array([1, 3, 0, 2], np.int32),
    row_edges=np.array([0, 2, 4]),
    column_edges=np.array([0, 2, 4]),
    available=np.array([[255, 0], [0, 51]], np.uint8),
)
FOUR_ROUNDS = cohorts([[0, 1], [1], [3], [0, 2]])


def write_run(path: Path, algorithm: str = "fedlaavg", *, rounds: int = 4, seeds: int = 1, **config: Any) -> RunFolder:
    """A run of four clients, begun and evaluated every second round; `config` goes into its recipe as well."""
    folder = RunFolder(path)
    steps = config.pop("num_local_steps", 10)
    common = {"rounds": rounds, "num_local_steps": steps, "num_clients": 4, "batch_size": 5, "cohort_size": 2}
    settings = {**common, "algorithm": {"name": algorithm}, "recipe": {"algorithm": algorithm, **config}}
    data = {"name": "hand", "train": "blake2b:00"}
    folder.begin({"config": settings, "seeds": list(range(seeds)), "data": data}, resume=False, force=False)
    for round in range(0, rounds + 1, 2):
        about = (3, 2, 1.5, 2) if round else ()
        folder.record(
            [Row(s, round, 0.1, 2 / (round + 1), 0.5, 1.0, 0.1 * round + 0.01 * s, *about) for s in range(seeds)]
        )
    return folder


def finish(folder: RunFolder, took_part: Participation = FOUR_ROUNDS, **availability: Any) -> None:
    folder.describe(FOUR_CLIENTS)
    folder.record_labels([LabelRow(0, 0, np.array([0.1, np.nan])), LabelRow(0, 4, np.array([0.9, np.nan]))])
    folder.note_cohorts(took_part)
    facts = {"smallest_e": None, "staleness_bound": None, "largest_staleness": 4, **availability}
    folder.finish({"w": np.zeros(1, np.float32)}, round=4, facts={"seconds": 1.5, "availability": facts})


def data_of(page: Path) -> Any:
    """What the page's script reads."""
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(text)


def test_staleness_by_hand() -> None:
    """Three clients, four rounds with the cohorts {0}, {0, 1}, {} and {1}; staleness after the selection:

    client 0: 0 0 1 2; client 1: 1 0 1 0 (unseen in round 0: r + 1 = 1); client 2, never seen: 1 2 3 4.
    So 0 occurs 4 times, 1 4 times, 2 twice, 3 and 4 once: 12 pairs of three clients and four rounds.
    """
    once = [[0], [0, 1], [], [1]]
    assert staleness_counts(cohorts(once), 3).tolist() == [4, 4, 2, 1, 1]
    assert staleness_counts(cohorts(once, once), 3).tolist() == [8, 8, 4, 2, 2]
    assert staleness_counts(cohorts([[0], [0]]), 1).tolist() == [2]


@given(st.lists(st.lists(st.integers(0, 4), unique=True).map(sorted), min_size=1, max_size=12))
def test_staleness_matches_the_definition(rounds: list[list[int]]) -> None:
    """The fast count against r - R_i, client by client and round by round."""
    last, seen = [-1] * 5, []
    for round, clients in enumerate(rounds):
        for client in clients:
            last[client] = round
        seen += [round - before for before in last]
    assert staleness_counts(cohorts(rounds), 5).tolist() == np.bincount(seen).tolist()


def test_picture_by_hand() -> None:
    """Row 0 is clients 1 and 3, row 1 clients 0 and 2; two rounds a column, so a cell holds four pairs.

    Client 1 took part in rounds 0 and 1 (2/4), 3 in round 2 (1/4), 0 in round 0 (1/4), 0 and 2 in round 3 (2/4).
    """
    assert picture(FOUR_ROUNDS, FOUR_CLIENTS).tolist() == [[0.5, 0.25], [0.25, 0.5]]


def test_shares_by_hand(tmp_path: Path) -> None:
    """Times chosen 2, 2, 1, 1 of 6: shares of an equal share (1/4) are 4/3, 4/3, 2/3, 2/3; Jain 36 / (4 * 10) = 0.9.

    Clients 1 and 3 hold label 0: 3 of 6 participations, as clients 0 and 2, which hold label 1.
    """
    assert times_chosen(FOUR_ROUNDS, 4).tolist() == [[2, 2, 1, 1]]
    assert jain_index(np.array([2, 2, 1, 1])) == pytest.approx(0.9)
    finish(write_run(tmp_path / "a"))
    [run] = data_of(write_page(read_runs([tmp_path]), tmp_path / "page.html"))["runs"]
    shown = run["participation"]
    assert shown["times_fair"] == [0.66667, 0.66667, 1.3333, 1.3333]
    assert shown["jain"] == 0.9
    assert shown["by_label"] == {"labels": [0, 1], "clients": [0.5, 0.5], "took_part": [0.5, 0.5]}


def test_data_of_a_run(tmp_path: Path) -> None:
    """Curves per seed, staleness at least so large (10 of 16 pairs at least 1, ...), pictures in 64 levels.

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
    assert run["published"] == {"rounds": [0, 4], "train_loss": [2, None], "test_accuracy": [0.1, 0.12346]}
    assert run["staleness"]["rounds"] == [2, 4]
    assert run["staleness"]["bound"] == 7
    assert run["staleness"]["ages"] == [0, 1, 2, 3]
    assert run["staleness"]["at_least"] == [1, 0.625, 0.3125, 0.0625]
    assert run["map"] == {"number": 0, "took_part": "_gg_", "most": 0.5}
    assert shown["available"] == "_A" + "A" + LEVELS[round(63 * 51 / 255)]
    assert shown["labels"] == [[0, 0], [1, 2]]
    assert run["labels"] == {"rounds": [0, 4], "names": [0], "accuracy": [[0.1, 0.9]]}


def test_runs_that_are_not_finished(tmp_path: Path) -> None:
    """A run that goes on, one that diverged, one evaluated once, one pooled: each with what is known of it."""
    write_run(tmp_path / "going").describe(FOUR_CLIENTS)
    write_run(tmp_path / "gone", "fedavg").give_up("round 4: client 3 is not finite", round=4)
    write_run(tmp_path / "short", "fedprox", rounds=0)
    finish(write_run(tmp_path / "pooled", "sequential"))
    page = write_page(read_runs([tmp_path]), tmp_path / "page.html")
    text, runs = page.read_text(), {run["label"]: run for run in data_of(page)["runs"]}
    assert "FedLaAvg, in going, is still running, at round 4." in text
    assert "diverged: round 4: client 3 is not finite" in text
    assert "still running</span>" in text
    assert runs["FedLaAvg"]["participation"] is None
    assert runs["FedLaAvg"]["map"]["took_part"] is None
    assert runs["FedAvg"]["map"] is None
    assert runs["Sequential SGD"]["staleness"] is None
    assert runs["Sequential SGD"]["participation"] is None


def test_settings_and_names(tmp_path: Path) -> None:
    """Two periods, one with FedLaAvg of 1 and 10 steps, told apart by name, shade and dash; pooled runs join both."""
    for period in (100, 20):
        write_run(tmp_path / f"long-{period}", period=period, digits=1, local_steps=10)
        write_run(tmp_path / f"avg-{period}", "fedavg", period=period, digits=1)
    write_run(tmp_path / "one", period=100, digits=1, local_steps=1, num_local_steps=1)
    write_run(tmp_path / "pooled", "sequential", period=5)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    names, looks = name_runs(runs, settings), look_of(runs, settings)
    assert [setting.label for setting in settings] == ["period=20", "period=100"]
    assert [[names[i] for i in setting.runs] for setting in settings] == [
        ["FedLaAvg", "FedAvg", "Sequential SGD"],
        ["FedLaAvg (10 steps)", "FedLaAvg (1 step)", "FedAvg", "Sequential SGD"],
    ]
    ten, one = (looks[i] for i in settings[1].runs[:2])
    assert (ten.light, ten.dash) == ("#0072b2", "")
    assert one.light != ten.light
    assert one.dash
    assert looks[-1].dark != "#000000"
    assert "in 2 settings on hand: 4 clients, 4 rounds, 1 seed each." in what_was_run(runs, settings)


def test_step_sizes(tmp_path: Path) -> None:
    """A step size of its own for each algorithm is no setting; several for one algorithm are."""
    write_run(tmp_path / "a", learning_rate=0.1)
    write_run(tmp_path / "b", "fedavg", learning_rate=0.2)
    assert [setting.label for setting in find_settings(read_runs([tmp_path]))] == [""]
    write_run(tmp_path / "c", "fedavg", learning_rate=0.1)
    labels = [setting.label for setting in find_settings(read_runs([tmp_path]))]
    assert labels == ["learning_rate=0.1", "learning_rate=0.2"]


def test_findings(tmp_path: Path) -> None:
    finish(write_run(tmp_path / "a"), staleness_bound=9, smallest_e=5)
    finish(write_run(tmp_path / "b", "fedavg"), largest_staleness=12)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    said = findings(runs, settings, name_runs(runs, settings))
    assert said[0].startswith("FedLaAvg has the best late test accuracy, 0.4000 on average")
    assert "12 rounds, under FedAvg" in said[1]
    assert (
        said[2] == "FedLaAvg's largest staleness, 4, stays within Lemma 1's bound of 9 (Assumption 4 holds with E = 5)."
    )


def test_findings_of_a_failed_assumption(tmp_path: Path) -> None:
    """E and I stand in the table where they are known; who was never here is named."""
    finish(write_run(tmp_path / "a"), staleness_bound=9, smallest_e=5, assumption_holds=True)
    absent: dict[str, Any] = {"num_never_available": 3, "never_available": [7, 8, 9]}
    finish(write_run(tmp_path / "b", "fedavg"), assumption_holds=False, **absent)
    runs = read_runs([tmp_path])
    settings = find_settings(runs)
    said = findings(runs, settings, name_runs(runs, settings))
    assert said[-1].startswith("Assumption 4 does not hold in b (FedAvg): client 7 and 2 other clients were never")
    text = write_page(runs, tmp_path / "page.html").read_text()
    assert re.search(r">bound I</th>", text)
    assert '<td class="number">5</td><td class="number">9</td><td class="number">4</td>' in text


def test_names_cannot_break_out(tmp_path: Path) -> None:
    """Markup in a folder, an algorithm, a title or a claim is shown, not obeyed; each script ends where it should."""
    evil = "</script><img src=x onerror=alert(1)>"
    finish(write_run(tmp_path / "a", evil))
    claims = [Claim(evil, evil, evil, evil, None)]
    text = write_page(read_runs([tmp_path]), tmp_path / "page.html", claims=claims, title=evil).read_text()
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert data_of(tmp_path / "page.html")["runs"][0]["label"] == evil


def test_claims(tmp_path: Path) -> None:
    """Grouped, each with its verdict in words; without claims there is no such section."""
    finish(write_run(tmp_path / "a"))
    runs = read_runs([tmp_path])
    assert 'id="claims"' not in write_page(runs, tmp_path / "none.html").read_text()
    claims = [Claim("one", "x", "1", "2", True), Claim("two", "y", "1", "2", None), Claim("one", "z", "1", "2", False)]
    text = write_page(runs, tmp_path / "page.html", claims=claims).read_text()
    assert "1 of 2 judged claims hold. 1 not judged." in text
    assert re.findall(r"<h3>(one|two)</h3>", text) == ["one", "two"]
    for words in ("✓ holds", "✗ does not hold", "not judged"):
        assert words in text


def test_page_asks_for_nothing(tmp_path: Path) -> None:
    """No address that a browser would fetch, and a policy that would not let it."""
    finish(write_run(tmp_path / "a"))
    text = write_page(read_runs([tmp_path]), tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"https?:", text)
    assert set(re.findall(r'(?:src|href)="([^#"][^"]*)"', text)) == {"data:,"}
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest|import\(", text)


def test_page_stays_small(tmp_path: Path) -> None:
    """More evaluations than a chart has pixels are thinned, the first and the last kept."""
    finish(write_run(tmp_path / "a", rounds=4000))
    [run] = data_of(write_page(read_runs([tmp_path]), tmp_path / "page.html"))["runs"]
    assert len(run["rounds"]) == MOST_EVALUATIONS == len(run["curves"]["train_loss"][0])
    assert run["rounds"][::799] == [0, 4000]
    assert "Of up to 2,001 evaluations a run, 800 are drawn." in (tmp_path / "page.html").read_text()


def test_command_line(tmp_path: Path) -> None:
    """It says where the page went and how large it is; a mistake is answered in a line."""
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


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no runs were given"):
        write_page([], tmp_path / "page.html")
    finish(write_run(tmp_path / "a"))
    runs = read_runs([tmp_path])
    with pytest.raises(ConfigError, match=r"page\.pdf: .* ends in \.html"):
        write_page(runs, tmp_path / "page.pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="could not be written"):
        write_page(runs, tmp_path / "file/page.html")
