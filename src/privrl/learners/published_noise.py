"""The noise of papers: from declarations and the claimed budget, the mu of one release of each name.

`privrl.privacy.Published(...)` is given one of these functions, and `published` are those that a certificate may name.
"""

import math
from collections.abc import Callable, Sequence

from privrl.contracts.release import Declared
from privrl.privacy.accounting.privacy_budget import Budget, BudgetError
from privrl.privacy.continual.mechanisms import BinaryTree
from privrl.statistics.lq_moments import LQCross, LQGram
from privrl.statistics.mixtures import MixtureMoments


def apvi_noise(declared: Sequence[Declared], budget: Budget) -> dict[str, float]:
    """The mu of each release of `APVI(counting="per-stage")` under the noise of the paper.

    The paper adds N(0, 2H/rho) to every cell of both tables. One stage of a table moves by at most sqrt(2) when a
    person is replaced, so each of the 2H releases has mu^2 = rho/H; together 2 rho: rho-zCDP exactly as claimed.
    (The certificate's epsilon is still smaller than the claimed one: it is exact, not the simple conversion from rho.)
    """
    mu = math.sqrt(_rho(budget) / declared[0].times)
    return {"visits": mu, "transitions": mu}


def vapvi_noise(declared: Sequence[Declared], budget: Budget) -> dict[str, float]:
    """The mu of each release of `VAPVI(calibration="paper")` under the noise of the paper.

    With rho0 = rho/(5H) the paper has phi_1 ~ N(0, 2H^4/rho0), phi_2, phi_3 ~ N(0, 2H^2/rho0) and Z_ij ~
    N(0, 1/(4 rho0)), the latter a symmetric distribution of scale 1/sqrt(2 rho0). Divide the sensitivities 2H^2, 2H, 2H
    and sqrt 2 by these scales: the vectors are rho0-zCDP as claimed, the matrices 2 rho0, together 7/5 rho. (Counting
    also that V_{h+1} <= H-h, as the paper does not, the vectors cost less and the same noise is .97 rho at H = 20.)
    """
    vector = math.sqrt(2 * _rho(budget) / (5 * declared[0].times))
    matrix = math.sqrt(2) * vector
    return {"spread": matrix, "squares": vector, "values": vector, "gram": matrix, "targets": vector}


def lsvi_noise(declared: Sequence[Declared], budget: Budget) -> dict[str, float]:
    """The mu of each release of `LSVIUCBPlusPlus.paper(...)`, `LuyoLSVIUCB` and `NgoLSVIUCB`.

    [sahu A1:1] has rho_0 = rho/(4 H K) for each of 4 H K statistics: Gram matrices take a quarter of rho and the three
    regressions the rest. With the true sensitivities (weights at most 1/H; sqrt 2 for a matrix, hence
    Z_ij ~ N(0, 1/(2 rho_0)) before that scaling) each is exactly rho_0-zCDP, so all K releases of the Gram matrices
    together cost mu^2 = 2 (rho/4), and all H K of the regressions 2 (3 rho/4): the declared releases spend rho. In
    `LuyoLSVIUCB` and `NgoLSVIUCB` the tree of the Gram matrices is one mechanism and takes half.
    """
    by_name = {d.name: d for d in declared}
    matrices = 0.25 if by_name["gram"].access == "rounds" else 0.5
    shares = {"gram": matrices, "regressions": 1.0 - matrices}
    rho = _rho(budget) * (1.0 - 1e-12)  # rounding must not make the sum exceed the claim
    return {name: math.sqrt(2.0 * shares[name] * rho / by_name[name].touches) for name in by_name}


def ofu_lq_noise(declared: Sequence[Declared], budget: Budget) -> dict[str, float]:
    """The mu of the two trees of `OFULQ.paper(...)` under the paper's noise, for `Published(..., continual="tree")`.

    The paper puts N(0, sigma_i^2) on every node, sigma_i^2 = 8 m Delta_i^2 ln(2/delta)/epsilon^2, m = ceil(log2 K),
    Delta_1 = H (1 + gamma)^2 and Delta_2 = H (1 + gamma). A tree is worth mu_i = sqrt(levels) D_i/sigma_i with the true
    sensitivities D_i of `LQGram` and `LQCross`; levels is m, and one more where K is a power of 2, for the last sum.
    Delta_1 is large enough unless gamma is small, Delta_2 never: D_2 = 2 H sqrt(1 + gamma^2).

    Besides, sigma_i is solved from 2 sqrt(rho ln(2/delta)) = epsilon/2 alone and drops rho itself. Both are hidden by a
    loose conversion at small epsilon, and are not at large ones: see `tests/learners/test_ofu_lq.py`.
    """
    parameters = {}
    for d in declared:
        statistic = d.statistic
        assert isinstance(statistic, LQGram | LQCross)
        g, H = statistic.gain_bound, statistic.horizon
        printed = H * (1.0 + g) ** (2 if isinstance(statistic, LQGram) else 1)
        m = max(math.ceil(math.log2(d.times)), 1)
        sigma = printed * math.sqrt(8.0 * m * math.log(2.0 / budget.delta)) / _epsilon(budget)
        parameters[d.name] = BinaryTree(d.times).factor * statistic.l2("replace-one") / sigma
    return parameters


def ucrl_vtr_noise(declared: Sequence[Declared], budget: Budget) -> dict[str, float]:
    """The mu of a message of `UCRLVTR(calibration="paper")`, for `Published(..., trust="local")`.

    The paper puts noise of sigma = 4 H R^2 sqrt(2 ln(2.5 H/delta))/epsilon on every entry. R is the largest return: H
    in the box, 1 in the paper's experiments, whose rewards are divided by H. The paper gets it from 2H Gaussian
    releases of sensitivity 2 R^2, with epsilon/(2H) and delta/(2H) each, for ||phi_V|| <= R.
    """
    (moments,) = (d.statistic for d in declared)
    assert isinstance(moments, MixtureMoments)
    H, R = moments.ranges.shape[0], float(moments.ranges[0])
    logarithm = math.log(2.5 * H / budget.delta)
    sigma = 4 * H * R**2 * math.sqrt(2 * logarithm) / _epsilon(budget)  # [liao-he-gu A1:1] R is H in the box
    return {declared[0].name: moments.l2("replace-one") / sigma}


published: tuple[Callable[[Sequence[Declared], Budget], dict[str, float]], ...] = (
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
