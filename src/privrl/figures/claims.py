"""Claims of a paper about a figure, and how the runs decide them.

A rule (see `rules`) takes finished cells and returns an `ClaimOutcome`: the status, the number that decides it with its
standard error, and an explanation. Differences of means are tested by Welch's one-sided t test at the level 1 %. If the
test cannot rule out chance, the claim is "not reproduced". Unless a rule documents another unit, numbers are shares of
the loss of the uninformed policy: 0 is optimal, and 1 is as bad as the uninformed policy.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Concatenate, Literal, NamedTuple, ParamSpec

from privrl.figures.cell import Cell, Measured
from privrl.plots.means import Numbers, mean_and_error

Status = Literal["reproduced", "not reproduced", "cannot be tested"]
Results = Mapping[Cell, Measured]
LEVEL = 0.01


@dataclass(frozen=True)
class ClaimOutcome:
    """The outcome of a claim.

    Attributes:
        status: whether the claim was reproduced.
        text: the explanation.
        number, error: the number that decides, and its standard error.
        margin: the distance of the number from where the status would change, in standard errors.
    """

    status: Status
    text: str
    number: float | None = None
    error: float | None = None
    margin: float | None = None


Rule = Callable[[Results], ClaimOutcome]
_About = ParamSpec("_About")


def rule(judge: Callable[Concatenate[Results, _About], ClaimOutcome]) -> Callable[_About, Rule]:
    """Turn a function that judges results into one that makes rules: `smaller(a, b)` receives its results later."""

    @functools.wraps(judge)
    def make(*args: _About.args, **kwargs: _About.kwargs) -> Rule:
        return lambda results: judge(results, *args, **kwargs)

    return make


def decide(holds: bool, text: str, number: float, error: float, limit: float = 0.0) -> ClaimOutcome:
    """Return the outcome of a claim about a number. The status changes at `limit`."""
    margin = abs(number - limit) / error if error > 0 else math.inf
    return ClaimOutcome("reproduced" if holds else "not reproduced", text, number, error, margin)


@dataclass(frozen=True)
class Claim:
    """A claim, in our words, and the rule that judges it.

    Arguments:
        text: the claim.
        rule: judges it.
        found: the status that we found earlier; `None` if there is no earlier finding.
        where: where that finding is documented.
    """

    text: str
    rule: Rule
    found: Status | None = None
    where: str = ""


class Estimate(NamedTuple):
    """A mean or a difference of means, its standard error, and the p value of a one-sided test."""

    value: float
    error: float
    p: float

    def __str__(self) -> str:
        return format_estimate(self.value, self.error)


def compare_means(a: Numbers, b: Numbers) -> Estimate:
    """Return the mean of a minus the mean of b, with the p value of "a is not smaller than b" by Welch's t test."""
    from scipy.special import stdtr

    (mean_a, error_a), (mean_b, error_b) = mean_and_error(a), mean_and_error(b)
    va, vb = (error_a or 0.0) ** 2, (error_b or 0.0) ** 2
    difference, error = mean_a - mean_b, math.sqrt(va + vb)
    if error == 0.0:
        return Estimate(difference, 0.0, 0.5 if difference == 0 else float(difference > 0))
    freedom = (va + vb) ** 2 / (va**2 / max(len(a) - 1, 1) + vb**2 / max(len(b) - 1, 1))
    return Estimate(difference, error, float(stdtr(freedom, difference / error)))


def compare_with_limit(values: Numbers, limit: float) -> Estimate:
    """Return the mean, with the p value of "the mean is not below the limit"."""
    mean, error = mean_and_error(values)
    return Estimate(mean, error or 0.0, compare_means(values, [limit]).p)


@rule
def all_of(results: Results, *rules: Rule) -> ClaimOutcome:
    """Every rule must hold. Number and explanation are those of the rules that fail, or of the closest one."""
    outcomes = [one(results) for one in rules]
    failed = [outcome for outcome in outcomes if outcome.status != "reproduced"]
    closest = min(outcomes, key=lambda outcome: math.inf if outcome.margin is None else outcome.margin)
    told = failed or [closest]
    hold = len(outcomes) - len(failed)
    count = f"{hold} of {len(outcomes)} parts hold; these do not:" if failed else f"All {hold} parts hold; the closest:"
    alone = len(outcomes) == len(told)
    return replace(told[0], text=" ".join(([] if alone else [count]) + [outcome.text for outcome in told]))


@rule
def only_if(results: Results, condition: Rule, rule: Rule, otherwise: str) -> ClaimOutcome:
    """Apply `rule` if `condition` holds. For example, how fast a learner learns can be tested only if it learns."""
    before = condition(results)
    if before.status != "reproduced":
        return ClaimOutcome("cannot be tested", f"{otherwise} {before.text}", before.number, before.error)
    return rule(results)


def untestable(why: str) -> Rule:
    """A claim that no run of this figure can decide."""
    return lambda results: ClaimOutcome("cannot be tested", why)


def format_estimate(mean: float, error: float | None) -> str:
    """Write a number with its standard error, to the digits that the error supports: "0.251 ± 0.023"."""
    small = error if error else abs(mean) / 100
    digits = min(max(1 - math.floor(math.log10(small)), 0), 6) if small > 0 else 3
    return f"{mean:.{digits}f}" if error is None else f"{mean:.{digits}f} ± {error:.{digits}f}"


def describe_cell(cell: Cell, values: Numbers) -> str:
    """Write the label of a cell with the mean of its values."""
    return f"{cell.label}: {format_estimate(*mean_and_error(values))}"
