"""Groups runs by setting, and gives each run a name and a line style.

The runs of one setting differ only in their algorithm (and its own keys), so they share a chart. The label of a setting
consists of the keys in which it differs from the other settings.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from fedlatest.report.figures import STYLES, Style, algorithm_styles, style_of
from fedlatest.report.run_records import RunRecord
from fedlatest.report.run_summaries import run_values, varying_keys

POOLED = "sequential"  # trains on all data at once: has neither clients nor availability
DASHES = ("9 3", "3 3", "9 3 3 3", "14 4", "2 5")  # for further runs of one algorithm in one setting
_NOT_OF_THE_SETTING = {"algorithm", "recipe", "local_steps", "num_local_steps", "evaluate_every"}
SHORT_KEYS = {"learning_rate": "lr", "num_clients": "clients", "local_steps": "steps"}
MOST_LABEL_KEYS = 3  # keys in the label of a setting, unless more are needed to tell settings apart
_NOT_A_VALUE = {"name", "title"}  # entries of a manifest's config.algorithm that are not values of the algorithm


class Setting(NamedTuple):
    """Runs that are compared with each other, as indices into the list of all runs."""

    label: str
    runs: list[int]


class LineStyle(NamedTuple):
    """The colour of a line on a light and on a dark background, and its dashes in SVG's notation."""

    light: str
    dark: str
    dash: str


def find_settings(runs: list[RunRecord]) -> list[Setting]:
    """Group runs that have the same values except those of the algorithm.

    A pooled run is added to every setting that has the same data, model, rounds and samples per step.
    """
    keys = _setting_keys(runs)
    groups: dict[str, list[int]] = defaultdict(list)
    values: dict[str, Mapping[str, Any]] = {}
    pooled = [i for i, run in enumerate(runs) if run.algorithm == POOLED]
    for i in range(len(runs)):
        if i not in pooled:
            groups[str(keys[i])].append(i)
            values[str(keys[i])] = keys[i]
    for i in pooled:
        own = _pooled_key(runs[i])
        comparable = [group for group in groups if any(_pooled_key(runs[j]) == own for j in groups[group])]
        for group in comparable or [str(keys[i])]:
            groups[group].append(i)
            values.setdefault(group, keys[i])
    labels = _labels([values[group] for group in groups])
    members = [sorted(group, key=lambda i: _rank(runs[i])) for group in groups.values()]
    return sorted(map(Setting, labels, members), key=_natural_order)


def name_runs(runs: list[RunRecord], settings: list[Setting]) -> list[str]:
    """Return the title of each run's algorithm and, if a setting has several runs of it, the values that differ."""
    names = [run.title for run in runs]
    for setting in settings:
        for same in _same_algorithm(runs, setting):
            differences = [_differences(runs[i], [runs[j] for j in same]) for i in same]
            if len({tuple(values) for values in differences}) < len(same):
                differences = _all_differences([runs[i] for i in same])
            for i, values in zip(same, differences, strict=True):
                ambiguous = differences.count(values) > 1
                names[i] = f"{runs[i].title} ({', '.join([*values, *([runs[i].path.name] if ambiguous else [])])})"
    return names


def name_in_page(runs: list[RunRecord], settings: list[Setting], names: list[str]) -> list[str]:
    """Return a name per run that is unique among the runs of all settings and says what differs between them.

    Args:
        runs: The runs.
        settings: The runs grouped by setting.
        names: Name of each run within its setting.
    """
    of_run = [[setting.label for setting in settings if i in setting.runs] for i in range(len(runs))]
    labels = [found[0] if len(found) == 1 and len(settings) > 1 else "" for found in of_run]
    one_algorithm = len({run.title for run in runs}) == 1
    full = [
        label if label and one_algorithm and name == run.title else " · ".join(filter(None, (name, label)))
        for run, name, label in zip(runs, names, labels, strict=True)
    ]
    counts = Counter(full)
    return [name if counts[name] == 1 else f"{name} ({run.path.name})" for name, run in zip(full, runs, strict=True)]


def line_styles(runs: list[RunRecord], settings: list[Setting]) -> list[LineStyle]:
    """Return the style of each run's algorithm; further runs of it in one setting have another shade and dashes."""
    by_algorithm = algorithm_styles(run.algorithm for run in runs)
    styles = [style_of(run, by_algorithm) for run in runs]
    lines = [_line_style(style, 0) for style in styles]
    for setting in settings:
        used: Counter[Style] = Counter()
        for i in setting.runs:
            lines[i] = _line_style(styles[i], used[styles[i]])
            used[styles[i]] += 1
    return lines


def _setting_keys(runs: list[RunRecord]) -> list[dict[str, Any]]:
    full = [_values(run) for run in runs]
    without = [{key: value for key, value in values.items() if key != "learning_rate"} for values in full]
    rates = defaultdict(set)
    for run, values, rest in zip(runs, full, without, strict=True):
        rates[run.algorithm, _num_steps(run), str(rest)].add(values.get("learning_rate"))
    # A learning rate tuned for each algorithm belongs to the algorithm; several for one algorithm are several settings.
    return full if any(len(found) > 1 for found in rates.values()) else without


def _values(run: RunRecord) -> dict[str, Any]:
    config = run.manifest["config"]
    excluded = _NOT_OF_THE_SETTING | set(config["algorithm"])
    data = run.manifest.get("data", {})
    source = config.get("recipe") or {**config, "availability": str(data.get("availability", ""))[-6:]}
    return {"data": data.get("name", ""), **{key: value for key, value in source.items() if key not in excluded}}


