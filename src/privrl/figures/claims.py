"""Claims of a paper about a figure, and how they are judged from the runs.

A rule (see `rules`) looks at finished cells and returns an `Outcome`: the status, the number it rests on with its
standard error, and a sentence. Differences of means are judged by Welch's t test, one-sided at the level 1 %; a claim
that cannot be told from chance is "not reproduced", and the sentence says so. Unless a rule says otherwise numbers are
shares: the loss over that of the policy that knows nothing, 0 is optimal and 1 is knowing nothing.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Concatenate, Literal, ParamSpec

from privrl.figures.cell import Cell, Measured
from privrl.plots.means import Numbers, mean_and_error

Status = Literal["reproduced", "not reproduced", "cannot be tested"]
Results = Mapping[Cell, Measured]
LEVEL = 0.01


@dataclass(frozen=True)
class Outcome:
    """How a claim came out. `margin` is how many standard errors the number is from where the status would change."""

    status: Status
    text: str
    number: float | None = None
    error: float | None = None
    margin: float | None = None


Rule = Callable[[Results], Outcome]
_About = ParamSpec("_About")


def rule(judge: Callable[Concatenate[Results, _About], Outcome]) -> Callable[_About, Rule]:
    """A judgement of results as a maker of rules: `smaller(a, b)` is given its results later."""

    @functools.wraps(judge)
    def about(*args: _About.args, **kwargs: _About.kwargs) -> Rule:
        return lambda results: judge(results, *args, **kwargs)

    return about


def judged(holds: bool, text: str, number: float, error: float, limit: float = 0.0) -> Outcome:
    """The outcome of a claim about a number, whose status changes at `limit`."""
    margin = abs(number - limit) / error if error > 0 else math.inf
    return Outcome("reproduced" if holds else "not reproduced", text, number, error, margin)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper in our words, the rule that judges it, and what we had found before.

    `found` is the status that our specification or guides led to expect, and `where` it is written; None if nowhere.
    """

    text: str
    rule: Rule
    found: Status | None = None
    where: str = ""


def welch(a: Numbers, b: Numbers) -> tuple[float, float, float]:
    """Mean of a minus mean of b, its standard error, and the p value of "a is not smaller than b"."""
    from scipy.special import stdtr

    (mean_a, error_a), (mean_b, error_b) = mean_and_error(a), mean_and_error(b)
    va, vb = (error_a or 0.0) ** 2, (error_b or 0.0) ** 2
    difference, error = mean_a - mean_b, math.sqrt(va + vb)
    if error == 0.0:
        return difference, 0.0, 0.5 if difference == 0 else float(difference > 0)
    freedom = (va + vb) ** 2 / (va**2 / max(len(a) - 1, 1) + vb**2 / max(len(b) - 1, 1))
    return difference, error, float(stdtr(freedom, difference / error))


def below(values: Numbers, limit: float) -> tuple[float, float, float]:
    """Mean, standard error, and the p value of "the mean is not below the limit"."""
    mean, error = mean_and_error(values)
    return mean, error or 0.0, welch(values, [limit])[2]


@rule
def all_of(results: Results, *rules: Rule) -> Outcome:
    """Every rule must hold; the number is that of the first that fails, or of the last."""
    outcomes = [one(results) for one in rules]
    failed = [outcome for outcome in outcomes if outcome.status != "reproduced"]
    return replace((failed or outcomes[-1:])[0], text=" ".join(outcome.text for outcome in outcomes))


@rule
def only_if(results: Results, condition: Rule, rule: Rule, otherwise: str) -> Outcome:
    """`rule`, where `condition` came out; a claim about how fast something learns needs something that learns."""
    before = condition(results)
    if before.status != "reproduced":
        return Outcome("cannot be tested", f"{otherwise} {before.text}", before.number, before.error)
    return rule(results)


def untestable(why: str) -> Rule:
    """A claim that no run of this figure can decide."""
    return lambda results: Outcome("cannot be tested", why)


def pm(mean: float, error: float | None) -> str:
    """A number with its standard error, to the digits that it supports: "0.251 ± 0.023"."""
    small = error if error else abs(mean) / 100
    digits = min(max(1 - math.floor(math.log10(small)), 0), 6) if small > 0 else 3
    return f"{mean:.{digits}f}" if error is None else f"{mean:.{digits}f} ± {error:.{digits}f}"


def named(cell: Cell, values: Numbers) -> str:
    return f"{cell.label}: {pm(*mean_and_error(values))}"
