"""Advice from the theorems: what they promise, which part of the bound is the largest, and what to change."""

from typing import NamedTuple

from fedlatest.theory.bounds import Bound, Problem, bound_for, cold_start, staleness_bound
from fedlatest.theory.stability import StableGain
from fedlatest.theory.steps import StepSize, best_step, needed_rounds, step_size


class TrainingSetting(NamedTuple):
    """The numbers of a federation and of its training that the theorems use."""

    num_clients: int
    """N, the number of clients."""
    cohort_size: int
    """K, the number of clients that take part in a round."""
    smallest_e: int
    """E of Assumption 4: every client is available at least once in any E rounds."""
    rounds: int
    """R, or T with one local step."""
    num_local_steps: int = 1
    """C, the number of local steps in a round."""


class Resonance(NamedTuple):
    """The stability of FedLaAvg's step for the cohorts of a setting; see `stability`."""

    stable: StableGain
    """With fresh="average" and selection="oldest"."""
    fresh: StableGain
    """With fresh="cohort" and selection="weighted"."""
    rarest_visits: float
    """Rounds between two participations of the client that takes part least often, on average."""
    gain: float | None = None
    """g of the user's step; None if the step or the curvature is unknown."""
    curvature: float | None = None
    """The largest curvature of the objective, from which the gain was computed."""
    curvature_limit: float | None = None
    """The curvature from which the step is unstable."""
    rounds_per_day: int | None = None


class Advice(NamedTuple):
    """Numbers and sentences; the bounds are None if G, sigma or B are unknown."""

    staleness: int
    """I of Lemma 1."""
    needed_rounds: int
    """Rounds from which the speed-up is promised; the step and the bound hold with fewer."""
    step: StepSize
    bound: Bound | None
    """The bound with the theorem's step: Theorem 3's for one local step, Theorem 4's for several."""
    cold_start: float | None
    """What must be added to the bound for the rounds before every client has taken part."""
    best_step: float | None
    """None also if B is 0: the smaller the step, the smaller the bound."""
    best_bound: Bound | None
    """The bound with the step that makes it smallest."""
    sentences: list[str]


def advise(
    setting: TrainingSetting,
    *,
    smoothness: float,
    problem: Problem | None = None,
    learning_rate: float | None = None,
    resonance: Resonance | None = None,
) -> Advice:
    """Apply Lemma 1, Theorem 4 and its step size to a setting, and Theorem 3 if there is one local step.

    >>> advise(TrainingSetting(1000, 100, 101, 4000), smoothness=1).needed_rounds
    31939005

    Args:
        setting: The federation and its training.
        smoothness: L.
        problem: The constants of the problem, needed for the bound.
        learning_rate: The user's own step, to be compared with the theorem's.
        resonance: The stability of the step, if it was computed.

    Raises:
        ConfigError: If a number is outside the range that the theorems allow.
    """
    clients = {"num_clients": setting.num_clients, "cohort_size": setting.cohort_size}
    staleness = staleness_bound(**clients, smallest_e=setting.smallest_e)
    needed = needed_rounds(**clients, smallest_e=setting.smallest_e)
    step = step_size(
        **clients,
        smallest_e=setting.smallest_e,
        rounds=setting.rounds,
        smoothness=smoothness,
        num_local_steps=setting.num_local_steps,
    )
    bound = start = best = best_bound = None
    if problem is not None:
        bound = _bound(setting, problem, staleness, step.learning_rate)
        start = cold_start(
            problem,
            staleness=staleness,
            learning_rate=step.learning_rate,
            rounds=setting.rounds,
            num_local_steps=setting.num_local_steps,
        )
    if problem is not None and problem.distance > 0:
        best = best_step(
            problem,
            num_clients=setting.num_clients,
            staleness=staleness,
            rounds=setting.rounds,
            num_local_steps=setting.num_local_steps,
        )
        best_bound = _bound(setting, problem, staleness, best)
    sentences = [_about_rounds(setting, needed, step, start), *_about_step(step, learning_rate, smoothness)]
    if bound is not None and problem is not None:
        sentences += _about_bound(setting, problem, bound, best, best_bound, step.learning_rate)
    sentences.append(_about_cohort_size(setting, staleness))
    if resonance is not None:
        sentences.append(_about_resonance(resonance))
    return Advice(staleness, needed, step, bound, start, best, best_bound, sentences)


def _bound(setting: TrainingSetting, problem: Problem, staleness: int, learning_rate: float) -> Bound:
    return bound_for(
        problem,
        num_clients=setting.num_clients,
        staleness=staleness,
        learning_rate=learning_rate,
        rounds=setting.rounds,
        num_local_steps=setting.num_local_steps,
    )


def _about_rounds(setting: TrainingSetting, needed: int, step: StepSize, start: float | None) -> str:
    if setting.rounds >= needed:
        return f"There are enough rounds: Theorem 4 promises the speed-up N^(1/4) from {needed:,} rounds on."
    too_few = (
        "There are too few rounds for the speed-up N^(1/4): Theorem 4 promises it from "
        f"E N^(3/2) / beta = {needed:,} rounds on, and there are {setting.rounds:,}."
    )
    if not step.allowed:
        return too_few
    first = "" if start == 0 else " from the round on in which all clients have taken part"
    added = f" (the rounds before add at most {start:.3g})" if start else ""
    return (
        f"{too_few} Its step size and its bound still hold{first}{added}, but the theorem does not promise that more "
        "clients make training faster. (The paper's own experiments do not meet this condition either.)"
    )


