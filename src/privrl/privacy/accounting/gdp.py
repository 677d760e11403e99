"""The exact delta and epsilon of Gaussian releases (mu-Gaussian differential privacy), in log space.

Also the looser formulas by which papers state epsilon, for comparison only.
"""

import math
from collections.abc import Callable

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


def log_gdp_delta(mu: float, epsilon: float) -> float:
    """log of the exact delta at `epsilon` of a Gaussian release with sensitivity/scale `mu`, both positive and finite.

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu).

    With a = mu/2 - epsilon/mu and b = a - mu we have epsilon - b^2/2 = -a^2/2, so both terms share the factor
    e^{-a^2/2}: delta = e^{-a^2/2} (erfcx(-a/√2) - erfcx(-b/√2)) / 2 with the scaled complementary error function.
    """
    from scipy.special import erfcx, ndtr

    a = mu / 2 - epsilon / mu
    u, width = -a / math.sqrt(2), mu / math.sqrt(2)
    if a > 5:  # erfcx(u) would overflow, and there is nothing to cancel: delta is close to 1
        return math.log(float(ndtr(a)) - math.exp(-a * a / 2) * float(erfcx(u + width)) / 2)
    if mu < 0.1:  # the two terms agree in most digits: integrate -erfcx'(s) = 2/√π - 2 s erfcx(s) between them instead
        s = u + width * (_NODES + 1) / 2
        difference = float(_WEIGHTS @ (2 / math.sqrt(math.pi) - 2 * s * erfcx(s))) * width / 2
    else:
        difference = float(erfcx(u) - erfcx(u + width))
    return -a * a / 2 + math.log(difference / 2) if difference > 0 else -math.inf


def gdp_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon at `delta` of a Gaussian release with sensitivity/scale `mu`, rounded up in the last digits."""
    check(mu >= 0, f"`mu` is {mu}; it must be a number of at least 0.")
    check(0 <= delta < 1, f"`delta` is {delta}; it must lie in [0, 1).")
    if mu == 0 or (delta > 0 and math.isfinite(mu) and log_gdp_delta(mu, 0.0) <= math.log(delta)):
        return 0.0
    if delta == 0 or math.isinf(mu):
        return math.inf
    enough = zcdp_epsilon(mu * mu / 2, delta)
    return bisect(lambda epsilon: log_gdp_delta(mu, epsilon) > math.log(delta), 0.0, enough)[1]


def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest sensitivity/scale that (`epsilon`, `delta`) pays for. Its `gdp_epsilon` never exceeds `epsilon`.

    >>> round(gdp_mu(1.0, 1e-6), 4)
    0.2367
    """
    check(0 <= epsilon < math.inf, f"`epsilon` is {epsilon}; it must be a finite number of at least 0.")
    check(0 < delta < 1, f"`delta` is {delta}; it must lie in (0, 1): Gaussian noise is never pure.")
    low = zcdp_root(epsilon, delta) * math.sqrt(2)
    high = max(2 * low, delta)
    while log_gdp_delta(high, epsilon) <= math.log(delta):
        low, high = high, 2 * high
    # The last 1e-10 covers rounding, so that accounting for the answer never exceeds the budget.
    return bisect(lambda mu: log_gdp_delta(mu, epsilon) <= math.log(delta), low, high)[0] * (1 - 1e-10)


def dominating_mu(epsilon: float) -> float:
    """The least mu for which every `epsilon`-differentially private release is mu-GDP, rounded up in the last digits.

    mu = 2 Phi^-1(e^epsilon/(1 + e^epsilon)) = 2 sqrt(2) erfinv(tanh(epsilon/2)).

    **Formal guarantee.** A test of level a against an epsilon-DP release errs with probability at least
    f(a) = max(0, 1 - e^epsilon a, e^-epsilon (1 - a)): two lines that meet at a = f(a) = 1/(1 + e^epsilon). The
    trade-off function of N(0, 1) and N(mu, 1) is convex and has the same three points (0, 1), (a, a) and (1, 0), so
    it lies below both lines. A smaller mu would lie above f at a.

    >>> round(dominating_mu(1.0), 4)
    1.232
    """
    from scipy.special import erfcinv, erfinv

    check(epsilon >= 0, f"`epsilon` is {epsilon}; it must be a number of at least 0.")
    if math.isinf(epsilon):
        return math.inf
    if epsilon < 1:
        root = float(erfinv(math.tanh(epsilon / 2)))
    else:
        smaller = math.exp(-epsilon)
        root = float(erfcinv(2 * smaller / (1 + smaller)))
    return 2 * math.sqrt(2) * root * (1 + 1e-12)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """epsilon = rho + 2 sqrt(rho ln(1/delta)), the simple conversion from zCDP; for comparison only.

    Valid for every rho-zCDP release but loose: for Gaussian releases `gdp_epsilon` is exact. It exists to show what a
    published analysis would have claimed.
    """
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The rho that `zcdp_epsilon` takes to epsilon: what a paper would spend for (epsilon, delta)."""
    return zcdp_root(epsilon, delta) ** 2


def zcdp_root(epsilon: float, delta: float) -> float:
    """The square root of the rho at which `zcdp_epsilon(rho, delta)` is `epsilon`, without cancellation."""
    log_inverse = math.log(1 / delta)
    return epsilon / (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse))


def bisect(left: Callable[[float], bool], low: float, high: float, precision: float = 1e-13) -> tuple[float, float]:
    """The two neighbours of the point where `left` turns from true (at `low`) to false (at `high`)."""
    for _ in range(2000):
        middle = (low + high) / 2
        if high - low <= precision * high or not low < middle < high:
            break
        low, high = (middle, high) if left(middle) else (low, middle)
    return low, high


def check(condition: bool | np.bool_, message: str) -> None:
    """Raises `ValueError` with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)
