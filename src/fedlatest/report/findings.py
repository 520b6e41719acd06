"""What the runs say, in words: sentences computed from the records."""

import math
from collections.abc import Sequence

import numpy as np

from fedlatest.report.grouping import POOLED, Setting
from fedlatest.report.run_records import RunRecord


def what_was_run(runs: list[RunRecord], settings: Sequence[Setting]) -> str:
    """The runs at a glance."""
    titles = list(dict.fromkeys(runs[i].title for setting in settings for i in setting.runs))
    federated = [run for run in runs if run.algorithm != POOLED]
    clients = [run.manifest["config"].get("num_clients") for run in federated]
    data = [run.manifest.get("data", {}).get("name") for run in runs]
    lengths = [run.manifest["config"].get("rounds", int(run.metrics.rounds[-1])) for run in runs]
    seeds = [len(run.metrics.seeds) for run in runs]
    words = f"{_count(len(runs), 'run')} of {_listed(titles)}"
    words += f" in {len(settings)} settings" if len(settings) > 1 else ""
    words += f" on {_listed(_distinct(data))}" if any(data) else ""
    words += f": {_listed(_distinct(clients))} clients" if any(clients) else ""
    words += f", {_listed(_distinct(lengths))} rounds, {_range(seeds, 'seed')} each."
    return words


def findings(runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str]) -> list[str]:
    """Who ends best, who swings, how stale clients get; and which runs are not to be read as ended."""
    said = []
    for setting in settings:
        where = f"With {setting.label}: " if setting.label and len(settings) > 1 else ""
        words = _who_leads(runs, setting, names)
        if words:
            said.append(where + words if where else words[0].upper() + words[1:])
    return [*said, *_staleness(runs, settings, names), *_assumption(runs, names), *_not_ended(runs, names)]


def _who_leads(runs: list[RunRecord], setting: Setting, names: Sequence[str]) -> str:
    ended = [i for i in setting.runs if _judged(runs[i])]
    federated = [i for i in ended if runs[i].algorithm != POOLED]
    if not federated:
        return ""
    best = max(federated, key=lambda i: runs[i].late_accuracy)
    if len(ended) == 1:
        if len(runs) > 1:
            return ""  # nobody to compare with in this setting
        swing = "" if math.isnan(runs[best].swing) else f" and swings by {runs[best].swing:.4f}"
        return f"{names[best]} has a late test accuracy of {runs[best].late_accuracy:.4f} on average{swing}."
    words = f"{names[best]} has the best late test accuracy, {runs[best].late_accuracy:.4f} on average"
    pooled = [i for i in ended if runs[i].algorithm == POOLED]
    if pooled:
        words += f" ({names[pooled[0]]} on pooled data: {runs[pooled[0]].late_accuracy:.4f})"
    swings = sorted((i for i in federated if not math.isnan(runs[i].swing)), key=lambda i: runs[i].swing)
    if len(swings) > 1:
        least, most = swings[0], swings[-1]
        words += (
            f". {names[most]} swings most, by {runs[most].swing:.4f}; {names[least]} least, by {runs[least].swing:.4f}"
        )
    return words + "."


def _staleness(runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str]) -> list[str]:
    """Largest staleness over all runs, and Lemma 1's bound where it is known."""
    federated = [i for i, run in enumerate(runs) if run.algorithm != POOLED and _judged(run)]
    if not federated:
        return []
    stalest = max(federated, key=lambda i: runs[i].largest_staleness)
    homes = [setting.label for setting in settings if stalest in setting.runs and len(settings) > 1]
    where = " ".join([f"under {names[stalest]}", *(f"with {label}" for label in homes)])
    said = [f"The longest that any client stayed unheard: {runs[stalest].largest_staleness} rounds, {where}."]
    facts = {i: runs[i].manifest.get("availability") or {} for i in federated}
    bounded = [i for i in federated if facts[i].get("staleness_bound") is not None]
    within = [i for i in bounded if runs[i].largest_staleness <= facts[i]["staleness_bound"]]
    if len(bounded) == 1:
        [i] = bounded
        verb = "stays within" if within else "exceeds"
        said.append(
            f"{names[i]}'s largest staleness, {runs[i].largest_staleness}, {verb} Lemma 1's bound of "
            f"{facts[i]['staleness_bound']} (Assumption 4 holds with E = {facts[i]['smallest_e']})."
        )
    elif bounded:
        es = sorted({facts[i]["smallest_e"] for i in bounded})
        said.append(
            f"Largest staleness stays within Lemma 1's bound in {len(within)} of the {len(bounded)} runs that have one "
            f"(Assumption 4 holds in them with E = {', '.join(map(str, es))})."
        )
    return said


def _assumption(runs: list[RunRecord], names: Sequence[str]) -> list[str]:
    """Where Assumption 4 failed, and whose absence it was."""
    said = []
    for run, name in zip(runs, names, strict=True):
        facts = run.manifest.get("availability") or {}
        if facts.get("assumption_holds") is False:
            who, number = facts["never_available"], facts["num_never_available"]
            others = f" and {number - 1} other clients were" if number > 1 else " was"
            said.append(
                f"Assumption 4 does not hold in {run.path.name} ({name}): client {who[0]}{others} never available, so "
                "Lemma 1 bounds nothing there."
            )
    return said


def _not_ended(runs: list[RunRecord], names: Sequence[str]) -> list[str]:
    said = []
    for run, name in zip(runs, names, strict=True):
        status = run.manifest.get("status")
        if status == "diverged":
            said.append(f"{name}, in {run.path.name}, diverged: {run.manifest.get('diverged', '')}")
        elif status != "finished":
            said.append(f"{name}, in {run.path.name}, is still running, at round {int(run.metrics.rounds[-1])}.")
    return said


def _judged(run: RunRecord) -> bool:
    """Whether a run's late part means something."""
    return run.manifest.get("status") == "finished" and not math.isnan(run.late_accuracy)


def _distinct(values: Sequence[object]) -> list[str]:
    known = list(dict.fromkeys(value for value in values if value is not None))
    return [f"{value:,}" if isinstance(value, int) else str(value) for value in known]


def _range(counts: Sequence[int], noun: str) -> str:
    low, high = int(np.min(counts)), int(np.max(counts))
    return _count(low, noun) if low == high else f"{low} to {_count(high, noun)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
