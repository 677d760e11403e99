"""qiao-wang, Figure 1: suboptimality on the synthetic linear MDP against the number of episodes, (a) of several
algorithms and (b) of DP-VAPVI for several budgets.

The text gives H = 20, K from 5 to 1,000, no split of the data and 5 repetitions, but no budget. We take rho = 1 in (a),
instance 0 of the world for (a) and 1 for (b), and continue to K = 20,000 in (a) to see the trend.
"""

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, all_of
from privrl.figures.figure import Figure
from privrl.figures.figure_rules import close, falling, mostly_smaller, smaller, vanishing_cost
from privrl.figures.panels import Panel, Series
from privrl.figures.verdict import Earlier

_PEOPLE = (5, 30, 100, 300, 1_000)
_BEYOND = (5_000, 20_000)
_RHOS = (0.1, 1.0, 5.0, 25.0)
_UNIFORM = 4.94  # the loss of the uniform policy on the instance of the earlier measurement


def _cell(recipe: str, people: int, rho: float | None = None, instance: int = 0) -> Cell:
    return Cell(recipe, "synthetic-linear", people=people, seeds=10, rho=rho, env_seed=instance)


def _earlier(*losses: tuple[Cell, float]) -> Earlier:
    numbers = tuple((cell, loss / _UNIFORM, None) for cell, loss in losses)
    return Earlier(
        "our first measurements, offline", numbers, note="the earlier measurement used another instance of the world"
    )


def _table(recipe: str, rho: float | None = None, sizes: tuple[int, ...] = _PEOPLE + _BEYOND) -> tuple[Cell, ...]:
    return tuple(_cell(recipe, people, rho) for people in sizes)


_PEVI, _VAPVI = _table("pevi"), _table("vapvi")
_PUBLISHED, _PRACTICAL = _table("dp-vapvi@paper", 1.0), _table("dp-vapvi", 1.0)
_PRIVATE_PEVI = _table("dp-pevi", 1.0)
_LAST = _PEOPLE.index(1_000)  # the last of the paper's own sizes

_BUDGETS = {rho: tuple(_cell("dp-vapvi@paper", k, rho, instance=1) for k in _PEOPLE) for rho in _RHOS}
_OURS = tuple(_cell("dp-vapvi", _PEOPLE[-1], rho, instance=1) for rho in _RHOS)
_VAPVI_B = tuple(_cell("vapvi", k, instance=1) for k in _PEOPLE)

_NOTES = (
    "The paper's text gives no budget and no instance of the world.",
    "Features are divided by sqrt 7, so that their norm is at most 1 as the sensitivities assume. Bonus constants are "
    "practical: the constants of the theorem are infinite in this world (kappa = 0).",
    "Ties are split evenly: if all values are clipped to 0, the policy is uniform instead of action 0.",
    "`dp-vapvi@paper` has the printed noise; the printed Gram noise costs 2 rho_0 when a person is replaced. "
    "The exact epsilon is in the table of runs.",
)

