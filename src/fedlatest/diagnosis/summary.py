"""A diagnosis as rows of text, for the terminal and for the page."""

from typing import NamedTuple

from fedlatest.diagnosis.correlation import Association
from fedlatest.diagnosis.diagnosis import Diagnosis
from fedlatest.diagnosis.fleet import SECONDS_PER_DAY

VERDICTS = {
    "no": "no",
    "possible": "possible",
    "yes": "yes, with this step",
}


class SummaryGroup(NamedTuple):
    """Rows about one question."""

    title: str
    rows: list[tuple[str, str]]
    """What was measured, and the value."""


def summary(diagnosis: Diagnosis) -> list[SummaryGroup]:
    """Return what was measured as rows of text, grouped by question."""
    return [
        SummaryGroup("How available is the fleet?", _availability(diagnosis)),
        SummaryGroup("How is availability correlated?", _correlation(diagnosis)),
        SummaryGroup("What would FedAvg do?", _bias(diagnosis)),
        SummaryGroup("What would FedLaAvg do?", _fedlaavg(diagnosis)),
    ]


def duration(diagnosis: Diagnosis, rounds: float) -> str:
    """Return a number of rounds, also as hours or days if the unit of time is known."""
    text = f"{rounds:,.0f} {'round' if rounds == 1 else 'rounds'}"
    seconds = diagnosis.availability.round_seconds
    return text if seconds is None else f"{text} ({in_words(rounds * seconds)})"


def _stretch(diagnosis: Diagnosis, rounds: float) -> str:
    """Return a time that was not measured in rounds, which may be shorter than a round."""
    seconds = diagnosis.availability.round_seconds
    return f"{rounds:.3g} rounds" if seconds is None else in_words(rounds * seconds)


