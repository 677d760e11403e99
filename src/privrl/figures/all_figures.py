"""All figures by name: those of the papers and those that privrl adds."""

from privrl.figures import drift as _drift
from privrl.figures import frontier_local as _frontier_local
from privrl.figures import frontier_lq as _frontier_lq
from privrl.figures import frontier_offline as _frontier_offline
from privrl.figures import frontier_online as _frontier_online
from privrl.figures import liao_he_gu as _liao_he_gu
from privrl.figures import qiao_wang as _qiao_wang
from privrl.figures import sahu as _sahu
from privrl.figures import tabular as _tabular
from privrl.figures import wang_hegde as _wang_hegde
from privrl.figures.figure import Figure
from privrl.recipes.all_recipes import named

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
        _drift.DRIFT,
        _tabular.TABULAR,
    )
}


def get(name: str) -> Figure:
    """Return a figure by name; the error for an unknown name suggests similar ones."""
    return named(name, figures, "figure")
