"""The rules that judge claims: which of two learners loses less, whether a curve bends, whether a cost vanishes."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import (
    LEVEL,
    ClaimOutcome,
    Estimate,
    Results,
    compare_means,
    compare_with_limit,
    decide,
    describe_cell,
    format_estimate,
    rule,
)
from privrl.plots.means import mean_and_error

_SURE = 2.33  # standard errors: the quantile of a normal distribution at LEVEL


@rule
def smaller(results: Results, a: Cell, b: Cell) -> ClaimOutcome:
    """The loss of `a` is smaller than that of `b`."""
    one, two = results[a].final_share, results[b].final_share
    difference = compare_means(one, two)
    if difference.p < LEVEL:
        verb = "is smaller"
    else:
        verb = "is larger" if difference.p > 1 - LEVEL else "does not differ significantly"
    text = f"{describe_cell(a, one)}. {describe_cell(b, two)}. The first {verb} (difference {difference})."
    return decide(difference.p < LEVEL, text, difference.value, difference.error)


@rule
def close(results: Results, a: Cell, b: Cell, within: float) -> ClaimOutcome:
    """The loss of `a` exceeds that of `b` by at most `within` of the uninformed policy's loss."""
    one, two = results[a].final_share, results[b].final_share
    excess = compare_means(one, two)
    text = (
        f"{describe_cell(a, one)}. {describe_cell(b, two)}. The excess is {excess}; the claim requires less than "
        f"{within:g}."
    )
    return decide(compare_means(one - within, two).p < LEVEL, text, excess.value, excess.error, within)


@rule
def falling(results: Results, cells: Sequence[Cell]) -> ClaimOutcome:
    """The loss falls along the cells: the last is smaller than the first, and no step up is significant."""
    shares = [results[cell].final_share for cell in cells]
    change = compare_means(shares[-1], shares[0])
    steps = zip(cells[1:], shares, shares[1:], strict=False)
    up = [cell.label for cell, before, after in steps if compare_means(after, before).p > 1 - LEVEL]
    path = ", ".join(map(describe_cell, cells, shares))
    rises = f" It rises at {', '.join(up)}." if up else ""
    text = f"{path}. The change from first to last is {change}.{rises}"
    return decide(change.p < LEVEL and not up, text, change.value, change.error)


@rule
def learns(results: Results, cell: Cell, factor: float = 0.5) -> ClaimOutcome:
    """The curve bends: the last fifth of people lose at most half of what the first fifth lost.

    In addition the total must be at most half of what the better data-free policy loses, so that sampling error at the
    start is not mistaken for a bend.
    """
    found = results[cell]
    free = min(found.levels[name] for name in ("uniform", "left", "zero") if name in found.levels)
    last = compare_with_limit(last_over_first(found), factor)
    total = compare_with_limit(found.final / (free * found.at[-1]), factor)
    text = (
        f"{cell.label}: the last fifth of people lose {last} of what the first fifth lost, and the total is {total} of "
        f"the better data-free policy's. The claim requires both to be below {factor:g}."
    )
    worst = max((last, total), key=lambda estimate: estimate.value - factor)
    outcome = decide(max(last.p, total.p) < LEVEL, text, worst.value, worst.error, factor)
    return replace(outcome, number=last.value, error=last.error)


@rule
def grows_at_most(results: Results, cell: Cell, exponent: float) -> ClaimOutcome:
    """Cumulative regret grows at most like K^exponent, between half of the people and all of them."""
    found = results[cell]
    people = float(found.at[-1])
    slope = compare_with_limit(np.log2(found.until(people) / found.until(people / 2)), exponent)
    text = f"{cell.label}: regret grows like K^({slope}) in the second half; the claim is K^{exponent:g}."
    return decide(slope.p < LEVEL, text, slope.value, slope.error, exponent)


def _judge_order(costs: Sequence[Estimate], growth: float, exponent: float, text: str) -> ClaimOutcome:
    """A cost changes more slowly than K^exponent while the number of people grows by the factor `growth`.

    `text` has places for both costs and for the exponent that was found.
    """
    before, after = costs
    if min(before.value, after.value) <= 0:
        return ClaimOutcome("cannot be tested", "The runs show no cost of privacy.")
    span = math.log(growth)
    slope = math.log(after.value / before.value) / span
    error = math.hypot(before.error / before.value, after.error / after.value) / span
    filled = text.format(before, after, format_estimate(slope, error))
    return decide(slope + _SURE * error < exponent, filled, slope, error, exponent)


@rule
def vanishing_cost(
    results: Results, private: Sequence[Cell], plain: Sequence[Cell], exponent: float = -0.5
) -> ClaimOutcome:
    """The cost of privacy falls faster than K^-1/2, the rate of the main term, between the two largest tables."""
    few, many = private[-2:]
    pairs = zip((few, many), plain[-2:], strict=True)
    costs = [compare_means(results[x].final_share, results[y].final_share) for x, y in pairs]
    text = (
        f"The cost is {{}} of the uninformed policy's loss at K = {few.people:,} and {{}} at K = {many.people:,}. It "
        f"changes like K^({{}}); a lower order requires less than K^({exponent:g})."
    )
    return _judge_order(costs, many.people / few.people, exponent, text)


