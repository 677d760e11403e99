"""Plots of a policy on measurements: one strip for each column, and a map of two columns.

An action has the same colour and number in all plots of a policy. The number is written inside its area if there is
room, so that readers need not tell colours apart. Doses are ordered, so their colours are: a larger dose is darker.
With two drugs, the second one decides the hue. Other actions have colours without an order, which repeat with a pattern
after eight actions.
"""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

import numpy as np
from jaxtyping import Bool, Int, Shaped

from privrl.mdp.measurements import Category, Feature
from privrl.mdp.policy_slices import PolicyMap, Slice, Stretch
from privrl.plots.style import BLACK, BLUE, FONT, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

Whose = Literal["advised", "practised"]

_YELLOW, _PALE = "#F0E442", "#C9C9C9"
_COLOURS = (SKY, ORANGE, GREEN, _YELLOW, PURPLE, VERMILLION, _PALE, BLUE)
_RAMPS = (("#E3EEF7", "#08306B"), ("#FCE8D2", "#7F2704"), ("#E2F3E4", "#00441B"), ("#ECE7F4", "#3F007D"))  # pale, dark
_PATTERNS = ("", "///", "...", "xxx")
_LEGEND_LETTERS = 52  # longest line of the legend
_MIN_SHARE = 0.055  # smallest share of an axis that has room for a number
_CATEGORY_LETTERS = 9  # longest label of a category's value


class _Look(TypedDict):
    """How the area of an action is filled."""

    facecolor: str
    hatch: str
    edgecolor: str


@dataclass(frozen=True)
class Palette:
    """The colours of actions: a ramp for each drug if actions are doses, else colours without an order.

    Arguments:
        doses: how many intervals the dose of each drug has, the first drug first; empty if actions are not doses.
    """

    doses: Sequence[int] = ()

    def look(self, action: int) -> _Look:
        """How the area of an action is filled."""
        colour, pattern = self._place(action)
        return {"facecolor": colour, "hatch": _PATTERNS[pattern % len(_PATTERNS)], "edgecolor": "white"}

    def ink(self, action: int) -> str:
        """Black or white, whichever can be read on the colour of the action."""
        red, green, blue = (int(self._place(action)[0][i : i + 2], 16) for i in (1, 3, 5))
        return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 120 else BLACK

    def _place(self, action: int) -> tuple[str, int]:
        """The colour of an action, and the number of its pattern."""
        if not self.doses or not 0 <= action < math.prod(self.doses):
            return _COLOURS[action % len(_COLOURS)], action // len(_COLOURS)
        rest = math.prod(self.doses[1:])
        dose, hue = action // rest, action % rest
        pale, dark = _RAMPS[hue % len(_RAMPS)]
        share = dose / max(self.doses[0] - 1, 1)
        mixed = (round((1 - share) * int(pale[i : i + 2], 16) + share * int(dark[i : i + 2], 16)) for i in (1, 3, 5))
        return "#" + "".join(f"{part:02X}" for part in mixed), hue // len(_RAMPS)


def draw_strips(slices: Sequence[Slice], name: Callable[[int], str], doses: Sequence[int] = ()) -> "Figure":
    """Draw the advised action along each column, and below it the most frequent action of current practice.

    Arguments:
        slices: the columns; along a slice one column varies and the others are fixed.
        name: what the legend says about an action; it should begin with the action's number.
        doses: how many intervals the dose of each drug has, if actions are doses.
    """
    from matplotlib.figure import Figure

    palette = Palette(doses)
    shown = sorted({action for one in slices for action in _actions_of(one)})
    labels = _labels(shown, name)
    legend = 0.17 * sum(label.count("\n") + 1 for label in labels) + 0.25
    height = 0.92 * len(slices) + legend
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    strips, below = _split(figure, height - legend, legend)
    grid = strips.subplots(len(slices), 2, squeeze=False, width_ratios=(10, 1))
    for (axes, gap), one in zip(grid, slices, strict=True):
        _draw_strip(axes, one, palette)
        _draw_missing(gap, one, palette)
    _draw_legend(below, shown, labels, palette)
    return figure


