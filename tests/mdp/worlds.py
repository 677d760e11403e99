"""Small random worlds and policies."""

import jax.numpy as jnp
import numpy as np

from privrl.mdp.types import TabularMDP, TabularPolicy


def random_world(seed: int, H: int = 3, S: int = 2, A: int = 2, stationary: bool = False) -> TabularMDP:
    rng = np.random.default_rng(seed)
    G = 1 if stationary else H
    return TabularMDP(
        jnp.asarray(rng.dirichlet(np.ones(S), size=(G, S, A))),
        jnp.asarray(rng.uniform(size=(G, S, A))),
        jnp.asarray(rng.dirichlet(np.ones(S))),
        H,
    )


def random_policy(seed: int, mdp: TabularMDP) -> TabularPolicy:
    rng = np.random.default_rng(seed + 1000)
    return TabularPolicy(jnp.asarray(rng.dirichlet(np.ones(mdp.num_actions), size=(mdp.horizon, mdp.num_states))))
