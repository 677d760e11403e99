"""sahu, Figure 1: regret on the synthetic linear MDP, (a) of several algorithms and (b) for several budgets.

The text gives the horizon (20) and the number of repetitions (10), but neither the number of episodes, nor epsilon and
delta, nor the instance. We take K = 1,000, delta = 1e-5, instance 0, and epsilon = 10 in (a).
"""

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, all_of
from privrl.figures.figure import Figure
from privrl.figures.figure_rules import close, falling, lower_order, smaller
from privrl.figures.panels import Panel, Series
from privrl.figures.verdict import Earlier

_EPSILONS = (1.0, 10.0, 100.0, 1_000.0)
_GUIDE = "docs/evidence/online.md"


def _cell(recipe: str, epsilon: float | None = None) -> Cell:
    delta = None if epsilon is None else 1e-5
    return Cell(recipe, "synthetic-linear", people=1_000, seeds=10, epsilon=epsilon, delta=delta)


_PUBLISHED = _cell("dp-lsvi-ucb++@paper", 10.0)
_NGO = _cell("dp-lsvi-ucb-ngo@paper", 10.0)
_LUYO = _cell("dp-lsvi-ucb-luyo@paper", 10.0)
_PRACTICAL = _cell("dp-lsvi-ucb", 10.0)
_PRACTICAL_WEIGHTED = _cell("dp-lsvi-ucb++", 10.0)
_PLAIN = _cell("lsvi-ucb")
_PLAIN_WEIGHTED = _cell("lsvi-ucb++")
_ALGORITHMS = (_PUBLISHED, _NGO, _LUYO, _PRACTICAL, _PRACTICAL_WEIGHTED, _PLAIN, _PLAIN_WEIGHTED)
_BUDGETS = tuple(_cell("dp-lsvi-ucb++@paper", epsilon) for epsilon in _EPSILONS)
_OURS = tuple(_cell("dp-lsvi-ucb", epsilon) for epsilon in _EPSILONS)

_NOTES = (
    "The paper's text gives neither the number of episodes, nor epsilon and delta, nor the instance of the world.",
    "As printed the noise is drawn once and added again after every user, which reveals every user; "
    "`dp-lsvi-ucb++@paper` draws it afresh, with the printed ridge and practical bonuses: with the constants of the "
    "theorem every value stays at its maximum.",
    "The algorithms of Luyo et al. and Ngo et al. are reconstructed from descriptions.",
    "Regret is exact, by dynamic programming of the policy that is played, and never negative; ties are split evenly.",
)

FIG1A = Figure(
    name="sahu-fig1a",
    paper="sahu",
    title="cumulative regret of private and non-private algorithms",
    summary="Regret of DP-LSVI-UCB++ and its rivals on the synthetic linear MDP, at one budget.",
    cells=_ALGORITHMS,
    smoke=(_PUBLISHED,),
    panels=(
        Panel(
            "synthetic-linear, H = 20, epsilon 10, delta 1e-5",
            (*(Series((cell,), look) for look, cell in enumerate(_ALGORITHMS)),),
            y="regret",
            levels=("uniform", "myopic"),
        ),
    ),
    claims=(
        Claim(
            "DP-LSVI-UCB++ performs better than the algorithm of Ngo et al.",
            smaller(_PUBLISHED, _NGO),
            "not reproduced",
        ),
        Claim(
            "DP-LSVI-UCB++ performs better than the algorithm of Luyo et al.",
            smaller(_PUBLISHED, _LUYO),
            "not reproduced",
        ),
        Claim(
            "DP-LSVI-UCB++, though private, performs better than LSVI-UCB without privacy.",
            smaller(_PUBLISHED, _PLAIN),
            "not reproduced",
        ),
        Claim(
            "There is almost no drop in utility compared to LSVI-UCB++ without privacy.",
            close(_PUBLISHED, _PLAIN_WEIGHTED, 0.1),
            "not reproduced",
        ),
        Claim(
            "The cost of privacy is of lower order in the number of episodes.",
            lower_order(_PUBLISHED, _PLAIN_WEIGHTED),
            "not reproduced",
        ),
    ),
    earlier=Earlier(
        _GUIDE,
        tuple(
            (cell, total, None)
            for cell, total in zip(_ALGORITHMS, (5_232.0, 4_379.0, 3_306.0, 105.0, 116.0, 97.0, 36.0), strict=True)
        ),
        "total",
    ),
    notes=_NOTES,
)

FIG1B = Figure(
    name="sahu-fig1b",
    paper="sahu",
    title="cumulative regret of DP-LSVI-UCB++ for several budgets",
    summary="Regret of DP-LSVI-UCB++ on the synthetic linear MDP as epsilon grows, and of non-private LSVI-UCB++.",
    cells=(*_BUDGETS, *_OURS, _PLAIN_WEIGHTED),
    smoke=(_BUDGETS[0], _BUDGETS[-1]),
    panels=(
        Panel(
            "synthetic-linear, H = 20, K = 1,000, delta 1e-5",
            (Series(_BUDGETS, 0), Series(_OURS, 3), Series((_PLAIN_WEIGHTED,), 6, flat=True)),
            x="epsilon",
            levels=("uniform", "myopic"),
        ),
    ),
    claims=(
        Claim(
            "As the budget increases, the regret of DP-LSVI-UCB++ gets closer to that of LSVI-UCB++.",
            falling(_BUDGETS),
        ),
        Claim(
            "With a sufficient budget it performs only slightly worse than LSVI-UCB++.",
            close(_BUDGETS[-1], _PLAIN_WEIGHTED, 0.1),
        ),
        Claim(
            "At each of the budgets there is almost no drop in utility.",
            all_of(*(close(cell, _PLAIN_WEIGHTED, 0.1) for cell in _BUDGETS)),
            "not reproduced",
        ),
    ),
    earlier=Earlier(
        _GUIDE, ((_BUDGETS[1], 5_232.0, None), (_OURS[1], 105.0, None), (_PLAIN_WEIGHTED, 36.0, None)), "total"
    ),
    notes=_NOTES,
)
