"""What a budget buys under local privacy, compared with the published and the non-private version."""

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, all_of
from privrl.figures.figure_rules import ends_below, falling, learns, stays_above
from privrl.figures.frontier import make_frontier
from privrl.figures.panels import Series
from privrl.figures.verdict import Earlier
from privrl.recipes.all_recipes import get

_EPSILONS = (0.5, 1.0, 2.0, 5.0)
_SIZES = (3, 5)


def _cell(recipe: str, states: int, epsilon: float | None = None, people: int = 10_000) -> Cell:
    delta = None if epsilon is None or get(recipe).pure else 0.1
    world = (("states", states),)
    return Cell(recipe, "riverswim", people=people, seeds=10, epsilon=epsilon, delta=delta, world=world)


_OURS = {s: tuple(_cell("ldp-ucbvi", s, e) for e in _EPSILONS) for s in _SIZES}
_PUBLISHED = {s: tuple(_cell("ldp-ucrl-vtr@paper", s, e) for e in _EPSILONS) for s in _SIZES}
_PLAIN = {s: _cell("ucbvi", s) for s in _SIZES}
_MANY = tuple(_cell("ldp-ucbvi", 5, e, people=100_000) for e in (1.0, 2.0))
_SMALL, _LARGE = _OURS[3], _OURS[5]

FRONTIER = make_frontier(
    "local",
    "under local privacy",
    "Regret over that of random actions against epsilon, under local privacy, in rivers of 3 and 5 states.",
    lines={
        f"riverswim, {states} states, H = {2 * states}, 10,000 people": (
            Series(_PUBLISHED[states], 0),
            Series(_OURS[states], 3),
            *((Series(_MANY, 4, "the same, 100,000 people"),) if states == 5 else ()),
            Series((_PLAIN[states],), 6, flat=True),
        )
        for states in _SIZES
    },
    levels=("uniform", "left"),
    smoke=(_SMALL[0], _SMALL[-1], _PLAIN[3]),
    found={
        "`ldp-ucbvi` learns on 3 states at epsilon 1 with 10,000 people.": learns(_SMALL[1]),
        "It learns on 5 states at epsilon 5 with 10,000 people, and at epsilon 2 with 100,000.": all_of(
            learns(_LARGE[3]), learns(_MANY[1])
        ),
        "Epsilon 1 on 5 states with 10,000 people is out of reach (more than half of the uniform policy's regret).": (
            stays_above(_LARGE[1], 0.5)
        ),
        "More budget buys less regret.": all_of(falling(_SMALL), falling(_LARGE)),
        "LDP-UCRL-VTR as published does not get below a third of the uniform policy's regret.": all_of(
            *(stays_above(cell, 1 / 3) for s in _SIZES for cell in _PUBLISHED[s])
        ),
    },
    more=(
        Claim(
            "Without privacy 10,000 people are plenty (less than a twentieth).",
            all_of(*(ends_below(_PLAIN[s], 0.05) for s in _SIZES)),
        ),
    ),
    earlier=Earlier(
        "docs/evidence/local.md",
        (
            (_SMALL[0], 0.354, 0.049),
            (_SMALL[1], 0.127, 0.040),
            (_SMALL[2], 0.021, 0.003),
            (_SMALL[3], 0.0045, 0.0004),
            (_LARGE[1], 0.660, 0.042),
            (_LARGE[2], 0.251, 0.023),
            (_LARGE[3], 0.044, 0.008),
            (_MANY[0], 0.169, 0.030),
            (_MANY[1], 0.060, 0.019),
        ),
    ),
    notes=(
        "`ldp-ucbvi` spends epsilon alone (delta = 0); LDP-UCRL-VTR is published with delta, here .1 as in its figure.",
        "Its exact epsilon, in the table of runs, is far below the claimed one, which is what is on the axis.",
    ),
)
