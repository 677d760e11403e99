"""The rules that judge claims: what is smaller, what bends, what converges, and how sure that is."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import LEVEL, Outcome, Results, Rule, Status, below, margin, named, pm, welch
from privrl.figures.numbers import mean_and_error


def smaller(a: Cell, b: Cell) -> Rule:
    """The loss of `a` is smaller than that of `b`."""

    def rule(results: Results) -> Outcome:
        one, two = results[a].final_share, results[b].final_share
        difference, error, p = welch(one, two)
        status: Status = "reproduced" if p < LEVEL else "not reproduced"
        verb = "is smaller" if p < LEVEL else "is larger" if p > 1 - LEVEL else "cannot be told apart from it"
        text = f"{named(a, one)} against {named(b, two)}: it {verb} (difference {pm(difference, error)})."
        return Outcome(status, text, difference, error, margin(difference, 0.0, error))

    return rule


def close(a: Cell, b: Cell, within: float) -> Rule:
    """The loss of `a` exceeds that of `b` by at most `within` of what knowing nothing loses."""

    def rule(results: Results) -> Outcome:
        one, two = results[a].final_share, results[b].final_share
        difference, error, _ = welch(one, two)
        p = welch(one - within, two)[2]
        status: Status = "reproduced" if p < LEVEL else "not reproduced"
        text = (
            f"{named(a, one)} against {named(b, two)}: the excess is {pm(difference, error)}; for the claim it must "
            f"lie below {within:g}."
        )
        return Outcome(status, text, difference, error, margin(difference, within, error))

    return rule


def falling(cells: Sequence[Cell]) -> Rule:
    """The loss falls along the cells: the last is smaller than the first, and no step up is more than chance."""

    def rule(results: Results) -> Outcome:
        shares = [results[cell].final_share for cell in cells]
        difference, error, p = welch(shares[-1], shares[0])
        up = [c.label for c, a, b in zip(cells[1:], shares, shares[1:], strict=False) if welch(b, a)[2] > 1 - LEVEL]
        status: Status = "reproduced" if p < LEVEL and not up else "not reproduced"
        path = ", ".join(named(cell, share) for cell, share in zip(cells, shares, strict=True))
        steps = f" It goes up at {', '.join(up)}." if up else ""
        text = f"{path}: from first to last {pm(difference, error)}.{steps}"
        return Outcome(status, text, difference, error, margin(difference, 0.0, error))

    return rule


def learns(cell: Cell, factor: float = 0.5) -> Rule:
    """The last fifth of people lose at most half of what the first fifth lost, and all of them at most half of what the
    better data-free policy loses: a curve that bends, and not because of luck at the start."""

    def rule(results: Results) -> Outcome:
        found = results[cell]
        bend = last_over_first(found)
        free = min(found.levels[name] for name in ("uniform", "left", "zero") if name in found.levels)
        total = found.final / (free * found.at[-1])
        (mean, error, p), (share, share_error, q) = below(bend, factor), below(total, factor)
        status: Status = "reproduced" if max(p, q) < LEVEL else "not reproduced"
        text = (
            f"{cell.label}: the last fifth of people lose {pm(mean, error)} of what the first fifth lost, and the "
            f"total is {pm(share, share_error)} of the better data-free policy's; for the claim both must lie below "
            f"{factor:g}."
        )
        worst = max(((mean, error), (share, share_error)), key=lambda x: x[0] - factor)
        return Outcome(status, text, mean, error, margin(worst[0], factor, worst[1]))

    return rule


def grows_at_most(cell: Cell, exponent: float) -> Rule:
    """Cumulative regret grows like K^exponent at most, between half of the people and all of them."""

    def rule(results: Results) -> Outcome:
        found = results[cell]
        people = float(found.at[-1])
        slopes = np.log2(found.until(people) / found.until(people / 2))
        mean, error, p = below(slopes, exponent)
        status: Status = "reproduced" if p < LEVEL else "not reproduced"
        text = f"{cell.label}: regret grows like K^({pm(mean, error)}) in the second half; the claim is K^{exponent:g}."
        return Outcome(status, text, mean, error, margin(mean, exponent, error))

    return rule


def vanishing_cost(private: Sequence[Cell], plain: Sequence[Cell], exponent: float = -0.5) -> Rule:
    """The cost of privacy falls faster than K^-1/2, the rate of the main term, between the two largest tables."""

    def rule(results: Results) -> Outcome:
        (a, b), (c, d) = private[-2:], plain[-2:]
        costs = [welch(results[x].final_share, results[y].final_share)[:2] for x, y in ((a, c), (b, d))]
        span = math.log(b.people / a.people)
        (before, before_error), (after, after_error) = costs
        if min(before, after) <= 0:
            return Outcome("cannot be tested", "There is no cost of privacy to be seen here.")
        slope = math.log(after / before) / span
        error = math.hypot(before_error / before, after_error / after) / span
        status: Status = "reproduced" if slope + 2.33 * error < exponent else "not reproduced"
        text = (
            f"The cost is {pm(before, before_error)} of what knowing nothing loses at K = {a.people:,} and "
            f"{pm(after, after_error)} at K = {b.people:,}: it changes like K^({pm(slope, error)}); a lower order "
            f"needs less than K^({exponent:g})."
        )
        return Outcome(status, text, slope, error, margin(slope, exponent, error))

    return rule


def lower_order(private: Cell, plain: Cell, exponent: float = 0.5) -> Rule:
    """The regret that privacy adds grows slower than K^1/2, the main term, between half of the people and all."""

    def rule(results: Results) -> Outcome:
        people = float(results[private].at[-1])
        halves = (people / 2, people)
        (before, first), (after, second) = (
            welch(results[private].until(k), results[plain].until(k))[:2] for k in halves
        )
        if min(before, after) <= 0:
            return Outcome("cannot be tested", "There is no cost of privacy to be seen here.")
        slope = math.log2(after / before)
        error = math.hypot(first / before, second / after) / math.log(2)
        status: Status = "reproduced" if slope + 2.33 * error < exponent else "not reproduced"
        text = (
            f"Privacy costs {private.label} a regret of {pm(before, first)} for half of the people and "
            f"{pm(after, second)} for all: it grows like K^({pm(slope, error)}); a lower order needs less than "
            f"K^{exponent:g}."
        )
        return Outcome(status, text, slope, error, margin(slope, exponent, error))

    return rule


def mostly_smaller(pairs: Sequence[tuple[Cell, Cell]]) -> Rule:
    """The first of a pair has the smaller mean loss in most of the pairs; each is counted where it is beyond chance."""

    def rule(results: Results) -> Outcome:
        p = [welch(results[a].final_share, results[b].final_share)[2] for a, b in pairs]
        won, lost = sum(x < LEVEL for x in p), sum(x > 1 - LEVEL for x in p)
        status: Status = "reproduced" if won > len(pairs) / 2 else "not reproduced"
        text = f"Smaller in {won} of {len(pairs)} cases, larger in {lost}, not to be told apart in the others."
        return Outcome(status, text, won / len(pairs))

    return rule


def ends_below(cell: Cell, limit: float) -> Rule:
    """The loss at the end is below a share of what knowing nothing loses."""

    def rule(results: Results) -> Outcome:
        return _limited(named(cell, results[cell].final_share), results[cell].final_share, limit)

    return rule


def stays_above(cell: Cell, limit: float) -> Rule:
    """The loss at the end is at least a share of what knowing nothing loses: nothing, or little, was learned."""

    def rule(results: Results) -> Outcome:
        share = results[cell].final_share
        mean, error = mean_and_error(share.tolist())
        status: Status = "reproduced" if below(-share, -limit)[2] < LEVEL else "not reproduced"
        text = f"{named(cell, share)}; for the claim it must lie above {limit:.3g}."
        return Outcome(status, text, mean, error, margin(mean, limit, error or 0.0))

    return rule


def beats(cell: Cell, level: str) -> Rule:
    """The loss is smaller than that of a policy that needs no data."""

    def rule(results: Results) -> Outcome:
        found = results[cell]
        return _limited(named(cell, found.final_share), found.final_share, _level_share(found, level))

    return rule


def trails(cell: Cell, level: str) -> Rule:
    """The loss is larger than that of a policy that needs no data."""

    def rule(results: Results) -> Outcome:
        found = results[cell]
        return stays_above(cell, _level_share(found, level))(results)

    return rule


def _level_share(found: Measured, level: str) -> float:
    per_person = found.levels[level] * (found.at[-1] if found.measure == "regret" else 1)
    return float(per_person / found.yardstick[-1])


def never_above(cell: Cell, limit: float) -> Rule:
    """At no time on the way was the running average of the loss above a share of what knowing nothing loses."""

    def rule(results: Results) -> Outcome:
        worst = results[cell].shares.max(axis=1)
        return _limited(
            f"{cell.label}: the largest running average is {pm(*mean_and_error(list(worst)))}", worst, limit
        )

    return rule


def slower(cells: Sequence[Cell], baseline: Cell, slack: float) -> Rule:
    """Along the cells learning takes longer: the loss, averaged over the whole time, rises.

    (When a single run first comes near the end favours noisy runs, which come near by luck; the average over time does
    not.)
    The sentence also says when the mean curve first comes within `slack` of where `baseline` ends.
    """

    def rule(results: Results) -> Outcome:
        target = float(results[baseline].final_share.mean()) + slack
        losses = [results[cell].shares.mean(axis=1) for cell in cells]
        difference, error, p = welch(losses[0], losses[-1])
        down = [c.label for c, a, b in zip(cells[1:], losses, losses[1:], strict=False) if welch(b, a)[2] < LEVEL]
        status: Status = "reproduced" if p < LEVEL and not down else "not reproduced"
        path = ", ".join(
            f"{named(cell, loss)} (there after {_first_time(results[cell], target)})"
            for cell, loss in zip(cells, losses, strict=True)
        )
        steps = f" It becomes faster at {', '.join(down)}." if down else ""
        text = f"Loss averaged over time, and when the mean curve comes within {slack:g} of the end: {path}.{steps}"
        return Outcome(status, text, -difference, error, margin(difference, 0.0, error))

    return rule


def _first_time(found: Measured, target: float) -> str:
    there = found.shares.mean(axis=0) <= target
    return f"{found.at[there.argmax()]:,}" if there.any() else "more than the run"


def _limited(text: str, values: Float[np.ndarray, " seeds"], limit: float) -> Outcome:
    mean, error, p = below(values, limit)
    status: Status = "reproduced" if p < LEVEL else "not reproduced"
    return Outcome(
        status, f"{text}; for the claim it must lie below {limit:.3g}.", mean, error, margin(mean, limit, error)
    )


def last_over_first(found: Measured) -> Float[np.ndarray, " seeds"]:
    """What the last fifth of people lose over what the first fifth lost, per repetition."""
    people = float(found.at[-1])
    return (found.until(people) - found.until(0.8 * people)) / found.until(0.2 * people)
