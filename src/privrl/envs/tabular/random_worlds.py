"""Finite worlds without structure, to compare learners: random ones, and a hard one."""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.types import TabularMDP

KernelKind = Literal["same", "changing"]


def RandomWorld(
    states: int = 5, actions: int = 3, horizon: int = 10, kernel: KernelKind = "same", seed: int = 0
) -> Env:
    """A world whose kernel and rewards are drawn at random.

    Each row of the kernel has a Dirichlet distribution with parameters .3, so a few next states are likely. A state
    pays the cube of a uniform number over `horizon`, whatever the action, so a learner must know where actions lead.

    Arguments:
        states, actions, horizon: the size of the world.
        kernel: the same at every step, or drawn anew for each.
        seed: the instance.
    """
    S, A = check_at_least("states", states, 2), check_at_least("actions", actions, 2)
    H = check_at_least("horizon", horizon, 1)
    G = _stages(kernel, H)
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, 0.3), size=(G, S, A))
    r = np.broadcast_to(rng.uniform(size=(1, S, 1)) ** 3 / H, (G, S, A))
    return _world("random-world", P, r, H, kernel, seed)


def CombinationLock(
    states: int = 4, actions: int = 2, horizon: int = 8, kernel: KernelKind = "same", seed: int = 0
) -> Env:
    """A chain in which one action of each state leads on, and the others back to the start; only the last state pays.

    The right action succeeds with probability .9. Which one it is, is drawn for the instance. Random actions rarely
    reach the end, so a learner must explore on purpose.

    Arguments:
        states, actions, horizon: the size of the world; the horizon must be at least the number of states.
        kernel: the same at every step, or with right actions of its own at each.
        seed: the instance.
    """
    S, A = check_at_least("states", states, 2), check_at_least("actions", actions, 2)
    H = check_at_least("horizon", horizon, S)
    G = _stages(kernel, H)
    right = np.random.default_rng(seed).integers(A, size=(G, S))
    P, r = np.zeros((G, S, A, S)), np.zeros((G, S, A))
    for g in range(G):
        for s in range(S):
            P[g, s, :, 0] = 1.0
            P[g, s, right[g, s]] = 0.0
            P[g, s, right[g, s], 0] = 0.1
            P[g, s, right[g, s], min(s + 1, S - 1)] += 0.9
    r[:, S - 1] = 1.0 / H
    return _world("combination-lock", P, r, H, kernel, seed)


def _stages(kernel: KernelKind, horizon: int) -> int:
    """How many kernels there are."""
    if kernel not in ("same", "changing"):
        raise ValueError(f"`kernel` is {kernel!r}; it must be 'same' or 'changing'.")
    return 1 if kernel == "same" else horizon


def _world(name: str, P: np.ndarray, r: np.ndarray, H: int, kernel: KernelKind, seed: int) -> Env:
    _, S, A = r.shape
    mdp = TabularMDP(jnp.asarray(P), jnp.asarray(r), jnp.zeros(S).at[0].set(1.0), H)
    arguments: tuple[tuple[str, int | str], ...] = (("states", S), ("actions", A), ("horizon", H))
    changing = () if kernel == "same" else (("kernel", kernel),)
    return make_finite_env(name, mdp, arguments=arguments + changing, seed=seed)
