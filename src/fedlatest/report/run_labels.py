"""Labels of runs that are drawn in one figure or listed in one table, lists of labels, and titles of reports."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlatest.report.run_records import RunRecord

_NOT_A_SETTING = {"algorithm", "name", "title", "recipe"}
_MOST_FOLDERS = 3  # in a title


def label_runs(runs: list[RunRecord]) -> list[str]:
    """Return a distinct label for each run.

    A label is the algorithm's title. If several runs have the same title, the values in which they differ follow, or
    the folder if these values are the same. A run that diverged is marked with the round.
    """
    by_title: dict[str, list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        by_title[run.title].append(number)
    details: dict[int, list[str]] = {}
    for same in by_title.values():
        values = [_settings(runs[number]) for number in same]
        keys = dict.fromkeys(key for each in values for key in each)
        varying = [key for key in keys if len({str(each.get(key)) for each in values}) > 1]
        shown = [[f"{key}={each[key]}" for key in varying if key in each] for each in values]
        folders = _distinct_folders([runs[number] for number in same])
        for number, own, folder in zip(same, shown, folders, strict=True):
            is_distinct = len(same) == 1 or shown.count(own) == 1
            details[number] = own if is_distinct else [*own, folder]
    return [_label(run, details[number]) for number, run in enumerate(runs)]


def folder_title(folders: Sequence[Path]) -> str:
    """Return the title of a report on some folders: their names; that of the folder above if there are many.

    >>> folder_title([Path("runs/lr=0.1"), Path("runs/lr=0.2")]), folder_title([Path(f"runs/{i}") for i in range(9)])
    ('lr=0.1 and lr=0.2', 'runs')
    """
    paths = [folder.resolve() for folder in folders]
    names = list(dict.fromkeys(path.name for path in paths))
    if len(names) > _MOST_FOLDERS:
        names = [Path(os.path.commonpath(paths)).name]
    return listed(list(filter(None, names)) or ["Runs"])


def listed(names: Sequence[str]) -> str:
    """Return names as a part of a sentence, separated by semicolons if a name contains a comma.

    >>> listed(["FedLaAvg", "FedAvg", "SCAFFOLD"])
    'FedLaAvg, FedAvg and SCAFFOLD'
    >>> listed(["FedLaAvg", "FedLaAvg, fresh", "FedAvg"])
    'FedLaAvg; FedLaAvg, fresh; and FedAvg'
    """
    *first, last = names
    if not first:
        return last
    return (
        f"{'; '.join(first)}; and {last}" if any(", " in name for name in names) else f"{', '.join(first)} and {last}"
    )


def _label(run: RunRecord, details: list[str]) -> str:
    if run.diverged:
        details = [*details, f"diverged by round {run.manifest.get('rounds_done', '?')}"]
    return f"{run.title} ({', '.join(details)})" if details else run.title


def _settings(run: RunRecord) -> dict[str, Any]:
    """Return the values of a run by key: those of its recipe, or those of its configuration if it has none."""
    config: Mapping[str, Any] = run.manifest["config"]
    values = {**config["algorithm"], **(config.get("recipe") or config)}
    seeds = run.manifest.get("seeds", [])
    return {**{key: value for key, value in values.items() if key not in _NOT_A_SETTING}, "seeds": seeds}


def _distinct_folders(runs: list[RunRecord]) -> list[str]:
    """Return the folders without what all of them have in common at the start."""
    if len(runs) == 1 or len({run.path.name for run in runs}) == len(runs):
        return [run.path.name for run in runs]
    common = os.path.commonpath([run.path.absolute().parent for run in runs])
    return [os.path.relpath(run.path, common) for run in runs]
