"""Run folders with hand-written content, for the tests of the report."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from fedlatest.runs import ClientRecord, LabelRow, Participation, Row, RunFolder


def cohorts(*seeds: list[list[int]]) -> Participation:
    """Return the participation of hand-written cohorts, one list of rounds per seed."""
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
    """Write an unfinished run of four clients that is evaluated every second round.

    Args:
        path: The run folder.
        algorithm: Name of the algorithm.
        rounds: Number of rounds.
        seeds: Number of seeds.
        config: `num_local_steps`, `title` (of the algorithm), and values of the run's recipe.
    """
    folder = RunFolder(path)
    steps = config.pop("num_local_steps", 10)
    title = {"title": config.pop("title")} if "title" in config else {}
    common = {"rounds": rounds, "num_local_steps": steps, "num_clients": 4, "batch_size": 5, "cohort_size": 2}
    recipe = {"algorithm": algorithm, **config}
    settings = {**common, "algorithm": {"name": algorithm, **title}, "recipe": recipe}
    data = {"name": "hand", "train": "blake2b:00"}
    folder.begin({"config": settings, "seeds": list(range(seeds)), "data": data}, resume=False, force=False)
    for round in range(0, rounds + 1, 2):
        about = (3, 2, 1.5, 2) if round else ()
        folder.record(
            [Row(s, round, 0.1, 2 / (round + 1), 0.5, 1.0, 0.1 * round + 0.01 * s, *about) for s in range(seeds)]
        )
    return folder


def finish(folder: RunFolder, took_part: Participation = FOUR_ROUNDS, **availability: Any) -> None:
    """Finish a run of `write_run`; `availability` are entries of the manifest."""
    folder.describe(FOUR_CLIENTS)
    folder.record_labels([LabelRow(0, 0, np.array([0.1, np.nan])), LabelRow(0, 4, np.array([0.9, np.nan]))])
    folder.note_cohorts(took_part)
    facts = {"smallest_e": None, "staleness_bound": None, "largest_staleness": 4, **availability}
    ended = {"seconds": 1.5, "availability": facts, "rounds_done": int(folder.metrics().rounds[-1])}
    folder.finish({"w": np.zeros(1, np.float32)}, round=4, facts=ended)


def write_curve(path: Path, accuracies: dict[int, list[float]], algorithm: str = "fedlaavg") -> None:
    """Write an unfinished run whose test accuracies at rounds 0, 10, 20, ... are given per seed."""
    manifest = {"config": {"algorithm": {"name": algorithm}}, "seeds": list(accuracies), "data": {}}
    folder = RunFolder(path)
    folder.begin(manifest, resume=False, force=False)
    for seed, values in accuracies.items():
        folder.record([Row(seed, 10 * i, 0.0, 1.0 / (i + 1), 0.5, 1.0, value) for i, value in enumerate(values)])


def data_of(page: Path) -> Any:
    """Return the JSON that the page's script reads."""
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(text)
