"""What a budget buys offline, on ICU-Sepsis, compared with the published and the non-private version."""

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, all_of
from privrl.figures.figure_rules import beats, falling, smaller, trails
from privrl.figures.frontier import make_frontier
from privrl.figures.panels import Series
from privrl.figures.verdict import Earlier

_EPSILONS = (0.3, 1.0, 3.0, 6.573)  # the last is rho = 1
_SIZES = (10_000, 100_000)


def _cell(recipe: str, people: int, epsilon: float | None = None) -> Cell:
    delta = None if epsilon is None else 1e-5
    return Cell(recipe, "icu-sepsis", people=people, seeds=5, epsilon=epsilon, delta=delta)


_FEATURE = {n: tuple(_cell("dp-tdfp", n, e) for e in _EPSILONS) for n in _SIZES}
_COUNTS = {n: tuple(_cell("dp-apvi", n, e) for e in _EPSILONS) for n in _SIZES}
_PUBLISHED = {n: tuple(_cell("dp-apvi@paper", n, e) for e in _EPSILONS) for n in _SIZES}
_FEW, _MANY = _SIZES


FRONTIER = make_frontier(
    "offline",
    "offline",
    "Share of ICU-Sepsis patients who survive against epsilon, from 10,000 and 100,000 stays.",
    lines={
        f"icu-sepsis, H = 20, {n:,} stays, delta 1e-5": (
            Series(_PUBLISHED[n], 0),
            Series(_COUNTS[n], 4),
            Series(_FEATURE[n], 3),
            Series((_cell("apvi", n),), 6, flat=True),
            Series((_cell("tdfp", n),), 5, flat=True),
        )
        for n in _SIZES
    },
    y="value",
    ylabel="share of patients who survive",
    levels=("optimal", "mode", "behaviour", "uniform"),
    log="x",
    smoke=(_COUNTS[_FEW][0], _COUNTS[_FEW][-1], _cell("apvi", _FEW)),
    found={
        "`dp-tdfp` is ahead of `dp-apvi` at every epsilon from 1.": all_of(
            *(smaller(a, b) for n in _SIZES for a, b in zip(_FEATURE[n][1:], _COUNTS[n][1:], strict=True))
        ),
        '`dp-tdfp` clears the bar that "useful" must clear, the most frequent action of doctors, from epsilon 1.': (
            all_of(*(beats(cell, "mode") for n in _SIZES for cell in _FEATURE[n][1:]))
        ),
        "More budget buys more survival with `dp-tdfp`.": all_of(*(falling(_FEATURE[n]) for n in _SIZES)),
    },
    more=(
        Claim(
            "DP-APVI as published does not clear that bar up to rho = 1.",
            all_of(*(trails(_PUBLISHED[n][-1], "mode") for n in _SIZES)),
            "reproduced",
            "our first measurements, offline",
        ),
    ),
    earlier=Earlier(
        "docs/evidence/offline.md",
        (
            (_FEATURE[_FEW][1], 0.7146, 0.0026),
            (_FEATURE[_FEW][3], 0.7375, 0.0005),
            (_FEATURE[_MANY][1], 0.7474, 0.0005),
            (_FEATURE[_MANY][3], 0.7692, 0.0002),
            (_COUNTS[_FEW][1], 0.6907, 0.0014),
            (_COUNTS[_FEW][3], 0.7042, 0.0009),
            (_COUNTS[_MANY][1], 0.7172, 0.0007),
            (_COUNTS[_MANY][3], 0.7565, 0.0007),
        ),
        "value",
    ),
    notes=(
        "Constants of `dp-tdfp` and `dp-apvi` were tuned on other seeds of this same world.",
        "Published DP-APVI counts every step apart, with the paper's noise and constants.",
    ),
)
