"""The plot of a figure: which cells make a line, against which axis, in which unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from privrl.figures.cell import Cell, Measured
from privrl.figures.claims import Results
from privrl.plots.lines import Line, LinesPanel, Log, draw_lines
from privrl.recipes.all_recipes import get

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

X = Literal["people", "epsilon", "rho"]
Y = Literal["regret", "share", "suboptimality", "value"]
_YLABELS = {
    "regret": "cumulative regret",
    "share": "loss over that of {uninformed}",
    "suboptimality": "suboptimality of the learned policy",
    "value": "value of the learned policy",
}
_NAMES = {
    "uniform": "random actions",
    "myopic": "myopic, needs no data",
    "left": "always left",
    "mode": "most frequent action",
    "behaviour": "behaviour",
    "zero": "doing nothing",
    "optimal": "optimal",
}
_UNINFORMED = {"uniform": "the uniform policy", "zero": "doing nothing"}
_XLABELS = {
    "people": "people",
    "epsilon": "epsilon (more privacy to the left)",
    "rho": "rho (more privacy to the left)",
}


@dataclass(frozen=True)
class Series:
    """A line: the whole curve of one cell, or the ends of several cells against x.

    Arguments:
        cells: one cell or several.
        look: the number of its colour, dashes and marker; the same number means the same method in all figures of a
            paper.
        label: its name; the label of the recipe, followed by `more`, unless given.
        flat: draw the end of one cell as a level, for a version without a budget to vary.
        more: a suffix of the label.
    """

    cells: tuple[Cell, ...]
    look: int
    label: str = ""
    flat: bool = False
    more: str = ""

    @property
    def name(self) -> str:
        """The name at the end of the line."""
        return self.label or get(self.cells[0].recipe).label + self.more


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `log` names the logarithmic ones, and `levels` the policies to draw for comparison."""

    title: str
    series: tuple[Series, ...]
    x: X = "people"
    y: Y = "share"
    xlabel: str = ""
    ylabel: str = ""
    levels: tuple[str, ...] = ("uniform",)
    log: Log = "xy"


def draw_panels(panels: Sequence[Panel], results: Results) -> "MatplotlibFigure":
    """Draw the figure from the cells that are finished. A panel without any is omitted."""
    drawn = [panel for panel in panels if any(cell in results for series in panel.series for cell in series.cells)]
    return draw_lines([_panel(panel, results) for panel in drawn])


def _panel(panel: Panel, results: Results) -> LinesPanel:
    lines = [line for series in panel.series if (line := _line(panel, series, results)) is not None]
    spread = [x for line in lines for x in line.x]
    ends = (min(spread), max(spread))
    lines = [line if line.x else replace(line, x=ends) for line in lines]  # a level spans the whole axis
    found = next(results[cell] for series in panel.series for cell in series.cells if cell in results)
    lines += [_level(panel, name, found, *ends) for name in panel.levels if name in found.levels]
    return LinesPanel(
        title=panel.title,
        xlabel=panel.xlabel or _XLABELS[panel.x],
        ylabel=panel.ylabel or _YLABELS[panel.y].format(uninformed=_UNINFORMED[next(iter(found.levels))]),
        lines=tuple(lines),
        log=panel.log,
    )


def _line(panel: Panel, series: Series, results: Results) -> Line | None:
    found = [(cell, results[cell]) for cell in series.cells if cell in results]
    if not found:
        return None
    if series.flat:
        end = _in_unit(panel.y, found[0][1])[:, -1]
        mean, error = end.mean(), _interval(end[:, None])[0]
        return Line(series.name, (), (mean, mean), (error, error), series.look)
    if len(series.cells) == 1 and found[0][1].at.size > 1:
        values, at = _in_unit(panel.y, found[0][1]), found[0][1].at
        return Line(series.name, tuple(at.tolist()), tuple(values.mean(axis=0)), tuple(_interval(values)), series.look)
    x = tuple(float(getattr(cell, panel.x)) for cell, _ in found)
    ends = [_in_unit(panel.y, measured)[:, -1:] for _, measured in found]
    means, errors = (float(end.mean()) for end in ends), (float(_interval(end)[0]) for end in ends)
    return Line(series.name, x, tuple(means), tuple(errors), series.look, markers=True)


def _level(panel: Panel, name: str, found: Measured, left: float, right: float) -> Line:
    """A policy that never learns: a level in most units, and a straight line from 0 for cumulative regret."""
    each = found.levels[name]
    if panel.y == "regret":
        xs = np.geomspace(left, right, 50) if "x" in panel.log else np.array([left, right])
        return Line(_NAMES[name], tuple(xs.tolist()), tuple((each * xs).tolist()), None, None)
    unit = next(iter(found.levels.values()))  # the loss of the uninformed policy
    height = {
        "share": each / unit,
        "suboptimality": each,
        "value": found.levels["optimal"] - (0.0 if name == "optimal" else each),
    }[panel.y]
    return Line(_NAMES[name], (left, right), (height, height), None, None)


def _in_unit(y: Y, found: Measured) -> Float[np.ndarray, "seeds n"]:
    if y == "share":
        return found.shares
    return found.levels["optimal"] - found.values if y == "value" else found.values


def _interval(values: Float[np.ndarray, "seeds n"]) -> Float[np.ndarray, " n"]:
    """Return half the width of a 95 % confidence interval of the mean over repetitions, by Student's t."""
    from scipy.special import stdtrit

    seeds = values.shape[0]
    if seeds == 1:
        return np.zeros(values.shape[1])
    return stdtrit(seeds - 1, 0.975) * values.std(axis=0, ddof=1) / np.sqrt(seeds)
