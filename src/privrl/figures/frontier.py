"""Figures that privrl adds: what a budget buys, compared with the published and the non-private version."""

from collections.abc import Mapping

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, Rule
from privrl.figures.figure import Figure
from privrl.figures.panels import Panel, Series, Y
from privrl.figures.verdict import OURS, Earlier
from privrl.plots.lines import Log


def make_frontier(
    where: str,
    buys: str,
    summary: str,
    *,
    lines: Mapping[str, tuple[Series, ...]],
    smoke: tuple[Cell, ...],
    found: Mapping[str, Rule],
    earlier: Earlier,
    more: tuple[Claim, ...] = (),
    notes: tuple[str, ...] = (),
    y: Y = "share",
    ylabel: str = "",
    levels: tuple[str, ...] = ("uniform",),
    log: Log = "xy",
) -> Figure:
    """Make a figure against epsilon.

    Arguments:
        where, buys: parts of the name and of the title.
        summary: one line.
        lines: the lines of each panel, by its title.
        smoke: the cells of a smoke run.
        found: claims that were reproduced earlier, with their rules.
        earlier: earlier measurements.
        more: further claims, with any earlier status.
        notes: notes of the figure.
        y, ylabel, levels, log: settings of every panel.
    """
    cells = (cell for all_lines in lines.values() for line in all_lines for cell in line.cells)
    return Figure(
        name=f"frontier-{where}",
        paper=OURS,
        title=f"what a budget buys {buys}",
        summary=summary,
        cells=tuple(dict.fromkeys(cells)),
        smoke=smoke,
        panels=tuple(
            Panel(title, series, x="epsilon", y=y, ylabel=ylabel, levels=levels, log=log)
            for title, series in lines.items()
        ),
        claims=(*(Claim(text, rule, "reproduced") for text, rule in found.items()), *more),
        earlier=earlier,
        notes=notes,
    )
