"""What a budget buys in linear control, compared with the published and the non-private version."""

from privrl.figures.cell import Cell
from privrl.figures.claims import all_of
from privrl.figures.figure_rules import ends_below, falling, never_above, smaller, stays_above
from privrl.figures.frontier import make_frontier
from privrl.figures.panels import Series
from privrl.figures.verdict import Earlier

_EPSILONS = (0.3, 1.0, 3.0, 10.0)
_PEOPLE = 20_000
_WORLDS = ("lq-scalar", "lq-2d")


def _cell(recipe: str, env: str, epsilon: float | None = None) -> Cell:
    delta = None if epsilon is None else 1e-5
    return Cell(recipe, env, people=_PEOPLE, seeds=10, epsilon=epsilon, delta=delta, few=40)


_CAUTIOUS = {env: tuple(_cell("private-lq", env, e) for e in _EPSILONS) for env in _WORLDS}
_OPTIMISTIC = {env: tuple(_cell("private-ofu-lq", env, e) for e in _EPSILONS[1::2]) for env in _WORLDS}
_PUBLISHED = {env: tuple(_cell("private-ofu-lq@paper", env, e) for e in _EPSILONS[1::2]) for env in _WORLDS}
_PLAIN = {env: _cell("cautious-lq", env) for env in _WORLDS}

FRONTIER = make_frontier(
    "lq",
    "in linear control",
    "Regret over that of doing nothing against epsilon, in two linear systems, under joint privacy.",
    lines={
        f"{env}, H = 5, {_PEOPLE:,} people, delta 1e-5": (
            Series(_PUBLISHED[env], 0),
            Series(_OPTIMISTIC[env], 2),
            Series(_CAUTIOUS[env], 3),
            Series((_PLAIN[env],), 6, flat=True),
        )
        for env in _WORLDS
    },
    levels=("zero",),
    smoke=(_CAUTIOUS["lq-scalar"][-1], _PLAIN["lq-scalar"]),
    found={
        "`private-lq` loses at most 5 % of what doing nothing loses, at epsilon 1 with 20,000 people.": all_of(
            *(ends_below(_CAUTIOUS[env][1], 0.05) for env in _WORLDS)
        ),
        "On the way it is never much worse than doing nothing (running average at most 1.1).": all_of(
            *(never_above(cell, 1.1) for env in _WORLDS for cell in _CAUTIOUS[env])
        ),
        "It is ahead of optimism with tight noise at epsilon 1 and 10.": all_of(
            *(smaller(a, b) for e in _WORLDS for a, b in zip(_CAUTIOUS[e][1::2], _OPTIMISTIC[e], strict=True))
        ),
        "More budget buys less regret.": all_of(*(falling(_CAUTIOUS[e]) for e in _WORLDS)),
        "OFU as published is the zero controller at epsilon 1, for all 20,000 people.": all_of(
            *(stays_above(_PUBLISHED[env][0], 0.99) for env in _WORLDS)
        ),
        "At epsilon 10 it starts to learn after thousands of people, and is far behind `private-lq`.": all_of(
            *(smaller(_CAUTIOUS[env][3], _PUBLISHED[env][1]) for env in _WORLDS)
        ),
    },
    earlier=Earlier(
        "docs/evidence/control.md",
        (
            (_CAUTIOUS["lq-scalar"][1], 0.023, 0.003),
            (_CAUTIOUS["lq-scalar"][3], 0.0081, 0.0004),
            (_CAUTIOUS["lq-2d"][1], 0.036, 0.002),
            (_CAUTIOUS["lq-2d"][3], 0.0094, 0.0003),
            (_OPTIMISTIC["lq-scalar"][0], 0.290, 0.023),
            (_OPTIMISTIC["lq-scalar"][1], 0.052, 0.003),
            (_OPTIMISTIC["lq-2d"][0], 0.341, 0.025),
            (_OPTIMISTIC["lq-2d"][1], 0.076, 0.004),
            (_PLAIN["lq-scalar"], 0.0077, 0.0004),
            (_PLAIN["lq-2d"], 0.0076, 0.0002),
        ),
    ),
    notes=("With its constants optimism is the zero controller as long as the zero system is in the confidence set.",),
)
