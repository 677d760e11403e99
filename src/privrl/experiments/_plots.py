"""Plots as text: figures drawn without a screen and returned as SVG to put into a page.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; lines also differ in their dashes.
Figures are matplotlib's, which is imported only when one is drawn.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from privrl.experiments._numbers import mean_and_error

BLACK, BLUE, ORANGE, GREEN, VERMILLION, PURPLE = "#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
_LINES: tuple[tuple[str, Any], ...] = (
    (GREEN, "-"),
    (PURPLE, (0, (6, 2))),
    (ORANGE, (0, (3, 2))),
    (BLACK, (0, (1, 1.5))),
    (VERMILLION, (0, (5, 1, 1, 1))),
)


def new_figure(height: float, width: float = 4.0) -> tuple[Any, Any]:
    """A small figure: narrow enough that its text stays readable on a phone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9.5)
    return figure, axes


def to_svg(figure: Any, description: str) -> str:
    """The figure as an `<svg>` element that reaches for nothing outside itself."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": description, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)  # the page decides how large it is
    return svg.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)


def values_figure(
    private: Mapping[float, Sequence[float]], chosen: float, lines: Mapping[str, float], ylabel: str
) -> Any:
    """Value against epsilon, with standard errors, between labelled levels."""
    figure, axes = new_figure(3.5)
    epsilons = sorted(private)
    points = [mean_and_error(private[epsilon]) for epsilon in epsilons]
    axes.errorbar(
        epsilons,
        [mean for mean, _ in points],
        [2 * (error or 0.0) for _, error in points],
        color=BLUE,
        marker="o",
        capsize=4,
        linewidth=2,
        zorder=3,
    )
    axes.plot([chosen], [mean_and_error(private[chosen])[0]], "o", ms=11, mfc="none", mec=BLUE, zorder=4)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_xlabel("epsilon (more privacy to the left)")
    axes.set_ylabel(ylabel)
    left, right = epsilons[0] / 1.6, epsilons[-1] * 1.6
    axes.set_xlim(left, right)
    levels = list(lines.values())
    low, high = min([*levels, *(m for m, _ in points)]), max(levels)
    margin = 0.08 * (high - low or 1.0)
    axes.set_ylim(low - margin, high + margin)
    places = spread(levels, 0.08 * (high - low + 2 * margin))
    for (name, level), place, (colour, dashes) in zip(lines.items(), places, _cycle(len(lines)), strict=True):
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
    figure, axes = new_figure(0.7 + 0.42 * len(parts))
    names = list(parts)[::-1]
    bars = axes.barh(names, [100 * parts[name] for name in names], color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.0f %%", padding=4, fontsize=9)
    axes.set_xlim(0, 112)
    axes.set_xticks([0, 25, 50, 75, 100])
    axes.set_xlabel("percent of the privacy budget")
    return figure


def regret_figure(curve: Mapping[str, Sequence[Any]], reference: Mapping[str, float], title: str) -> Any:
    """Cumulative regret with a band of two standard errors, and straight lines for policies that never learn."""
    figure, axes = new_figure(3.4)
    episodes, mean = curve["episodes"], curve["mean"]
    error = [2 * (e or 0.0) for e in curve["se"]]
    axes.fill_between(
        episodes,
        [m - e for m, e in zip(mean, error, strict=True)],
        [m + e for m, e in zip(mean, error, strict=True)],
        color=BLUE,
        alpha=0.25,
        linewidth=0,
    )
    axes.plot(episodes, mean, color=BLUE, linewidth=2, label="learner")
    for (name, total), (colour, dashes) in zip(reference.items(), _cycle(len(reference)), strict=True):
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


def _cycle(count: int) -> list[tuple[str, Any]]:
    return [_LINES[i % len(_LINES)] for i in range(count)]
