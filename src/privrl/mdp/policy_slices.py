"""Slices and maps of a policy on measurements, and the importance of each column.

Everything here is computed from the policy, which is released, and from public bounds: no record is read, and no budget
is spent. The reference row has every measurement at its released median (the centre c_j of the policy) and every
category at the first of its public values.

*Importance.* Draw a row with every measurement uniformly within one released half-width of its median, c_j ± s_j (about
the middle 80% of records), independently of the others, and every category uniformly from its list. The importance of a
column is the probability that the choice changes if only this column is drawn again. The draws are fixed, so a policy
always has the same picture.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.mdp.measured_policy import MeasuredPolicy
from privrl.mdp.measurements import Category, Feature
from privrl.mdp.quadratic_features import numeric_columns

_DRAWS = 4096  # rows from which importance is estimated; also the size of a compiled batch
_POINTS = 2001  # points of a slice
_GRID = (141, 121)  # points of a map along x and y


class Stretch(NamedTuple):
    """One action is chosen from `low` to `high`."""

    low: float
    high: float
    action: int


@dataclass(frozen=True)
class Slice:
    """The choices as one column varies and all others stay at the reference.

    Arguments:
        column: the column that varies.
        advised: the policy's choices, in stretches between the bounds of a measurement; value k of a category reaches
            from k to k + 1.
        practised: the most frequent actions of practice, estimated from releases, in the same form.
        missing: both actions if the column has no value; `None` if it always has one.
        middle: the released median, and the ends of the range c_j ± s_j, within the bounds; `None` for a category.
    """

    column: Feature | Category
    advised: tuple[Stretch, ...]
    practised: tuple[Stretch, ...]
    missing: tuple[int, int] | None
    middle: tuple[float, float, float] | None


@dataclass(frozen=True)
class PolicyMap:
    """Advised and practised actions `[y, x]` as two measurements vary; the last column and the last row are for missing
    values of the x-axis and of the y-axis."""

    x: Slice
    y: Slice
    x_values: Float[np.ndarray, " X"]
    y_values: Float[np.ndarray, " Y"]
    advised: Int[np.ndarray, "Y1 X1"]
    practised: Int[np.ndarray, "Y1 X1"]


def choices(policy: MeasuredPolicy, rows: Float[np.ndarray, "N D"]) -> tuple[Int[np.ndarray, " N"], ...]:
    """The advised action in each of these rows, and the most frequent action of practice there."""
    count = len(rows)
    padded = np.pad(rows, ((0, -count % _DRAWS), (0, 0)), mode="edge")
    chunks = [_both(policy, jnp.asarray(chunk)) for chunk in padded.reshape(-1, _DRAWS, rows.shape[1])]
    advised, practised = (np.concatenate([np.asarray(chunk[k]) for chunk in chunks])[:count] for k in (0, 1))
    return advised, practised


@eqx.filter_jit
def _both(policy: MeasuredPolicy, rows: Float[Array, "N D"]) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
    """A batch of fixed size, so that one program is compiled."""
    return policy.choose(rows), policy.practice_probabilities(rows).argmax(axis=-1)


def reference(policy: MeasuredPolicy) -> Float[np.ndarray, " D"]:
    """The row with every measurement at its released median, and every category at its first value."""
    row = np.zeros(len(policy.columns))
    for j, (place, column) in enumerate(numeric_columns(policy.columns)):
        row[place] = column.at(np.asarray(_range(policy, j)))[1]
    return row


def importance(policy: MeasuredPolicy) -> Float[np.ndarray, " D"]:
    """The importance of each column, see the module."""
    rng = np.random.default_rng(0)
    rows, again = draw_rows(policy, rng), draw_rows(policy, rng)
    advised, _ = choices(policy, rows)
    found = np.empty(len(policy.columns))
    for place in range(len(policy.columns)):
        moved = rows.copy()
        moved[:, place] = again[:, place]
        found[place] = np.mean(choices(policy, moved)[0] != advised)
    return found


def draw_rows(policy: MeasuredPolicy, rng: np.random.Generator) -> Float[np.ndarray, "N D"]:
    """Rows drawn at random as the module describes."""
    rows = np.empty((_DRAWS, len(policy.columns)))
    position = {place: j for j, (place, _) in enumerate(numeric_columns(policy.columns))}
    for place, column in enumerate(policy.columns):
        if isinstance(column, Category):
            rows[:, place] = rng.integers(0, len(column.values), _DRAWS)
        else:
            low, _, high = _range(policy, position[place])
            rows[:, place] = column.at(rng.uniform(low, high, _DRAWS))
    return rows


def _range(policy: MeasuredPolicy, j: int) -> tuple[float, float, float]:
    """c - s, c and c + s of measurement j, as positions in [-1, 1]."""
    c, s = np.nan_to_num(float(policy.centre[j])), np.abs(np.nan_to_num(float(policy.half_width[j])))
    low, middle, high = np.clip([c - s, c, c + s], -1.0, 1.0).tolist()
    return low, middle, high


def slice_policy(policy: MeasuredPolicy, place: int) -> Slice:
    """The policy's choices as the column at this place of a row varies."""
    column = policy.columns[place]
    if isinstance(column, Category):
        values, ends = np.arange(float(len(column.values))), np.arange(len(column.values) + 1.0)
        middle = None
    else:
        position = np.linspace(-1.0, 1.0, _POINTS)
        values, between = column.at(position), column.at((position[1:] + position[:-1]) / 2.0)
        ends = np.concatenate([[column.low], between, [column.high]])
        j = next(j for j, (at, _) in enumerate(numeric_columns(policy.columns)) if at == place)
        low, median, high = column.at(np.asarray(_range(policy, j))).tolist()
        middle = (low, median, high)
    rows = np.repeat(reference(policy)[None], len(values) + 1, axis=0)
    rows[:, place] = np.append(values, np.nan)
    advised, practised = choices(policy, rows)
    missing = (int(advised[-1]), int(practised[-1])) if column.missing else None
    return Slice(column, _stretches(advised[:-1], ends), _stretches(practised[:-1], ends), missing, middle)


def _stretches(actions: Int[np.ndarray, " N"], ends: Float[np.ndarray, " N1"]) -> tuple[Stretch, ...]:
    """Merge neighbours with the same action."""
    starts = np.flatnonzero(np.append(True, actions[1:] != actions[:-1])).tolist()
    runs = pairwise([*starts, len(actions)])
    return tuple(Stretch(float(ends[a]), float(ends[b]), int(actions[a])) for a, b in runs)


def map_policy(policy: MeasuredPolicy, x: int, y: int) -> PolicyMap:
    """The policy's choices as the measurements at two places of a row vary."""
    slices = slice_policy(policy, x), slice_policy(policy, y)
    first, second = (one.column for one in slices)
    assert isinstance(first, Feature) and isinstance(second, Feature)
    xs, ys = (f.at(np.linspace(-1.0, 1.0, n)) for f, n in zip((first, second), _GRID, strict=True))
    X, Y = np.meshgrid(np.append(xs, np.nan), np.append(ys, np.nan))
    rows = np.repeat(reference(policy)[None], X.size, axis=0)
    rows[:, x], rows[:, y] = X.ravel(), Y.ravel()
    advised, practised = (found.reshape(X.shape) for found in choices(policy, rows))
    return PolicyMap(*slices, xs, ys, advised, practised)
