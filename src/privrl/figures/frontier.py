"""Our own figures: what a budget buys, beside the published and the non-private version of the same."""

from collections.abc import Mapping
from typing import Any

from privrl.figures.cell import Cell
from privrl.figures.claims import Claim, Rule
from privrl.figures.figure import Figure
from privrl.figures.panels import Panel, Series
from privrl.figures.verdict import OURS, Earlier


def frontier(
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
    **panel: Any,
) -> Figure:
    """A figure against epsilon, one panel for each title of `lines`, whose cells are those of all lines.

    `found` are claims that we had reproduced before, `more` those after them with another status.
    """
    cells = (cell for all_lines in lines.values() for line in all_lines for cell in line.cells)
    return Figure(
        name=f"frontier-{where}",
        paper=OURS,
        title=f"what a budget buys {buys}",
        summary=summary,
        cells=tuple(dict.fromkeys(cells)),
        smoke=smoke,
        panels=tuple(Panel(title, series, x="epsilon", **panel) for title, series in lines.items()),
        claims=(*(Claim(text, rule, "reproduced") for text, rule in found.items()), *more),
        earlier=earlier,
        notes=notes,
    )
