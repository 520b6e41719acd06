"""Panels, the availability chart and one round, drawn from a real run."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedlatest import RunFolder, RunFolderError, diurnal, fedavg, fedlaavg, sequential, simulate
from fedlatest.report import (
    Line,
    PublishedCurve,
    RunRecord,
    draw_availability,
    draw_panels,
    draw_round,
    draw_sleep,
    read_runs,
)
from fedlatest.report.availability_figures import ASLEEP, _available, _by_label
from fedlatest.runs import ClientRecord
from fedlatest.runs.array_files import save_npz
from fedlatest.runs.clients import load_clients, save_clients
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(8, seed=1)
DAY = diurnal(np.arange(8) < 3, period=4)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    folder = tmp_path_factory.mktemp("runs")
    for algorithm in (fedlaavg(), fedavg(), sequential()):
        simulate(
            FEDERATION, MODEL, algorithm, DAY, rounds=20, cohort_size=3, num_local_steps=2, batch_size=3,
            evaluate_every=5, seeds=(0, 1), out=folder / algorithm.name,
        )  # fmt: skip
    return {record.path.name: record for record in read_runs([folder])}


def colours(path: Path) -> dict[tuple[int, ...], int]:
    pixels = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)
    values, counts = np.unique(pixels, axis=0, return_counts=True)
    return {tuple(value.tolist()): int(count) for value, count in zip(values, counts, strict=True)}


def test_panels_show_each_algorithm_in_its_colour(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """FedLaAvg's blue and FedAvg's orange; with a published curve a pale blue as well."""
    lines = [Line("a", runs["fedlaavg"]), Line("b", runs["fedavg"])]
    plain = colours(draw_panels({"x": lines, "y": lines}, "test_accuracy", tmp_path / "plain.png"))
    assert plain[0x00, 0x72, 0xB2] > 100
    assert plain[0xD5, 0x5E, 0x00] > 40
    middle = runs["fedlaavg"].late_accuracy
    curve = PublishedCurve(np.arange(0, 21, 5), np.full(5, 0.5), np.full(5, middle))
    behind = [Line("a", runs["fedlaavg"], curve), lines[1]]
    with_published = colours(draw_panels({"x": behind, "y": lines}, "test_accuracy", tmp_path / "published.png"))
    pale = tuple(round(0.35 * part + 0.65 * 255) for part in (0x00, 0x72, 0xB2))
    near = [count for colour, count in with_published.items() if np.abs(np.subtract(colour, pale)).max() <= 2]
    assert sum(near) > 50


def test_the_chart_shows_who_is_there(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """The shares by label are those of the availability itself, averaged over a label's clients."""
    clients = RunFolder(runs["fedlaavg"].path).clients()
    assert clients is not None
    shares, rounds = _by_label(clients)
    table = DAY.table(20)  # [rounds, clients]; few enough of both for the picture to be exact
    assert rounds.tolist() == list(range(21))
    for label in range(shares.shape[0]):
        own = clients.labels == label
        if own.any():
            np.testing.assert_allclose(shares[label], table[:, own].mean(axis=1), atol=1 / 255)
    for round in (0, 5, 19):
        assert _available(clients, round).tolist() == table[round].tolist()
    path = draw_availability({"E = 4": runs["fedlaavg"]}, tmp_path / "chart.png")
    assert sum(count for colour, count in colours(path).items() if max(colour) < 80) > 1000  # dark where away


def test_one_round(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    path = draw_round(runs["fedlaavg"], tmp_path / "round.png", round=9)
    assert colours(path)[0xD5, 0x5E, 0x00] > 20  # the three that take part
    with pytest.raises(RunFolderError, match=r"round=20: .* has rounds 0 \.\. 19"):
        draw_round(runs["fedlaavg"], tmp_path / "round.png", round=20)


def days(run: RunRecord, start: float) -> ClientRecord:
    """The run's clients, with one tweet each at noon and windows of eight hours, all from the same hour on."""
    clients = RunFolder(run.path).clients()
    assert clients is not None
    assert clients.sent.shape == (0, 96)
    sent = np.zeros((8, 96), np.uint16)
    sent[:, 48] = np.arange(8)  # the first sent none
    return clients._replace(sent=sent, window=np.tile(np.array([start, 8], np.float32), (8, 1)))


def test_sleep_across_midnight(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """Windows from 20:00 to 4:00 are as large as those from 0:00 to 8:00, and at both ends of the picture."""
    folder = tmp_path / "run"
    folder.mkdir()
    run = runs["fedlaavg"]._replace(path=folder)
    columns = {}
    for start in (0.0, 20.0):
        save_clients(folder / "clients.npz", days(runs["fedlaavg"], start))
        pixels = np.asarray(Image.open(draw_sleep(run, tmp_path / "sleep.png")).convert("RGB"))
        colour = [int(ASLEEP[i : i + 2], 16) for i in (1, 3, 5)]
        columns[start] = (pixels == colour).all(axis=-1)[: pixels.shape[0] // 2].sum(axis=0)
    early, late = columns[0.0] > 0, columns[20.0] > 0
    assert abs(int(early.sum()) - int(late.sum())) <= 3
    middle = (np.flatnonzero(early)[0] + np.flatnonzero(late)[-1]) // 2
    assert late[:middle].any()
    assert late[middle:].any()
    assert not early[middle:].any()


def test_clients_without_a_time_of_day(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="its samples have no time of day, or its clients no daily window"):
        draw_sleep(runs["fedlaavg"], tmp_path / "sleep.png")


def test_older_folders_are_read(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    """Those that were written before times of day were noted; what every folder has must be there."""
    new = days(runs["fedlaavg"], 0.0)
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


def test_sequential_has_no_clients_to_show(runs: dict[str, RunRecord], tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="does not say who the clients are"):
        draw_availability({"": runs["sequential"]}, tmp_path / "chart.png")


def test_labels_add_up_to_the_test_accuracy(runs: dict[str, RunRecord]) -> None:
    """Weighted by how many test samples a label has."""
    labels = RunFolder(runs["fedavg"].path).labels()
    assert labels is not None
    held = np.bincount(FEDERATION.test_labels, minlength=labels.accuracy.shape[-1])
    whole = np.nansum(labels.accuracy * held, axis=-1) / held.sum()
    np.testing.assert_allclose(whole, runs["fedavg"].metrics.column("test_accuracy"), atol=1e-4)
    assert labels.rounds.tolist() == [0, 5, 10, 15, 20]