@rule
def lower_order(results: Results, private: Cell, plain: Cell, exponent: float = 0.5) -> ClaimOutcome:
    """The regret that privacy adds grows more slowly than K^1/2, the main term, between half of the people and all."""
    people = float(results[private].at[-1])
    costs = [compare_means(results[private].until(k), results[plain].until(k)) for k in (people / 2, people)]
    text = (
        f"Privacy costs {private.label} a regret of {{}} for half of the people and {{}} for all. It grows like "
        f"K^({{}}); a lower order requires less than K^{exponent:g}."
    )
    return _judge_order(costs, 2.0, exponent, text)


@rule
def mostly_smaller(results: Results, pairs: Sequence[tuple[Cell, Cell]]) -> ClaimOutcome:
    """The first of a pair has a significantly smaller mean loss in most of the pairs."""
    p = [compare_means(results[a].final_share, results[b].final_share).p for a, b in pairs]
    won, lost = sum(x < LEVEL for x in p), sum(x > 1 - LEVEL for x in p)
    text = f"Smaller in {won} of {len(pairs)} cases, larger in {lost}, not significantly different in the others."
    return ClaimOutcome("reproduced" if won > len(pairs) / 2 else "not reproduced", text, won / len(pairs))


@rule
def ends_below(results: Results, cell: Cell, limit: float) -> ClaimOutcome:
    """The loss at the end is below this share of the uninformed policy's loss."""
    share = results[cell].final_share
    return _compare(describe_cell(cell, share), share, limit)


@rule
def stays_above(results: Results, cell: Cell, limit: float) -> ClaimOutcome:
    """The loss at the end is at least this share of the uninformed policy's loss: the learner learned little."""
    share = results[cell].final_share
    return _compare(describe_cell(cell, share), share, limit, above=True)


@rule
def beats(results: Results, cell: Cell, level: str) -> ClaimOutcome:
    """The loss is smaller than that of a policy that needs no data."""
    return ends_below(cell, _share_of_level(results[cell], level))(results)


@rule
def trails(results: Results, cell: Cell, level: str) -> ClaimOutcome:
    """The loss is larger than that of a policy that needs no data."""
    return stays_above(cell, _share_of_level(results[cell], level))(results)


def _share_of_level(found: Measured, level: str) -> float:
    per_person = found.levels[level] * (found.at[-1] if found.measure == "regret" else 1)
    return float(per_person / found.yardstick[-1])


@rule
def never_above(results: Results, cell: Cell, limit: float) -> ClaimOutcome:
    """The running average of the loss never exceeds this share of the uninformed policy's loss."""
    worst = results[cell].shares.max(axis=1)
    largest = format_estimate(*mean_and_error(worst))
    return _compare(f"{cell.label}: the largest running average is {largest}", worst, limit)


@rule
def slower(results: Results, cells: Sequence[Cell], baseline: Cell, slack: float) -> ClaimOutcome:
    """Learning takes longer along the cells: the loss, averaged over the whole run, rises.

    The average over time decides, because the time at which a single run first gets close to the end favours noisy
    runs, which get close by chance. The explanation also states when the mean curve first comes within `slack` of where
    `baseline` ends.
    """
    target = float(results[baseline].final_share.mean()) + slack
    losses = [results[cell].shares.mean(axis=1) for cell in cells]
    change = compare_means(losses[0], losses[-1])
    steps = zip(cells[1:], losses, losses[1:], strict=False)
    down = [cell.label for cell, before, after in steps if compare_means(after, before).p < LEVEL]
    path = ", ".join(
        f"{describe_cell(cell, loss)} (reached after {_find_time(results[cell], target)})"
        for cell, loss in zip(cells, losses, strict=True)
    )
    faster = f" It becomes faster at {', '.join(down)}." if down else ""
    text = f"Loss averaged over time, and when the mean curve comes within {slack:g} of the end: {path}.{faster}"
    return decide(change.p < LEVEL and not down, text, -change.value, change.error)


def _find_time(found: Measured, target: float) -> str:
    reached = found.shares.mean(axis=0) <= target
    return f"{found.at[reached.argmax()]:,}" if reached.any() else "more than the whole run"


def _compare(text: str, values: Float[np.ndarray, " seeds"], limit: float, above: bool = False) -> ClaimOutcome:
    """The values are below the limit, or above it."""
    mean = compare_with_limit(values, limit)
    side = "more" if above else "less"
    holds = (compare_with_limit(-values, -limit).p if above else mean.p) < LEVEL
    return decide(holds, f"{text}; the claim requires {side} than {limit:.3g}.", mean.value, mean.error, limit)


def last_over_first(found: Measured) -> Float[np.ndarray, " seeds"]:
    """The loss of the last fifth of people over that of the first fifth, for each repetition."""
    people = float(found.at[-1])
    return (found.until(people) - found.until(0.8 * people)) / found.until(0.2 * people)
