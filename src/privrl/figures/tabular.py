"""All private learners of finite worlds at equal epsilon: joint and local privacy, four worlds."""

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, all_of
from privrl.figures.figure import Figure
from privrl.figures.figure_rules import ends_below, falling, mostly_smaller, smaller, stays_above
from privrl.figures.panels import Panel, Series
from privrl.figures.verdict import OURS
from privrl.recipes.all_recipes import get

_EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
_PEOPLE, _SEEDS = 20_000, 20
_World = tuple[str, int, tuple[tuple[str, int | float | str], ...]]
_WORLDS: dict[str, _World] = {
    "riverswim, 5 states": ("riverswim", 0, (("states", 5), ("horizon", 10))),
    "random world 1, 5 states, 3 actions": ("random-world", 1, (("states", 5), ("actions", 3), ("horizon", 10))),
    "random world 2, 8 states, 2 actions": ("random-world", 2, (("states", 8), ("actions", 2), ("horizon", 10))),
    "combination lock, 4 states": ("combination-lock", 0, (("states", 4), ("actions", 2), ("horizon", 8))),
}
_JOINT = ("dp-obi", "dp-ucbvi", "dp-hoeffding-ucbvi", "dp-bernstein-ucbvi", "dp-pucb", "dp-ucb-po", "dp-lsvi-ucb")
_LOCAL = ("ldp-ucbvi", "ldp-hoeffding-ucbvi", "ldp-ucb-po", "ldp-obi")


def _cell(recipe: str, title: str, epsilon: float, *, pure: bool = False) -> Cell:
    env, instance, world = _WORLDS[title]
    return Cell(
        recipe,
        env,
        people=_PEOPLE,
        seeds=_SEEDS,
        epsilon=epsilon,
        delta=None if pure or get(recipe).pure else 1e-5,
        world=world,
        env_seed=instance,
        name=f"{recipe}, epsilon {epsilon:g}{', delta 0' if pure else ''}, {title}",
    )


_CELLS = {
    (recipe, title): tuple(_cell(recipe, title, epsilon) for epsilon in _EPSILONS)
    for recipe in (*_JOINT, *_LOCAL)
    for title in _WORLDS
}
_PURE = {title: tuple(_cell("dp-obi", title, epsilon, pure=True) for epsilon in _EPSILONS) for title in _WORLDS}
_RIVER = next(iter(_WORLDS))
_HELD_OUT: dict[str, tuple[_World, str, str]] = {
    "synthetic-linear": (("synthetic-linear", 0, ()), "dp-lsvi-ucb", "dp-ucbvi"),
    "inhomogeneous river, 5 states": (
        ("riverswim-inhomogeneous", 0, (("states", 5), ("horizon", 10))),
        "dp-lsvi-ucb",
        "dp-ucbvi",
    ),
    "inhomogeneous river, 8 states": (
        ("riverswim-inhomogeneous", 0, (("states", 8), ("horizon", 16))),
        "dp-lsvi-ucb",
        "dp-ucbvi",
    ),
    "random world 3, 10 states, 4 actions": (
        ("random-world", 3, (("states", 10), ("actions", 4), ("horizon", 12))),
        "dp-obi",
        "dp-lsvi-ucb",
    ),
}
"""Worlds that did not choose the rule of `auto-online`, what it takes there, and a learner that it does not take."""


def _held_out(recipe: str, title: str) -> tuple[Cell, ...]:
    env, instance, world = _HELD_OUT[title][0]
    return tuple(
        Cell(recipe, env, people=_PEOPLE, seeds=_SEEDS, epsilon=epsilon, delta=1e-5, world=world, env_seed=instance)
        for epsilon in (1.0, 10.0)
    )


_AUTO = {
    title: (_held_out("auto-online", title), _held_out(other, title)) for title, (_, _, other) in _HELD_OUT.items()
}


def _pairs(better: str, worse: str) -> tuple[tuple[Cell, Cell], ...]:
    """The cells of two recipes from epsilon 1 on, in every world."""
    return tuple(
        (a, b) for title in _WORLDS for a, b in zip(_CELLS[better, title][2:], _CELLS[worse, title][2:], strict=True)
    )


