"""A grid with holes: find the way from anywhere to the far corner, which pays 1; a hole ends the walk.

Four actions move right, down, left and up, and slip to each of the two sides with probability .1. Holes are drawn at
random, except where they would cut off the corner. In every cell practice has a favourite move, taken half of the time:
the best one in four cells of five, any other in the rest. The other half of its moves are random, mostly right and
down. The last state stands for all holes.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from privrl.envs.base import Env, check_at_least, make_finite_env
from privrl.mdp.planning import optimal_values
from privrl.mdp.types import TabularMDP

_SLIP = 0.1
_MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
_HEADING = (0.35, 0.35, 0.15, 0.15)
_KNOWN, _FAVOURITE = 0.8, 0.5


def _neighbours(side: int) -> Int[np.ndarray, "cells 4"]:
    row, column = np.divmod(np.arange(side * side), side)
    moved = [np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1) for down, right in _MOVES]
    return np.stack(moved, axis=1)


def _connected(side: int, hole: Bool[np.ndarray, " cells"]) -> bool:
    """Whether the far corner can be reached without falling."""
    beside, seen, frontier = _neighbours(side), {0}, [0]
    while frontier:
        ahead = {int(n) for s in frontier for n in beside[s] if not hole[n]} - seen
        seen, frontier = seen | ahead, sorted(ahead)
    return side * side - 1 in seen


def _practice(mdp: TabularMDP, rng: np.random.Generator) -> Float[np.ndarray, "S 4"]:
    best = np.asarray(optimal_values(mdp)[1])[0].argmax(axis=-1)
    wrong = (best + rng.integers(1, 4, size=len(best))) % 4
    favourite = np.where(rng.uniform(size=len(best)) < _KNOWN, best, wrong)
    return _FAVOURITE * np.eye(4)[favourite] + (1 - _FAVOURITE) * np.array(_HEADING)


def GridWithHoles(side: int = 8, holes: float = 0.15, horizon: int = 40, seed: int = 0) -> Env:
    """A slippery grid whose far corner pays 1 and whose holes end the walk.

    Arguments:
        side: the grid has side^2 cells, and one state more stands for all holes; at least 3.
        holes: share of cells that are holes, below 1/2.
        horizon: steps per walk.
        seed: the instance.
    """
    n, H = check_at_least("side", side, 3), check_at_least("horizon", horizon, 1)
    if not 0 <= holes < 0.5:
        raise ValueError(f"`holes` is {holes}; it must be at least 0 and below 1/2.")
    rng = np.random.default_rng([seed, n])
    goal, fallen = n * n - 1, n * n
    hole = np.zeros(n * n, bool)
    for cell in rng.permutation(np.arange(1, n * n - 1))[: round(holes * n * n)]:
        hole[cell] = True
        hole[cell] = _connected(n, hole)
    beside = np.where(hole[_neighbours(n)], fallen, _neighbours(n))
    S = n * n + 1
    P = np.zeros((S, 4, S))
    cells = np.arange(n * n)
    for a in range(4):
        for turn, probability in ((0, 1 - 2 * _SLIP), (1, _SLIP), (3, _SLIP)):
            P[cells, a, beside[:, (a + turn) % 4]] += probability
    ends = (goal, fallen)
    P[list(ends)] = 0.0
    for end in ends:
        P[end, :, end] = 1.0
    P[np.flatnonzero(hole)] = 0.0
    P[np.flatnonzero(hole), :, fallen] = 1.0  # unreachable: moves into a hole lead to `fallen`
    reward = P[:, :, goal].copy()
    reward[goal] = 0.0
    start = np.append(~hole, False).astype(float)
    start[goal] = 0.0
    mdp = TabularMDP(jnp.asarray(P[None]), jnp.asarray(reward[None]), jnp.asarray(start / start.sum()), H)
    return make_finite_env(
        "grid-with-holes",
        mdp,
        behaviour=jnp.asarray(_practice(mdp, rng)),
        arguments=(("side", n), ("holes", holes), ("horizon", H)),
        seed=seed,
        terminal=ends,
        arrival=jnp.asarray(np.eye(S)[goal]),
    )
