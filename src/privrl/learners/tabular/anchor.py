"""What practice does, from noisy visits that are released anyway; and a choice of actions that stays near it.

Visits of (s, a) are shrunk toward N(s) P(a), the visits of the state times how often the action is taken anywhere:

    M  = N(s) P(a),   c^2 = sum((N - M)^2 - sigma^2)/sum M^2            relative spread, by moments
    N^ = M + c^2 M^2/(c^2 M^2 + sigma^2) (N - M)

An action is *visible* where N^ > sigma/2, and P(a|s) is N^ over its sum, at least .01. It is *supported* where it is
visible and P(a|s) is not far below that of the most frequent action. The anchored choice is that of the largest

    score + kappa log P(a|s)     among supported actions,   kappa = `anchor` times a posterior deviation of an advantage

and the mode of practice where no action is supported. As noise grows, shrunken advantages go to nothing and kappa does
not, so the mode of practice is played everywhere. All of it is a function of releases: an anchor costs no privacy.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_TINY = 1e-12
_LEAST_SPREAD = 1e-3
_LEAST_PROBABILITY = 0.01


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

    def most_taken(self, allowed: Bool[Array, "S A"] | None = None) -> Float[Array, "S A"]:
        """One-hot in the most frequent action, of those that are `allowed`."""
        visits = self.visits if allowed is None else jnp.where(allowed, self.visits, -jnp.inf)
        return jnp.eye(self.visits.shape[1])[visits.argmax(axis=1)]

    def supported(self, least: float, allowed: Bool[Array, "S A"] | None = None) -> Bool[Array, "S A"]:
        """Visible `allowed` actions that practice takes at least `least` times as often as its most frequent one."""
        P = self.probabilities if allowed is None else jnp.where(allowed, self.probabilities, 0.0)
        return self.visible & (P > 0.0) & (least * P.max(axis=1, keepdims=True) <= P)


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


def anchored(
    score: Float[Array, "S A"],
    kappa: Float[Array, ""],
    practice: Practice,
    support: float,
    allowed: Bool[Array, "S A"] | None = None,
) -> Float[Array, "S A"]:
    """The anchored choice among the `allowed` actions, see the module: one per state, ties broken by the first."""
    supported = practice.supported(support, allowed)
    score = score + kappa * jnp.log(practice.probabilities)
    best = jnp.where(supported, score, -jnp.inf).argmax(axis=1)
    one_hot = jnp.eye(score.shape[1])[best]
    return jnp.where(supported.any(axis=1, keepdims=True), one_hot, practice.most_taken(allowed))


def typical_deviation(variance: Float[Array, "S A"], visits: Float[Array, "S A"]) -> Float[Array, ""]:
    """The root mean square of deviations over visits."""
    return jnp.sqrt((visits * variance).sum() / jnp.maximum(visits.sum(), _TINY))