TABULAR = Figure(
    name="tabular",
    paper=OURS,
    title="private learners of finite worlds at equal epsilon",
    summary="Regret over that of random actions against epsilon: eleven recipes, joint and local privacy, four worlds.",
    cells=(
        *(cell for cells in _CELLS.values() for cell in cells),
        *(cell for cells in _PURE.values() for cell in cells),
        *(cell for lines in _AUTO.values() for line in lines for cell in line),
    ),
    smoke=(_CELLS["dp-obi", _RIVER][2], _PURE[_RIVER][2], _CELLS["ldp-obi", _RIVER][2]),
    panels=(
        *(
            Panel(
                f"{title}: joint privacy, delta 1e-5",
                (
                    *(Series(_CELLS[recipe, title], look) for look, recipe in enumerate(_JOINT)),
                    Series(_PURE[title], 7, "dp-obi, delta 0"),
                ),
                x="epsilon",
            )
            for title in _WORLDS
        ),
        *(
            Panel(
                f"{title}: local privacy, delta 0",
                tuple(Series(_CELLS[recipe, title], look) for look, recipe in enumerate(_LOCAL)),
                x="epsilon",
            )
            for title in _WORLDS
        ),
        *(
            Panel(f"{title}: joint privacy, delta 1e-5", (Series(ours, 0), Series(others, 1)), x="epsilon")
            for title, (ours, others) in _AUTO.items()
        ),
    ),
    claims=(
        *(
            Claim(
                f"In a world that did not choose its rule ({title}), `auto-online` takes `{_HELD_OUT[title][1]}`, and "
                f"has less regret than `{_HELD_OUT[title][2]}` at epsilon 1 and 10.",
                all_of(*(smaller(a, b) for a, b in zip(ours, others, strict=True))),
            )
            for title, (ours, others) in _AUTO.items()
        ),
        *(
            Claim(f"From epsilon 1 on, `dp-obi` has less regret than `{other}` in most cases.", mostly_smaller(pairs))
            for other in _JOINT[1:]
            for pairs in (_pairs("dp-obi", other),)
        ),
        *(
            Claim(
                f"From epsilon 1 on, `ldp-ucbvi` has less regret than `{other}` in most cases.", mostly_smaller(pairs)
            )
            for other in _LOCAL[1:]
            for pairs in (_pairs("ldp-ucbvi", other),)
        ),
        Claim(
            "At epsilon 10 every joint learner loses less than half of what random actions lose on `riverswim`.",
            all_of(*(ends_below(_CELLS[recipe, _RIVER][4], 0.5) for recipe in _JOINT)),
        ),
        Claim(
            "At epsilon 10 `dp-obi` loses less than a tenth in every world.",
            all_of(*(ends_below(_CELLS["dp-obi", title][4], 0.1) for title in _WORLDS)),
        ),
        Claim(
            "At epsilon .1 with 20,000 people `dp-obi` does not get below half in any world.",
            all_of(*(stays_above(_CELLS["dp-obi", title][0], 0.5) for title in _WORLDS)),
        ),
        Claim(
            "More budget buys less regret for `dp-obi`, with and without delta.",
            all_of(*(falling(cells) for title in _WORLDS for cells in (_CELLS["dp-obi", title], _PURE[title]))),
        ),
        Claim(
            "Delta = 0 costs regret: at epsilon 3 `dp-obi` with delta 1e-5 has less in every world.",
            all_of(*(smaller(_CELLS["dp-obi", title][3], _PURE[title][3]) for title in _WORLDS)),
        ),
        Claim(
            "A local question about one first visit beats joint sums over all visits: at epsilon 3 `ldp-ucbvi` has "
            "less regret than `dp-ucbvi` on `riverswim`.",
            smaller(_CELLS["ldp-ucbvi", _RIVER][3], _CELLS["dp-ucbvi", _RIVER][3]),
        ),
    ),
    notes=(
        "The learners have the ideas of the papers that they cite, with practical constants; none is as published. "
        "Joint learners release counts with the best continual mechanism of privrl, not with the papers' binary trees.",
    ),
)
