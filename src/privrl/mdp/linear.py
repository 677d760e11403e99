"""Linear MDPs and linear mixture MDPs, and the finite worlds that they describe.

- **Linear**: P_h(s'|s,a) = <phi(s,a), mu_h(s')>, r_h(s,a) = <phi(s,a), theta_h>.
- **Linear mixture**: P_h(s'|s,a) = <phi(s'|s,a), theta_h>, rewards known.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularMDP

_TOLERANCE = 1e-9


def check_kernel(transition: Float[Array, "G S A S"], what: str) -> Float[Array, "G S A S"]:
    """The kernel with rounding errors removed. Larger deviations raise an error that names `what`."""
    if not isinstance(transition, jax.core.Tracer):
        P = np.asarray(transition)
        lowest, gap = float(np.min(P)), float(np.max(np.abs(P.sum(axis=-1) - 1.0)))
        if not (lowest >= -_TOLERANCE and gap <= _TOLERANCE):
            raise ValueError(
                f"The {what} is not a probability kernel: its smallest entry is {lowest:.3g} and the sum of a row "
                f"differs from 1 by {gap:.3g}; both may be off by at most {_TOLERANCE:g}. Check the measures or "
                "weights. If you divided features by a constant, multiply their weights by it."
            )
    transition = jnp.clip(transition, 0.0)
    return transition / transition.sum(axis=-1, keepdims=True)


def linear_mdp(
    features: AbstractFeatures,
    measures: Float[Array, "G d S"],
    reward_weights: Float[Array, "G d"],
    initial: Float[Array, " S"],
    horizon: int,
) -> TabularMDP:
    """The world with features phi, measures mu and reward weights theta (one stage or H of them), as arrays.

    Raises:
        ValueError: if the measures do not give probabilities.
    """
    P = jnp.einsum("sad,gdx->gsax", features.table, measures, precision="highest")
    r = jnp.einsum("sad,gd->gsa", features.table, reward_weights, precision="highest")
    return TabularMDP(check_kernel(P, "linear MDP"), r, initial, horizon)


def mixture_mdp(
    base: Float[Array, "S A S d"],
    weights: Float[Array, "G d"],
    reward: Float[Array, "G S A"],
    initial: Float[Array, " S"],
    horizon: int,
) -> TabularMDP:
    """The world whose kernel mixes the d known ones of `base`, phi(s'|s,a), by weights theta (one stage or H of them).

    Raises:
        ValueError: if the weights do not give probabilities.
    """
    P = jnp.einsum("saxd,gd->gsax", base, weights, precision="highest")
    return TabularMDP(check_kernel(P, "linear mixture MDP"), reward, initial, horizon)
