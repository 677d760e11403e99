"""What a budget buys online under joint privacy, compared with the published and the non-private version."""

from privrl.figures.cell import Cell
from privrl.figures.claims import all_of
from privrl.figures.figure_rules import beats, ends_below, falling, stays_above
from privrl.figures.frontier import make_frontier
from privrl.figures.panels import Series
from privrl.figures.verdict import Earlier

_EPSILONS = (0.3, 1.0, 3.0, 10.0, 30.0)
_PUBLISHED_EPSILONS = (1.0, 10.0, 30.0)
_PEOPLE, _PUBLISHED_PEOPLE = 100_000, 1_000
_WORLDS: dict[str, tuple[tuple[str, int | float | str], ...]] = {
    "riverswim": (("states", 6), ("horizon", 20), ("kind", "osband")),
    "synthetic-linear": (),
}


def _cell(recipe: str, env: str, people: int, epsilon: float | None = None) -> Cell:
    delta = None if epsilon is None else 1e-5
    return Cell(recipe, env, people=people, seeds=10, epsilon=epsilon, delta=delta, world=_WORLDS[env])


_OURS = {env: tuple(_cell("dp-lsvi-ucb", env, _PEOPLE, e) for e in _EPSILONS) for env in _WORLDS}
_PUBLISHED = {
    env: tuple(_cell("dp-lsvi-ucb++@paper", env, _PUBLISHED_PEOPLE, e) for e in _PUBLISHED_EPSILONS) for env in _WORLDS
}
_RIVER, _LINEAR = _OURS["riverswim"], _OURS["synthetic-linear"]

FRONTIER = make_frontier(
    "online",
    "online",
    "Regret over that of random actions against epsilon, in two worlds, under joint privacy.",
    lines={
        f"{env}, H = 20, {_PEOPLE:,} people, delta 1e-5": (
            Series(_PUBLISHED[env], 0, more=f" ({_PUBLISHED_PEOPLE:,} people)"),
            Series(_OURS[env], 3),
            Series((_cell("lsvi-ucb", env, _PEOPLE),), 6, flat=True),
        )
        for env in _WORLDS
    },
    levels=("uniform", "myopic"),
    smoke=(_RIVER[0], _RIVER[-1]),
    found={
        "At epsilon 10 and 100,000 people `dp-lsvi-ucb` loses less than a tenth of what random actions lose.": all_of(
            ends_below(_RIVER[3], 0.1), ends_below(_LINEAR[3], 0.1)
        ),
        "At epsilon 1 it still learns in both worlds (less than a third).": all_of(
            ends_below(_RIVER[1], 1 / 3), ends_below(_LINEAR[1], 1 / 3)
        ),
        "More budget buys less regret.": all_of(falling(_RIVER), falling(_LINEAR)),
        "On `synthetic-linear` it beats the myopic policy, which needs no data, at epsilon 1 and 10.": all_of(
            beats(_LINEAR[1], "myopic"), beats(_LINEAR[3], "myopic")
        ),
        "DP-LSVI-UCB++ as published stays at the uniform policy on `synthetic-linear` up to epsilon 10.": all_of(
            *(stays_above(cell, 0.99) for cell in _PUBLISHED["synthetic-linear"][:2])
        ),
    },
    earlier=Earlier(
        "docs/evidence/online.md",
        (
            (_RIVER[3], 0.038, 0.002),
            (_RIVER[1], 0.195, 0.007),
            (_LINEAR[3], 0.0027, 0.0002),
            (_LINEAR[1], 0.0082, 0.0003),
        ),
    ),
    notes=(
        f"The published algorithm releases everything after every person; it is run for {_PUBLISHED_PEOPLE:,} people, "
        f"the others for {_PEOPLE:,}. Its policy hardly moves, so its share of the uniform one's regret hardly depends "
        "on the number of people.",
    ),
)
