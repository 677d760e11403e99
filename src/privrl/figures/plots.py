"""One look for all plots, drawn without a screen: for pages as SVG, and for files.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart. Figures are matplotlib's, which is
imported only when one is drawn.
"""

import io
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from privrl.figures.numbers import mean_and_error

BLACK, BLUE, ORANGE, GREEN, VERMILLION, PURPLE = "#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
SKY, GREY = "#56B4E9", "#6E6E6E"
FONT = 9.5
_DIALS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, math.inf)
_LINES: tuple[tuple[str, Any], ...] = (
    (GREEN, "-"),
    (PURPLE, (0, (6, 2))),
    (ORANGE, (0, (3, 2))),
    (BLACK, (0, (1, 1.5))),
    (VERMILLION, (0, (5, 1, 1, 1))),
)


def _new_figure(height: float) -> tuple[Any, Any]:
    """A small figure: narrow enough that its text stays readable on a phone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0, height), layout="constrained")
    return figure, opened(figure.add_subplot())


def opened(axes: Any) -> Any:
    """Axes without a frame above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT)
    return axes


def file_of(figure: Any, kind: str) -> bytes:
    """The content of a file of this kind (svg, png or pdf); two files of the same figure are the same."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)
    return content.getvalue()


def to_svg(figure: Any, description: str) -> str:
    """The figure as an `<svg>` element that reaches for nothing outside itself."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": description, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)  # the page decides how large it is
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def values_figure(
    private: Mapping[float, Sequence[float]], chosen: float, lines: Mapping[str, float], ylabel: str
) -> Any:
    """Value against epsilon, with standard errors, between labelled levels."""
    figure, axes = _new_figure(3.5)
    epsilons = sorted(private)
    points = [mean_and_error(private[epsilon]) for epsilon in epsilons]
    means, errors = [mean for mean, _ in points], [2 * (error or 0.0) for _, error in points]
    axes.errorbar(epsilons, means, errors, color=BLUE, marker="o", capsize=4, linewidth=2, zorder=3)
    axes.plot([chosen], [mean_and_error(private[chosen])[0]], "o", ms=11, mfc="none", mec=BLUE, zorder=4)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_xlabel("epsilon (more privacy to the left)")
    axes.set_ylabel(ylabel)
    left, right = epsilons[0] / 1.6, epsilons[-1] * 1.6
    axes.set_xlim(left, right)
    levels = list(lines.values())
    low, high = min([*levels, *means]), max(levels)
    margin = 0.08 * (high - low or 1.0)
    axes.set_ylim(low - margin, high + margin)
    places = spread(levels, 0.08 * (high - low + 2 * margin))
    for (name, level), place, (colour, dashes) in zip(lines.items(), places, itertools.cycle(_LINES), strict=False):
        axes.axhline(level, color=colour, linestyle=dashes, linewidth=1.4, zorder=1)
        axes.annotate(
            f"{name} {level:.3f}",
            (1.0, level),
            (1.03, place),
            xycoords=("axes fraction", "data"),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize=9.5,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0},
        )
    return figure


def shares_figure(parts: Mapping[str, float]) -> Any:
    """How much of the budget each release was given, as bars."""
    figure, axes = _new_figure(0.7 + 0.42 * len(parts))
    names = list(parts)[::-1]
    bars = axes.barh(names, [100 * parts[name] for name in names], color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.0f %%", padding=4, fontsize=9)
    axes.set_xlim(0, 112)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set_xlabel("percent of the privacy budget")
    return figure


def forest_figure(intervals: Mapping[str, tuple[float, float, float, bool]]) -> Any:
    """Intervals (low, value, high) one below the other around a line at zero; filled where the last entry is true."""
    figure, axes = _new_figure(0.9 + 0.6 * len(intervals))
    axes.axvline(0.0, color=GREY, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1)
    for place, (low, value, high, filled) in enumerate(reversed(list(intervals.values()))):
        axes.plot([low, high], [place, place], color=BLUE, linewidth=2, zorder=2)
        axes.plot([value], [place], "o", ms=9, mfc=BLUE if filled else "white", mec=BLUE, mew=2, zorder=3)
    axes.set_yticks(range(len(intervals)), [name.replace(" (", "\n(") for name in reversed(list(intervals))])
    axes.set_ylim(-0.6, len(intervals) - 0.4)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("gain over practice", fontsize=FONT)
    return figure


def dial_figure(
    lines: Mapping[str, Sequence[float]], dials: Sequence[float], marked: Mapping[str, float], at: float, filled: bool
) -> Any:
    """Shares against the dial c, drawn at 1 - 1/c so that infinity has a place; `marked` are those at the dial `at`."""
    figure, axes = _new_figure(3.2)
    for (name, shares), colour in zip(lines.items(), (BLUE, ORANGE), strict=False):
        axes.plot([1.0 - 1.0 / c for c in dials], [100.0 * y for y in shares], color=colour, linewidth=2, label=name)
        face = colour if filled else "white"
        axes.plot([1.0 - 1.0 / at], [100.0 * marked[name]], "o", ms=9, mfc=face, mec=colour, mew=2, zorder=3)
    axes.set_xticks([1.0 - 1.0 / c for c in _DIALS], ["∞" if math.isinf(c) else f"{c:g}" for c in _DIALS])
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("dial (1: practice itself)", fontsize=FONT)
    axes.set_ylabel("% of decisions", fontsize=FONT)
    axes.legend(fontsize=FONT, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.0)
    return figure


def regret_figure(curve: Mapping[str, Sequence[Any]], never_learn: Mapping[str, float], title: str) -> Any:
    """Cumulative regret with a band of two standard errors, and straight lines for policies that never learn."""
    figure, axes = _new_figure(3.4)
    episodes, mean = curve["episodes"], curve["mean"]
    ends = [(m - 2 * (e or 0.0), m + 2 * (e or 0.0)) for m, e in zip(mean, curve["se"], strict=True)]
    axes.fill_between(episodes, *zip(*ends, strict=True), color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(episodes, mean, color=BLUE, linewidth=2, label="learner")
    for (name, total), (colour, dashes) in zip(never_learn.items(), itertools.cycle(_LINES), strict=False):
        axes.plot([0, episodes[-1]], [0, total], color=colour, linestyle=dashes, linewidth=1.4, label=name)
    axes.set_xlabel("episodes")
    axes.set_ylabel("cumulative regret")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=9, frameon=False)
    return figure


def spread(levels: Sequence[float], gap: float) -> list[float]:
    """Places for labels near their levels, in the same order and at least `gap` apart."""
    order = sorted(range(len(levels)), key=lambda i: levels[i])
    clusters: list[list[float]] = []  # [centre, number of labels]
    for i in order:
        clusters.append([levels[i], 1])
        while len(clusters) > 1 and clusters[-1][0] - clusters[-2][0] < gap * (clusters[-1][1] + clusters[-2][1]) / 2:
            centre, count = clusters.pop()
            before, others = clusters.pop()
            clusters.append([(centre * count + before * others) / (count + others), count + others])
    places = [centre + gap * (k - (count - 1) / 2) for centre, count in clusters for k in range(int(count))]
    return [place for _, place in sorted(zip(order, places, strict=True))]
