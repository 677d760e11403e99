"""Records made to break a bound: malformed ones of every kind, and extreme ones.

A statistic promises its bound for *all* records, so these are not samples of a world. They include episodes that
end at step 0, empty ones, states out of range by one and by 2^63, rewards that are infinite, subnormal, -0.0 or
NaN, lengths below 0 and beyond the horizon, and next states that were not recorded or cannot exist. They also
include the ordinary extremes that reach a bound: the same cell at every step, all rewards 0 or all 1, for every
state and action.
"""

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from privrl.mdp.lq import LQTrajectory
from privrl.mdp.types import Trajectory

REWARDS = np.array(
    [0.0, 1.0, -0.0, 0.5, -1.0, 30.0, -30.0, 1e300, -1e300, 5e-324, -1e-310, 1 + 2**-52, np.inf, -np.inf, np.nan]
)
_TINY, _HUGE = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_EXTREME = np.array([_TINY, _TINY + 1, -(2**31), -(2**31) - 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**53 + 1, _HUGE])


def adversarial_records(
    horizon: int, num_states: int, num_actions: int, *, count: int = 480, seed: int = 0
) -> Trajectory:
    """Make `count` stacked records of a finite world with these sizes, in NumPy; the same for the same seed.

    Half of them are well formed and extreme, half are malformed, and some of the latter in every way at once.
    """
    rng = np.random.default_rng(seed)
    shape = (count, horizon)
    s = rng.integers(num_states, size=(count, horizon + 1))
    a = rng.integers(num_actions, size=shape)
    r = rng.choice([0.0, 1.0], shape)
    after = s[:, 1:].copy()
    s = s[:, :-1].copy()
    length = np.full(count, horizon)
    kind = np.arange(count) % 16

    def where(*kinds: int) -> np.ndarray:
        return np.isin(kind, kinds)

    # Well formed: one cell at every step, with one reward throughout, from every state by every action to every state.
    still = np.flatnonzero(where(0, 1, 2))
    cells = itertools.cycle(itertools.product(range(num_states), range(num_actions), (0.0, 1.0), range(num_states)))
    for i, (state, action, reward, following) in zip(still, cells, strict=False):
        s[i], a[i], r[i], after[i] = state, action, reward, (state if kind[i] else following)
    r[where(3, 4)] = r[where(3, 4), :1]
    length[where(5)] = 1  # ends with its first step
    length[where(6)] = rng.integers(0, horizon + 1, where(6).sum())
    length[where(7)] = 0  # empty, whatever the rest says
    # Malformed.
    near = where(8)[:, None]
    s = np.where(near, rng.integers(-3, num_states + 4, shape), s)
    a = np.where(near, rng.integers(-3, num_actions + 4, shape), a)
    r = np.where(where(9, 15)[:, None], rng.choice(REWARDS, shape), r)
    length = np.where(where(10, 15), rng.choice([-2, -1, _TINY, horizon + 1, horizon + 5, _HUGE], count), length)
    outside = np.array([-1, -2, -3, num_states, num_states + 1, num_states * num_actions, *_EXTREME])
    after = np.where(where(11)[:, None], -1, after)
    after = np.where(where(12, 15)[:, None], rng.choice(outside, shape), after)
    s = np.where(where(13, 15)[:, None] & (rng.random(shape) < 0.5), rng.choice(outside, shape), s)
    a = np.where(where(14, 15)[:, None] & (rng.random(shape) < 0.5), rng.choice(outside, shape), a)
    return Trajectory(s, a, r, after, length)


def adversarial_lq_records(
    horizon: int, state_dim: int, input_dim: int, *, count: int = 480, seed: int = 0
) -> LQTrajectory:
    """Make `count` stacked records of a linear system with these sizes; the same for the same seed."""
    rng = np.random.default_rng(seed)
    kind = np.arange(count) % 12

    def part(steps: int, dim: int) -> Float[np.ndarray, "N steps dim"]:
        x = rng.normal(size=(count, steps, dim))
        held = np.eye(dim)[rng.integers(dim, size=count)] * rng.choice([1.0, -1.0, 30.0, -30.0, 1e-3], count)[:, None]
        x = np.where(np.isin(kind, (0, 1, 2, 3))[:, None, None], held[:, None], x)  # along one axis, at every step
        x = np.where((kind == 4)[:, None, None], np.sign(x), x)
        x = np.where((kind == 5)[:, None, None], x * 10.0 ** rng.integers(-12, 13, (count, 1, 1)), x)
        x = np.where((kind == 6)[:, None, None], x * rng.choice([1e150, 1e-160, 5e-324, 1e308], (count, 1, 1)), x)
        broken = np.isin(kind, (7, 11))[:, None, None] & (rng.random(x.shape) < 0.4)
        return np.where(broken, rng.choice(REWARDS, x.shape), x)

    def lengths() -> Int[np.ndarray, " N"]:
        odd = rng.choice([0, 1, -1, _TINY, horizon + 1, _HUGE], count)
        return np.where(kind == 8, 0, np.where(np.isin(kind, (9, 11)), odd, horizon))

    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        made = (part(horizon + 1, state_dim), part(horizon, input_dim), part(horizon, input_dim), lengths())
        return LQTrajectory(*(jnp.asarray(x) for x in made))
