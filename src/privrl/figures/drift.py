"""Regret in a drifting world, with and without forgetting, under joint privacy and without privacy."""

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim
from privrl.figures.figure import Figure
from privrl.figures.figure_rules import ends_below, smaller, stays_above
from privrl.figures.panels import Panel, Series
from privrl.figures.verdict import OURS, Earlier

_PEOPLE, _PERIOD, _EPOCH, _FORGET = 400_000, 200_000, 5_000, 0.5


def _cell(recipe: str, forget: float, epsilon: float | None = None) -> Cell:
    return Cell(
        recipe,
        "drifting-river",
        people=_PEOPLE,
        seeds=10,
        epsilon=epsilon,
        delta=None if epsilon is None else 1e-6,
        world=(("states", 4), ("horizon", 8), ("period", _PERIOD)),
        name=f"{recipe}, {'forgets nothing' if forget == 1.0 else 'forgets half'}",
        epoch=_EPOCH,
        forget=forget,
    )


_FORGETS, _KEEPS = _cell("dp-ucbvi", _FORGET, 1.0), _cell("dp-ucbvi", 1.0, 1.0)
_PLAIN_FORGETS, _PLAIN_KEEPS = _cell("ucbvi", _FORGET), _cell("ucbvi", 1.0)

DRIFT = Figure(
    name="drift",
    paper=OURS,
    title="learning in a world that drifts",
    summary="Regret over that of random actions in a river whose strokes change places, with and without forgetting.",
    cells=(_FORGETS, _KEEPS, _PLAIN_FORGETS, _PLAIN_KEEPS),
    smoke=(_FORGETS, _PLAIN_KEEPS),
    panels=(
        Panel(
            f"drifting-river, a period of {_PERIOD:,} people, epochs of {_EPOCH:,}",
            (
                Series((_KEEPS,), 0, "epsilon 1, forgets nothing"),
                Series((_FORGETS,), 3, "epsilon 1, forgets half"),
                Series((_PLAIN_KEEPS,), 1, "not private, forgets nothing"),
                Series((_PLAIN_FORGETS,), 6, "not private, forgets half"),
            ),
            log="",
        ),
    ),
    claims=(
        Claim(
            "Without forgetting, a learner at epsilon 1 loses three quarters or more of what random actions lose.",
            stays_above(_KEEPS, 0.75),
            "reproduced",
        ),
        Claim(
            "A learner that halves all sums and their noise every 5,000 people loses less than a tenth.",
            ends_below(_FORGETS, 0.1),
            "reproduced",
        ),
        Claim(
            "A private learner that forgets loses less than one without privacy that does not.",
            smaller(_FORGETS, _PLAIN_KEEPS),
            "reproduced",
        ),
        Claim("Among learners that forget, privacy has a cost.", smaller(_PLAIN_FORGETS, _FORGETS), "reproduced"),
    ),
    earlier=Earlier(
        "docs/evidence/online.md",
        (
            (_KEEPS, 0.911, 0.013),
            (_FORGETS, 0.0359, 0.0015),
            (_PLAIN_KEEPS, 0.923, 0.004),
            (_PLAIN_FORGETS, 0.0185, 0.0008),
        ),
    ),
    notes=(
        "Regret is relative to the best policy at each time. The world stays constant during a block.",
        "Forgetting is post-processing of noisy sums: both private learners draw the same noise for the same budget.",
    ),
)
