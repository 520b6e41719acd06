"""Sentences about runs, computed from their records, for the overview of the page."""

import math
from collections.abc import Sequence

import numpy as np

from fedlatest.report.grouping import POOLED, Setting
from fedlatest.report.run_labels import listed
from fedlatest.report.run_records import RunRecord


def what_was_run(runs: list[RunRecord], settings: Sequence[Setting]) -> str:
    """Return one sentence with the number of runs, algorithms, settings, data, clients, rounds and seeds."""
    titles = list(dict.fromkeys(runs[i].title for setting in settings for i in setting.runs))
    federated = [run for run in runs if run.algorithm != POOLED]
    clients = [run.manifest["config"].get("num_clients") for run in federated]
    data = [run.manifest.get("data", {}).get("name") for run in runs]
    lengths = [run.manifest["config"].get("rounds", int(run.metrics.rounds[-1])) for run in runs]
    seeds = [len(run.metrics.seeds) for run in runs]
    text = f"{_count(len(runs), 'run')} of {listed(titles)}"
    text += f" in {len(settings)} settings" if len(settings) > 1 else ""
    text += f" on {listed(_distinct(data))}" if any(data) else ""
    text += f": {listed(_distinct(clients))} clients" if any(clients) else ""
    text += f", {listed(_distinct(lengths))} rounds, {_range(seeds, 'seed')} each."
    return text


def findings(runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str]) -> list[str]:
    """Return sentences about accuracy, swing, staleness and Assumption 4, and about runs that are not finished.

    Args:
        runs: The runs.
        settings: The runs grouped by setting.
        names: Name of each run.
    """
    sentences = []
    for setting in settings:
        prefix = f"With {setting.label}: " if setting.label and len(settings) > 1 else ""
        text = _best_accuracy(runs, setting, names)
        if text:
            sentences.append(prefix + text)
    return [*sentences, *_staleness(runs, settings, names), *_assumption(runs, names), *_not_finished(runs, names)]


def _best_accuracy(runs: list[RunRecord], setting: Setting, names: Sequence[str]) -> str:
    finished = [i for i in setting.runs if _is_finished(runs[i])]
    federated = [i for i in finished if runs[i].algorithm != POOLED]
    if not federated:
        return ""
    best = max(federated, key=lambda i: runs[i].late_accuracy)
    if len(finished) == 1:
        if len(runs) > 1:
            return ""  # there is no other run in this setting to compare with
        swing = "" if math.isnan(runs[best].swing) else f" and a swing of {runs[best].swing:.4f}"
        return f"{names[best]} has a late test accuracy of {runs[best].late_accuracy:.4f} on average{swing}."
    pooled = [i for i in finished if runs[i].algorithm == POOLED]
    among = " of the federated algorithms" if pooled else ""
    text = f"{names[best]} has the best late test accuracy{among}, {runs[best].late_accuracy:.4f} on average"
    if pooled:
        text += f" ({names[pooled[0]]}, on pooled data: {runs[pooled[0]].late_accuracy:.4f})"
    swings = sorted((i for i in federated if not math.isnan(runs[i].swing)), key=lambda i: runs[i].swing)
    if len(swings) > 1:
        least, most = swings[0], swings[-1]
        text += (
            f". {names[most]} has the largest swing, {runs[most].swing:.4f}; "
            f"{names[least]} has the smallest, {runs[least].swing:.4f}"
        )
    return text + "."


def _staleness(runs: list[RunRecord], settings: Sequence[Setting], names: Sequence[str]) -> list[str]:
    """Return sentences about the largest staleness over all runs, and about Lemma 1's bound where it is known."""
    federated = [i for i, run in enumerate(runs) if run.algorithm != POOLED and _is_finished(run)]
    if not federated:
        return []
    stalest = max(federated, key=lambda i: runs[i].largest_staleness)
    labels = [setting.label for setting in settings if stalest in setting.runs and len(settings) > 1]
    run = " ".join([names[stalest], *(f"with {label}" for label in labels)])
    sentences = [f"The largest staleness of any client is {runs[stalest].largest_staleness} rounds ({run})."]
    facts = {i: runs[i].manifest.get("availability") or {} for i in federated}
    bounded = [i for i in federated if facts[i].get("staleness_bound") is not None]
    within = [i for i in bounded if runs[i].largest_staleness <= facts[i]["staleness_bound"]]
    if len(bounded) == 1:
        [i] = bounded
        verb = "stays within" if within else "exceeds"
        sentences.append(
            f"{names[i]}'s largest staleness, {runs[i].largest_staleness}, {verb} Lemma 1's bound of "
            f"{facts[i]['staleness_bound']} (Assumption 4 holds with E = {facts[i]['smallest_e']})."
        )
    elif bounded:
        es = sorted({facts[i]["smallest_e"] for i in bounded})
        sentences.append(
            f"The largest staleness stays within Lemma 1's bound in {len(within)} of the {len(bounded)} runs that have "
            f"one (Assumption 4 holds in them with E = {', '.join(map(str, es))})."
        )
    return sentences


def _assumption(runs: list[RunRecord], names: Sequence[str]) -> list[str]:
    """Return a sentence for every run in which Assumption 4 does not hold or was checked on a sample of the clients."""
    sentences = []
    for run, name in zip(runs, names, strict=True):
        facts = run.manifest.get("availability") or {}
        examined = facts.get("clients_examined")
        sample = "" if examined is None else f" in a sample of {examined:,} clients"
        if facts.get("assumption_holds") is False:
            clients, number = facts["never_available"], facts["num_never_available"]
            others = f" and {number - 1} other clients were" if number > 1 else " was"
            sentences.append(
                f"Assumption 4 does not hold in {run.path.name} ({name}): client {clients[0]}{others} never available"
                f"{sample}, so Lemma 1 does not apply."
            )
        elif sample:
            sentences.append(
                f"Every client{sample} was available at least once in any {facts['smallest_e']} rounds of "
                f"{run.path.name} ({name}); E of all clients may be larger, so Lemma 1's bound is not stated."
            )
    return sentences


def _not_finished(runs: list[RunRecord], names: Sequence[str]) -> list[str]:
    sentences = []
    for run, name in zip(runs, names, strict=True):
        status = run.manifest.get("status")
        if status == "diverged":
            sentences.append(f"{name}, in {run.path.name}, diverged: {run.manifest.get('diverged', '')}")
        elif status != "finished":
            sentences.append(f"{name}, in {run.path.name}, is still running, at round {int(run.metrics.rounds[-1])}.")
    return sentences


def _is_finished(run: RunRecord) -> bool:
    """Return whether a run is finished and its late test accuracy is known."""
    return run.manifest.get("status") == "finished" and not math.isnan(run.late_accuracy)


def _distinct(values: Sequence[object]) -> list[str]:
    known = list(dict.fromkeys(value for value in values if value is not None))
    return [f"{value:,}" if isinstance(value, int) else str(value) for value in known]


def _range(counts: Sequence[int], noun: str) -> str:
    low, high = int(np.min(counts)), int(np.max(counts))
    return _count(low, noun) if low == high else f"{low} to {_count(high, noun)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
