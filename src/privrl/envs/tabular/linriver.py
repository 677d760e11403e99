"""LinRiver: a river whose current hides a direction, so that neither random nor greedy actions find the way up.

Actions are the corners a of {-1, 1}^4. Each step h has a hidden direction xi_h in {-1, 1}^4; with
q = (1 + <a, xi_h>/4)/2 the swimmer moves right with probability .6 q, left with .3 (1 - q), and stays otherwise (a move
beyond an end stays there). The right end pays 1, the left end .005, whatever the action; the start is the left end. The
kernel is linear in (e_s x (1, a/2))/sqrt 2, which has norm 1.
"""

import itertools

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.features import TableFeatures
from privrl.mdp.linear import linear_mdp

_BITS = 4


def LinRiver(states: int = 5, horizon: int = 20, seed: int = 0) -> Env:
    """The river with a hidden direction per step.

    Arguments:
        states: length of the chain, at least 2.
        horizon: steps per episode.
        seed: the instance, i.e. the hidden directions.
    """
    S, H = check_at_least("states", states, 2), check_at_least("horizon", horizon, 1)
    xi = np.random.default_rng(seed).choice([-1.0, 1.0], size=(H, _BITS))
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=_BITS)))
    block = np.concatenate([np.ones((len(corners), 1)), corners / 2], axis=1) / np.sqrt(2)
    phi = np.einsum("st,ab->satb", np.eye(S), block).reshape(S, len(corners), S * (1 + _BITS))

    # q = <(1, a/2)/sqrt 2, sqrt 2 (1/2, xi/4)>: as a covector on one state's block of the features.
    q = np.sqrt(2) * np.concatenate([np.full((H, 1), 0.5), xi / 4], axis=1)
    one = np.sqrt(2) * np.eye(1 + _BITS)[0]
    right, left = 0.6 * q, 0.3 * (one - q)
    mu = np.zeros((H, S, 1 + _BITS, S))
    for s in range(S):
        mu[:, s, :, min(s + 1, S - 1)] += right
        mu[:, s, :, max(s - 1, 0)] += left
        mu[:, s, :, s] += one - right - left
    theta = np.zeros((H, S, 1 + _BITS))
    theta[:, -1], theta[:, 0] = one, 0.005 * one

    features = TableFeatures(jnp.asarray(phi))
    linear = (jnp.asarray(mu.reshape(H, -1, S)), jnp.asarray(theta.reshape(H, -1)))
    world = linear_mdp(features, *linear, jnp.zeros(S).at[0].set(1.0), H)
    return make_finite_env("linriver", world, features=features, arguments=(("states", S), ("horizon", H)), seed=seed)
