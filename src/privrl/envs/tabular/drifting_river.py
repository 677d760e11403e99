"""A river in which the two strokes slowly change places: the stroke that swims upstream later drifts down, and back
again."""

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.envs.drifting import Drift
from privrl.envs.tabular.riverswim import river_kernel
from privrl.mdp.types import TabularMDP


def DriftingRiver(states: int = 4, horizon: int = 8, period: int = 200_000) -> Env:
    """RiverSwim, whose strokes change places and back over `period` people.

    At first, stroke 1 swims right, as in `RiverSwim(kind="osband")`, and stroke 0 left. Half a period later, stroke 0
    swims right. In between, each acts as before with a probability that follows a cosine. The left end pays .005 and
    the right end 1 for either stroke, so the rewards do not change.

    Arguments:
        states: length of the chain, at least 2.
        horizon: steps per episode.
        period: people until the world returns to its start.
    """
    S, H = check_at_least("states", states, 2), check_at_least("horizon", horizon, 1)
    P, r = river_kernel(S, "osband"), np.zeros((1, S, 2))
    r[:, 0], r[:, -1] = 0.005, 1.0
    return make_finite_env(
        "drifting-river",
        TabularMDP(jnp.asarray(P), jnp.asarray(r), jnp.zeros(S).at[0].set(1.0), H),
        arguments=(("states", S), ("horizon", H), ("period", period)),
        drift=Drift(jnp.asarray(P[:, :, ::-1]), period),
    )
