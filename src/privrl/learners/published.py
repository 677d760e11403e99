"""The noise of papers, as functions of declarations: what `Published(...)` and `PublishedLocal(...)` are given."""

from collections.abc import Callable, Mapping, Sequence

from privrl.contracts.release import Declared
from privrl.learners.control import ofu_lq as _ofu_lq
from privrl.learners.linear import lsvi_ucb_plus_plus as _lsvi_ucb_plus_plus
from privrl.learners.linear import ucrl_vtr as _ucrl_vtr
from privrl.learners.linear import vapvi as _vapvi
from privrl.learners.tabular import apvi as _apvi


def apvi_noise(declared: Sequence[Declared], rho: float) -> Mapping[str, float]:
    """mu of every release of `APVI` under the paper's noise, whose stages are its releases of one name."""
    return _apvi.published_parameters(declared[0].times, rho)


def vapvi_noise(declared: Sequence[Declared], rho: float) -> Mapping[str, float]:
    """mu of every release of `VAPVI` under the paper's noise, whose steps are its releases of one name."""
    return _vapvi.published_parameters(declared[0].times, rho)


lsvi_noise = _lsvi_ucb_plus_plus.published_parameters
ofu_lq_noise = _ofu_lq.published_parameters
ucrl_vtr_noise = _ucrl_vtr.printed_scale

published: tuple[Callable[..., Mapping[str, float]], ...] = (
    apvi_noise,
    vapvi_noise,
    lsvi_noise,
    ofu_lq_noise,
    ucrl_vtr_noise,
)
