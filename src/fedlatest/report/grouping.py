"""Which runs belong together, what they are called, and how they look.

Runs of one setting differ in their algorithm alone (and its own keys); they share a chart. A setting is named by the
keys in which it differs from the others.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedlatest.report.figures import STYLE, Dashes, style_of
from fedlatest.report.run_records import RunRecord

POOLED = "sequential"  # trains on all data at once: has no clients, and no availability
DASHES = ("9 3", "3 3", "9 3 3 3", "14 4", "2 5")  # for further runs of one algorithm in one setting
_NOT_THE_SETTING = {"algorithm", "recipe", "local_steps", "num_local_steps", "evaluate_every"}


class Setting(NamedTuple):
    """Runs that are compared with each other, by their position."""

    label: str
    runs: list[int]


class Look(NamedTuple):
    """A line: its colour on light and on dark ground, and its dashes as SVG writes them."""

    light: str
    dark: str
    dash: str


def find_settings(runs: list[RunRecord]) -> list[Setting]:
    """Group runs by everything that is not their algorithm's; pooled runs join every setting that they compare with."""
    keys = _setting_keys(runs)
    groups: dict[str, list[int]] = defaultdict(list)
    values: dict[str, Mapping[str, Any]] = {}
    pooled = [i for i, run in enumerate(runs) if run.algorithm == POOLED]
    for i in range(len(runs)):
        if i not in pooled:
            groups[str(keys[i])].append(i)
            values[str(keys[i])] = keys[i]
    for i in pooled:
        fitting = [group for group in groups if any(_seen(runs[j]) == _seen(runs[i]) for j in groups[group])]
        for group in fitting or [str(keys[i])]:
            groups[group].append(i)
            values.setdefault(group, keys[i])
    names = _names([values[group] for group in groups])
    members = [sorted(group, key=lambda i: _rank(runs[i])) for group in groups.values()]
    return sorted(map(Setting, names, members), key=_natural)


def name_runs(runs: list[RunRecord], settings: list[Setting]) -> list[str]:
    """The algorithm's title and, where a setting holds several runs of it, what tells them apart."""
    names = [run.title for run in runs]
    for setting in settings:
        for twins in _twins(runs, setting):
            told = [_told_apart(runs[i], [runs[j] for j in twins]) for i in twins]
            for i, words in zip(twins, told, strict=True):
                unclear = told.count(words) > 1
                names[i] = f"{runs[i].title} ({', '.join([*words, *([runs[i].path.name] if unclear else [])])})"
    return names


def look_of(runs: list[RunRecord], settings: list[Setting]) -> list[Look]:
    """The algorithm's colour; further runs of it in one setting get another shade and other dashes."""
    looks = [_look(run, 0) for run in runs]
    for setting in settings:
        seen: Counter[tuple[str, Dashes]] = Counter()
        for i in setting.runs:
            looks[i] = _look(runs[i], seen[style_of(runs[i])])
            seen[style_of(runs[i])] += 1
    return looks


def _setting_keys(runs: list[RunRecord]) -> list[dict[str, Any]]:
    full = [_values(run) for run in runs]
    without = [{key: value for key, value in values.items() if key != "learning_rate"} for values in full]
    rates = defaultdict(set)
    for run, values, rest in zip(runs, full, without, strict=True):
        rates[run.algorithm, _steps(run), str(rest)].add(values.get("learning_rate"))
    # A step size tuned for each algorithm belongs to the algorithm; several for one algorithm are a sweep of settings.
    return full if any(len(found) > 1 for found in rates.values()) else without


def _values(run: RunRecord) -> dict[str, Any]:
    config = run.manifest["config"]
    own = _NOT_THE_SETTING | set(config["algorithm"])
    data = run.manifest.get("data", {})
    source = config.get("recipe") or {**config, "availability": str(data.get("availability", ""))[-6:]}
    return {"data": data.get("name", ""), **{key: value for key, value in source.items() if key not in own}}


def _seen(run: RunRecord) -> list[Any]:
    """What pooled training depends on: it takes the batches of a whole cohort at once, whoever is available."""
    config = run.manifest["config"]
    samples_per_step = config.get("batch_size", 0) * config.get("cohort_size", 0)
    return [run.manifest.get("data", {}).get("train"), samples_per_step, *map(config.get, ("rounds", "model", "loss"))]


def _names(values: list[Mapping[str, Any]]) -> list[str]:
    """Each setting by the keys in which it is unlike most; the one that is like most by the keys that differ at all."""
    keys = list(dict.fromkeys(key for each in values for key in each))
    counts = {key: Counter(str(each.get(key)) for each in values) for key in keys}
    differing = [key for key in keys if len(counts[key]) > 1]
    usual = {key: counts[key].most_common(1)[0][0] for key in differing}
    if len(values) == 2:  # neither is unusual
        usual = {}
    telling = sorted(differing, key=lambda key: -sum(str(each.get(key)) != usual.get(key) for each in values))
    names = []
    for each in values:
        own = [key for key in differing if key in each and str(each[key]) != usual.get(key)]
        names.append(", ".join(f"{key}={each[key]}" for key in own or telling if key in each))
    return names


def _twins(runs: list[RunRecord], setting: Setting) -> list[list[int]]:
    by_algorithm: dict[str, list[int]] = defaultdict(list)
    for i in setting.runs:
        by_algorithm[runs[i].algorithm].append(i)
    return [twins for twins in by_algorithm.values() if len(twins) > 1]


def _told_apart(run: RunRecord, twins: list[RunRecord]) -> list[str]:
    words = []
    if len({_steps(twin) for twin in twins}) > 1:
        words.append("1 step" if _steps(run) == 1 else f"{_steps(run)} steps")
    own = run.manifest["config"]["algorithm"]
    words += [
        f"{key}={value}"
        for key, value in own.items()
        if len({str(twin.manifest["config"]["algorithm"].get(key)) for twin in twins}) > 1
    ]
    return words


def _rank(run: RunRecord) -> tuple[int, bool, int]:
    """Algorithms in the order of their styles; of one algorithm, what is finished and trains longest first."""
    order = list(STYLE)
    place = order.index(run.algorithm) if run.algorithm in order else len(order)
    return place, run.manifest.get("status") != "finished", -_steps(run)


def _natural(setting: Setting) -> list[tuple[float, str]]:
    """Numbers in a label by their size."""
    return [(float(part), "") if part.isdigit() else (-1.0, part) for part in re.split(r"(\d+)", setting.label)]


def _steps(run: RunRecord) -> int:
    return int(run.manifest["config"].get("num_local_steps", 0))


def _look(run: RunRecord, variant: int) -> Look:
    colour, dashes = style_of(run)
    usual = "" if isinstance(dashes, str) else " ".join(f"{2 * length:g}" for length in dashes[1])
    dash = DASHES[(variant - 1) % len(DASHES)] if variant else usual
    towards = min(0.15 * variant, 0.45)
    dark = "#e6e8ea" if colour == "#000000" else _mix(colour, 255, min(0.3 + towards, 0.75))
    return Look(_mix(colour, 0, towards), dark, dash)


def _mix(colour: str, towards: int, share: float) -> str:
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round((1 - share) * part + share * towards):02x}" for part in parts)
