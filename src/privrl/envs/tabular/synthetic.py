"""The synthetic linear MDP of qiao-wang, Appendix G: 2 states, 100 actions, features of dimension 10.

With the action's bits a in {0, 1}^8 (most significant first) and delta(s, a) = 1{1{s=0} = 1{a=0}},

    phi(s, a) = (a, delta, 1 - delta),
    nu_h(0) = (0, .., 0, alpha_h1, alpha_h2),  nu_h(1) = (0, .., 0, 1 - alpha_h1, 1 - alpha_h2),
    theta_h = (r_h/8, 0, r_h/8, 1/2 - r_h/2, r_h/8, 0, r_h/8, 0, r_h/2, 1/2 - r_h/2),

with alpha and r uniform on [0, 1], drawn for the instance. Raw features have norm up to sqrt 7 (six bits and one
indicator), so they are divided by sqrt 7 and nu, theta multiplied by it: the world is unchanged. Actions below 100
never use the most significant bit, so the smallest eigenvalue kappa of the paper is 0 here.
"""

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least
from privrl.mdp.features import TableFeatures
from privrl.mdp.linear import linear_mdp

_ACTIONS, _BITS = 100, 8


def SyntheticLinear(horizon: int = 20, behaviour: float = 0.6, seed: int = 0) -> Env:
    """The paper's synthetic linear MDP.

    Arguments:
        horizon: steps per episode (the paper: 20).
        behaviour: how often the behaviour policy takes action 0; it spreads the rest evenly (the paper: .6).
        seed: the instance, i.e. alpha and r.
    """
    H = check_at_least("horizon", horizon, 1)
    if not 0 <= behaviour <= 1:
        raise ValueError(f"`behaviour` is {behaviour}; it is the probability of action 0 and must lie in [0, 1].")
    rng = np.random.default_rng(seed)
    alpha, r = rng.uniform(size=(H, 2)), rng.uniform(size=(H, 1))

    actions = np.arange(_ACTIONS)
    bits = (actions[:, None] >> np.arange(_BITS - 1, -1, -1)) & 1
    delta = np.stack([actions == 0, actions != 0]).astype(float)
    phi = np.concatenate([np.broadcast_to(bits, (2, *bits.shape)), delta[..., None], 1 - delta[..., None]], axis=-1)

    nu = np.zeros((H, _BITS + 2, 2))
    nu[:, _BITS:, 0], nu[:, _BITS:, 1] = alpha, 1 - alpha
    theta = r * np.array([1, 0, 1, -4, 1, 0, 1, 0, 4, -4]) / 8 + np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 1]) / 2

    norm = np.sqrt(7.0)
    features = TableFeatures(jnp.asarray(phi / norm))
    others = np.full((2, _ACTIONS), (1 - behaviour) / (_ACTIONS - 1))
    others[:, 0] = behaviour
    return Env(
        mdp=linear_mdp(features, jnp.asarray(nu * norm), jnp.asarray(theta * norm), jnp.full(2, 0.5), H),
        features=features,
        behaviour=jnp.asarray(others),
        name="synthetic-linear",
        arguments=(("horizon", H), ("behaviour", behaviour)),
        seed=seed,
    )
