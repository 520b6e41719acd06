"""Leaderboards in virtual time: numbers of hand-written runs, targets that are not reached, and order."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedlatest.report.figures import canvas
from fedlatest.report.leaderboard import Leaderboard, write_arena
from fedlatest.report.leaderboard_tables import as_html, as_markdown, write_leaderboard
from fedlatest.report.tables import DASH
from fedlatest.report.time_figures import curve_sources, draw_case, draw_time_and_bytes
from fedlatest.runs import Row
from tests.report.recorded_runs import cohorts, write_run

UNTIL = 7200.0
COSTS = {"up": 2_000_000, "down": 1_000_000, "client": 4, "server": 8}


def write_method(root: Path, method: str, curves: list[list[float]], *, every: float = 900.0, status: str = "") -> None:
    """Write a final run with the accuracies of each seed, one every `every` seconds.

    Between two evaluations, four clients are asked, three send an update, and two of these are used.
    """
    path = root / "final" / f"case--{method}"
    folder = write_run(path, method.split("-")[0], seeds=len(curves), learning_rate=0.1, title=method.upper())
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["config"]["timing"] = {"until": UNTIL}
    manifest["costs"] = COSTS
    (path / "manifest.json").write_text(json.dumps(manifest))
    (path / "metrics.csv").write_text((path / "metrics.csv").read_text().splitlines()[0] + "\n")
    for seed, values in enumerate(curves):
        folder.record(
            [
                Row(seed, n, 0.0, 1.0, 0.5, 1.0, value, time=every * n, downloads=4 * n, uploads=3 * n, merged=2 * n)
                for n, value in enumerate(values)
            ]
        )
    if status == "diverged":
        folder.mark_diverged("not finite", round=1)
        return
    folder.note_cohorts(cohorts(*[[[0]] * 9] * len(curves)))
    facts = {"seconds": 1.0, "rounds_done": 8, "availability": {"largest_staleness": 1}}
    folder.finish({"w": np.zeros(1, np.float32)}, round=9, facts=facts)


def rising(start: int, level: float = 0.9) -> list[float]:
    """Nine evaluations, the last at two hours: 0.1, and `level` from one of them on."""
    return [0.1] * start + [level] * (9 - start)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    root = tmp_path_factory.mktemp("arena")
    methods = {
        "fast": [rising(2), rising(3), rising(2)],
        "steady": [rising(2), rising(2), rising(3)],
        "slow": [rising(6), rising(7), rising(6)],
        "swinging": [[0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1, 0.9, 0.1], rising(1), rising(9)],
        "never": [rising(9)] * 3,
        "bad": [rising(9)] * 3,
    }
    for method, curves in methods.items():
        write_method(root, method, curves, status="diverged" if method == "bad" else "")
    names = dict.fromkeys(methods, "")
    write_arena(root, {"dataset": "x", "cases": {"case": "a=1 until=9"}, "methods": names, "search": [], "target": 0.8})
    return Leaderboard(root)


def test_numbers_of_a_run_by_hand(board: Leaderboard) -> None:
    """Seeds reach the target at 1800 s, 2700 s and 1800 s, after 2, 3 and 2 evaluations of 4 MB down and 6 MB up."""
    found = board.entry("case", "fast").timed
    assert found is not None
    assert found.seconds_to_target.tolist() == [1800, 2700, 1800]
    assert found.hours_to_target == 0.5
    assert found.megabytes_to_target.tolist() == [20, 30, 20]
    assert (found.megabytes_up, found.megabytes_down) == (8 * 3 * 2, 8 * 4)
    assert found.steps_per_hour == 4
    assert found.dropped == pytest.approx(1 / 3)
    assert found.failed == pytest.approx(1 / 4)
    assert not found.ends_early
    assert found.interval == 900
    entry = board.entry("case", "fast")
    assert entry.accuracy.tolist() == pytest.approx([0.9, 0.9, 0.9])
    assert entry.swing == 0


def test_a_target_that_is_reached_and_lost_again(board: Leaderboard) -> None:
    """One of three seeds keeps the target: the median is never, and the restricted times are known."""
    entry = board.entry("case", "swinging")
    found = entry.timed
    assert found is not None
    assert found.seconds_to_target.tolist() == [math.inf, 900, math.inf]
    assert found.first_seconds.tolist() == [900, 900, math.inf]
    assert found.restricted.tolist() == [UNTIL, 900, UNTIL]
    assert (found.hours_to_target, found.hours_to_first) == (math.inf, 0.25)
    # In the last quarter, 5400 s to 7200 s, the first seed has 0.1 and 0.9 for 900 s each, and 0.1 at the end.
    assert entry.accuracy.tolist() == pytest.approx([0.5, 0.9, 0.1])
    assert entry.swing == pytest.approx(0.8 / 3)


def test_a_target_that_is_reached_at_the_end_does_not_count(tmp_path: Path) -> None:
    """It is held for the last quarter of 7200 s, and for less."""
    write_method(tmp_path, "late", [rising(6), rising(7)])
    write_arena(tmp_path, {"cases": {"case": ""}, "methods": {"late": ""}, "search": [], "target": 0.8})
    found = Leaderboard(tmp_path).entry("case", "late").timed
    assert found is not None
    assert found.seconds_to_target.tolist() == [5400, math.inf]
    assert found.first_seconds.tolist() == [5400, 6300]


def test_a_target_that_is_reached_after_the_time_limit_does_not_count(tmp_path: Path) -> None:
    write_method(tmp_path, "late", [rising(8), rising(7)], every=1000)
    write_arena(tmp_path, {"cases": {"case": ""}, "methods": {"late": ""}, "search": [], "target": 0.8})
    found = Leaderboard(tmp_path).entry("case", "late").timed
    assert found is not None
    assert found.first_seconds.tolist() == [math.inf, 7000]


def test_a_target_that_half_of_the_seeds_reach_is_reached(tmp_path: Path) -> None:
    """Two of four seeds reach it, after 900 s and 1800 s: the larger of their values is shown."""
    write_method(tmp_path, "half", [rising(9), rising(1), rising(2), rising(9)])
    write_method(tmp_path, "less", [rising(9), rising(1), rising(9), rising(9)])
    write_arena(tmp_path, {"cases": {"case": ""}, "methods": {"half": "", "less": ""}, "search": [], "target": 0.8})
    board = Leaderboard(tmp_path)
    half, less = board.entry("case", "half"), board.entry("case", "less")
    assert half.timed is not None
    assert less.timed is not None
    assert (half.timed.hours_to_target, half.timed.hours_to_first, half.timed.median_megabytes) == (0.5, 0.5, 20)
    assert (less.timed.hours_to_target, less.timed.hours_to_first, less.timed.median_megabytes) == (math.inf,) * 3
    assert (half.rounds_to_target, less.rounds_to_target) == (2, math.inf)


def test_methods_are_sorted_by_time_and_then_by_accuracy(board: Leaderboard) -> None:
    """`steady` has the same times as `fast` in another order; the diverged method is last."""
    assert [entry.method for entry in board.boards[0].entries] == ["fast", "steady", "swinging", "slow", "never", "bad"]
    assert board.by_rank[2:] == ["swinging", "slow", "never", "bad"]
    assert board.ranking.mean.tolist() == [1.5, 1.5, 4, 3, 5, 6]


def test_only_methods_that_differ_significantly_are_not_as_good(board: Leaderboard) -> None:
    """The seeds of `swinging` differ so much that nothing is certain, but most of them do not reach the target."""
    ties = {entry.method: entry.ties_best for entry in board.boards[0].entries}
    assert ties == {"fast": True, "steady": True, "swinging": False, "slow": False, "never": False, "bad": False}
    unreachable = Leaderboard(board.root, target=0.99)
    assert not any(entry.ties_best for entry in unreachable.boards[0].entries)


def test_a_difference_below_the_time_between_evaluations_is_a_tie(tmp_path: Path) -> None:
    """All seeds reach the target after 1800 s, 1920 s (evaluated every 960 s) and 2700 s (every 900 s)."""
    write_method(tmp_path, "first", [rising(2)] * 3)
    write_method(tmp_path, "close", [rising(2)] * 3, every=960)
    write_method(tmp_path, "later", [rising(3)] * 3)
    names = dict.fromkeys(("first", "close", "later"), "")
    write_arena(tmp_path, {"cases": {"case": ""}, "methods": names, "search": [], "target": 0.8})
    [board] = Leaderboard(tmp_path).boards
    assert [(entry.method, entry.ties_best) for entry in board.entries] == [
        ("first", True),
        ("close", True),
        ("later", False),
    ]


def test_tables(board: Leaderboard, tmp_path: Path) -> None:
    text = as_markdown(board)
    assert "| FAST | **0.50** | 0.58 | 0.50 | 20 | 0.900 ± 0.000 | 0.000 |" in text
    assert f"| NEVER | never | 2.00 | never | {DASH} | 0.100" in text
    assert "| BAD | diverged |" in text
    assert "`a=1`; target accuracy 0.80, within 2 hours" in text
    _, table, _ = write_leaderboard(board, tmp_path)
    header, first, *_ = table.read_text().splitlines()
    cells = dict(zip(header.split(","), first.split(","), strict=True))
    assert (cells["method"], cells["hours_to_target"], cells["hours"], cells["dropped"]) == (
        "fast",
        "0.5",
        "2",
        "0.333333333",
    )


def test_small_intervals_are_rounded_up(tmp_path: Path) -> None:
    """Accuracies of 0.9, 0.9 and 0.9003: the standard error is 0.0001, and the interval 4.303 times that."""
    write_method(tmp_path, "one", [rising(2), rising(2), rising(2, 0.9003)])
    write_arena(tmp_path, {"cases": {"case": ""}, "methods": {"one": ""}, "search": []})
    assert "| 0.900 ± 0.001 |" in as_markdown(Leaderboard(tmp_path))


def test_two_seeds_are_too_few_for_a_test(tmp_path: Path) -> None:
    """One of the methods is better in both seeds, but no method is marked, and the tables say why."""
    write_method(tmp_path, "good", [rising(2), rising(2)])
    write_method(tmp_path, "bad", [rising(6), rising(6)])
    write_arena(tmp_path, {"cases": {"case": ""}, "methods": {"good": "", "bad": ""}, "search": [], "target": 0.8})
    board = Leaderboard(tmp_path)
    assert [entry.ties_best for entry in board.boards[0].entries] == [False, False]
    for text in (as_markdown(board), as_html(board, "")):
        assert "needs at least 3 seeds, and each method ran on 2" in text
        assert "paired t-test" not in text
        assert "**0.50**" not in text
        assert "<strong>" not in text


def test_searches_at_the_edge_are_a_warning(board: Leaderboard, tmp_path: Path) -> None:
    write_method(tmp_path, "one", [rising(2)] * 3)
    trial = {"case": "case", "method": "one", "learning_rate": 0.1, "server_step": 1.0, "score": 0.5, "best": True}
    about = {"cases": {"case": ""}, "methods": {"one": ""}}
    write_arena(tmp_path, {**about, "search": [{**trial, "at_edge": True}]})
    edge = Leaderboard(tmp_path)
    assert "> **Warning:** In 1 of 1 searches the best step is the smallest or largest" in as_markdown(edge)
    assert '<p class="warning" role="note"><b>Warning:</b> In 1 of 1' in as_html(edge, "")
    assert "<code>--trials</code>" in as_html(edge, "")
    assert "Warning" not in as_markdown(board)


def test_cells_of_the_page_are_shaded_by_their_distance_to_the_best(board: Leaderboard) -> None:
    """Hours to the target of at most 1.1 and 4 times 0.50, but not "never"; what the columns show is in Markdown."""
    page = as_html(board, "")
    assert '<th scope="row">FAST</th><td class="number">1.5</td><td class="number near-0"><strong>0.50' in page
    assert '<th scope="row">SLOW</th><td class="number">4.0</td><td class="number near-3">1.50' in page
    assert '<th scope="row">NEVER</th><td class="number">5.0</td><td class="number">never' in page
    comment, head = "<!-- leaderboard: hours to target -->", "| method | mean rank | case |"
    assert f"{comment}\n\n{head}\n|---|---:|---:|" in as_markdown(board)


def test_the_setting_of_a_case_has_the_values_of_the_command(tmp_path: Path) -> None:
    write_method(tmp_path, "short", [rising(2)])
    cases, overrides = {"case": "availability=diurnal deadline=60 until=9"}, ["num_clients=20", "deadline=30"]
    write_arena(tmp_path, {"cases": cases, "methods": {"short": ""}, "search": [], "overrides": overrides})
    assert "`availability=diurnal deadline=30`; target accuracy" in as_markdown(Leaderboard(tmp_path))


def test_a_run_whose_rounds_end_early_is_named(tmp_path: Path) -> None:
    write_method(tmp_path, "short", [rising(2)], every=600)
    write_arena(tmp_path, {"cases": {"case": ""}, "methods": {"short": ""}, "search": []})
    board = Leaderboard(tmp_path)
    assert "reached its largest number of rounds before the time limit: SHORT" in as_markdown(board)


def test_figures(board: Leaderboard, tmp_path: Path) -> None:
    path = draw_time_and_bytes(board.boards[0], tmp_path / "figure.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(curve_sources(board)) == ["case"]


def test_the_name_of_the_target_is_not_on_a_curve(board: Leaderboard) -> None:
    with canvas(10, 4) as figure:
        draw_case(figure, board.boards[0])
        figure.draw_without_rendering()
    right = figure.axes[1]
    [name] = [text for text in right.texts if text.get_text() == "target 0.80"]
    assert right.bbox.x1 < name.get_window_extent().x0 < name.get_window_extent().x1 <= figure.bbox.x1
    assert not figure.axes[0].texts
