"""Finite worlds without structure, to compare learners: random ones, and a hard one."""

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.types import TabularMDP


def RandomWorld(states: int = 5, actions: int = 3, horizon: int = 10, seed: int = 0) -> Env:
    """A stationary world whose kernel and rewards are drawn at random.

    Each row of the kernel has a Dirichlet distribution with parameters .3, so a few next states are likely. A state
    pays the cube of a uniform number over `horizon`, whatever the action, so a learner must know where actions lead.

    Arguments:
        states, actions, horizon: the size of the world.
        seed: the instance.
    """
    S, A = check_at_least("states", states, 2), check_at_least("actions", actions, 2)
    H = check_at_least("horizon", horizon, 1)
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, 0.3), size=(1, S, A))
    r = np.repeat(rng.uniform(size=(1, S, 1)) ** 3 / H, A, axis=2)
    mdp = TabularMDP(jnp.asarray(P), jnp.asarray(r), jnp.zeros(S).at[0].set(1.0), H)
    arguments = (("states", S), ("actions", A), ("horizon", H))
    return make_finite_env("random-world", mdp, arguments=arguments, seed=seed)


def CombinationLock(states: int = 4, actions: int = 2, horizon: int = 8, seed: int = 0) -> Env:
    """A chain in which one action of each state leads on, and the others back to the start; only the last state pays.

    The right action succeeds with probability .9. Which one it is, is drawn for the instance. Random actions rarely
    reach the end, so a learner must explore on purpose.

    Arguments:
        states, actions, horizon: the size of the world; the horizon must be at least the number of states.
        seed: the instance.
    """
    S, A = check_at_least("states", states, 2), check_at_least("actions", actions, 2)
    H = check_at_least("horizon", horizon, S)
    right = np.random.default_rng(seed).integers(A, size=S)
    P, r = np.zeros((1, S, A, S)), np.zeros((1, S, A))
    for s in range(S):
        P[0, s, :, 0] = 1.0
        P[0, s, right[s]] = 0.0
        P[0, s, right[s], 0] = 0.1
        P[0, s, right[s], min(s + 1, S - 1)] += 0.9
    r[0, S - 1] = 1.0 / H
    mdp = TabularMDP(jnp.asarray(P), jnp.asarray(r), jnp.zeros(S).at[0].set(1.0), H)
    arguments = (("states", S), ("actions", A), ("horizon", H))
    return make_finite_env("combination-lock", mdp, arguments=arguments, seed=seed)
