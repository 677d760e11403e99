"""Panels of lines for the figures of papers: each method has its own colour, dashes and marker.

Lines are named at their right ends instead of in a legend. Names are moved apart if ends are close.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from privrl.plots.style import (
    BLACK,
    BLUE,
    FONT,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    Dashes,
    open_axes,
    spread_labels,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Log = Literal["", "x", "y", "xy"]  # the axes that are logarithmic
_GAP = 0.068  # smallest distance between two names at the ends of lines, as a share of the height
# Colour, dashes and marker of a method. A look has the same number in all figures of a paper.
_LOOKS: tuple[tuple[str, Dashes, str], ...] = (
    (VERMILLION, "-", "o"),
    (ORANGE, (0, (5, 1.5)), "s"),
    (PURPLE, (0, (3, 1, 1, 1)), "^"),
    (BLUE, "-", "D"),
    (SKY, (0, (4, 1.5)), "v"),
    (GREEN, (0, (6, 1, 1, 1, 1, 1)), "P"),
    (BLACK, (0, (1.5, 1)), "X"),
)


@dataclass(frozen=True)
class Line:
    """A line with a band around it.

    Arguments:
        label: the name at its end.
        x, y: its points.
        error: the half-width of the band at each point, or `None` for no band.
        look: the number of its colour, dashes and marker; `None` for a policy that never learns, drawn in grey.
        markers: whether to draw the points, with bars instead of a band.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] | None
    look: int | None
    markers: bool = False

    @property
    def band(self) -> list[tuple[float, float, float]]:
        """For each point the lower end of the band, the line, and the upper end."""
        return [(y - e, y, y + e) for y, e in zip(self.y, self.error or [0.0] * len(self.y), strict=True)]

    @property
    def colour(self) -> str:
        return GREY if self.look is None else _LOOKS[self.look % len(_LOOKS)][0]


@dataclass(frozen=True)
class LinesPanel:
    """One pair of axes; `log` names those that are logarithmic."""

    title: str
    xlabel: str
    ylabel: str
    lines: tuple[Line, ...]
    log: Log = ""


def draw_lines(panels: Sequence[LinesPanel]) -> "Figure":
    """Draw panels side by side. Grey dotted lines are policies that never learn."""
    from matplotlib.figure import Figure

    longest = max(len(line.label) for panel in panels for line in panel.lines)
    figure = Figure(figsize=((4.1 + 0.077 * longest) * len(panels), 3.7), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        open_axes(axes)
        axes.set_title(panel.title, fontsize=FONT, loc="left")
        axes.set_xlabel(panel.xlabel, fontsize=FONT)
        axes.set_ylabel(panel.ylabel, fontsize=FONT)
        _set_scales(axes, panel)
        for line in panel.lines:
            _draw_line(axes, line, axes.get_ylim()[0])
        _name_ends(axes, panel)
    return figure


def _set_scales(axes: "Axes", panel: LinesPanel) -> None:
    """Set limits that contain every line, with the same relative margin on linear and logarithmic axes."""
    xs = [x for line in panel.lines for x in line.x]
    bottoms, ys, tops = zip(*(point for line in panel.lines for point in line.band), strict=True)
    if "y" in panel.log:
        axes.set_yscale("log")
        high = max(tops)
        low = max(min(y for y in ys if y > 0), high * 1e-5)  # smaller values are drawn at the bottom
        room = (high / low) ** 0.06 if high > low else 2.0
        axes.set_ylim(low / room, high * room)
        _plain_ticks(axes.yaxis, math.log10(high / low))
    else:
        low, high = min([*bottoms, 0.0] if min(ys) < 0.3 * max(ys) else bottoms), max(tops)
        room = 0.05 * (high - low or 1.0)
        axes.set_ylim(low if low == 0 else low - room, high + room)
    left, right = min(xs), max(xs)
    if left == right:  # a single point
        left, right = left / 2, right * 2
    marked = sorted({x for line in panel.lines if line.markers for x in line.x})
    if "x" in panel.log:
        axes.set_xscale("log")
        if marked:
            axes.set_xticks(marked, [f"{x:,g}" if x < 1e4 else f"{x:,.0f}" for x in marked])
            axes.minorticks_off()
            axes.set_xlim(left / 1.15, right * 1.15)
        else:
            axes.set_xlim(left, right)
            _plain_ticks(axes.xaxis, math.log10(right / left))
    else:
        axes.set_xlim(left if marked else 0.0, right)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.locator_params(axis="x", nbins=5)


def _plain_ticks(axis: "Axis", decades: float) -> None:
    """Write numbers such as 0.02 and 5,000 on a logarithmic axis; more of them if it spans less than two decades."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 2 else (1.0,)))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_line(axes: "Axes", line: Line, floor: float) -> None:
    if axes.get_yscale() == "log":
        line = replace(line, y=tuple(max(value, floor) for value in line.y))
    y = line.y
    if line.look is None:
        axes.plot(line.x, y, color=GREY, linestyle=(0, (1, 2)), linewidth=1.3, zorder=1)
        return
    colour, dashes, marker = _LOOKS[line.look % len(_LOOKS)]
    low, high = [max(bottom, floor) for bottom, _, _ in line.band], [top for _, _, top in line.band]
    if line.markers:
        bars = [[v - b for v, b in zip(y, low, strict=True)], [t - v for v, t in zip(y, high, strict=True)]]
        axes.errorbar(
            line.x,
            y,
            bars,
            color=colour,
            linestyle=dashes,
            linewidth=1.6,
            marker=marker,
            markersize=5,
            capsize=3,
            elinewidth=1.1,
            zorder=3,
            clip_on=False,
        )
        return
    axes.fill_between(line.x, low, high, color=colour, alpha=0.2, linewidth=0, zorder=2)
    axes.plot(line.x, y, color=colour, linestyle=dashes, linewidth=1.8, zorder=3)


def _name_ends(axes: "Axes", panel: LinesPanel) -> None:
    """Write the name of every line next to its end, and draw a thin line from the end to the name."""
    floor = axes.get_ylim()[0] if "y" in panel.log else -math.inf
    last = [max(zip(line.x, line.y, strict=True), key=lambda point: point[0]) for line in panel.lines]
    ends = (axes.transScale + axes.transLimits).transform([(x, max(y, floor)) for x, y in last]).tolist()
    places = _move_inside(spread_labels([y for _, y in ends], _GAP), _GAP)
    for line, (x, y), place in zip(panel.lines, ends, places, strict=True):
        steps = ([x, 1.015, 1.045], [y, y, place])
        axes.plot(*steps, color=line.colour, linewidth=0.9, transform=axes.transAxes, clip_on=False, zorder=1)
        ink = GREY if line.look is None else BLACK
        axes.text(1.055, place, line.label, transform=axes.transAxes, va="center_baseline", fontsize=FONT, color=ink)


def _move_inside(places: Sequence[float], gap: float) -> list[float]:
    """Move places above or below the axes inside, and push their neighbours away so that all stay `gap` apart."""
    inside = list(places)
    order = sorted(range(len(places)), key=lambda i: places[i])
    for beyond, step, sequence in ((0.975, -gap, order[::-1]), (0.01, gap, order)):
        limit = beyond
        for i in sequence:
            inside[i] = min(inside[i], limit) if step < 0 else max(inside[i], limit)
            limit = inside[i] + step
    return inside