def _about_step(step: StepSize, learning_rate: float | None, smoothness: float) -> list[str]:
    sentences = []
    if not step.allowed:
        sentences.append(
            f"The formula's step {step.formula:.3g} is above 1/(4L) = {step.limit:.3g}, the largest step that the "
            "theorem allows, so 1/(4L) is used. With more rounds the formula's step becomes smaller."
        )
    if learning_rate is None:
        return sentences
    if learning_rate >= 1 / (2 * smoothness):
        sentences.append(
            f"Your step {learning_rate:.3g} is not below 1/(2L) = {1 / (2 * smoothness):.3g}: Theorems 3 and 4 do not "
            "apply to it, because a step may increase the objective."
        )
        return sentences
    ratio = learning_rate / step.learning_rate
    sentences.append(
        f"Your step {learning_rate:.3g} is {ratio:.3g} times the theorem's. The theorem covers the worst case; larger "
        "steps often work well. If the curves oscillate with the availability, the step is too large."
        if ratio > 1
        else f"Your step {learning_rate:.3g} is {ratio:.3g} times the theorem's: it could be larger."
    )
    return sentences


def _about_bound(
    setting: TrainingSetting,
    problem: Problem,
    bound: Bound,
    best: float | None,
    best_bound: Bound | None,
    used_step: float,
) -> list[str]:
    if bound.total == 0:
        return ["The bound is 0: with these constants there is nothing to learn."]
    share = getattr(bound, bound.dominant) / bound.total
    remedies = {
        "staleness": "smaller steps, larger cohorts or shorter absences reduce it",
        "variance": "larger batches, more clients or smaller steps reduce it",
        "distance": "more rounds, or larger steps within the limit, reduce it",
    }
    sentences = [f"The largest part of the bound is {bound.dominant}, {100 * share:.0f}%: {remedies[bound.dominant]}."]
    if best is None or best_bound is None:
        sentences.append(
            "With B = 0 the initial model is optimal already: the smaller the step, the smaller the bound."
        )
        best_bound = bound
    elif best_bound.total < 0.95 * bound.total:
        direction = "smaller" if best < used_step else "larger"
        sentences.append(
            f"With these constants the bound is smallest with a {direction} step, {best:.3g}: {best_bound.total:.3g} "
            f"instead of {bound.total:.3g}."
        )
    if min(bound.total, best_bound.total) > problem.gradient**2:
        sentences.append(
            f"The bound is above G^2 = {problem.gradient**2:.3g}, which Assumption 3 already guarantees: for "
            f"{setting.rounds:,} rounds the theorem proves no progress. This is a limit of the proof, not of the run."
        )
    return sentences


def _about_cohort_size(setting: TrainingSetting, staleness: int) -> str:
    if setting.cohort_size == setting.num_clients:
        return f"The cohort can contain all clients, so only their absence causes staleness (I = {staleness})."
    larger = min(2 * setting.cohort_size, setting.num_clients)
    reduced = staleness_bound(num_clients=setting.num_clients, cohort_size=larger, smallest_e=setting.smallest_e)
    return f"With {larger} clients per round instead of {setting.cohort_size}, I falls from {staleness} to {reduced}."


def _about_resonance(resonance: Resonance) -> str:
    stable, fresh, day = resonance.stable, resonance.fresh, resonance.rounds_per_day
    if not stable.exists:
        return (
            "FedLaAvg does not resonate with this availability: deviations decay for all gains (1 - (1 - step * "
            f"curvature)^C) up to {stable.gain:.2f}."
        )

    def in_days(rounds: float) -> str:
        return f"{rounds:.0f} rounds" + (f" ({rounds / day:.1f} days)" if day else "")

    cause = (
        f"Oldest-first selection visits the rarest client every {in_days(resonance.rarest_visits)}; with fresh=average "
        f"a deviation grows above a gain of {stable.gain:.2f}, and swings with a period of {in_days(stable.swing)}."
    )
    range_of_fresh = "stable for all gains examined" if not fresh.exists else f"stable up to {fresh.gain:.2f}"
    remedy = (
        f"use fedlaavg_fresh ({range_of_fresh}) or more clients per round; a smaller step helps only while the "
        "curvature stays the same."
    )
    if resonance.gain is None or resonance.curvature is None or resonance.curvature_limit is None:
        return f"{cause} Give the step to compare its gain. If the run swings, {remedy}"
    own = f"Your step has a gain of about {resonance.gain:.2g} for a curvature of {resonance.curvature:.3g}"
    if resonance.gain >= stable.gain:
        return f"{cause} {own}, so FedLaAvg may swing unless the curvature falls during training: {remedy}"
    return (
        f"{cause} {own}; it would have to grow to {resonance.curvature_limit:.3g}, as it can with neural networks. If "
        f"the run swings, {remedy}"
    )
