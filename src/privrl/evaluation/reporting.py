"""What is asked and computed for reports by group and about a second outcome.

    group-people        people of each group                            a noisy number
    group-practice      sum of G - m over each group                    m plus a ratio of two noisy sums
    group-gain          sum of D over each group, and of D^2            the same, for the pair of limits that was chosen
    outcome-practice    mean of the second outcome
    outcome-slope       how it depends on f                             only on measurements
    outcome-gain        what the policy adds to it, and its square

A group's gain is the mean of D over its people. It equals J(pi) - J(b) among them if the weights have the mean 1 in the
group, that is if practice treats the groups alike in the same recorded state, or if a program decided at random.

With logged probabilities that have no public lower bound, weights may be clipped. That can only lower D, which is safe
for the lower bound that decides. A group would then seem to be harmed that is not, and a rising cost to fall. So no
gain is given by group or for a second outcome.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from privrl.contracts.learner import Ask
from privrl.evaluation.confidence import Interval, variance_bound
from privrl.evaluation.gain_intervals import GainEntry, GainMeasure, WeighedGain
from privrl.evaluation.group_estimates import GroupEstimate, OutcomeEstimate, are_few, worst_first
from privrl.mdp.reported_columns import ReportedColumns
from privrl.statistics.corrected_gains import ReturnSlopes, read_slope
from privrl.statistics.off_policy import CentredReturns, StayReturns
from privrl.statistics.reported import ByGroup, OfOutcome, Present

NO_GAINS = "No gain is given for all people, so none is given by group or for a second outcome."
CLIPPED = (
    "Weights from logged propensities may be clipped, so no gain is given by group or for a second outcome. If the "
    "program decided at random, state the least probability of every action (`--least-propensity`)."
)
NO_LIMITS = (
    "The full advice was chosen, whose weights have no bound, so no gain is given by group or for a second outcome."
)


@dataclass(frozen=True)
class ChosenGain:
    """The gain with the limits that were chosen.

    Attributes:
        weighed: what is summed.
        measure: how it is read off releases.
        centre, slope: of returns, from earlier releases.
        centred: whether gains may be centred at the mean outcome.
    """

    weighed: WeighedGain
    measure: GainMeasure
    centre: float
    slope: float
    centred: bool


def report_groups(
    ask: Ask, reported: ReportedColumns, return_range: tuple[float, float], overall: float, chosen: ChosenGain | None
) -> tuple[GroupEstimate, ...]:
    """The groups, the worst one first; intervals are in the unit of returns. `overall` is m, released before."""
    if reported.by is None:
        return ()
    low, high = return_range
    names, size = reported.groups, len(reported.groups)
    people = ask("group-people", ByGroup(Present(), size))
    returns = ask("group-practice", ByGroup(CentredReturns(return_range, jnp.asarray(overall)), size))
    deviation, found = float(np.max(people.noise.std)), []
    gains = _gains_of_groups(ask, size, return_range, chosen, deviation)
    for row, name in enumerate(names):
        number = float(people.value[row, 0])
        if are_few(number, deviation):
            found.append(GroupEstimate(name, number, deviation))
            continue
        apart = float(returns.value[row, 0]) / number
        mean = overall + apart
        variance = variance_bound(mean, 1.0) + (apart * deviation) ** 2 / number
        practice = Interval.of(mean, variance, number, returns.noise).scaled(high - low, low)
        gain = None if gains is None else gains(row, number).scaled(high - low)
        found.append(GroupEstimate(name, number, deviation, practice, gain))
    return worst_first(found)


def _gains_of_groups(
    ask: Ask, size: int, return_range: tuple[float, float], chosen: ChosenGain | None, deviation: float
) -> Callable[[int, float], Interval] | None:
    """The gain of each group, from its row and its number of people; `None` without a gain for all people."""
    if chosen is None:
        return None
    terms, squares = chosen.weighed.terms(chosen.centre, chosen.slope, return_range)
    first, second = ask("group-gain", ByGroup(terms, size)), ask("group-gain-square", ByGroup(squares, size))

    def gain(row: int, people: float) -> Interval:
        entries = GainEntry.of_pair(first, 0, terms, row), GainEntry.of_pair(second, 0, squares, row)
        return chosen.measure.interval(*entries, people, deviation)

    return gain


def report_outcome(
    ask: Ask, reported: ReportedColumns, people: int, chosen: ChosenGain | None
) -> OutcomeEstimate | None:
    """The second outcome in its own unit."""
    outcome = reported.outcome
    if outcome is None:
        return None
    largest, share = outcome.high, (0.0, 1.0)
    sums = ask("outcome-practice", OfOutcome(StayReturns(share), largest))
    mean = float(sums.value[0]) / people
    practice = Interval.of(mean, variance_bound(mean, 1.0), people, sums.noise).scaled(largest)
    if chosen is None:
        return OutcomeEstimate(outcome.name, largest, practice)
    m, slope = float(np.clip(mean, 0.0, 1.0)), 0.0
    centre, feature = m if chosen.centred else 0.0, chosen.weighed.feature
    if feature is not None:
        slopes = ask("outcome-slope", OfOutcome(ReturnSlopes(feature, jnp.asarray(centre), share), largest))
        slope = read_slope(np.asarray(slopes.value, float), people)
    terms, squares = chosen.weighed.terms(centre, slope, share)
    first = GainEntry.of_pair(ask("outcome-gain", OfOutcome(terms, largest)), 0, terms)
    second = GainEntry.of_pair(ask("outcome-gain-square", OfOutcome(squares, largest)), 0, squares)
    measure = replace(chosen.measure, spread=variance_bound(m, 1.0) ** 0.5)
    return OutcomeEstimate(outcome.name, largest, practice, measure.interval(first, second, people).scaled(largest))
