"""Figures of availability, drawn from simulated runs, and the client records that they read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedlatest import RunFolder, RunFolderError
from fedlatest.report import RunRecord, draw_availability, draw_round, draw_sleep
from fedlatest.report.availability_figures import WINDOW, _available, _by_label, _columns
from fedlatest.runs import ClientRecord
from fedlatest.runs.array_files import save_npz
from fedlatest.runs.clients import load_clients, save_clients
from tests.report.conftest import DAY, FEDERATION
from tests.report.test_figures import count_colours


def test_chart_shows_the_availability(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """The shares by label equal the availability averaged over the label's clients."""
    clients = RunFolder(runs["fedlaavg"].path).clients()
    assert clients is not None
    shares, rounds = _by_label(clients)
    table = DAY.table(20)  # [rounds, clients]; both are few, so the picture is exact
    assert rounds.tolist() == list(range(21))
    for label in range(shares.shape[0]):
        own = clients.labels == label
        if own.any():
            np.testing.assert_allclose(shares[label], table[:, own].mean(axis=1), atol=1 / 255)
    for round in (0, 5, 19):
        assert _available(clients, round).tolist() == table[round].tolist()
    path = draw_availability({"E = 4": runs["fedlaavg"]}, tmp_path / "chart.png")
    assert (
        sum(count for colour, count in count_colours(path).items() if max(colour) < 80) > 1000
    )  # dark where not available


def test_figure_of_one_round(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    path = draw_round(runs["fedlaavg"], tmp_path / "round.png", round=9)
    assert count_colours(path)[0xD5, 0x5E, 0x00] > 20  # the three clients that take part
    with pytest.raises(RunFolderError, match=r"round=20: .* has rounds 0 \.\. 19"):
        draw_round(runs["fedlaavg"], tmp_path / "round.png", round=20)


def test_columns_of_many_clients() -> None:
    """Label 0 has 1000 clients, of which 400 evenly spaced ones and both chosen ones are shown; label 1 has all 5."""
    labels = np.repeat([0, 1], [1000, 5]).astype(np.int32)
    chosen = np.zeros(1005, bool)
    chosen[[501, 502]] = True  # 501 is not one of the evenly spaced clients
    column = _columns(labels, chosen)
    shown = np.flatnonzero(column[:1000] >= 0)
    assert shown.size in (401, 402)
    assert {0, 501, 502, 999} <= set(shown.tolist())
    assert column[shown].tolist() == list(range(shown.size))
    assert column[1000:].tolist() == [0, 1, 2, 3, 4]
    assert _columns(labels[600:], chosen[600:]).tolist() == [*range(400), *range(5)]


def with_days(run: RunRecord, start: float) -> ClientRecord:
    """Return the run's clients; client i has i samples at noon, and all windows are eight hours long."""
    clients = RunFolder(run.path).clients()
    assert clients is not None
    assert clients.sent.shape == (0, 96)
    sent = np.zeros((8, 96), np.uint16)
    sent[:, 48] = np.arange(8)
    return clients._replace(sent=sent, window=np.tile(np.array([start, 8], np.float32), (8, 1)))


def test_window_that_contains_midnight(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """Windows from 20:00 to 4:00 have the same area as those from 0:00 to 8:00, at both ends of the day."""
    folder = tmp_path / "run"
    folder.mkdir()
    run = runs["fedlaavg"]._replace(path=folder)
    columns = {}
    for start in (0.0, 20.0):
        save_clients(folder / "clients.npz", with_days(runs["fedlaavg"], start))
        pixels = np.asarray(Image.open(draw_sleep(run, tmp_path / "sleep.png")).convert("RGB"))
        colour = [int(WINDOW[i : i + 2], 16) for i in (1, 3, 5)]
        columns[start] = (pixels == colour).all(axis=-1)[: pixels.shape[0] // 2].sum(axis=0)
    early, late = columns[0.0] > 0, columns[20.0] > 0
    assert abs(int(early.sum()) - int(late.sum())) <= 3
    middle = (np.flatnonzero(early)[0] + np.flatnonzero(late)[-1]) // 2
    assert late[:middle].any()
    assert late[middle:].any()
    assert not early[middle:].any()


def test_clients_without_a_time_of_day(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="its samples have no time of day or its clients no daily window"):
        draw_sleep(runs["fedlaavg"], tmp_path / "sleep.png")


def test_client_records_of_older_versions_are_read(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """Their files lack `sent` and `window`; all other arrays are required."""
    new = with_days(runs["fedlaavg"], 0.0)
    arrays = new._asdict()
    save_npz(tmp_path / "old.npz", {name: arrays[name] for name in arrays if name not in ("sent", "window")})
    old = load_clients(tmp_path / "old.npz")
    assert (old.sent.shape, old.window.shape) == ((0, 96), (0, 2))
    np.testing.assert_array_equal(old.available, new.available)
    save_clients(tmp_path / "new.npz", new)
    np.testing.assert_array_equal(load_clients(tmp_path / "new.npz").sent, new.sent)
    save_npz(tmp_path / "broken.npz", {"labels": new.labels})
    with pytest.raises(RunFolderError, match="cannot be read"):
        load_clients(tmp_path / "broken.npz")


def test_pooled_run_has_no_clients_to_draw(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="has no record of its clients"):
        draw_availability({"": runs["sequential"]}, tmp_path / "chart.png")


def test_accuracies_per_label_add_up_to_the_test_accuracy(runs: dict[str, RunRecord]) -> None:
    """Each label is weighted by its number of test samples."""
    labels = RunFolder(runs["fedavg"].path).labels()
    assert labels is not None
    held = np.bincount(FEDERATION.test_labels, minlength=labels.accuracy.shape[-1])
    whole = np.nansum(labels.accuracy * held, axis=-1) / held.sum()
    np.testing.assert_allclose(whole, runs["fedavg"].metrics.column("test_accuracy"), atol=1e-4)
    assert labels.rounds.tolist() == [0, 5, 10, 15, 20]
