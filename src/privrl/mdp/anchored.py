"""Choices near practice, and the value functions built from them, on features phi of a state.

With theta_a the advantage of action a, and kappa the strength with which practice counts:

    P(a|s) = clip(phi^T B_a, .01, 1)
    pi(s)  = argmax phi^T theta_a + kappa log P(a|s)    over the allowed a with P(a|s) >= support max P, max over those
    F_1    = clip(1/2 + phi^T f, 0, 1)
    F_k+1  = clip(F_k + phi^T theta0_k + phi^T theta_k,pi_k(s), 0, 1)

F lies in [0, 1] for all weights. Products with weights are sums along a row and not matrix products of many rows,
because the last bits of those may depend on the position of a row among the others.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

_LEAST_PROBABILITY = 0.01


def dot_rows(weights: Float[Array, "*A d"], phi: Float[Array, "*batch d"]) -> Float[Array, "..."]:
    """phi^T w for each row and each w, `[*batch, *A]`."""
    rows = phi.reshape(*phi.shape[:-1], *(1,) * (weights.ndim - 1), phi.shape[-1])
    return (rows * weights.reshape((1,) * (rows.ndim - weights.ndim) + weights.shape)).sum(axis=-1)


def probabilities(practice: Float[Array, "d A"], phi: Float[Array, "*batch d"]) -> Float[Array, "*batch A"]:
    """P(a|s), not normalised."""
    P = dot_rows(practice.T, phi)
    return jnp.where(jnp.isnan(P), _LEAST_PROBABILITY, jnp.clip(P, _LEAST_PROBABILITY, 1.0))


def scores(
    advantages: Float[Array, "A d"],
    practice: Float[Array, "d A"],
    anchor: Float[Array, ""],
    support: Float[Array, ""],
    phi: Float[Array, "*batch d"],
    allowed: Bool[Array, "*batch A"] | None = None,
) -> Float[Array, "*batch A"]:
    """phi^T theta_a + kappa log P(a|s), and minus infinity for actions that have no support or are not `allowed`."""
    return anchor_scores(dot_rows(advantages, phi), probabilities(practice, phi), anchor, support, allowed)


def anchor_scores(
    gains: Float[Array, "*batch A"],
    P: Float[Array, "*batch A"],
    anchor: Float[Array, ""],
    support: Float[Array, ""],
    allowed: Bool[Array, "*batch A"] | None = None,
) -> Float[Array, "*batch A"]:
    """The same, from phi^T theta_a and P(a|s)."""
    taken = P if allowed is None else jnp.where(allowed, P, 0.0)
    unsupported = (support * taken.max(axis=-1, keepdims=True) > taken) | (taken == 0.0)
    return jnp.where(unsupported, -jnp.inf, gains + anchor * jnp.log(P))


class LayeredValue(eqx.Module):
    """F of the module: a first guess and K improvements; a layer of zeros changes nothing.

    Arguments:
        first: f.
        changes, advantages, anchors: theta0, theta and kappa of each layer.
        practice, support: B, and the threshold of support.
    """

    first: Float[Array, " d"]
    changes: Float[Array, "K d"]
    advantages: Float[Array, "K A d"]
    anchors: Float[Array, " K"]
    practice: Float[Array, "d A"]
    support: Float[Array, ""]

    @classmethod
    def start(
        cls, first: Float[Array, " d"], practice: Float[Array, "d A"], support: Float[Array, ""], rounds: int
    ) -> "LayeredValue":
        """The first guess, with room for `rounds` layers."""
        d, A = practice.shape
        changes, advantages, anchors = jax.device_put(
            (np.zeros((rounds, d)), np.zeros((rounds, A, d)), np.zeros(rounds))
        )
        return cls(first, changes, advantages, anchors, practice, support)

    def with_layer(
        self, k: int, change: Float[np.ndarray, " d"], advantages: Float[np.ndarray, "A d"], anchor: float
    ) -> "LayeredValue":
        """The same function with layer k set; on the host, so that nothing is compiled for it."""
        made = [np.array(x) for x in (self.changes, self.advantages, self.anchors)]
        for layers, one in zip(made, (change, advantages, anchor), strict=True):
            layers[k] = one
        return eqx.tree_at(lambda f: (f.changes, f.advantages, f.anchors), self, tuple(jax.device_put(made)))

    def __call__(
        self, phi: Float[Array, "*batch d"], allowed: Bool[Array, "*batch A"] | None = None
    ) -> Float[Array, "*batch"]:
        """F at these features, with choices among the `allowed` actions."""
        P = probabilities(self.practice, phi)

        def layer(F: Array, one: tuple[Array, Array, Array]) -> tuple[Array, None]:
            change, advantages, anchor = one
            gains = dot_rows(advantages, phi)
            best = anchor_scores(gains, P, anchor, self.support, allowed).argmax(axis=-1)
            gain = jnp.take_along_axis(gains, best[..., None], axis=-1)[..., 0]
            return _unit(F + dot_rows(change, phi) + gain), None

        F, _ = jax.lax.scan(
            layer, _unit(0.5 + dot_rows(self.first, phi)), (self.changes, self.advantages, self.anchors)
        )
        return F


def _unit(F: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """Clip to [0, 1], with NaN as 1/2, whatever was released."""
    return jnp.where(jnp.isnan(F), 0.5, jnp.clip(F, 0.0, 1.0))