def _pooled_key(run: RunRecord) -> list[Any]:
    """Return what pooled training depends on; one of its steps uses the batches of a whole cohort."""
    config = run.manifest["config"]
    samples_per_step = config.get("batch_size", 0) * config.get("cohort_size", 0)
    return [run.manifest.get("data", {}).get("train"), samples_per_step, *map(config.get, ("rounds", "model", "loss"))]


def _labels(values: list[Mapping[str, Any]]) -> list[str]:
    """Return a short label per setting: the values in which the settings differ.

    With more than MOST_LABEL_KEYS such keys, a label has only the values that are not the most common ones, or, if all
    of them are, those of the keys that vary most.
    """
    keys = list(dict.fromkeys(key for each in values for key in each))
    counts = {key: Counter(str(each[key]) for each in values if key in each) for key in keys}
    varying = [key for key in keys if len(counts[key]) > 1]
    if len(varying) <= MOST_LABEL_KEYS:
        labels = [", ".join(short_value(key, each[key]) for key in varying if key in each) for each in values]
        if len(set(labels)) == len(labels):
            return labels
        varying = [key for key in keys if len({str(each.get(key)) for each in values}) > 1]
    common = {key: counts[key].most_common(1)[0][0] for key in varying}
    if len(values) == 2:  # neither value is more common
        common = {}
    by_variation = sorted(varying, key=lambda key: -sum(str(each.get(key)) != common.get(key) for each in values))
    labels = []
    for each in values:
        uncommon = [key for key in varying if key in each and str(each[key]) != common.get(key)]
        shown = uncommon or [key for key in by_variation if key in each][:MOST_LABEL_KEYS]
        labels.append(", ".join(short_value(key, each[key]) for key in shown))
    return _distinct(labels, values, varying)


def _distinct(labels: list[str], values: list[Mapping[str, Any]], keys: list[str]) -> list[str]:
    """Replace labels that occur several times by all values of the keys."""
    counts = Counter(labels)
    return [
        label if counts[label] == 1 else ", ".join(short_value(key, each[key]) for key in keys if key in each)
        for label, each in zip(labels, values, strict=True)
    ]


def short_value(key: str, value: Any) -> str:
    """Return a value as a part of a label; a text is shown without its key.

    >>> short_value("availability", "markov"), short_value("learning_rate", 0.1), short_value("balanced", False)
    ('markov', 'lr=0.1', 'balanced=no')
    """
    key = SHORT_KEYS.get(key, key)
    if isinstance(value, bool):
        return f"{key}={'yes' if value else 'no'}"
    if isinstance(value, float):
        return f"{key}={value:g}"
    return value if isinstance(value, str) and value else f"{key}={value}"


def _same_algorithm(runs: list[RunRecord], setting: Setting) -> list[list[int]]:
    """Return the groups of two or more runs of a setting that have the same algorithm."""
    by_algorithm: dict[str, list[int]] = defaultdict(list)
    for i in setting.runs:
        by_algorithm[runs[i].algorithm].append(i)
    return [same for same in by_algorithm.values() if len(same) > 1]


def _differences(run: RunRecord, others: list[RunRecord]) -> list[str]:
    """Return the values of a run's algorithm that are not the same in all of `others`."""
    differences = []
    if len({_num_steps(other) for other in others}) > 1:
        differences.append("1 step" if _num_steps(run) == 1 else f"{_num_steps(run)} steps")
    for key, value in run.manifest["config"]["algorithm"].items():
        values = {str(other.manifest["config"]["algorithm"].get(key)) for other in others}
        if key not in _NOT_A_VALUE and len(values) > 1:
            differences.append(short_value(key, value))
    return differences


def _all_differences(runs: list[RunRecord]) -> list[list[str]]:
    """Return the values of each run in which these runs differ, whether or not they belong to the algorithm."""
    values = [run_values(run) for run in runs]
    keys = varying_keys(values)
    return [[short_value(key, each[key]) for key in keys if key in each] for each in values]


def _rank(run: RunRecord) -> tuple[int, str, bool, int]:
    """Sort by algorithm (those in STYLES first); runs of one algorithm: finished first, then most local steps first."""
    order = list(STYLES)
    known = run.algorithm in STYLES
    place = order.index(run.algorithm) if known else len(order)
    return place, "" if known else run.title, run.manifest.get("status") != "finished", -_num_steps(run)


def _natural_order(setting: Setting) -> list[tuple[float, str]]:
    """Sort numbers in a label by value."""
    return [(float(part), "") if part.isdigit() else (-1.0, part) for part in re.split(r"(\d+)", setting.label)]


def _num_steps(run: RunRecord) -> int:
    return int(run.manifest["config"].get("num_local_steps", 0))


def _line_style(style: Style, variant: int) -> LineStyle:
    """Return the style of the run number `variant`, from 0, that has this colour and these dashes."""
    colour, dashes = style
    default = "" if isinstance(dashes, str) else " ".join(f"{2 * length:g}" for length in dashes[1])
    dash = DASHES[(variant - 1) % len(DASHES)] if variant else default
    amount = min(0.15 * variant, 0.45)
    dark = "#e6e8ea" if colour == "#000000" else _mix(colour, 255, min(0.3 + amount, 0.75))
    return LineStyle(_mix(colour, 0, amount), dark, dash)


def _mix(colour: str, grey: int, share: float) -> str:
    """Mix a colour with a share of a grey level (0 is black, 255 is white)."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round((1 - share) * part + share * grey):02x}" for part in parts)
