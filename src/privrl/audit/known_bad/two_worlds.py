"""From a mechanism in two neighbouring worlds to what was audited.

Every attack runs its mechanism in world 0 and in world 1, which differ in one person, and boils what it sees down to
one number per run that is larger where world 1 is likelier. Two ways lead from there to a lower bound:

- **by counting**, for any mechanism: a threshold is chosen on half of the runs, and right and wrong guesses on the
  other half are counted. From n runs in each world no more than about ln(n/20) can be proved.
- **by distance**, where scores are normal with one spread (linear functions of Gaussian releases): the distance of the
  means over the spread is at most mu if the release is mu-GDP. The spread is measured and not taken from the mechanism,
  so a mechanism that adds more noise than it says is not accused. This reaches any epsilon.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from privrl.audit.bounds import epsilon_lower
from privrl.audit.known_bad.case import Audited
from privrl.privacy.accounting.gdp import gdp_epsilon

EPSILON, DELTA = 1.0, 1e-5
CONFIDENCE = 0.9999  # a mechanism at exactly its claim is accused once in 10,000 audits, not once in 20
_THRESHOLDS = 50

Scores = Float[np.ndarray, "2 n"]
Score = Callable[[PRNGKeyArray, Int[Array, ""]], Float[Array, ""]]


def in_both_worlds(score: Score, key: PRNGKeyArray, trials: int) -> Scores:
    """`score(key, world)` of `trials` independent runs in world 0 and as many in world 1."""
    keys = jax.random.split(key, (2, trials))
    runs = jax.vmap(jax.vmap(score, in_axes=(0, None)))
    return np.asarray(jax.jit(runs)(keys, jnp.arange(2)))


def by_counting(scores: Scores, claimed: float = EPSILON, detail: str = "") -> Audited:
    """The epsilon, at `DELTA`, that guessing the world by a threshold of the score proves (Clopper-Pearson)."""
    half = scores.shape[1] // 2
    spots = np.linspace(0.0, 1.0, _THRESHOLDS)
    seen = np.unique(np.quantile(scores[:, :half], spots, axis=1))
    # Midpoints too: worlds that are told apart without fail are cut in the middle of the gap.
    candidates = np.concatenate([seen, (seen[1:] + seen[:-1]) / 2])
    best = max(candidates, key=lambda threshold: _bound(scores[:, :half], float(threshold)))
    audited = _bound(scores[:, half:], float(best))
    return Audited(claimed, audited, "epsilon", audited > claimed, detail)


def _bound(scores: Scores, threshold: float) -> float:
    wrong, right = (int(x) for x in (scores > threshold).sum(axis=1))
    return epsilon_lower(wrong, right, scores.shape[1], DELTA, CONFIDENCE)


def distance(scores: Scores, confidence: float = CONFIDENCE) -> float:
    """A lower bound on the distance of the means of two normal scores, in units of their common spread.

    t = (difference of means)/(s sqrt(2/n)), s the pooled spread, has a noncentral t distribution with f = 2n - 2
    degrees of freedom around sqrt(n/2) times the distance; (t (1 - 1/(4 f)) - centre)/sqrt(1 + t^2/(2 f)) is standard
    normal to an error that vanishes with n (Johnson and Welch), which is solved for the centre.
    """
    from scipy.special import ndtri

    n = scores.shape[1]
    freedom = 2 * n - 2
    spread = math.sqrt(scores.var(axis=1).sum() * n / freedom)
    t = float(np.diff(scores.mean(axis=1))[0]) / (spread * math.sqrt(2 / n))
    centre = t * (1 - 1 / (4 * freedom)) - float(ndtri(confidence)) * math.sqrt(1 + t**2 / (2 * freedom))
    return max(centre * math.sqrt(2 / n), 0.0)


def rho_by_distance(scores: Scores, claimed: float, detail: str = "") -> Audited:
    """The rho = mu^2/2 that the distance of normal scores proves."""
    audited = distance(scores) ** 2 / 2
    return Audited(claimed, audited, "rho", audited > claimed, detail)


def epsilon_by_distance(scores: Scores, claimed: float, detail: str = "") -> Audited:
    """The epsilon, at `DELTA`, that the distance of normal scores proves."""
    audited = gdp_epsilon(distance(scores), DELTA)
    return Audited(claimed, audited, "epsilon", audited > claimed, detail)