def draw_map(policy_map: PolicyMap, whose: Whose, name: Callable[[int], str], doses: Sequence[int] = ()) -> "Figure":
    """Draw the regions of actions over two measurements.

    If a measurement may be missing, a narrow row or column shows the actions for a missing value.

    Arguments:
        policy_map: the actions over a grid of both measurements.
        whose: draw the advice (`advised`) or the most frequent action of current practice (`practised`).
        name: what the legend says about an action; it should begin with the action's number.
        doses: how many intervals the dose of each drug has, if actions are doses.
    """
    from matplotlib.figure import Figure

    palette = Palette(doses)
    actions: Int[np.ndarray, "Y1 X1"] = getattr(policy_map, whose)
    x, y = policy_map.x, policy_map.y
    wide, tall = x.missing is not None, y.missing is not None
    drawn = actions[: None if tall else -1, : None if wide else -1]
    shown = sorted(set(drawn.ravel().tolist()))
    labels = _labels(shown, name)
    legend = 0.17 * sum(label.count("\n") + 1 for label in labels) + 0.2
    figure = Figure(figsize=(WIDTH, 3.1 + legend), layout="constrained")
    above, below = _split(figure, 3.1, legend)
    grid = above.subplots(
        1 + tall,
        1 + wide,
        squeeze=False,
        width_ratios=(12, 1) if wide else (1,),
        height_ratios=(1, 12) if tall else (1,),
    )
    main = grid[-1, 0]
    _draw_regions(main, policy_map, actions[:-1, :-1], palette)
    _set_scale(main, x, "x")
    _set_scale(main, y, "y")
    main.set_xlabel(_plain(x.column.name), fontsize=FONT)
    main.set_ylabel(_plain(y.column.name), fontsize=FONT)
    if tall:
        axes = grid[0, 0]
        _draw_runs(axes, policy_map.x_values, actions[-1, :-1], palette, vertical=False)
        _set_scale(axes, x, "x")
        axes.set(xticks=[], yticks=[0.5], yticklabels=["none"], ylim=(0, 1))
        axes.minorticks_off()
    if wide:
        axes = grid[-1, 1]
        _draw_runs(axes, policy_map.y_values, actions[:-1, -1], palette, vertical=True)
        _set_scale(axes, y, "y")
        axes.set(yticks=[], xticks=[0.5], xticklabels=["none"], xlim=(0, 1))
        axes.minorticks_off()
    if tall and wide:
        corner = grid[0, 1]
        _draw_box(corner, (0.0, 1.0, 0.0, 1.0), int(actions[-1, -1]), (0.5, 0.5), palette)
        corner.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
    _draw_legend(below, shown, labels, palette)
    return figure


def _split(figure: "Figure", above: float, below: float) -> "tuple[SubFigure, SubFigure]":
    """Split the figure into an upper and a lower part of these heights."""
    upper, lower = np.atleast_1d(np.asarray(figure.subfigures(2, 1, height_ratios=(above, below)), object))
    return upper, lower


def _actions_of(one: Slice) -> set[int]:
    return {part.action for part in (*one.advised, *one.practised)} | set(one.missing or ())


def _labels(shown: Sequence[int], name: Callable[[int], str]) -> list[str]:
    return [_plain(textwrap.fill(name(action), _LEGEND_LETTERS, subsequent_indent="    ")) for action in shown]


def _plain(text: str) -> str:
    """Escape dollar signs, which would begin a formula."""
    return text.replace("$", r"\$")


def _write_number(axes: "Axes", x: float, y: float, action: int, palette: Palette) -> None:
    """Write the number of an action with an outline, so that it stays readable on top of a line."""
    from matplotlib.patheffects import withStroke

    around = withStroke(linewidth=2.5, foreground=palette.look(action)["facecolor"])
    ink = palette.ink(action)
    number = axes.text(x, y, str(action), ha="center", va="center", fontsize=FONT - 1.5, color=ink, zorder=4)
    number.set_path_effects([around])


def _draw_legend(figure: "SubFigure", shown: Sequence[int], labels: Sequence[str], palette: Palette) -> None:
    from matplotlib.patches import Patch

    looks = [palette.look(action) for action in shown]
    patches = [Patch(label=label, linewidth=0, **look) for look, label in zip(looks, labels, strict=True)]
    figure.legend(handles=patches, loc="upper left", fontsize=FONT - 1, frameon=False, borderaxespad=0.2)


def _draw_strip(axes: "Axes", one: Slice, palette: Palette) -> None:
    """Draw advice above current practice, with a line at the median and a bar over the middle 80% of records."""
    _set_scale(axes, one, "x")
    axes.set(yticks=[1.5, 0.5], yticklabels=["advice", "today"], ylim=(0, 2.25))
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.tick_params(axis="y", length=0, labelsize=FONT - 1.5)
    axes.set_title(_plain(one.column.name), fontsize=FONT, loc="left", pad=4)
    for parts, bottom in ((one.advised, 1.0), (one.practised, 0.0)):
        for part in parts:
            share, middle = _along(one, part)
            at = (middle, bottom + 0.47) if share > _MIN_SHARE else None
            _draw_box(axes, (part.low, part.high, bottom, bottom + 0.94), part.action, at, palette)
    if one.middle is not None:
        low, median, high = one.middle
        axes.plot([low, high], [2.14, 2.14], color=GREY, linewidth=2.5, solid_capstyle="butt")
        axes.plot([median, median], [0.0, 2.25], color=BLACK, linewidth=1.1, linestyle=(0, (2, 1.5)), zorder=3)


