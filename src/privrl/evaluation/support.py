"""How often practice takes the advised action, estimated from a noisy table of hits and misses.

With y1 hits and y0 misses in a state, N = y1 + y0 and p the share of hits over all states:

    e     = y1 - p N                           N times (b* - p), plus noise
    s2    = sigma^2 ((1-p)^2 + p^2) + N p (1-p)      privacy and sampling
    b*    = p + posterior mean of (b* - p)           empirical Bayes over states

b* is trusted where the measurement's own standard deviation, sqrt(s2)/N, is at most 30% of it; it is 0 elsewhere, so
that no advice is given there. If probabilities were logged, weights do not use b*, which only sets how often advice is
given, and 50% is enough.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.release import Release
from privrl.learners.tabular.advantages import shrunken_means
from privrl.mdp.assistance import Decisions

TRUSTED, TRUSTED_FOR_ALPHA = 0.3, 0.5
"""The largest relative error of b*: of weights, whose error it is; and if it sets alpha alone. Both were chosen on
`endings-50x4`, `endings-200x6`, `in-flight-60x4` and `holes-50x4`, among .2, .3, .5 and 5."""
TRUSTED_CELLS = 0.2
"""The same for cells of measurements."""
_SPREAD = (1e-4, 0.25)  # the variance of b* over states lies in this range


@dataclass(frozen=True)
class Support:
    """How often practice takes the advised action.

    Attributes:
        probability: b* of each cell; 0 where it is not trusted.
        error: the standard deviation of its measurement; 0 where it is not trusted.
        visits: visits of each cell, summed over people; not negative.
    """

    probability: Float[np.ndarray, " S"]
    error: Float[np.ndarray, " S"]
    visits: Float[np.ndarray, " S"]

    def gain_error(self, people: int, max_ratio: float, strengths: Float[Array, " S"], spread: float = 0.5) -> float:
        """The standard error of a gain that comes from errors of b*, as a share of the range of returns.

        If b* is wrong by e in a cell, weights of people who decide there have a mean that is wrong by alpha e/b*. To
        first order, the gain is then wrong by the sum over cells of visits times alpha (e/b*) (Q - m). Errors of
        different cells are independent.

        **This is typical and not a bound**, in two places. Visits are taken to be those of practice. And |Q - m| is
        taken to be `spread`, where Q is the mean return after the advice in the cell. The mean of b* (Q - m)^2 over the
        cells that are visited at one step is at most the variance of returns, because the variance of a conditional
        mean is at most the whole variance. But the mean of (Q - m)^2 may be up to 1/b* times that variance, and one
        cell may exceed the mean. The error is then too small: if the advice, with b* = .05, always pays and nothing
        else does, |Q - m| is .95 and `spread` .22.

        Arguments:
            people: their number.
            max_ratio: c.
            strengths: g of each cell.
            spread: the standard deviation of returns, as a share of their range.
        """
        b = jnp.asarray(self.probability)
        alpha = Decisions(jnp.zeros_like(b, int), b, strengths).alpha(max_ratio)
        each = np.asarray(alpha / jnp.where(b > 0.0, b, 1.0)) * self.error * self.visits / people
        return spread * float(np.sqrt((each**2).sum()))


def estimated_support(table: Release, trusted: float = TRUSTED) -> Support:
    """b*(s) from a release of `PracticeTable`; `trusted` is the largest relative error with which it is used."""
    hits, misses = np.asarray(table.value, float).T
    variance = float(np.max(table.noise.variance))
    N = np.maximum(hits + misses, 0.0)
    p = float(np.clip(hits.sum() / max(N.sum(), 1.0), 0.0, 1.0))
    e = np.where(N > 0, hits - p * N, 0.0)
    s2 = variance * ((1.0 - p) ** 2 + p**2) + N * p * (1.0 - p)
    effect = shrunken_means(jnp.asarray(e), jnp.asarray(N), jnp.asarray(s2), largest=_SPREAD[1], smallest=_SPREAD[0])
    b = np.clip(p + np.asarray(effect), 0.0, 1.0)
    known = (N > 0) & (np.sqrt(s2) <= trusted * b * N)
    error = np.sqrt(s2) / np.maximum(N, 1e-9)
    return Support(np.where(known, b, 0.0), np.where(known, error, 0.0), N)
