"""TAP, part 3: advantages of (s, a), shrunk toward what actions and states have in common.

Each advantage is measured with a known error variance. The prior mean of (s, a) is an overall mean, an action effect
(from contrasts between the actions of one state) and a state effect, each shrunk by empirical Bayes; tau^2, the
variance of what is particular to (s, a), is fitted by weighted moments. Standard deviations of effects are at most .1
of the largest return.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from privrl.learners.tabular.advantages import LARGEST, SMALLEST, action_effects
from privrl.learners.tabular.anchor import typical_deviation

_TINY = 1e-30


class Posterior(eqx.Module):
    """Means and standard deviations of advantages by (s, a); `typical` is the root mean square over visits."""

    mean: Float[Array, "S A"]
    deviation: Float[Array, "S A"]
    typical: Float[Array, ""]


def posterior(
    x: Float[Array, "S A"],
    error: Float[Array, "S A"],
    visits: Float[Array, "S A"],
    visible: Bool[Array, "S A"],
    largest_return: float,
    spread: float,
) -> Posterior:
    """Shrunken advantages where they are `visible`; elsewhere the prior. `spread` multiplies the fitted tau."""
    x, error = jnp.where(visible, x / largest_return, 0.0), error / largest_return**2
    by_action, unsure = action_effects(x, visible.astype(float), jnp.where(visible, error, 0.0))
    weight = jnp.where(visible, 1.0 / (error + LARGEST), 0.0)
    rest = x - by_action[None, :]
    overall = (weight * rest).sum() / jnp.maximum(weight.sum(), _TINY)
    by_state = _state_effects(rest - overall, weight)
    prior = overall + by_action[None, :] + by_state[:, None]
    rest = x - prior
    tau2 = (weight * (rest**2 - error)).sum() / jnp.maximum(weight.sum(), _TINY)
    tau2 = spread**2 * jnp.clip(tau2, SMALLEST, LARGEST)
    k = jnp.where(visible, tau2 / (tau2 + error), 0.0)
    variance = (1.0 - k) * (
        tau2 + (1.0 - k) * unsure[None, :]
    )  # of what is particular, and of the action effect behind it
    typical = typical_deviation(variance, jnp.where(visible, visits, 0.0))
    each = (prior + k * rest, jnp.sqrt(variance), typical)
    return Posterior(*(largest_return * value for value in each))


def _state_effects(x: Float[Array, "S A"], weight: Float[Array, "S A"]) -> Float[Array, " S"]:
    """Posterior means of state effects; their variance by moments, each state weighted by what is known of it."""
    total = weight.sum(axis=1)
    mean, error = (weight * x).sum(axis=1) / jnp.maximum(total, _TINY), 1.0 / jnp.maximum(total, _TINY)
    w = jnp.where(total > 0, 1.0 / (error + LARGEST), 0.0)
    t2 = jnp.clip((w * (mean**2 - error)).sum() / jnp.maximum(w.sum(), _TINY), 0.0, LARGEST)
    return jnp.where(total > 0, t2 / jnp.maximum(t2 + error, _TINY) * mean, 0.0)
