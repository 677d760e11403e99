"""TAP, part 1: what practice does, from noisy visits; and clip levels, from noisy histograms of norms.

Visits of (s, a) are shrunk toward N(s) P(a), the visits of the state times how often the action is taken anywhere:

    M  = N(s) P(a),   c^2 = sum((N - M)^2 - sigma^2)/sum M^2            relative spread, by moments
    N^ = M + c^2 M^2/(c^2 M^2 + sigma^2) (N - M)

An action is *visible* where N^ > sigma/2, and P(a|s) is N^ over its sum, at least .01.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from privrl.contracts.release import Release

_TINY = 1e-12
_LEAST_SPREAD = 1e-3
_LEAST_PROBABILITY = 0.01


class ClipLevel(eqx.Module):
    """A clip level C and what clipping at it does.

    `kept` is the mean of min(1, C/norm): clipped sums are divided by it. `square` is the mean of min(norm, C)^2, and
    `people` how many had a norm at all.
    """

    level: Float[Array, ""]
    kept: Float[Array, ""]
    square: Float[Array, ""]
    people: Float[Array, ""]


@eqx.filter_jit
def clip_level(histogram: Release, edges: Float[Array, " bins"], quantile: float) -> ClipLevel:
    """The smallest edge below which the released share of norms is `quantile`; bins within their noise count as 0."""
    h = jnp.asarray(histogram.value)
    total = jnp.maximum(h.sum(), 1.0)
    at = jnp.minimum((jnp.cumsum(h) < quantile * total).sum(), h.shape[0] - 1)
    C = edges[at]
    middle = edges * jnp.sqrt(edges[0] / edges[1])
    seen = jnp.where(h > 2.0 * histogram.noise.std.max(), h, 0.0)
    seen = jnp.where(seen.sum() > 0, seen, 1.0) / jnp.where(seen.sum() > 0, seen.sum(), h.shape[0])
    kept, square = seen @ jnp.minimum(1.0, C / middle), seen @ jnp.minimum(middle, C) ** 2
    return ClipLevel(C, kept, square, total)


class Practice(eqx.Module):
    """Estimated visits N^ with the standard deviation of their noise, P(a|s), and which (s, a) are visible."""

    visits: Float[Array, "S A"]
    noise: Float[Array, ""]
    probabilities: Float[Array, "S A"]
    visible: Bool[Array, "S A"]
    typical: Float[Array, ""]

    @property
    def state_weights(self) -> Float[Array, " S"]:
        """Shares of the visits of all states."""
        n = jnp.maximum(self.visits, 0.0).sum(axis=1)
        return n / jnp.maximum(n.sum(), _TINY)

    @property
    def most_taken(self) -> Float[Array, "S A"]:
        """One-hot in the most frequent action."""
        return jnp.eye(self.visits.shape[1])[self.visits.argmax(axis=1)]

    def supported(self, least: float) -> Bool[Array, "S A"]:
        """Visible actions that practice takes at least `least` times as often as its most frequent one."""
        return self.visible & (self.probabilities >= least * self.probabilities.max(axis=1, keepdims=True))


@eqx.filter_jit
def practice(noisy: Float[Array, "S A"], noise: Float[Array, ""], live: Bool[Array, " S"]) -> Practice:
    """Shrunken visits, see the module. `typical` is the number of visits of a visit's own (s, a), sum N^2/sum N."""
    N = jnp.where(live[:, None], noisy, 0.0)
    excess = jnp.where(live[:, None], noise**2, 0.0)
    typical = jnp.maximum((N**2 - excess).sum(), 0.0) / jnp.maximum(jnp.maximum(N, 0.0).sum(), 1.0)
    share = jnp.maximum(N.sum(axis=0), 0.0)
    share = share / jnp.maximum(share.sum(), _TINY)
    M = jnp.maximum(N.sum(axis=1), 0.0)[:, None] * share[None, :]
    c2 = jnp.maximum(((N - M) ** 2 - excess).sum() / jnp.maximum((M**2).sum(), _TINY), _LEAST_SPREAD)
    estimate = M + c2 * M**2 / jnp.maximum(c2 * M**2 + noise**2, _TINY) * (N - M)
    estimate = jnp.where(live[:, None], estimate, 0.0)
    positive = jnp.maximum(estimate, 0.0)
    P = jnp.maximum(positive / jnp.maximum(positive.sum(axis=1, keepdims=True), _TINY), _LEAST_PROBABILITY)
    visible = (estimate > jnp.maximum(0.5 * noise, 0.5)) & live[:, None]
    return Practice(estimate, noise, P, visible, typical)


def averaged(
    first: Float[Array, "*shape"], s: Float[Array, ""], second: Float[Array, "*shape"], t: Float[Array, ""]
) -> tuple[Float[Array, "*shape"], Float[Array, ""]]:
    """Two releases of one sum with noise s and t, by precision (the plain mean of two without noise)."""
    both = jnp.maximum(s**2 + t**2, _TINY**2)
    weight = jnp.where(s + t > 0, t**2 / both, 0.5)
    return weight * first + (1.0 - weight) * second, s * t / jnp.sqrt(both)
