"""The rules that judge claims: right on curves whose answer is known, and sure of it only beyond chance."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import Claim, all_of, compare_means, only_if, untestable
from privrl.figures.figure_rules import (
    beats,
    close,
    ends_below,
    falling,
    grows_at_most,
    last_over_first,
    learns,
    lower_order,
    mostly_smaller,
    never_above,
    slower,
    smaller,
    stays_above,
    trails,
    vanishing_cost,
)
from privrl.figures.verdict import compare_with_finding

LEVELS = {"uniform": 1.0, "myopic": 0.5, "left": 1.2, "mode": 0.8, "optimal": 2.0}


def cell(recipe: str, people: int = 100) -> Cell:
    return Cell(recipe, "world", people=people, seeds=4)


A, B, C = cell("a"), cell("b"), cell("c")


def flat(shares: list[float], people: int = 100) -> Measured:
    """Regret that grows evenly to these shares of the yardstick."""
    at = np.arange(1, 101) * people // 100
    return Measured("regret", at, np.asarray(shares)[:, None] * at, 1.0 * at, LEVELS, None, 0.0)


def power(exponent: float, scale: float = 1.0, seeds: int = 4) -> Measured:
    at = np.arange(1, 101) * 10
    spread_ = 1 + 0.01 * np.arange(seeds)[:, None]
    return Measured("regret", at, scale * spread_ * at**exponent, 1.0 * at, LEVELS, None, 0.0)


def ends(values: list[float], people: int) -> Measured:
    column = np.asarray(values)[:, None]
    return Measured("suboptimality", np.array([people]), column, np.array([1.0]), LEVELS, None, 0.0)


values_ = st.lists(st.floats(-1, 1), min_size=2, max_size=6)


@given(values_, values_)
def test_welch_is_scipy_s(a: list[float], b: list[float]) -> None:
    if min(np.std(a), np.std(b)) < 1e-3:
        return
    theirs = scipy.stats.ttest_ind(a, b, equal_var=False, alternative="less")
    difference, error, p = compare_means(a, b)
    assert p == pytest.approx(theirs.pvalue, abs=1e-9)
    assert difference == pytest.approx(error * theirs.statistic, abs=1e-9)


def test_welch_without_any_spread() -> None:
    assert [compare_means([a, a], [b, b])[2] for a, b in ((1.0, 2.0), (2.0, 1.0), (1.0, 1.0))] == [0.0, 1.0, 0.5]


LOW, MIDDLE, HIGH = [0.1, 0.11, 0.12, 0.1], [0.3, 0.31, 0.32, 0.3], [0.7, 0.71, 0.72, 0.7]


@pytest.mark.parametrize(
    ("rule", "results", "status"),
    [
        (smaller(A, B), {A: flat(LOW), B: flat(HIGH)}, "reproduced"),
        (smaller(A, B), {A: flat(HIGH), B: flat(LOW)}, "not reproduced"),
        (smaller(A, B), {A: flat(LOW), B: flat(LOW)}, "not reproduced"),
        (close(A, B, 0.3), {A: flat(MIDDLE), B: flat(LOW)}, "reproduced"),
        (close(A, B, 0.1), {A: flat(MIDDLE), B: flat(LOW)}, "not reproduced"),
        (falling((A, B, C)), {A: flat(HIGH), B: flat(MIDDLE), C: flat(LOW)}, "reproduced"),
        (falling((A, B, C)), {A: flat(MIDDLE), B: flat(HIGH), C: flat(LOW)}, "not reproduced"),
        (falling((A, B)), {A: flat(LOW), B: flat(LOW)}, "not reproduced"),
        (ends_below(A, 0.2), {A: flat(LOW)}, "reproduced"),
        (ends_below(A, 0.1), {A: flat(LOW)}, "not reproduced"),
        (stays_above(A, 0.6), {A: flat(HIGH)}, "reproduced"),
        (stays_above(A, 0.71), {A: flat(HIGH)}, "not reproduced"),
        (beats(A, "myopic"), {A: flat(MIDDLE)}, "reproduced"),
        (beats(A, "myopic"), {A: flat(HIGH)}, "not reproduced"),
        (trails(A, "myopic"), {A: flat(HIGH)}, "reproduced"),
        (trails(A, "myopic"), {A: flat(MIDDLE)}, "not reproduced"),
        (beats(A, "mode"), {A: ends(HIGH, 50)}, "reproduced"),
        (learns(A), {A: power(0.5)}, "reproduced"),
        (learns(A), {A: power(1.0, 0.2)}, "not reproduced"),
        (learns(A), {A: power(0.5, 25.0)}, "not reproduced"),
        (grows_at_most(A, 0.75), {A: power(0.7)}, "reproduced"),
        (grows_at_most(A, 0.75), {A: power(0.8)}, "not reproduced"),
        (lower_order(A, B), {A: power(0.3, 40.0), B: power(0.3)}, "reproduced"),
        (lower_order(A, B), {A: power(1.0, 40.0), B: power(0.5)}, "not reproduced"),
        (lower_order(A, B), {A: power(0.5), B: power(0.5, 2.0)}, "cannot be tested"),
        (never_above(A, 1.1), {A: power(0.5)}, "reproduced"),
        (never_above(A, 0.2), {A: power(0.5)}, "not reproduced"),
        (mostly_smaller(((A, B), (A, C), (B, C))), {A: flat(LOW), B: flat(MIDDLE), C: flat(HIGH)}, "reproduced"),
        (mostly_smaller(((A, B), (A, C))), {A: flat(LOW), B: flat(LOW), C: flat(HIGH)}, "not reproduced"),
        (all_of(ends_below(A, 0.2), ends_below(B, 0.2)), {A: flat(LOW), B: flat(HIGH)}, "not reproduced"),
        (all_of(ends_below(A, 0.2), ends_below(B, 0.8)), {A: flat(LOW), B: flat(HIGH)}, "reproduced"),
        (only_if(ends_below(A, 0.2), smaller(A, B), "No."), {A: flat(HIGH), B: flat(LOW)}, "cannot be tested"),
        (only_if(ends_below(A, 0.2), smaller(A, B), "No."), {A: flat(LOW), B: flat(HIGH)}, "reproduced"),
    ],
)
def test_rules(rule: Callable, results: dict[Cell, Measured], status: str) -> None:
    outcome = rule(results)
    assert outcome.status == status, outcome.text
    assert outcome.text


def test_numbers_of_rules_by_hand() -> None:
    grown = grows_at_most(A, 0.75)({A: power(0.6)})
    assert grown.number == pytest.approx(0.6) and grown.error == pytest.approx(0.0, abs=1e-12)
    bend = last_over_first(power(0.5))
    np.testing.assert_allclose(bend, (1 - math.sqrt(0.8)) / math.sqrt(0.2), rtol=1e-9)
    cost = lower_order(A, B)({A: power(0.5, 3.0), B: power(0.5)})
    assert cost.number == pytest.approx(0.5)


def test_the_cost_of_privacy_against_the_size_of_a_table() -> None:
    few, many = cell("few"), cell("many", 10_000)
    plain = cell("plain"), cell("plain more", 10_000)

    def after(cost: float) -> str:
        found = {few: ends(HIGH, 100), many: ends([cost, cost * 1.01], 10_000)}
        found |= {plain[0]: ends([0.0, 1e-9], 100), plain[1]: ends([0.0, 1e-9], 10_000)}
        return vanishing_cost((few, many), plain)(found).status

    assert (after(0.01), after(0.2), after(-0.1)) == ("reproduced", "not reproduced", "cannot be tested")


def test_more_noise_takes_longer() -> None:
    def curve(length: float) -> Measured:
        at = np.arange(1, 21) * 100
        shares = np.exp(-at / (length * (1 + 0.05 * np.arange(4)[:, None])))
        return Measured("suboptimality", at, shares, np.ones(20), LEVELS, None, 0.0)

    quick, slow, never = curve(100.0), curve(400.0), curve(1e9)
    outcome = slower((A, B, C), A, 0.05)({A: quick, B: slow, C: never})
    assert outcome.status == "reproduced"
    assert "reached after more than the whole run" in outcome.text
    assert slower((A, B, C), A, 0.05)({A: quick, B: never, C: slow}).status == "not reproduced"
    assert slower((A, B), A, 0.05)({A: quick, B: quick}).status == "not reproduced"


def test_a_difference_from_before_is_weighed_against_chance() -> None:
    claim = Claim("It is so.", untestable(""), "reproduced", "a note")
    near = smaller(A, B)({A: flat([0.3, 0.4]), B: flat([0.3, 0.41])})
    far = smaller(A, B)({A: flat([0.6, 0.61]), B: flat([0.3, 0.31])})
    assert "chance may explain" in compare_with_finding(claim, near)
    assert "Chance does not explain this" in compare_with_finding(claim, far)


def test_an_explanation_names_what_fails_or_what_is_closest() -> None:
    one, two, three = ends_below(A, 0.2), ends_below(A, 0.15), ends_below(B, 0.2)
    found = {A: flat(LOW), B: flat(HIGH)}
    good, bad = all_of(one, two)(found), all_of(one, two, three)(found)
    assert good.text.startswith("All 2 parts hold; the closest:") and good.text.count("requires") == 1
    assert good.margin == two(found).margin < one(found).margin
    assert bad.text.startswith("2 of 3 parts hold; these do not:") and bad.number == three(found).number
