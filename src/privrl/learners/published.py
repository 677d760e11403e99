"""The noise of papers: from declarations and the claimed budget, the mu of one release of each name.

`privrl.privacy.Published(...)` is given one of these functions, and `published` are those that a certificate may name.
"""

from collections.abc import Callable, Mapping, Sequence

from privrl.contracts.release import Declared
from privrl.learners.control import ofu_lq as _ofu_lq
from privrl.learners.linear import lsvi_ucb_plus_plus as _lsvi_ucb_plus_plus
from privrl.learners.linear import ucrl_vtr as _ucrl_vtr
from privrl.learners.linear import vapvi as _vapvi
from privrl.learners.tabular import apvi as _apvi
from privrl.privacy.accounting.budget import Budget, BudgetError


def apvi_noise(declared: Sequence[Declared], budget: Budget) -> Mapping[str, float]:
    """That of `APVI`, whose stages are its releases of one name."""
    return _apvi.published_parameters(declared[0].times, _rho(budget))


def vapvi_noise(declared: Sequence[Declared], budget: Budget) -> Mapping[str, float]:
    """That of `VAPVI`, whose steps are its releases of one name."""
    return _vapvi.published_parameters(declared[0].times, _rho(budget))


def lsvi_noise(declared: Sequence[Declared], budget: Budget) -> Mapping[str, float]:
    """That of `LSVIUCBPlusPlus`."""
    return _lsvi_ucb_plus_plus.published_parameters(declared, _rho(budget))


def ofu_lq_noise(declared: Sequence[Declared], budget: Budget) -> Mapping[str, float]:
    """That of `OFULQ.paper(...)`."""
    return _ofu_lq.published_parameters(declared, _epsilon(budget), budget.delta)


def ucrl_vtr_noise(declared: Sequence[Declared], budget: Budget) -> Mapping[str, float]:
    """That of `UCRLVTR(calibration="paper")`, which the paper prints as standard deviations."""
    scales = _ucrl_vtr.printed_scale(declared, _epsilon(budget), budget.delta)
    return {
        d.name: d.statistic.l2("replace-one") / scales[d.name]
        for d in declared
        if d.statistic is not None and d.name in scales
    }


published: tuple[Callable[[Sequence[Declared], Budget], Mapping[str, float]], ...] = (
    apvi_noise,
    vapvi_noise,
    lsvi_noise,
    ofu_lq_noise,
    ucrl_vtr_noise,
)


def _rho(budget: Budget) -> float:
    if budget.rho is None:
        raise BudgetError(f"This paper's noise is printed for rho, and the budget is {budget}. Give `rho`.")
    return budget.rho


def _epsilon(budget: Budget) -> float:
    if budget.epsilon is None:
        raise BudgetError(f"This paper's noise is printed for epsilon and delta; the budget is {budget}. Give both.")
    return budget.epsilon
