"""Choices near practice, and the value functions that are made of them; on features phi of a state.

With theta_a the advantage of action a, and kappa how strongly practice counts:

    P(a|s) = clip(phi^T B_a, .01, 1)
    pi(s)  = argmax phi^T theta_a + kappa log P(a|s)    over the a with P(a|s) >= support max P
    F_1    = clip(1/2 + phi^T f, 0, 1)
    F_k+1  = clip(F_k + phi^T theta0_k + phi^T theta_k,pi_k(s), 0, 1)

Whatever the weights hold, F lies in [0, 1].
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.mdp.quadratic_features import by_row

_LEAST_PROBABILITY = 0.01


def probabilities(practice: Float[Array, "d A"], phi: Float[Array, "*batch d"]) -> Float[Array, "*batch A"]:
    """P(a|s), not normalised."""
    P = phi @ practice
    return jnp.where(jnp.isnan(P), _LEAST_PROBABILITY, jnp.clip(P, _LEAST_PROBABILITY, 1.0))


def scores(
    advantages: Float[Array, "A d"],
    practice: Float[Array, "d A"],
    anchor: Float[Array, ""],
    support: Float[Array, ""],
    phi: Float[Array, "*batch d"],
) -> Float[Array, "*batch A"]:
    """phi^T theta_a + kappa log P(a|s), and minus infinity for actions without support."""

    def of_row(phi: Float[Array, " d"]) -> Float[Array, " A"]:
        P = probabilities(practice, phi)
        return jnp.where(support * P.max() > P, -jnp.inf, advantages @ phi + anchor * jnp.log(P))

    return by_row(of_row, phi)


class LayeredValue(eqx.Module):
    """F, see the module: a first guess and K improvements; a layer of zeros changes nothing.

    Arguments:
        first: f.
        changes, advantages, anchors: theta0, theta and kappa of each layer.
        practice, support: B, and what counts as support.
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
        """The first guess, with room for so many layers."""
        d, A = practice.shape
        empty = (jnp.zeros((rounds, d)), jnp.zeros((rounds, A, d)), jnp.zeros(rounds))
        return cls(first, *empty, practice, support)

    def improved(
        self, k: int, change: Float[Array, " d"], advantages: Float[Array, "A d"], anchor: Float[Array, ""]
    ) -> "LayeredValue":
        """The same with layer k."""
        made = (self.changes.at[k].set(change), self.advantages.at[k].set(advantages), self.anchors.at[k].set(anchor))
        return eqx.tree_at(lambda f: (f.changes, f.advantages, f.anchors), self, made)

    def __call__(self, phi: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
        def layer(F: Array, one: tuple[Array, Array, Array]) -> tuple[Array, None]:
            change, advantages, anchor = one
            best = scores(advantages, self.practice, anchor, self.support, phi).argmax(axis=-1)
            gain = jnp.take_along_axis(phi @ advantages.T, best[..., None], axis=-1)[..., 0]
            return _unit(F + phi @ change + gain), None

        F, _ = jax.lax.scan(layer, _unit(0.5 + phi @ self.first), (self.changes, self.advantages, self.anchors))
        return F


def _unit(F: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """In [0, 1], whatever was published."""
    return jnp.where(jnp.isnan(F), 0.5, jnp.clip(F, 0.0, 1.0))
