"""The charts of a pilot: the test statistic between its boundaries, and estimates with repeated intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privrl.plots.style import BLACK, BLUE, FONT, GREEN, GREY, VERMILLION, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LookPoint:
    """One look at one policy: people so far, z, the boundaries, the estimate and its repeated interval."""

    people: int
    z: float
    upper: float
    lower: float
    estimate: float
    low: float
    high: float


def draw_boundaries(points: Sequence[LookPoint], most: int) -> "Figure":
    """Draw z at each look, with the boundary above which a policy is better and the one below which it is worse.

    Arguments:
        points: the looks so far.
        most: the largest number of people of the trial.
    """
    figure, axes = new_figure(3.0)
    reach = max([3.0, *(1.15 * abs(one.z) for one in points)])
    for name, colour, sign in (("better above", GREEN, 1.0), ("worse below", VERMILLION, -1.0)):
        of_look = [(one.people, sign * (one.upper if sign > 0 else one.lower)) for one in points]
        finite = [(x, y) for x, y in of_look if math.isfinite(y)]
        axes.plot([x for x, _ in finite], [y for _, y in finite], "_-", color=colour, linewidth=1.4, ms=8, label=name)
    reach = max([reach, *(1.05 * v for one in points for v in (one.upper, one.lower) if math.isfinite(v) and v < 6)])
    axes.plot(
        [one.people for one in points], [one.z for one in points], "o-", color=BLUE, ms=5, linewidth=1.6, label="z"
    )
    axes.set_ylim(-reach, reach)
    axes.set_ylabel("z", fontsize=FONT)
    _finish(figure, axes, most)
    return figure


def draw_gains(points: Sequence[LookPoint], most: int) -> "Figure":
    """Draw the estimated gain at each look with its repeated interval. Open ends have no interval yet.

    Arguments:
        points: the looks so far.
        most: the largest number of people of the trial.
    """
    figure, axes = new_figure(3.0)
    estimates = [abs(one.estimate) for one in points]
    ends = [abs(v) for one in points for v in (one.low, one.high) if math.isfinite(v)]
    newest = [abs(v) for one in points[-1:] for v in (one.low, one.high) if math.isfinite(v)]
    reach = 1.1 * max([*estimates, min(max(ends, default=0.0), 4 * max(newest, default=math.inf)), 1e-9])
    for one in points:
        low, high = max(one.low, -reach), min(one.high, reach)
        axes.plot([one.people, one.people], [low, high], color=BLUE, linewidth=2)
        axes.plot([one.people], [one.estimate], "o", ms=5, color=BLACK)
    axes.set_ylim(-reach, reach)
    axes.set_ylabel("gain over practice", fontsize=FONT)
    _finish(figure, axes, most)
    return figure


def _finish(figure: "Figure", axes: "Axes", most: int) -> None:
    axes.axhline(0.0, color=GREY, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1)
    axes.set_xlim(0, most * 1.03)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("people in closed blocks", fontsize=FONT)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=FONT)
