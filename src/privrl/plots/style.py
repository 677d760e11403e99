"""The shared style of all plots, and how a plot becomes a file or part of a page. No screen is needed.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart. matplotlib is imported only when a
plot is drawn, because importing it takes time that most commands do not need.
"""

import io
import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, BLUE, ORANGE, GREEN, VERMILLION, PURPLE = "#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
SKY, GREY = "#56B4E9", "#6E6E6E"
FONT = 9.5
WIDTH = 4.0
"""Inches: narrow enough that text stays readable on a phone."""

Dashes = str | tuple[int, tuple[float, ...]]
"""A line style of matplotlib: a name, or an offset and the lengths of dashes and gaps."""


def new_figure(height: float) -> "tuple[Figure, Axes]":
    """Make a small figure with one pair of axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    open_axes(axes)
    return figure, axes


def open_axes(axes: "Axes") -> None:
    """Remove the frame above and to the right of the axes."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT)


def to_file(figure: "Figure", kind: Literal["svg", "png", "pdf"] | str) -> bytes:
    """Return the content of a file of this kind; the same figure always gives the same bytes."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else None)
    return content.getvalue()


def to_svg(figure: "Figure", description: str) -> str:
    """Return the figure as an `<svg>` element that loads nothing from outside.

    Arguments:
        figure: what to draw.
        description: the text that screen readers read aloud.
    """
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": description, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)  # the page decides how large it is
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def spread_labels(levels: Sequence[float], gap: float) -> list[float]:
    """Return places for labels that are near their levels, in the same order, and at least `gap` apart.

    Labels that would overlap form a cluster, which is centred on the mean of its levels. Clusters that overlap are
    merged until none do.
    """
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