def in_words(seconds: float) -> str:
    """Return a number of seconds in the largest fitting unit.

    >>> in_words(5400), in_words(90), in_words(172800), in_words(4)
    ('1.5 h', '1.5 min', '2.0 days', '4.0 s')
    """
    for unit, size in (("days", 1.5 * SECONDS_PER_DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / (SECONDS_PER_DAY if unit == 'days' else size):.1f} {unit}"
    return f"{seconds:.1f} s"


def _availability(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = diagnosis.availability
    low, first, median, third, high = facts.shares
    fewest, tenth, half, ninth, most = facts.available
    worst = ", ".join(f"{name} ({rounds:,})" for name, rounds in facts.most_absent[:3])
    length = f"{facts.num_rounds:,} rounds"
    if facts.round_seconds is not None:
        length += f" of {facts.round_seconds:.4g} s ({in_words(facts.num_rounds * facts.round_seconds)})"
    return [
        ("clients", f"{facts.num_clients:,}"),
        ("record", length),
        ("available clients", f"median {half:.0f}; 10% and 90% quantiles {tenth:.0f} and {ninth:.0f}"),
        ("  fewest, most", f"{fewest:.0f}, {most:.0f}"),
        ("  rounds without any", f"{facts.empty_share:.1%}"),
        ("share of time, mean", f"{facts.mean_share:.1%}"),
        ("  quartiles (lowest, highest)", f"{first:.1%}, {median:.1%}, {third:.1%} ({low:.1%}, {high:.1%})"),
        ("time available at a stretch, median", _stretch(diagnosis, facts.median_spell)),
        ("time between, median", _stretch(diagnosis, facts.median_gap)),
        ("longest absence, median client", duration(diagnosis, facts.median_longest_absence)),
        ("  longest, in rounds", worst),
        (
            "never available",
            f"{facts.num_never - facts.num_between:,}" + (f" ({', '.join(facts.never[:5])})" if facts.never else ""),
        ),
        *([("  only between starts of rounds", f"{facts.num_between:,} others")] if facts.num_between else []),
        ("not available in the second half", f"{facts.num_left:,}"),
    ]


def _correlation(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts = diagnosis.correlation
    cycle = "none found"
    if facts.cycle is not None:
        cycle = "a day" if facts.cycle_is_day else duration(diagnosis, facts.cycle)
    rows = [
        ("cycle", cycle),
        ("  same client one cycle later", _number(facts.day_to_day)),
        (
            "correlation time of a client",
            "unknown" if facts.correlation_time is None else duration(diagnosis, facts.correlation_time),
        ),
        ("correlation of two clients, mean", _number(facts.pair_correlation, 3)),
        (
            "variance of the number available",
            "none" if facts.overdispersion is None else f"{facts.overdispersion:.1f} times that of independent clients",
        ),
    ]
    for name, association in (("labels", facts.label), ("number of samples", facts.size)):
        kind = "labels" if name == "labels" else "sizes"
        if kind not in diagnosis.known:
            text = "unknown (give --clients)"
        elif association is None:
            text = "none: they or the shares of time do not differ"
        else:
            meaning = "explain {:.0%} of the differences" if kind == "labels" else "rank correlation {:.2f}"
            text = (
                f"{meaning.format(association.strength)} ({_chance(association, '.0%' if kind == 'labels' else '.2f')})"
            )
        rows.append((f"share of time and {name}", text))
    return rows


def _bias(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    bias = diagnosis.bias
    window = "3-hour window" if bias.windows == "day" else f"eighth of the {bias.windows}"
    difference = f"  {window} to whole record, mean difference"
    rows = [
        ("weight at the wrong clients", f"{bias.total_variation:.1%} (by chance {bias.chance:.1%})"),
        (difference, f"{bias.window_variation:.1%} (by chance {bias.window_chance:.1%})"),
        ("effective number of clients", f"{bias.effective_clients:.3g} instead of {bias.fair_clients:.3g}"),
        ("weight of the 10% that count most", f"{bias.top_share:.0%} instead of {bias.fair_top_share:.0%}"),
    ]
    if bias.label_variation is not None and bias.label_window_variation is not None:
        shift, swing = bias.label_variation, bias.label_window_variation
        rows += [
            ("weight at the wrong labels", f"{shift.strength:.1%} ({_chance(shift, '.1%')})"),
            (difference, f"{swing.strength:.1%} ({_chance(swing, '.1%')})"),
        ]
    return rows


def _fedlaavg(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    facts, resonance = diagnosis.availability, diagnosis.resonance
    infinite = f" for {facts.num_seen:,} clients; none for the others" if facts.num_never else ""
    rows = [
        ("smallest E (Assumption 4)", duration(diagnosis, facts.smallest_e) + infinite),
        (
            f"staleness bound (Lemma 1, K = {diagnosis.cohort_size})",
            duration(diagnosis, diagnosis.staleness_bound),
        ),
    ]
    if resonance is None:
        return [*rows, ("resonance", "not computed: too many clients")]
    limit = "all gains" if not resonance.swings else f"gains below {resonance.stable_gain:.2f}"
    fresh = "all gains" if not resonance.fresh_swings else f"gains below {resonance.fresh_gain:.2f}"
    if resonance.mean_staleness is not None:
        rows.append(("staleness, mean", duration(diagnosis, resonance.mean_staleness)))
    rows += [
        ("resonance", VERDICTS[resonance.verdict]),
        ("  examined", duration(diagnosis, resonance.rounds)),
        ("  stable for", f"{limit}; fedlaavg_fresh: {fresh}"),
    ]
    if resonance.swings and resonance.swing_rounds is not None:
        rows.append(("  period of the swing", duration(diagnosis, resonance.swing_rounds)))
    if resonance.gain is not None:
        rows.append(("  gain of this step", f"{resonance.gain:.3g}"))
    return rows


def _chance(association: Association, form: str) -> str:
    return f"by chance {association.expected:{form}}, p = {association.p_value:.3g}"


def _number(value: float | None, digits: int = 2) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}"
