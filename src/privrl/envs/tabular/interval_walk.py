"""A walk on [0, 1] towards its middle, on a mesh fine enough to stand for the interval.

The walker is at s in [0, 1]. Action 1 moves it right and action 0 left by an amount that is uniform on [0, 1/4]; at an
end of the interval it stops. The reward of a step is 1/2 - |s' - 1/2| at the place s' where it ends; there are 50
steps, and the first place is uniform (wang-hegde, section 5).

Here places are the mesh k 2^-depth: after every move the place is rounded to the nearest mesh point. With
n = 2^depth cells, a move of m cells has probability 4/n, half of that for m = 0 and m = n/4, and the first place has
probability 1/n, half of that at the ends. The best and the uniform policy are worth 20.7063 and 10.8597 at depth 7, and
20.7083 and 10.8606 in the limit: the mesh costs 1 part in 10,000. (Paying at s instead of s' gives 20.54 and 10.90.)
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.features import TableFeatures
from privrl.mdp.types import TabularMDP

_LARGEST_DEPTH = 10  # the kernel has 2 (2^depth + 1)^2 entries


def IntervalWalk(depth: int = 7, horizon: int = 50, knots: int = 9) -> Env:
    """A walker on [0, 1] who is paid for being near the middle.

    Arguments:
        depth: the mesh has 2^depth + 1 places; from 2 to 10.
        horizon: steps per episode.
        knots: the features are this many tent functions of the place, equally spaced, for each action.
    """
    if not 2 <= depth <= _LARGEST_DEPTH:
        raise ValueError(f"`depth` is {depth}; the mesh has 2^depth cells. Give a depth from 2 to {_LARGEST_DEPTH}.")
    H, K, n = check_at_least("horizon", horizon, 1), check_at_least("knots", knots, 2), 2**depth
    S, place = n + 1, np.arange(n + 1) / n
    length = np.full(n // 4 + 1, 4.0 / n)
    length[[0, -1]] /= 2
    P = np.zeros((1, S, 2, S))
    for m, probability in enumerate(length):
        P[0, np.arange(S), 0, np.maximum(np.arange(S) - m, 0)] += probability
        P[0, np.arange(S), 1, np.minimum(np.arange(S) + m, n)] += probability
    first = np.full(S, 1.0 / n)
    first[[0, -1]] /= 2
    paid = 0.5 - np.abs(place - 0.5)
    return make_finite_env(
        "interval-walk",
        TabularMDP(jnp.asarray(P), jnp.asarray(P @ paid), jnp.asarray(first), H),
        features=TableFeatures(jnp.asarray(np.einsum("sk,ab->sabk", tents(place, K), np.eye(2)).reshape(S, 2, 2 * K))),
        arguments=(("depth", depth), ("horizon", H), ("knots", K)),
        arrival=jnp.asarray(paid),
    )


def tents(place: Float[np.ndarray, " S"], knots: int) -> Float[np.ndarray, "S knots"]:
    """Tent functions of height 1 around equally spaced knots; they add up to 1 everywhere, so their norm is at
    most 1."""
    return np.maximum(1.0 - np.abs(place[:, None] * (knots - 1) - np.arange(knots)), 0.0)
