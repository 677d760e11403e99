"""People with rows of measurements, made to break a bound: impossible rows, and the extremes that tables do hold.

As in `adversarial_records.py`, half of them are well formed: one row at every step, at the bounds or in the middle,
with gaps, with one action throughout, all rewards 0 or all 1, episodes that ended or were cut. The others have
infinities, subnormal and enormous numbers, NaN where no value may be missing, categories and actions that do not
exist, and wrong lengths.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from privrl.audit.surface.adversarial_records import REWARDS
from privrl.mdp.measurements import ENDED, NOT_RECORDED, Feature, Measurement
from privrl.mdp.types import Trajectory

_ODD = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 5e-324, -1e-310, -0.0, 2.0**53, -7.5])
_ACTIONS = np.array([-1, -2, 2**31, -(2**31), 2**40, np.iinfo(np.int64).max, np.iinfo(np.int64).min])


def adversarial_measurements(
    horizon: int,
    columns: Sequence[Measurement],
    num_actions: int,
    *,
    episodes: int = 1,
    count: int = 480,
    seed: int = 0,
) -> Trajectory:
    """Make `count` stacked people with up to `episodes` episodes each, `[count, episodes, horizon, ...]`, in NumPy."""
    rng = np.random.default_rng(seed)
    shape = (count, episodes, horizon)
    kind = np.arange(count) % 12

    def where(*kinds: int) -> np.ndarray:
        return np.isin(kind, kinds).reshape(-1, *[1] * 2)

    x = np.stack([_values(column, shape, rng) for column in columns], axis=-1)
    still = where(0, 1, 2, 3)[..., None]
    x = np.where(still, x[:, :1, :1], x)  # the same row throughout
    a = rng.integers(num_actions, size=shape)
    a = np.where(where(0, 1, 2, 4), a[:, :1, :1], a)
    r = rng.choice([0.0, 1.0], shape)
    r = np.where(where(0, 1, 3, 5), r[:, :1, :1], r)
    length = np.full((count, episodes), horizon)
    length = np.where(where(4, 5, 6)[..., 0], rng.integers(0, horizon + 1, length.shape), length)
    length[kind == 7, 1:] = 0  # one stay
    length[kind == 8] = 0  # nothing
    x = np.where(where(9, 11)[..., None] & (rng.random(x.shape) < 0.5), rng.choice(_ODD, x.shape), x)
    a = np.where(where(10, 11) & (rng.random(shape) < 0.5), rng.choice([*_ACTIONS, num_actions], shape), a)
    r = np.where(where(9, 10), rng.choice(REWARDS, shape), r)
    odd = rng.choice([-1, horizon + 3, np.iinfo(np.int64).max, np.iinfo(np.int64).min], length.shape)
    length = np.where(where(11)[..., 0], odd, length)
    after = np.concatenate([x[:, :, 1:], np.full_like(x[:, :, :1], NOT_RECORDED)], axis=2)
    ended = rng.random((count, episodes)) < 0.5
    after[ended] = np.where(np.arange(horizon)[:, None] == length[ended, None, None] - 1, ENDED, after[ended])
    return Trajectory(x, a, r, after, length)


def _values(column: Measurement, shape: tuple[int, ...], rng: np.random.Generator) -> Float[np.ndarray, "..."]:
    """Make values of one column: at its bounds, beyond them, in the middle and anywhere; or any of its categories;
    gaps.
    """
    if isinstance(column, Feature):
        low, high = column.low, column.high
        anywhere = rng.uniform(low, high, shape)
        ends = rng.choice([low, high, (low + high) / 2, low - 1.0, high + 1.0], shape)
        values = np.where(rng.random(shape) < 0.5, anywhere, ends)
    else:
        values = rng.integers(len(column.values), size=shape).astype(float)
    return np.where(column.missing & (rng.random(shape) < 0.2), np.nan, values)