FIG1A = Figure(
    name="qiao-wang-fig1a",
    paper="qiao-wang",
    title="suboptimality of PEVI, VAPVI and DP-VAPVI",
    summary="Offline learning on the synthetic linear MDP against the number of episodes, at rho = 1.",
    cells=(*_PEVI, *_VAPVI, *_PUBLISHED, *_PRACTICAL, *_PRIVATE_PEVI),
    smoke=(_VAPVI[0], _VAPVI[_LAST], _PUBLISHED[0], _PUBLISHED[_LAST]),
    panels=(
        Panel(
            "synthetic-linear, H = 20, rho 1 (the paper's figure ends at 1,000)",
            (
                Series(_PUBLISHED, 0),
                Series(_PRACTICAL, 3),
                Series(_PRIVATE_PEVI, 4),
                Series(_PEVI, 5),
                Series(_VAPVI, 6),
            ),
            y="suboptimality",
            levels=("uniform",),
        ),
    ),
    claims=(
        Claim(
            "DP-VAPVI performs worse than VAPVI (K = 1,000).", smaller(_VAPVI[_LAST], _PUBLISHED[_LAST]), "reproduced"
        ),
        Claim("It is only slightly worse (K = 1,000).", close(_PUBLISHED[_LAST], _VAPVI[_LAST], 0.1), "not reproduced"),
        Claim(
            "As the data set grows, its performance converges to that of VAPVI.",
            all_of(falling(_PUBLISHED[: _LAST + 1]), close(_PUBLISHED[_LAST], _VAPVI[_LAST], 0.02)),
            "not reproduced",
        ),
        Claim(
            "The cost of privacy is of lower order in the number of episodes (100 to 1,000).",
            vanishing_cost((_PUBLISHED[2], _PUBLISHED[_LAST]), (_VAPVI[2], _VAPVI[_LAST])),
            "not reproduced",
        ),
        Claim(
            "In most cases DP-VAPVI still outperforms PEVI, which has no privacy.",
            mostly_smaller(tuple(zip(_PUBLISHED[: _LAST + 1], _PEVI[: _LAST + 1], strict=True))),
            "not reproduced",
        ),
        Claim(
            "(ours) Calibrated to the span of the value function, DP-VAPVI does converge, by K = 20,000.",
            close(_PRACTICAL[-1], _VAPVI[-1], 0.02),
            "reproduced",
        ),
    ),
    earlier=_earlier(
        *zip((_PUBLISHED[i] for i in (2, 4, 5, 6)), (4.79, 3.69, 3.12, 2.93), strict=True),
        *zip((_PRACTICAL[i] for i in (2, 4, 5, 6)), (4.48, 1.49, 0.24, 0.02), strict=True),
        *zip((_VAPVI[2], _VAPVI[4], _PEVI[2], _PEVI[4]), (0.26, 0.01, 0.20, 0.01), strict=True),
    ),
    notes=_NOTES,
)

FIG1B = Figure(
    name="qiao-wang-fig1b",
    paper="qiao-wang",
    title="suboptimality of DP-VAPVI for several budgets",
    summary="Offline learning with DP-VAPVI on the synthetic linear MDP, rho from .1 to 25, compared with VAPVI.",
    cells=(*(cell for cells in _BUDGETS.values() for cell in cells), *_OURS, *_VAPVI_B),
    smoke=(_BUDGETS[1.0][0], _BUDGETS[25.0][0], _BUDGETS[1.0][-1], _BUDGETS[25.0][-1]),
    panels=(
        Panel(
            "synthetic-linear (instance 1), H = 20",
            (
                *(
                    Series(cells, look, more=f", rho {rho:g}")
                    for look, (rho, cells) in zip((0, 1, 2, 5), _BUDGETS.items(), strict=True)
                ),
                Series(_VAPVI_B, 6),
            ),
            y="suboptimality",
        ),
        Panel(
            "the same at K = 1,000",
            (
                Series(tuple(cells[-1] for cells in _BUDGETS.values()), 0, "as published"),
                Series(_OURS, 3),
                Series((_VAPVI_B[-1],), 6, "VAPVI", flat=True),
            ),
            x="rho",
            y="suboptimality",
        ),
    ),
    claims=(
        Claim(
            "With a larger budget DP-VAPVI is closer to VAPVI (K = 1,000).",
            falling(tuple(cells[-1] for cells in _BUDGETS.values())),
        ),
        Claim(
            "As the data set grows, DP-VAPVI converges to VAPVI, by K = 1,000 at the largest budget.",
            close(_BUDGETS[25.0][-1], _VAPVI_B[-1], 0.02),
            "not reproduced",
        ),
        Claim(
            "At every budget it performs only slightly worse than VAPVI (K = 1,000).",
            all_of(*(close(cells[-1], _VAPVI_B[-1], 0.1) for cells in _BUDGETS.values())),
            "not reproduced",
        ),
    ),
    earlier=_earlier((_BUDGETS[1.0][-1], 3.69), (_OURS[1], 1.49), (_OURS[3], 0.28)),
    notes=_NOTES,
)
