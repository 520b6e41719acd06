"""What to use for a fleet: algorithm, cohort size, deadline and step, each with the measured fact that decides it.

The rules follow docs/which-algorithm.md and docs/leaderboards.md. In the ten cases of the MNIST leaderboard, FedAvg is
2 to 29 points behind the best method where the labels' weights in FedAvg's limit differ from those of the objective by
a total variation of 0.22 or more, and 0.7 to 1 point where it is 0.05 or less (docs/diagnose.md has the table).
`DEPENDENT` lies between the two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedlatest.diagnosis.correlation import Association, CorrelationFacts
from fedlatest.diagnosis.fedavg_bias import FedAvgBias
from fedlatest.diagnosis.fleet import JobFacts
from fedlatest.diagnosis.resonance import ResonanceFacts
from fedlatest.diagnosis.round_rates import RoundRate
from fedlatest.diagnosis.statistics import AvailabilityFacts

NEGLIGIBLE = (
    0.05  # total variation of weights, beyond chance, below which FedAvg's limit is that of equal weights, for practice
)
DEPENDENT = 0.1  # total variation of the labels' weights from which availability depends on the labels
SIGNIFICANT = 0.05  # p-value
FEWEST_DAYS, FEWEST_CYCLES, FEWEST_CORRELATION_TIMES = 5, 5, 20  # of a record that says how the fleet behaves
Confidence = Literal["high", "moderate", "low"]


@dataclass(frozen=True)
class Findings:
    """What the rules look at."""

    availability: AvailabilityFacts
    correlation: CorrelationFacts
    bias: FedAvgBias
    resonance: ResonanceFacts | None
    rates: Sequence[RoundRate]
    """With the recommended cohort size; empty if delays are unknown."""
    cohort_size: int
    cohort_is_given: bool
    deadline: float | None
    """A deadline that all clients meet whose delays are known; None if no delays are."""
    job: JobFacts | None = None
    num_unknown_delays: int = 0
    """Of single clients, if those of others are known."""
    curvature: float | None = None


@dataclass(frozen=True)
class Advice:
    """One choice."""

    topic: str
    choice: str
    reason: str
    """The measured fact that decides it."""
    evidence: str
    """Where the rule comes from."""


@dataclass(frozen=True)
class Recommendation:
    """What to use, why, and how certain it is."""

    advice: list[Advice]
    warnings: list[str]
    confidence: Confidence
    confidence_reason: str
    assumptions: list[str]

    def choice(self, topic: str) -> str:
        """Return the choice for a topic: "algorithm", "cohort size", "deadline" or "step"."""
        return next(advice.choice for advice in self.advice if advice.topic == topic)


def recommend(found: Findings) -> Recommendation:
    """Return what to use for a fleet."""
    algorithm = _algorithm(found)
    advice = [algorithm, _cohort(found), _deadline(found), _step(found, algorithm.choice)]
    confidence, reason = _confidence(found)
    return Recommendation(advice, _warnings(found), confidence, reason, _assumptions(found))


def recommended_cohort(availability: AvailabilityFacts) -> int:
    """Return the cohort size: a tenth of the clients, or ten, but at most the number that is usually available.

    That is the number in 90% of the rounds in which somebody is available. Other rounds have no cohort of any size.
    """
    most = max(10, round(availability.num_clients / 10))
    return max(1, min(int(availability.usually_available), most))


def depends_on_labels(bias: FedAvgBias) -> bool | None:
    """Return whether the availability depends on the labels; None if the labels are unknown."""
    found = [each for each in (bias.label_variation, bias.label_window_variation) if each is not None]
    return any(map(_is_dependent, found)) if found else None


def _is_dependent(association: Association) -> bool:
    return association.strength >= DEPENDENT and association.p_value <= SIGNIFICANT


def _algorithm(found: Findings) -> Advice:
    bias, depends = found.bias, depends_on_labels(found.bias)
    table = "docs/which-algorithm.md"
    if bias.excess < NEGLIGIBLE:
        return Advice(
            "algorithm", "fedavg",
            "every client counts about as much as it should: the weights in FedAvg's limit differ by "
            f"{bias.total_variation:.1%} from the fair ones (by chance {bias.chance:.1%}), and by "
            f"{bias.window_variation:.1%} between times (by chance {bias.window_chance:.1%})",
            f"{table}: with everyone always available, FedAvg is tied with the best on tweets and 0.7 points behind on "
            "MNIST, and FedLaAvg may resonate",
        )  # fmt: skip
    if depends is False:
        return Advice(
            "algorithm", "fedavg",
            "availability does not depend on the labels: FedAvg shifts their weights by "
            f"{_strength(bias.label_variation):.1%} on average and {_strength(bias.label_window_variation):.1%} in "
            f"parts of the {bias.windows}, which random labels do as well or is too little to matter",
            f"{table}: where availability is independent of the data, FedAvg is 0.7 to 1 point behind the best method "
            "on MNIST (windows, phones); fedlaavg_fresh closes about half of this gap",
        )  # fmt: skip
    if depends:
        fact = (
            f"availability depends on the labels: FedAvg would shift {_strength(bias.label_variation):.0%} of the "
            f"weight to the wrong labels, and {_strength(bias.label_window_variation):.0%} in parts of the "
            f"{bias.windows}"
        )
    else:
        fact = (
            f"FedAvg would put {bias.total_variation:.0%} of the weight on the wrong clients (by chance "
            f"{bias.chance:.0%}) and {bias.window_variation:.0%} in parts of the {bias.windows} (by chance "
            f"{bias.window_chance:.0%}), and whether their data differ is unknown"
        )
    if found.resonance is not None and found.resonance.verdict == "no" and depends:
        return Advice(
            "algorithm", "fedlaavg", f"{fact}; FedLaAvg removes this bias and {_no_resonance(found.resonance)}",
            f"{table}: FedLaAvg is the best or tied in the paper's diurnal, in sine, staircase and sleep, where FedAvg "
            "is 1 to 12 points behind; docs/theory.md for the resonance",
        )  # fmt: skip
    return Advice(
        "algorithm", "fedlaavg_fresh", f"{fact}; {_about_resonance(found.resonance)}",
        f"{table}: within 1.1 points of the best method in all ten cases on MNIST, does not resonate with everyone "
        "available or short days, and can be deployed",
    )  # fmt: skip


def _no_resonance(resonance: ResonanceFacts) -> str:
    if not resonance.swings:
        return f"does not resonate for any gain up to {resonance.stable_gain:.2f}"
    return f"does not resonate: the gain of the step is {resonance.gain:.2g}, and {resonance.stable_gain:.2f} is stable"


def _about_resonance(resonance: ResonanceFacts | None) -> str:
    if resonance is None:
        return "the fleet is too large to compute whether FedLaAvg would resonate"
    if resonance.verdict == "no":
        return "remembered updates remove the bias, whatever its cause"
    limit = f"from a gain of {resonance.stable_gain:.2f} on"
    if resonance.verdict == "yes":
        return f"remembered updates remove it, but FedLaAvg would resonate: {limit}; this step has {resonance.gain:.2f}"
    return f"remembered updates remove it, but FedLaAvg can resonate {limit}"


def _cohort(found: Findings) -> Advice:
    facts, size = found.availability, found.cohort_size
    usual = facts.usually_available
    possible = next((rate.possible for rate in found.rates if rate.cohort_size == size), None)
    share = f"; {possible:.0%} of the time can fill it" if possible is not None else ""
    rounds = "rounds in which somebody is available" if facts.empty_share else "rounds"
    fact = f"at least {usual:.0f} clients are available in 90% of the {rounds}"
    if found.cohort_is_given:
        fact = f"as given; {fact}{share}"
    elif size < usual:
        if size == round(facts.num_clients / 10):
            fact += f"; {size} is a tenth of all clients, as in the leaderboards"
        else:
            fact += f"; {size} is the smallest cohort that is recommended where more clients are available"
    evidence = "docs/leaderboards.md: measured with K/N = 0.1; Lemma 1: a larger K shortens the staleness"
    return Advice("cohort size", f"{size}", fact, evidence)


def _deadline(found: Findings) -> Advice:
    if found.deadline is None:
        return Advice(
            "deadline", "unknown", "the delays of the clients are unknown; give --delays", "docs/virtual-time.md"
        )
    full = next(rate for rate in found.rates if rate.deadline == found.deadline)
    possible = (
        f"about {full.rounds_per_day:,.0f} rounds a day are possible, and {full.answers:.1%} of the cohort answers"
        if full.rounds_per_day > 0 else "no round with a full cohort is possible"
    )  # fmt: skip
    violated = "a client that never answers in time violates Assumption 4, and its data never count"
    if found.job is not None and found.job.num_unanswered:
        why = _unanswered(found.job) + "; whether a shorter deadline excludes more of them is unknown"
        return Advice("deadline", f"{found.deadline:g} s", f"{why}; {possible}", violated)
    faster = [
        rate for rate in found.rates if rate.answers >= 0.85 and rate.rounds_per_day > 2 * full.rounds_per_day
    ]  # fmt: skip
    if faster:
        chosen = max(faster, key=lambda rate: rate.answers)
        return Advice(
            "deadline", f"{chosen.deadline:g} s",
            f"it allows {chosen.rounds_per_day:,.0f} rounds a day instead of {full.rounds_per_day:,.0f}; clients that "
            f"are always too slow for it and never count: {chosen.num_excluded}",
            "rounds computed from the availability and the delays",
        )  # fmt: skip
    return Advice(
        "deadline", f"{found.deadline:g} s",
        f"{_slowest(found)}; {possible}", violated,
    )  # fmt: skip


def _unanswered(job: JobFacts) -> str:
    deadline = "" if job.deadline is None else f" (the deadline of the job is {job.deadline:g} s)"
    return f"{_clients(job.num_unanswered)} never answered with an accepted upload{deadline}"


def _slowest(found: Findings) -> str:
    """Return why a deadline that all known delays meet is recommended."""
    if found.num_unknown_delays:
        return (
            f"no client whose delay is known needs longer; the delays of {_clients(found.num_unknown_delays)} are "
            "unknown, and count as the median of the others"
        )
    if found.job is not None:
        return "the median delay of every client over its accepted uploads is shorter"
    return "the slowest client needs less, so that no client is excluded"


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{number:,} clients"


def _step(found: Findings, algorithm: str) -> Advice:
    resonance, theory = found.resonance, "docs/theory.md: the stable gain; docs/explanation/resonance.md"
    tune = "tune it with `fedlatest arena`, or start from the step that works with everyone available"
    if resonance is None and algorithm != "fedavg":
        unknown = "the fleet is too large to compute from which step on the method swings"
        return Advice("step", "tune", f"{unknown}; {tune}", theory)
    if resonance is None or algorithm == "fedavg":
        return Advice("step", "tune", f"the measured availability does not limit the step; {tune}", "docs/arena.md")
    fresh = algorithm == "fedlaavg_fresh"
    limit, bounded = (
        (resonance.fresh_gain, resonance.fresh_swings) if fresh else (resonance.stable_gain, resonance.swings)
    )
    if not bounded:
        return Advice("step", "tune", f"{algorithm} is stable for all gains up to {limit:.2f}; {tune}", theory)
    steps = resonance.num_local_steps
    if found.curvature is None:
        text = f"a gain 1 - (1 - step * h)^{steps} below {limit:.2f}"
        return Advice("step", text, f"{algorithm} swings from this gain on; h is the largest curvature", theory)
    largest = (1 - (1 - limit) ** (1 / steps)) / found.curvature
    return Advice(
        "step", f"below {largest:.3g}",
        f"{algorithm} swings from a gain of {limit:.2f} on, which this step has for a curvature of {found.curvature:g}",
        theory,
    )  # fmt: skip


def _warnings(found: Findings) -> list[str]:
    facts, bias, warnings = found.availability, found.bias, []
    never = facts.num_never - facts.num_between
    if facts.empty_share:
        share = f"{100 * facts.empty_share:.2g}%"
        warnings.append(f"Nobody is available in {share} of the rounds: no method can train in them.")
    if never:
        named = ", ".join(facts.never[:5]) + (", ..." if never > 5 else "")
        warnings.append(
            f"{never} of {facts.num_clients} clients were never available ({named}): Assumption 4 fails for "
            "them, and no method can learn from their data. E is that of the other clients."
        )
    if facts.num_between:
        warnings.append(
            f"{facts.num_between} of {facts.num_clients} clients were available, but not at the start of any round; "
            "use shorter rounds. They count here as never available."
        )
    if found.cohort_size > facts.usually_available:
        most, usual = facts.available[-1], facts.usually_available
        often = f"never available: at most {most:.0f} are" if found.cohort_size > most else "often not available"
        warnings.append(
            f"A cohort of {_clients(found.cohort_size)} is {often}. In 90% of the rounds in which somebody is "
            f"available, cohorts of up to {usual:.0f} can be filled."
        )
    if found.job is not None and found.job.num_unanswered:
        warnings.append(f"{_unanswered(found.job)}: their delays are unknown, and their data have not counted.")
    if facts.num_left:
        warnings.append(
            f"{facts.num_left} clients were not available in the second half of the record: they may have left. "
            "FedAvg forgets what only they know; remembered updates keep it (docs/which-algorithm.md, departures)."
        )
    if bias.effective_clients < 0.5 * bias.fair_clients:
        warnings.append(
            f"FedAvg's weights are those of {bias.effective_clients:.0f} equal clients, not of {bias.fair_clients:.0f}."
        )
    label, size = found.correlation.label, found.correlation.size
    if size is not None and size.p_value <= SIGNIFICANT:
        warnings.append(
            f"Availability is correlated with the number of samples (rank correlation {size.strength:.2f})."
        )
    if label is not None and label.p_value <= SIGNIFICANT:
        warnings.append(f"Labels explain {label.strength:.0%} of the differences in availability between clients.")
    return warnings


def _confidence(found: Findings) -> tuple[Confidence, str]:
    """Return high if nothing is missing for a judgement, moderate if one thing is, and low otherwise."""
    facts, correlation, missing = found.availability, found.correlation, []
    if depends_on_labels(found.bias) is None and found.bias.excess >= NEGLIGIBLE:
        missing.append("the labels of the clients are unknown, give --clients")
    if found.bias.excess < NEGLIGIBLE and found.bias.chance >= DEPENDENT:
        missing.append(f"chance alone shifts {found.bias.chance:.0%} of the weight, which may hide a bias")
    if facts.days is not None:
        if facts.days < FEWEST_DAYS:
            missing.append(f"the record has {facts.days:.1f} days, and {FEWEST_DAYS} are needed")
    elif correlation.cycle is not None:
        if facts.num_rounds < FEWEST_CYCLES * correlation.cycle:
            missing.append(f"the record has {facts.num_rounds / correlation.cycle:.1f} cycles")
    elif facts.num_rounds < FEWEST_CORRELATION_TIMES * (correlation.correlation_time or 1):
        missing.append("the record is short compared with the time for which availability is correlated")
    level: Confidence = "high" if not missing else "moderate" if len(missing) == 1 else "low"
    return level, "; ".join(missing) or "the record is long, and labels are known or do not matter"


def _assumptions(found: Findings) -> list[str]:
    assumed = ["The fleet behaves in the future as in this record."]
    if depends_on_labels(found.bias) is None:
        assumed.append("Clients that are available at other times may have other data.")
    else:
        assumed.append("The data of clients differ by the given labels only.")
    if found.resonance is not None and found.resonance.gain is None and found.resonance.swings:
        assumed.append("The gain of a step may be anything up to 1; give --learning-rate and --curvature.")
    if found.availability.round_seconds is not None:
        length = found.availability.round_seconds
        change = "; --round-length changes them" if found.job is None else ""
        assumed.append(f"E and the resonance are for rounds of {length:.4g} s{change}.")
    if found.deadline is not None:
        median = "" if found.job is None else ", its median"
        assumed.append(f"A client takes the same time{median} for every task.")
    return assumed


def _strength(association: Association | None) -> float:
    return 0.0 if association is None else association.strength


def round_up(seconds: float) -> float:
    """Return a number of seconds with a margin of a tenth, as a whole number.

    >>> round_up(56)
    62.0
    """
    return float(math.ceil(1.1 * seconds))
