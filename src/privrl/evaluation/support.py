"""How often practice takes the advised action, where nobody has told: from a noisy table of hits and misses.

With y1 hits and y0 misses in a state, N = y1 + y0 and p the share of hits over all states:

    e     = y1 - p N                           N times (b* - p), plus noise
    s2    = sigma^2 ((1-p)^2 + p^2) + N p (1-p)      privacy and sampling
    b*    = p + posterior mean of (b* - p)           empirical Bayes over states

b* is trusted where the measurement's own standard deviation, sqrt(s2)/N, is at most 20% of it; it is 0 elsewhere, so
that no advice is given there.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from privrl.contracts.release import Release
from privrl.learners.tabular.advantages import shrunken_means

_TRUSTED = 0.2
_SPREAD = (1e-4, 0.25)  # the variance of b* over states lies in this range


def estimated_support(table: Release) -> Float[np.ndarray, " S"]:
    """b*(s) from a release of `PracticeTable`; 0 where it is not trusted."""
    hits, misses = np.asarray(table.value, float).T
    variance = float(np.max(table.noise.variance))
    N = np.maximum(hits + misses, 0.0)
    p = float(np.clip(hits.sum() / max(N.sum(), 1.0), 0.0, 1.0))
    e = np.where(N > 0, hits - p * N, 0.0)
    s2 = variance * ((1.0 - p) ** 2 + p**2) + N * p * (1.0 - p)
    effect = shrunken_means(jnp.asarray(e), jnp.asarray(N), jnp.asarray(s2), largest=_SPREAD[1], smallest=_SPREAD[0])
    b = np.clip(p + np.asarray(effect), 0.0, 1.0)
    return np.where((N > 0) & (np.sqrt(s2) <= _TRUSTED * b * N), b, 0.0)
