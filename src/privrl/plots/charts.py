"""The small charts of reports and commands: values against epsilon, shares, intervals, and regret."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from privrl.plots.means import mean_and_error
from privrl.plots.style import (
    BLACK,
    BLUE,
    FONT,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILLION,
    Dashes,
    new_figure,
    spread_labels,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_RATIOS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, math.inf)
_LINES: tuple[tuple[str, Dashes], ...] = (
    (GREEN, "-"),
    (PURPLE, (0, (6, 2))),
    (ORANGE, (0, (3, 2))),
    (BLACK, (0, (1, 1.5))),
    (VERMILLION, (0, (5, 1, 1, 1))),
)

_CURVES = (BLUE, VERMILLION, ORANGE, BLACK)


def draw_values(
    private: Mapping[float, Sequence[float]], chosen: float, lines: Mapping[str, float], ylabel: str
) -> "Figure":
    """Draw the value of private policies against epsilon, between labelled levels.

    Arguments:
        private: values by epsilon, one per repetition; bars are two standard errors.
        chosen: the epsilon to mark with a ring.
        lines: levels to compare with, by name.
        ylabel: what the values are.
    """
    figure, axes = new_figure(3.5)
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
    axes.set_xlim(epsilons[0] / 1.6, epsilons[-1] * 1.6)
    levels = list(lines.values())
    low, high = min([*levels, *means]), max(levels)
    margin = 0.08 * (high - low or 1.0)
    axes.set_ylim(low - margin, high + margin)
    places = spread_labels(levels, 0.08 * (high - low + 2 * margin))
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


def draw_shares(parts: Mapping[str, float]) -> "Figure":
    """Draw each release's share of the budget as a bar."""
    figure, axes = new_figure(0.7 + 0.42 * len(parts))
    names = list(parts)[::-1]
    bars = axes.barh(names, [100 * parts[name] for name in names], color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.0f %%", padding=4, fontsize=9)
    axes.set_xlim(0, 112)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set_xlabel("percent of the privacy budget")
    return figure


def draw_intervals(intervals: Mapping[str, tuple[float, float, float, bool]]) -> "Figure":
    """Draw intervals (low, value, high) below each other around a line at zero, filled if the last entry is true."""
    figure, axes = new_figure(0.9 + 0.6 * len(intervals))
    axes.axvline(0.0, color=GREY, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1)
    for place, (low, value, high, filled) in enumerate(reversed(list(intervals.values()))):
        axes.plot([low, high], [place, place], color=BLUE, linewidth=2, zorder=2)
        axes.plot([value], [place], "o", ms=9, mfc=BLUE if filled else "white", mec=BLUE, mew=2, zorder=3)
    axes.set_yticks(range(len(intervals)), [name.replace(" (", "\n(") for name in reversed(list(intervals))])
    axes.set_ylim(-0.6, len(intervals) - 0.4)
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("gain over current practice", fontsize=FONT)
    return figure


def draw_audits(audits: Mapping[str, tuple[float, float, float, bool]]) -> "Figure":
    """Draw epsilon by recipe: claimed, by exact accounting, audited (a lower bound), and whether a claim is broken."""
    figure, axes = new_figure(1.2 + 0.28 * max(len(audits), 1))
    rows = range(len(audits))
    claimed, exact, audited = ([values[i] for values in audits.values()] for i in range(3))
    axes.barh(rows, audited, color=GREY, alpha=0.5, label="audited, at least")
    axes.plot(exact, rows, "|", color=BLACK, markersize=12, label="exact accounting")
    axes.plot(claimed, rows, ".", color=BLUE, label="claimed")
    for row, (_, _, lower, broken) in enumerate(audits.values()):
        if broken:
            axes.text(lower, row, " broken", va="center", color=VERMILLION)
    axes.set_yticks(rows, list(audits))
    axes.invert_yaxis()
    axes.set_xlabel("epsilon")
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_ratios(
    lines: Mapping[str, Sequence[float]], ratios: Sequence[float], marked: Mapping[str, float], at: float, filled: bool
) -> "Figure":
    """Draw shares of decisions against the largest ratio c to current practice.

    Arguments:
        lines: shares by name, one for each of `ratios`.
        ratios: the values of c, which are drawn at 1 - 1/c so that infinity has a place.
        marked: the share of each line at the ratio `at`, drawn as a circle.
        at: the ratio to mark.
        filled: whether the circles are filled.
    """
    figure, axes = new_figure(3.2)
    for (name, shares), colour in zip(lines.items(), (BLUE, ORANGE), strict=False):
        axes.plot([1.0 - 1.0 / c for c in ratios], [100.0 * y for y in shares], color=colour, linewidth=2, label=name)
        face = colour if filled else "white"
        axes.plot([1.0 - 1.0 / at], [100.0 * marked[name]], "o", ms=9, mfc=face, mec=colour, mew=2, zorder=3)
    labels = ["∞" if math.isinf(c) else f"{c:g}" for c in _MAX_RATIOS]
    axes.set_xticks([1.0 - 1.0 / c for c in _MAX_RATIOS], labels)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("largest ratio to current practice (1: no advice)", fontsize=FONT)
    axes.set_ylabel("% of decisions", fontsize=FONT)
    axes.legend(fontsize=FONT, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.0)
    return figure


def draw_regret(
    curves: Mapping[str, Mapping[str, Sequence[float | None]]], never_learn: Mapping[str, float], title: str
) -> "Figure":
    """Draw cumulative regret with bands of two standard errors.

    Arguments:
        curves: by name: `episodes`, the `mean` regret after each of them, and its standard error `se` (or `None`).
        never_learn: the total regret of policies that never learn, drawn as straight lines.
        title: what was run.
    """
    figure, axes = new_figure(3.4)
    for (name, curve), colour in zip(curves.items(), itertools.cycle(_CURVES), strict=False):
        episodes = [float(count or 0.0) for count in curve["episodes"]]
        mean = [float(value or 0.0) for value in curve["mean"]]
        errors = [2 * (error or 0.0) for error in curve["se"]]
        low, high = ([m + side * e for m, e in zip(mean, errors, strict=True)] for side in (-1, 1))
        axes.fill_between(episodes, low, high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(episodes, mean, color=colour, linewidth=2, label=name)
    for (name, total), (colour, dashes) in zip(never_learn.items(), itertools.cycle(_LINES), strict=False):
        axes.plot([0, episodes[-1]], [0, total], color=colour, linestyle=dashes, linewidth=1.4, label=name)
    axes.set_xlabel("episodes")
    axes.set_ylabel("cumulative regret")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=9, frameon=False)
    return figure