def _draw_missing(axes: "Axes", one: Slice, palette: Palette) -> None:
    """Draw the actions for a missing value."""
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 2.25))
    if one.missing is not None:
        axes.set_title("none", fontsize=FONT - 1.5, pad=4)
        for action, bottom in zip(one.missing, (1.0, 0.0), strict=True):
            _draw_box(axes, (0.0, 1.0, bottom, bottom + 0.94), action, (0.5, bottom + 0.47), palette)


def _along(one: Slice, part: Stretch) -> tuple[float, float]:
    """Return the share of the axis that a stretch covers, and the value in its middle."""
    low, high = one.advised[0].low, one.advised[-1].high
    if isinstance(one.column, Feature) and one.column.log:
        return float(np.log(part.high / part.low) / np.log(high / low)), float(np.sqrt(part.low * part.high))
    return (part.high - part.low) / (high - low), (part.low + part.high) / 2.0


def _draw_box(
    axes: "Axes",
    box: tuple[float, float, float, float],
    action: int,
    at: tuple[float, float] | None,
    palette: Palette,
) -> None:
    """Draw a box (left, right, bottom, top), with the number of its action at `at` if there is room."""
    from matplotlib.patches import Rectangle

    left, right, bottom, top = box
    axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, linewidth=0, **palette.look(action)))
    if at is not None:
        _write_number(axes, *at, action, palette)


def _set_scale(axes: "Axes", one: Slice, which: Literal["x", "y"]) -> None:
    """Set the axis of a column: its public bounds, or the list of its values."""
    from matplotlib.ticker import NullFormatter

    limits, axis = (axes.set_xlim, axes.xaxis) if which == "x" else (axes.set_ylim, axes.yaxis)
    limits(one.advised[0].low, one.advised[-1].high)
    axes.tick_params(labelsize=FONT - 1.5)
    if isinstance(one.column, Category):
        short = [
            value if len(value) <= _CATEGORY_LETTERS else f"{value[: _CATEGORY_LETTERS - 1]}…"
            for value in one.column.values
        ]
        axis.set_ticks(np.arange(len(short)) + 0.5, [_plain(value) for value in short])
    elif one.column.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    else:
        axes.locator_params(axis=which, nbins=5)


def _draw_regions(axes: "Axes", policy_map: PolicyMap, actions: Int[np.ndarray, "Y X"], palette: Palette) -> None:
    x, y = policy_map.x_values, policy_map.y_values
    for action in sorted(set(actions.ravel().tolist())):
        inside: Bool[np.ndarray, "Y X"] = actions == action
        look = palette.look(action)
        # One indicator at a time, because contours between the numbers of two actions would mean nothing.
        axes.contourf(x, y, inside, levels=(0.5, 1.5), colors=[look["facecolor"]], hatches=[look["hatch"] or None])
        place = _deepest(inside)
        if place is not None:
            row, column = place
            _write_number(axes, x[column], y[row], action, palette)
    for one, line in ((policy_map.x, "x"), (policy_map.y, "y")):
        assert one.middle is not None
        low, median, high = one.middle
        draw = axes.axvline if line == "x" else axes.axhline
        draw(median, color=BLACK, linewidth=0.9, linestyle=(0, (2, 1.5)))
        for end in (low, high):
            draw(end, color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))


def _deepest(inside: Bool[np.ndarray, "Y X"]) -> tuple[int, int] | None:
    """Return a place as far as possible from the edge of the region; `None` if the region is too thin for a number.

    Each pass removes the outermost layer of cells. The cells that survive longest are the deepest.
    """
    layer, place, depth = np.pad(inside, 1), None, 0
    while layer.any():
        places = np.argwhere(layer[1:-1, 1:-1])
        place, depth = places[len(places) // 2], depth + 1
        layer[1:-1, 1:-1] &= layer[2:, 1:-1] & layer[:-2, 1:-1] & layer[1:-1, 2:] & layer[1:-1, :-2]
        layer[[0, -1]] = layer[:, [0, -1]] = False
    return (int(place[0]), int(place[1])) if place is not None and depth >= 4 else None


def _draw_runs(
    axes: "Axes", values: Shaped[np.ndarray, " N"], actions: Int[np.ndarray, " N"], palette: Palette, *, vertical: bool
) -> None:
    """Draw one box for each run of equal actions along an axis."""
    starts = np.flatnonzero(np.append(True, actions[1:] != actions[:-1]))
    for a, b in zip(starts, np.append(starts[1:], len(actions)), strict=True):
        low, high, middle = values[a], values[min(b, len(values) - 1)], float(values[(a + b - 1) // 2])
        box = (0.0, 1.0, low, high) if vertical else (low, high, 0.0, 1.0)
        at = (0.5, middle) if vertical else (middle, 0.5)
        _draw_box(axes, box, int(actions[a]), at if (b - a) / len(actions) > _MIN_SHARE else None, palette)
