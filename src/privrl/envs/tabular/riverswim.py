"""RiverSwim: a small reward downstream is easy to get, a large one upstream takes persistence.

A chain of states; action 0 swims left (with the current, always succeeds), action 1 swims right (may fail). The swimmer
starts at the left end.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from privrl.envs.base import Drift, Env, check_at_least, make_finite_env
from privrl.mdp.types import TabularMDP

River = Literal["strehl", "osband"]

# Swimming right: interior (right, stay, left), first state (right, stay), last state (stay, left).
_CURRENT = {
    "strehl": ((0.3, 0.6, 0.1), (0.3, 0.7), (0.3, 0.7)),
    "osband": ((0.35, 0.6, 0.05), (0.6, 0.4), (0.6, 0.4)),
}


def _env(name: str, P: np.ndarray, r: np.ndarray, seed: int, *, horizon: int, **arguments: int | str) -> Env:
    S = P.shape[1]
    start = jnp.zeros(S).at[0].set(1.0)
    return make_finite_env(
        name,
        TabularMDP(jnp.asarray(P), jnp.asarray(r), start, horizon),
        arguments=(("horizon", horizon), *arguments.items()),
        seed=seed,
        constant=(("left", 0),),
    )


def _ends(S: int, stages: int, left: float, right: float) -> np.ndarray:
    """Rewards: a small one for swimming left at the left end, a large one for swimming right at the right end."""
    r = np.zeros((stages, S, 2))
    r[:, 0, 0], r[:, -1, 1] = left, right
    return r


def river_kernel(S: int, kind: River) -> np.ndarray:
    """The kernel of a river of `S` states: action 0 swims left, action 1 right."""
    interior, first, last = _CURRENT[kind]
    P = np.zeros((1, S, 2, S))
    for s in range(S):
        P[0, s, 0, max(s - 1, 0)] = 1.0
    for s in range(1, S - 1):
        P[0, s, 1, [s + 1, s, s - 1]] = interior
    P[0, 0, 1, [1, 0]] = first
    P[0, -1, 1, [S - 1, S - 2]] = last
    return P


def RiverSwim(states: int = 6, horizon: int | None = None, kind: River = "strehl") -> Env:
    """The stationary river.

    Arguments:
        states: length of the chain, at least 2.
        horizon: steps per episode; 2 `states` for `strehl` and 20 for `osband` unless given.
        kind: `strehl` (right: .3 right, .6 stay, .1 left; first .3/.7 right/stay; last .3/.7 stay/left; rewards
            .005/H left and 1/H right) or `osband` (right: .35, .6, .05; first .6/.4; last .6/.4; rewards .005 and 1).
    """
    S = check_at_least("states", states, 2)
    if kind not in _CURRENT:
        raise ValueError(f"`kind` is {kind!r}; the rivers are {', '.join(map(repr, _CURRENT))}.")
    if horizon is None:
        horizon = 2 * S if kind == "strehl" else 20
    H = check_at_least("horizon", horizon, 1)
    P = river_kernel(S, kind)
    scale = 1.0 / H if kind == "strehl" else 1.0
    return _env("riverswim", P, _ends(S, 1, 0.005 * scale, scale), 0, states=S, horizon=H, kind=kind)


def RiverSwimInhomogeneous(states: int = 6, horizon: int | None = None, seed: int = 0) -> Env:
    """The river whose current changes from step to step.

    Swimming right succeeds with probability p_h ~ U(.8, 1), drawn for the instance, and otherwise ends one step to the
    left; rewards .005/H and 1/H as in `RiverSwim`. This is our reading of a figure; the paper's text omits it.

    Arguments:
        states: length of the chain, at least 2.
        horizon: steps per episode; 2 `states` unless given.
        seed: the instance.
    """
    S = check_at_least("states", states, 2)
    H = check_at_least("horizon", 2 * S if horizon is None else horizon, 1)
    p = np.random.default_rng(seed).uniform(0.8, 1.0, size=H)
    P = np.zeros((H, S, 2, S))
    for s in range(S):
        P[:, s, 0, max(s - 1, 0)] = 1.0
        P[:, s, 1, min(s + 1, S - 1)] += p
        P[:, s, 1, max(s - 1, 0)] += 1.0 - p
    return _env("riverswim-inhomogeneous", P, _ends(S, H, 0.005 / H, 1.0 / H), seed, states=S, horizon=H)


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
