"""Advice from the theorems: what they promise, which part of the bound is in the way, what to change."""

from typing import NamedTuple

from fedlatest.theory.bounds import Bound, Problem, staleness_bound, theorem4
from fedlatest.theory.steps import StepSize, best_step, needed_rounds, step_size


class Setting(NamedTuple):
    """What the theorems want to know of a federation and a plan."""

    num_clients: int
    cohort_size: int
    smallest_e: int
    rounds: int
    num_local_steps: int = 1


class Advice(NamedTuple):
    """Numbers and words; the bound is None where G, sigma or B are not known, or the step is beyond the theorem."""

    staleness: int
    needed_rounds: int
    """For the speed-up; the step and the bound hold with fewer."""
    step: StepSize
    bound: Bound | None
    """With the theorem's step."""
    best_step: float | None
    best_bound: Bound | None
    """With the step that makes it smallest."""
    words: list[str]


def advise(
    setting: Setting, *, smoothness: float, problem: Problem | None = None, learning_rate: float | None = None
) -> Advice:
    """What Lemma 1, Theorem 4 and its step size say; `problem` adds the bound, `learning_rate` is the user's own step.

    >>> advise(Setting(1000, 100, 101, 4000), smoothness=1).needed_rounds
    31939005
    """
    about = {"num_clients": setting.num_clients, "cohort_size": setting.cohort_size}
    staleness = staleness_bound(**about, smallest_e=setting.smallest_e)
    needed = needed_rounds(**about, smallest_e=setting.smallest_e)
    step = step_size(
        **about,
        smallest_e=setting.smallest_e,
        rounds=setting.rounds,
        smoothness=smoothness,
        num_local_steps=setting.num_local_steps,
    )
    bound = best = best_bound = None
    if problem is not None:
        bound = _bound(setting, problem, staleness, step.learning_rate)
        best = best_step(
            problem,
            num_clients=setting.num_clients,
            staleness=staleness,
            rounds=setting.rounds,
            num_local_steps=setting.num_local_steps,
        )
        best_bound = _bound(setting, problem, staleness, best)
    words = [_on_rounds(setting, needed, step), *_on_the_step(step, learning_rate, smoothness)]
    if bound is not None and problem is not None and best is not None and best_bound is not None:
        words += _on_the_bound(setting, problem, bound, best, best_bound, step.learning_rate)
    words.append(_on_participants(setting, staleness))
    return Advice(staleness, needed, step, bound, best, best_bound, words)


def _bound(setting: Setting, problem: Problem, staleness: int, learning_rate: float) -> Bound:
    return theorem4(
        problem,
        num_clients=setting.num_clients,
        staleness=staleness,
        learning_rate=learning_rate,
        rounds=setting.rounds,
        num_local_steps=setting.num_local_steps,
    )


def _on_rounds(setting: Setting, needed: int, step: StepSize) -> str:
    if setting.rounds >= needed:
        return f"There are enough rounds: the speed-up N^(1/4) is promised from {needed:,} on."
    few = (
        f"There are too few rounds: Theorem 4 promises its speed-up N^(1/4) from E N^(3/2) / beta = {needed:,} on, "
        f"there are {setting.rounds:,}."
    )
    if not step.allowed:
        return few
    return (
        f"{few} Its step size and its bound hold all the same; what it does not promise is that more clients make "
        "training faster. (Nor do the paper's own experiments meet this condition.)"
    )


def _on_the_step(step: StepSize, learning_rate: float | None, smoothness: float) -> list[str]:
    said = []
    if not step.allowed:
        said.append(
            f"The formula's step {step.formula:.3g} is above 1/(4L) = {step.limit:.3g}, which the theorem asks for, so "
            "that is taken: with more rounds it comes down by itself."
        )
    if learning_rate is None:
        return said
    if learning_rate >= 1 / (2 * smoothness):
        said.append(
            f"Your step {learning_rate:.3g} is not below 1/(2L) = {1 / (2 * smoothness):.3g}: Theorems 3 and 4 say "
            "nothing about it, a step may climb."
        )
    else:
        ratio = learning_rate / step.learning_rate
        said.append(
            f"Your step {learning_rate:.3g} is {ratio:.3g} times the theorem's. The theorem prepares for the worst; "
            "larger steps often do well. Curves that swing with the availability say that a step is too large."
            if ratio > 1
            else f"Your step {learning_rate:.3g} is {ratio:.3g} times the theorem's: it could be larger."
        )
    return said


def _on_the_bound(
    setting: Setting, problem: Problem, bound: Bound, best: float, best_bound: Bound, taken: float
) -> list[str]:
    if bound.total == 0:
        return ["The bound is 0: with these constants there is nothing to learn."]
    share = getattr(bound, bound.dominant) / bound.total
    remedies = {
        "staleness": "smaller steps, more participants a round or shorter absences bring it down",
        "variance": "larger batches, more clients or smaller steps bring it down",
        "distance": "more rounds, or larger steps within the limit, bring it down",
    }
    said = [f"Of the bound, {bound.dominant} is {100 * share:.0f}%: {remedies[bound.dominant]}."]
    if best_bound.total < 0.95 * bound.total:
        more = "smaller" if best < taken else "larger"
        said.append(
            f"With these constants a {more} step, {best:.3g}, makes it smallest: {best_bound.total:.3g} in place of "
            f"{bound.total:.3g}."
        )
    if min(bound.total, best_bound.total) > problem.gradient**2:
        said.append(
            f"The bound is above G^2 = {problem.gradient**2:.3g}, which Assumption 3 gives for nothing: over "
            f"{setting.rounds:,} rounds the theorem proves no progress. That is about the proof, not about the run."
        )
    return said


def _on_participants(setting: Setting, staleness: int) -> str:
    if setting.cohort_size == setting.num_clients:
        return f"Everybody may take part in every round; staleness comes from absence alone (I = {staleness})."
    more = min(2 * setting.cohort_size, setting.num_clients)
    after = staleness_bound(num_clients=setting.num_clients, cohort_size=more, smallest_e=setting.smallest_e)
    return f"With {more} participants a round, not {setting.cohort_size}, I falls from {staleness} to {after}."
