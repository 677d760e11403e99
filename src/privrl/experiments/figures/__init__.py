"""Figures of the papers, and our own, each made by one command: data, plot, and a verdict per claim."""

import difflib

from privrl.experiments.figures import (
    _frontier_local,
    _frontier_lq,
    _frontier_offline,
    _frontier_online,
    _liao_he_gu,
    _qiao_wang,
    _sahu,
    _wang_hegde,
)
from privrl.experiments.figures._cell import Cell, Measured
from privrl.experiments.figures._claims import Claim, Outcome
from privrl.experiments.figures._figure import SEED, Figure, Reproduction, check_folder, plan, reproduce

figures: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        _sahu.FIG1A,
        _sahu.FIG1B,
        _liao_he_gu.FIG2A,
        _liao_he_gu.FIG2B,
        _qiao_wang.FIG1A,
        _qiao_wang.FIG1B,
        _wang_hegde.FIG1,
        _frontier_offline.FRONTIER,
        _frontier_online.FRONTIER,
        _frontier_local.FRONTIER,
        _frontier_lq.FRONTIER,
    )
}


def get(name: str) -> Figure:
    """A figure by name; a clear error with close matches otherwise."""
    if name not in figures:
        close = difflib.get_close_matches(name, figures, n=3)
        hint = f"Did you mean {' or '.join(f'`{c}`' for c in close)}? " if close else ""
        raise ValueError(f"There is no figure `{name}`. {hint}There are: {', '.join(figures)}.")
    return figures[name]


__all__ = [
    "SEED",
    "Cell",
    "Claim",
    "Figure",
    "Measured",
    "Outcome",
    "Reproduction",
    "check_folder",
    "figures",
    "get",
    "plan",
    "reproduce",
]
