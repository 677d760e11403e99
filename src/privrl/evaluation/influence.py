"""How strong an unrecorded influence on treatment would have to be to overturn a verdict.

Suppose that clinicians also follow something that was not recorded, u. The advised action then has the true probability
b_u at a decision, where the record says b*. Let the odds ratio of the two be at most Gamma_k >= 1 at the k-th decision,
either way. Then b*/b_u lies in [1/Gamma_k, Gamma_k], since 1/b_u = 1 + (1/b* - 1) odds*/odds_u. Let **Gamma** bound the
product of the Gamma_k of a stay: the influence over a whole stay, all its decisions together.

The assisted policy gives the advice with probability alpha and otherwise leaves the decision to the same clinicians,
who still see u. So the true weight of a stay is the product of 1 - alpha + alpha 1{a*}/b_u: a sum over the sets F of
decisions at which advice is drawn. The empty set has the weight v = prod (1 - alpha), whatever u is; every other one
its recorded weight times prod_F b*/b_u, in [1/Gamma, Gamma]. Hence the true weight is v + (w - v) g with g in
[1/Gamma, Gamma]. True weights have mean 1, so the true gain is E[(v + (w-v) g - 1)(G-m)], and it falls short of the
recorded E[(w-1)(G-m)] by E[(w-v)(1-g)(G-m)], whatever recorded weights have for a mean. As G - m = (1-m) G - m (1-G),
with A = E[(w-v) G] and B = E[(w-v)(1-G)],

    shortfall <= (1-m) A (1 - 1/Gamma) + m B (Gamma - 1),

and the same with the two factors exchanged bounds how far the true gain can lie above. A verdict of margin d stands for
all Gamma below the root of q Gamma^2 + (p - q - d) Gamma - p = 0 with p = (1-m) A and q = m B. The root falls as A or B
rises, so the upper ends of their intervals are used.
"""

import math

import numpy as np

from privrl.contracts.release import Release
from privrl.evaluation.confidence import Interval, variance_bound
from privrl.evaluation.estimates import verdict_of


def overturning_odds(margin: float, p: float, q: float) -> float:
    """The Gamma >= 1 at which p (1 - 1/Gamma) + q (Gamma - 1) reaches a margin >= 0."""
    if q <= 0.0:
        return p / (p - margin) if p > margin else math.inf
    half = 0.5 * (q + margin - p)
    root = math.sqrt(half**2 + p * q)
    return max(1.0, (root + half) / q if half >= 0.0 else p / (root - half))


def sensitivity_of(gain: Interval, influences: Release, people: int, centre: float, bound: float) -> float | None:
    """The odds ratio that would overturn the verdict on `gain` (all as shares of the range of returns).

    None where there is no verdict to overturn.
    """
    verdict = verdict_of(gain)
    if verdict == "not shown":
        return None
    means = np.clip(np.asarray(influences.value, float) / people, 0.0, bound)
    A, B = (Interval.of(x, variance_bound(x, bound), people, influences.noise).upper for x in means.tolist())
    p, q = (1.0 - centre) * A, centre * B
    return overturning_odds(gain.lower, p, q) if verdict == "better" else overturning_odds(-gain.high, q, p)
