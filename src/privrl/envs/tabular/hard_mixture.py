"""The hard linear mixture MDP behind the local-privacy lower bound (liao-he-gu, Theorem 5.6 and Appendix C.2).

States x_1 .. x_H lead on; x_{H+1} and x_{H+2} absorb, and only x_{H+2} pays (1 per step). From x_h the action
a in {-1, 1}^{d-1} reaches x_{H+2} with probability 1/H + <mu_h, a> and x_{h+1} otherwise, where mu_h in {-D, D}^{d-1}
is drawn for the instance and

    D = sqrt(1/H)/(min{2, e^eps} (e^eps - 1) sqrt K).

These are probabilities only if (d-1) D <= 1/H. The printed condition T >= 4 d^2 H/(..) does not imply that;
T = K H >= 4 d^2 H^2/(min{4, e^{2 eps}} (e^eps - 1)^2) does.
"""

import itertools
import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.linear import mixture_mdp
from privrl.mdp.types import TabularMDP


def hard_mixture(
    dim: int, horizon: int, gap: float, seed: int = 0
) -> tuple[TabularMDP, Float[Array, "S A S d"], Float[Array, "H d"]]:
    """The world for a given `gap` D, and the `dim` known kernels and weights that it mixes; the module has the
    formulas."""
    d, H, D = check_at_least("dim", dim, 2), check_at_least("horizon", horizon, 1), gap
    room = min(1 / H, 1 - 1 / H)
    if not 0 < (d - 1) * D <= room:
        raise ValueError(
            f"The gap is {D:.3g}, and (dim - 1) gap = {(d - 1) * D:.3g} must lie in (0, {room:.3g}] for the "
            "transitions to be probabilities. Use more `episodes`, a larger `epsilon`, or a smaller `dim` or `horizon`."
        )
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(H, d - 1))
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=d - 1)))
    alpha, beta = math.sqrt(1 / (1 + (d - 1) * D)), math.sqrt(D / (1 + (d - 1) * D))
    S, A = H + 2, len(corners)
    base = np.zeros((S, A, S, d))
    for s in range(H):
        base[s, :, s + 1] = np.concatenate([np.full((A, 1), alpha * (1 - 1 / H)), -beta * corners], axis=1)
        base[s, :, H + 1] = np.concatenate([np.full((A, 1), alpha / H), beta * corners], axis=1)
    for s in (H, H + 1):
        base[s, :, s, 0] = alpha
    weights = np.concatenate([np.full((H, 1), 1 / alpha), D * signs / beta], axis=1)
    reward = np.zeros((H, S, A))
    reward[:, H + 1] = 1.0
    start = jnp.zeros(S).at[0].set(1.0)
    mixture = jnp.asarray(base), jnp.asarray(weights)
    return mixture_mdp(*mixture, jnp.asarray(reward), start, H), *mixture


def HardMixture(dim: int = 3, horizon: int = 6, epsilon: float = 1.0, episodes: int = 10_000, seed: int = 0) -> Env:
    """The hard instance for a given local epsilon and number of users.

    Arguments:
        dim: d; there are 2^(d-1) actions.
        horizon: H, at least 2.
        epsilon: the local privacy for which the instance is hard.
        episodes: K, the number of users for which it is hard.
        seed: the instance, i.e. the signs of mu.
    """
    H, K = check_at_least("horizon", horizon, 2), check_at_least("episodes", episodes, 1)
    if not epsilon > 0:
        raise ValueError(f"`epsilon` is {epsilon}; it must be positive.")
    gap = math.sqrt(1 / H) / (min(2.0, math.exp(epsilon)) * math.expm1(epsilon) * math.sqrt(K))
    arguments = (("dim", dim), ("horizon", H), ("epsilon", epsilon), ("episodes", K))
    return make_finite_env("hard-mixture", hard_mixture(dim, H, gap, seed)[0], arguments=arguments, seed=seed)
