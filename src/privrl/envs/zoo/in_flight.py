"""In flight: a random world that pays at every step and never ends before the horizon (a Garnet).

From (s, a) a few random states are reached, with random probabilities. The reward is half the state's own payment,
which few states have, and half the action's.
"""

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.envs.zoo.clinicians import PracticeKind, draw_practice
from privrl.mdp.types import TabularMDP

_PAYING = 0.2  # share of the states with a payment of their own


def InFlight(
    states: int = 40,
    actions: int = 5,
    horizon: int = 15,
    successors: int = 3,
    practice: PracticeKind = "habits",
    seed: int = 0,
) -> Env:
    """A random world with rewards at every step, and no end before the horizon.

    Arguments:
        states, actions: at least 2 of each.
        horizon: steps per episode.
        successors: states that can follow one state and action.
        practice: "habits", "expert" or "rare", see `privrl.envs.zoo.clinicians`.
        seed: the instance.
    """
    S, A, H = (
        check_at_least("states", states, 2),
        check_at_least("actions", actions, 2),
        check_at_least("horizon", horizon, 1),
    )
    k = min(check_at_least("successors", successors, 1), S)
    rng = np.random.default_rng([seed, S, A])
    P = np.zeros((S, A, S))
    for s in range(S):
        for a in range(A):
            P[s, a, rng.choice(S, k, replace=False)] = rng.dirichlet(np.ones(k))
    paying = (rng.uniform(size=S) < _PAYING) * rng.uniform(0.5, 1, size=S)
    reward = 0.5 * paying[:, None] + 0.5 * rng.uniform(size=(S, A)) ** 2
    mdp = TabularMDP(jnp.asarray(P[None]), jnp.asarray(reward[None]), jnp.asarray(rng.dirichlet(np.ones(S))), H)
    return make_finite_env(
        "in-flight",
        mdp,
        behaviour=jnp.asarray(draw_practice(mdp, practice, rng)),
        arguments=(("states", S), ("actions", A), ("horizon", H), ("successors", k), ("practice", practice)),
        seed=seed,
    )
