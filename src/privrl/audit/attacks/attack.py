"""The interface of attacks: run the shipped mechanism in two worlds that differ in one person, and score its output.

The attacker knows the records of all other people, both possible records of the person under attack, all queries,
and the noise distribution. The best score (Neyman and Pearson) is the log-likelihood ratio of everything released.
It is exact for Gaussian, Laplace, sampled and randomised answers, and for choices. It only decides how *strong* an
attack is, never whether a bound holds.

The queries are those of one recorded fit or run, and the noise is drawn anew. The target is thus a learner that
makes these queries whatever the answers are. The accounting promises the same for it as for the adaptive learner.
"""

import abc
import math
from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from privrl.contracts.release import Release
from privrl.privacy.noise.distributions import LaplaceNoise
from privrl.privacy.noise.maximum import MaximumNoise

_AT_ONCE = 8192  # runs per call of the compiled attack


class AbstractAttack(abc.ABC):
    """One mechanism in two worlds."""

    @abc.abstractmethod
    def distances(self) -> Iterable[float] | None:
        """Return the distance of the two worlds in each release, in units of its Gaussian noise; `None` for other
        noise.
        """

    @property
    def mu(self) -> float | None:
        """The distance of the two worlds in all releases together, in units of the noise."""
        distances = self.distances()
        return None if distances is None else math.hypot(*distances)

    @abc.abstractmethod
    def run(self, world: int) -> Callable[[Key[Array, " n"]], Array]:
        """Return a function from stacked keys to the score of one independent run each. A larger score favours world
        1.
        """

    def scores(self, key: PRNGKeyArray, trials: int) -> Float[np.ndarray, "2 n"]:
        """Return the scores of `trials` runs of world 0 and of as many runs of world 1."""
        scores = np.empty((2, trials))
        size = min(trials, _AT_ONCE)
        for world in (0, 1):
            run = self.run(world)
            own = jax.random.fold_in(key, world)
            for start in range(0, trials, size):
                keys = jax.random.split(jax.random.fold_in(own, start), size)
                some = np.asarray(run(keys))
                scores[world, start : start + size] = some[: trials - start]
        return scores


def noise_weight(scale: float) -> float:
    """Return what a distance of 1 amounts to in units of noise of this scale."""
    return 1.0 / scale if scale > 0 else math.inf


@eqx.filter_jit
def likelihood_ratio(release: Release, zero: Array, one: Array, sampling: float = 1.0) -> Float[Array, ""]:
    """Return the log-likelihood ratio of a release whose exact value is `one` in world 1 and `zero` in world 0.

    Symmetric noise is isotropic in the Frobenius norm, so one formula serves vectors and matrices. With `sampling`
    the value is 0 unless the person is drawn, and both densities are mixtures. Without noise the ratio is 1/2 or
    -1/2.
    """
    noise = release.noise
    if isinstance(noise, MaximumNoise):
        logs = [jnp.log(noise.probabilities(jnp.asarray(x).ravel())) for x in (zero, one)]
        return (logs[1] - logs[0])[release.value[0]]
    y, zero, one = (jnp.asarray(x).ravel() for x in (release.value, zero, one))
    scale = jnp.asarray(noise.scale)  # type: ignore[attr-defined]
    if isinstance(noise, LaplaceNoise):
        if noise.symmetric:  # the entries below the diagonal have no noise of their own
            free = np.triu_indices(noise.shape[0])
            y, zero, one = (x.reshape(noise.shape)[free] for x in (y, zero, one))
        unit = jnp.where(scale > 0, scale, jnp.maximum(jnp.abs(one - zero).sum(), 1e-300))
        return (jnp.abs(y - zero).sum() - jnp.abs(y - one).sum()) / unit
    variance = jnp.where(scale > 0, scale**2, jnp.maximum(((one - zero) ** 2).sum(), 1e-300))

    def log_density(mean: Array) -> Array:
        return -((y - mean) ** 2).sum() / (2 * variance)

    if sampling == 1.0:
        return jnp.vdot(y - (one + zero) / 2, one - zero) / variance
    absent = math.log1p(-sampling) + log_density(jnp.zeros_like(y))
    drawn = math.log(sampling)
    return jnp.logaddexp(absent, drawn + log_density(one)) - jnp.logaddexp(absent, drawn + log_density(zero))
