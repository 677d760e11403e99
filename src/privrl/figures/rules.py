"""The rules that judge claims: what is smaller, what bends, what converges, and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import LEVEL, Outcome, Results, below, judged, named, pm, rule, welch
from privrl.plots.means import mean_and_error

_SURE = 2.33  # standard errors: the quantile of a normal law that belongs to LEVEL


@rule
def smaller(results: Results, a: Cell, b: Cell) -> Outcome:
    """The loss of `a` is smaller than that of `b`."""
    one, two = results[a].final_share, results[b].final_share
    difference, error, p = welch(one, two)
    verb = "is smaller" if p < LEVEL else "is larger" if p > 1 - LEVEL else "cannot be told apart from it"
    text = f"{named(a, one)} against {named(b, two)}: it {verb} (difference {pm(difference, error)})."
    return judged(p < LEVEL, text, difference, error)


@rule
def close(results: Results, a: Cell, b: Cell, within: float) -> Outcome:
    """The loss of `a` exceeds that of `b` by at most `within` of what knowing nothing loses."""
    one, two = results[a].final_share, results[b].final_share
    difference, error, _ = welch(one, two)
    text = (
        f"{named(a, one)} against {named(b, two)}: the excess is {pm(difference, error)}; for the claim it must "
        f"lie below {within:g}."
    )
    return judged(welch(one - within, two)[2] < LEVEL, text, difference, error, within)


@rule
def falling(results: Results, cells: Sequence[Cell]) -> Outcome:
    """The loss falls along the cells: the last is smaller than the first, and no step up is more than chance."""
    shares = [results[cell].final_share for cell in cells]
    difference, error, p = welch(shares[-1], shares[0])
    up = [c.label for c, a, b in zip(cells[1:], shares, shares[1:], strict=False) if welch(b, a)[2] > 1 - LEVEL]
    path = ", ".join(map(named, cells, shares))
    steps = f" It goes up at {', '.join(up)}." if up else ""
    text = f"{path}: from first to last {pm(difference, error)}.{steps}"
    return judged(p < LEVEL and not up, text, difference, error)


@rule
def learns(results: Results, cell: Cell, factor: float = 0.5) -> Outcome:
    """The last fifth of people lose at most half of what the first fifth lost, and all of them at most half of what the
    better data-free policy loses: a curve that bends, and not because of sampling error at the start."""
    found = results[cell]
    free = min(found.levels[name] for name in ("uniform", "left", "zero") if name in found.levels)
    total = found.final / (free * found.at[-1])
    (mean, error, p), (share, share_error, q) = below(last_over_first(found), factor), below(total, factor)
    text = (
        f"{cell.label}: the last fifth of people lose {pm(mean, error)} of what the first fifth lost, and the "
        f"total is {pm(share, share_error)} of the better data-free policy's; for the claim both must lie below "
        f"{factor:g}."
    )
    worst = max(((mean, error), (share, share_error)), key=lambda x: x[0] - factor)
    return replace(judged(max(p, q) < LEVEL, text, *worst, factor), number=mean, error=error)


@rule
def grows_at_most(results: Results, cell: Cell, exponent: float) -> Outcome:
    """Cumulative regret grows like K^exponent at most, between half of the people and all of them."""
    found = results[cell]
    people = float(found.at[-1])
    mean, error, p = below(np.log2(found.until(people) / found.until(people / 2)), exponent)
    text = f"{cell.label}: regret grows like K^({pm(mean, error)}) in the second half; the claim is K^{exponent:g}."
    return judged(p < LEVEL, text, mean, error, exponent)


def _lower_order(costs: Sequence[tuple[float, ...]], growth: float, exponent: float, text: str) -> Outcome:
    """A cost changes more slowly than K^exponent while the number of people grows so many times.

    `text` has places for both costs and for the exponent that was found.
    """
    if min(costs)[0] <= 0:
        return Outcome("cannot be tested", "There is no cost of privacy to be seen here.")
    (before, before_error, _), (after, after_error, _) = costs
    span = math.log(growth)
    slope, error = math.log(after / before) / span, math.hypot(before_error / before, after_error / after) / span
    said = text.format(pm(before, before_error), pm(after, after_error), pm(slope, error))
    return judged(slope + _SURE * error < exponent, said, slope, error, exponent)


@rule
def vanishing_cost(results: Results, private: Sequence[Cell], plain: Sequence[Cell], exponent: float = -0.5) -> Outcome:
    """The cost of privacy falls faster than K^-1/2, the rate of the main term, between the two largest tables."""
    few, many = private[-2:]
    pairs = zip((few, many), plain[-2:], strict=True)
    costs = [welch(results[x].final_share, results[y].final_share) for x, y in pairs]
    text = (
        f"The cost is {{}} of what knowing nothing loses at K = {few.people:,} and {{}} at K = {many.people:,}: it "
        f"changes like K^({{}}); a lower order needs less than K^({exponent:g})."
    )
    return _lower_order(costs, many.people / few.people, exponent, text)


@rule
def lower_order(results: Results, private: Cell, plain: Cell, exponent: float = 0.5) -> Outcome:
    """The regret that privacy adds grows slower than K^1/2, the main term, between half of the people and all."""
    people = float(results[private].at[-1])
    costs = [welch(results[private].until(k), results[plain].until(k)) for k in (people / 2, people)]
    text = (
        f"Privacy costs {private.label} a regret of {{}} for half of the people and {{}} for all: it grows like "
        f"K^({{}}); a lower order needs less than K^{exponent:g}."
    )
    return _lower_order(costs, 2.0, exponent, text)


@rule
def mostly_smaller(results: Results, pairs: Sequence[tuple[Cell, Cell]]) -> Outcome:
    """The first of a pair has the smaller mean loss in most of the pairs; each is counted where it is beyond chance."""
    p = [welch(results[a].final_share, results[b].final_share)[2] for a, b in pairs]
    won, lost = sum(x < LEVEL for x in p), sum(x > 1 - LEVEL for x in p)
    text = f"Smaller in {won} of {len(pairs)} cases, larger in {lost}, not to be told apart in the others."
    return Outcome("reproduced" if won > len(pairs) / 2 else "not reproduced", text, won / len(pairs))


@rule
def ends_below(results: Results, cell: Cell, limit: float) -> Outcome:
    """The loss at the end is below a share of what knowing nothing loses."""
    share = results[cell].final_share
    return _limited(named(cell, share), share, limit)


@rule
def stays_above(results: Results, cell: Cell, limit: float) -> Outcome:
    """The loss at the end is at least a share of what knowing nothing loses: nothing, or little, was learned."""
    share = results[cell].final_share
    return _limited(named(cell, share), share, limit, above=True)


@rule
def beats(results: Results, cell: Cell, level: str) -> Outcome:
    """The loss is smaller than that of a policy that needs no data."""
    return ends_below(cell, _level_share(results[cell], level))(results)


@rule
def trails(results: Results, cell: Cell, level: str) -> Outcome:
    """The loss is larger than that of a policy that needs no data."""
    return stays_above(cell, _level_share(results[cell], level))(results)


def _level_share(found: Measured, level: str) -> float:
    per_person = found.levels[level] * (found.at[-1] if found.measure == "regret" else 1)
    return float(per_person / found.yardstick[-1])


@rule
def never_above(results: Results, cell: Cell, limit: float) -> Outcome:
    """At no time on the way was the running average of the loss above a share of what knowing nothing loses."""
    worst = results[cell].shares.max(axis=1)
    return _limited(f"{cell.label}: the largest running average is {pm(*mean_and_error(worst))}", worst, limit)


@rule
def slower(results: Results, cells: Sequence[Cell], baseline: Cell, slack: float) -> Outcome:
    """Along the cells learning takes longer: the loss, averaged over the whole time, rises.

    (When a single run first comes near the end favours noisy runs, which come near by chance; the average over time
    does not.)
    The sentence also says when the mean curve first comes within `slack` of where `baseline` ends.
    """
    target = float(results[baseline].final_share.mean()) + slack
    losses = [results[cell].shares.mean(axis=1) for cell in cells]
    difference, error, p = welch(losses[0], losses[-1])
    down = [c.label for c, a, b in zip(cells[1:], losses, losses[1:], strict=False) if welch(b, a)[2] < LEVEL]
    path = ", ".join(
        f"{named(cell, loss)} (there after {_first_time(results[cell], target)})"
        for cell, loss in zip(cells, losses, strict=True)
    )
    steps = f" It becomes faster at {', '.join(down)}." if down else ""
    text = f"Loss averaged over time, and when the mean curve comes within {slack:g} of the end: {path}.{steps}"
    return judged(p < LEVEL and not down, text, -difference, error)


def _first_time(found: Measured, target: float) -> str:
    there = found.shares.mean(axis=0) <= target
    return f"{found.at[there.argmax()]:,}" if there.any() else "more than the run"


def _limited(text: str, values: Float[np.ndarray, " seeds"], limit: float, above: bool = False) -> Outcome:
    """The values are below the limit, or above it."""
    mean, error, p = below(values, limit)
    side = "above" if above else "below"
    holds = (below(-values, -limit)[2] if above else p) < LEVEL
    return judged(holds, f"{text}; for the claim it must lie {side} {limit:.3g}.", mean, error, limit)


def last_over_first(found: Measured) -> Float[np.ndarray, " seeds"]:
    """What the last fifth of people lose over what the first fifth lost, per repetition."""
    people = float(found.at[-1])
    return (found.until(people) - found.until(0.8 * people)) / found.until(0.2 * people)
