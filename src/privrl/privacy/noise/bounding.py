"""Bounds one record's contribution: by its norm in floating point, and exactly in whole steps of a lattice.

Compiled programs take the numbers of a lattice as arguments (`LatticeBounds`), so all releases share one program.
`lattice.py` states the guarantee of sums of steps, which rests on `LatticeBounds.to_steps`.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int64, PyTree

from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.symmetric import double_triangle, pack_triangle

SHRINK = 1.0 - 2.0**-30
"""The factor for vectors that exceed their norm. It reduces them by more than the rounding of 2^22 entries."""

_LIMB = 26  # bits of a limb, in which squares of steps are summed
_MASK = (1 << _LIMB) - 1
_MAX_STEPS = 2.0**52  # below this number, whole numbers and their neighbours are exact in float64
_SMALLEST = float(np.finfo(np.float64).tiny)  # subnormal numbers are treated as 0, because processors may flush them


def clip_by_norm(
    x: Float[Array, "*shape"], bound: float | Float[Array, ""], entries: int = 0
) -> Float[Array, "*shape"]:
    """Scales an array down to L2 (Frobenius) norm `bound` if it exceeds it; zeros it if it is not finite.

    `entries` is a public number of entries, at least those of `x`. It decides the last bits of a scaled array, so that
    the result is the same however many zeros the array is padded with.

    **Formal guarantee.** For every `x` (also with infinities, NaN or overflow), the result has norm at most
    `bound (1 + n 2^-53)` for n entries: an array that is scaled stays below `bound`, because the factor is reduced by
    more than all rounding; one that is left alone has a *computed* norm within `bound`, and a sum of n squares is
    computed to that precision. Arrays on the bound (for example one-hot vectors) are returned unchanged.
    """
    x = jnp.where(jnp.isfinite(x).all() & (jnp.abs(x) >= _SMALLEST), x, 0.0)
    largest = jnp.abs(x).max(initial=0.0)
    # Squares must stay well inside the range of float64. A power of 2 is exact; dividing by `largest` is not safe:
    # compilers turn it into a product with a reciprocal, which may be flushed to 0.
    unit = jnp.where(largest > 2.0**500, 2.0**-600, jnp.where(largest < 2.0**-400, 2.0**600, 1.0))
    y = x * unit
    length = jnp.sqrt((y**2).sum())
    shrink = bound / jnp.where(length > 0, length, 1.0) * (1.0 - (max(entries, x.size) + 8) * 2.0**-53)
    return jnp.where(length <= bound * unit, x, y * shrink)


class LatticeBounds(eqx.Module):
    """The numbers of a lattice that compiled code needs, as arrays, so that all releases share one program."""

    grid: Float[Array, ""]
    norm: Float[Array, ""]
    limit: tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]
    kind: str = eqx.field(static=True)

    @classmethod
    def from_lattice(cls, granularity: float, norm: float, limit: int, kind: str) -> "LatticeBounds":
        """From the numbers of a `Lattice`. The limit has up to 114 bits."""
        limbs = tuple(np.array(x, np.int64) for x in (limit >> 2 * _LIMB, limit >> _LIMB & _MASK, limit & _MASK))
        grid, largest, parts = jax.device_put((np.array(granularity), np.array(norm), limbs))
        return cls(grid, largest, parts, kind)

    def to_steps(
        self, x: Float[Array, "..."], symmetric: bool, entries: int = 0
    ) -> tuple[Int64[Array, "..."], Bool[Array, ""]]:
        """Rounds one record's contribution to whole steps, exactly within the limit; also whether its entries are
        finite.

        For symmetric matrices the result is the upper triangle, within the limit of the whole matrix. For `entries`
        see `clip_by_norm`.
        """
        whole, x = (double_triangle, pack_triangle(x)) if symmetric else (lambda entries: entries, x)
        finite = jnp.isfinite(x).all()
        if self.kind == "l2":
            clipped, sum_limbs = clip_by_norm(whole(x), self.norm, entries), _squares
        else:
            bounded = jnp.clip(jnp.where(finite, whole(x), 0.0), -self.norm, self.norm)  # its sum is finite
            clipped, sum_limbs = bounded * (self.norm / jnp.maximum(jnp.abs(bounded).sum(), self.norm)), _absolutes
        x = clipped[..., : x.shape[-1]] if symmetric else clipped
        exact = jnp.trunc(jnp.clip(x / self.grid, -_MAX_STEPS, _MAX_STEPS)).astype(jnp.int64)
        smaller = jnp.trunc(jnp.clip(x * SHRINK / self.grid, -_MAX_STEPS, _MAX_STEPS)).astype(jnp.int64)
        (a, b, c), (high, middle, low) = sum_limbs(whole(exact)), self.limit
        within = (a < high) | ((a == high) & ((b < middle) | ((b == middle) & (c <= low))))
        return jnp.where(within, exact, smaller), finite


def _round_record(
    statistic: AbstractStatistic,
    record: PyTree,
    query: PyTree,
    bounds: LatticeBounds,
    takes_part: Bool[Array, ""],
    entries: int = 0,
) -> tuple[Int[Array, " P"], Int64[Array, "P *block"], Bool[Array, ""], Bool[Array, ""]]:
    """The slots of one record and its steps in them, whether its entries are finite, and whether they are 0 if the
    record does not take part."""
    slots, blocks = statistic.parts(record, query)
    _check_blocks(statistic, blocks)
    blocks = blocks if statistic.distinct else _merge(slots, blocks)
    steps, finite = bounds.to_steps(jnp.where(takes_part, blocks, 0.0), statistic.symmetric, entries)
    return slots, steps, finite, takes_part | ~jnp.any(blocks != 0)


def round_each(
    statistic: AbstractStatistic, records: PyTree, query: PyTree, bounds: LatticeBounds
) -> tuple[Int64[Array, "B *shape"], Bool[Array, " B"]]:
    """Rounds the contribution of each record, as `Lattice.round_record` does, and tells whether its entries are finite.

    For compiled code, which takes the `bounds` of a lattice as an argument.
    """

    def alone(record: PyTree) -> tuple[Array, Array]:
        slots, steps, finite, _ = _round_record(statistic, record, query, bounds, jnp.asarray(True))
        return _place(statistic, slots, steps), finite

    return jax.vmap(alone)(records)


def _round_batch(
    statistic: AbstractStatistic,
    records: PyTree,
    query: PyTree,
    taking_part: Bool[Array, " B"],
    bounds: LatticeBounds,
    entries: int = 0,
) -> tuple[Int[Array, " N"], Int64[Array, "N *block"], Bool[Array, ""], Bool[Array, ""]]:
    """The slots of all records and their steps in them, and whether both checks of `_round_record` hold for all."""

    def round_one(record: PyTree, takes_part: Bool[Array, ""]) -> tuple[Array, Array, Array, Array]:
        return _round_record(statistic, record, query, bounds, takes_part, entries)

    slots, steps, finite, silent = jax.vmap(round_one)(records, taking_part)
    return slots.reshape(-1), steps.reshape(-1, *steps.shape[2:]), finite.all(), silent.all()


@eqx.filter_jit
def sum_batch(
    statistic: AbstractStatistic, records: PyTree, query: PyTree, taking_part: Bool[Array, " B"], bounds: LatticeBounds
) -> tuple[Int64[Array, "..."], Bool[Array, ""]]:
    """The sum over the records of a batch that take part, and whether all entries are finite."""
    slots, steps, finite, _ = _round_batch(statistic, records, query, taking_part, bounds)
    return _place(statistic, slots, steps), finite


@eqx.filter_jit
def sum_cells(
    statistic: AbstractStatistic,
    records: PyTree,
    query: PyTree,
    taking_part: Bool[Array, " B"],
    bounds: LatticeBounds,
    entries: int,
) -> tuple[Int[Array, " n"] | None, Int64[Array, "..."], Bool[Array, ""], Bool[Array, ""]]:
    """The sum over a batch: the whole array or, if that is larger than the batch, the cells that it fills and the steps
    to add there. Also whether all entries are finite, and 0 for records that do not take part."""
    slots, steps, finite, silent = _round_batch(statistic, records, query, taking_part, bounds, entries)
    if steps.size >= math.prod(statistic.steps_shape):
        return None, _place(statistic, slots, steps), finite, silent
    block = math.prod(steps.shape[1:])
    cells = slots[:, None] * block + jnp.arange(block)[None, :]
    return cells.reshape(-1), steps.reshape(-1), finite, silent


@eqx.filter_jit
def sum_repeated(
    statistic: AbstractStatistic,
    slots: Int[Array, " N"],
    blocks: Float[Array, "N *block"],
    counts: Int[Array, " N"],
    bounds: LatticeBounds,
    entries: int,
) -> tuple[Int64[Array, "..."], Bool[Array, ""]]:
    """The sum of blocks that `counts` records contribute each, one block per record."""
    _check_blocks(statistic, blocks)
    steps, finite = jax.vmap(lambda block: bounds.to_steps(block, statistic.symmetric, entries))(blocks)
    repeated = counts.astype(jnp.int64).reshape(-1, *(1,) * (steps.ndim - 1)) * steps
    return _place(statistic, slots, repeated), finite.all()


def _check_blocks(statistic: AbstractStatistic, blocks: Float[Array, "N *block"]) -> None:
    if not statistic.symmetric:
        return
    if len(statistic.shape) != 2 or statistic.shape[0] != statistic.shape[1]:
        raise ValueError(f"`symmetric` needs a square `shape`; `{type(statistic).__name__}` has {statistic.shape}.")
    if blocks.shape[1:] != statistic.shape:
        raise ValueError(
            f"`{type(statistic).__name__}` is `symmetric`, so its `parts` must be whole matrices of shape "
            f"{statistic.shape}; they have shape {blocks.shape[1:]}. Nothing was released."
        )


def _place(
    statistic: AbstractStatistic, slots: Int[Array, " N"], steps: Int64[Array, "N *block"]
) -> Int64[Array, "..."]:
    """Adds up blocks in their slots; a symmetric matrix is one block."""
    block, shape = steps.shape[1:], statistic.steps_shape
    return jnp.zeros((math.prod(shape) // math.prod(block), *block), jnp.int64).at[slots].add(steps).reshape(shape)


def _merge(slots: Int[Array, " P"], blocks: Float[Array, "P *block"]) -> Float[Array, "P *block"]:
    """Adds the blocks of one record that share a slot into the first of them, so that norms are right."""
    if blocks.shape[0] == 1:
        return blocks
    same = slots[:, None] == slots[None, :]
    first = ~jnp.any(jnp.tril(same, k=-1), axis=1)
    # Products with 0 are exact, except for infinities: entries that are not finite must stay visible.
    together = jnp.tensordot(
        (same & first[:, None]).astype(float), jnp.where(jnp.isfinite(blocks), blocks, 0.0), axes=1
    )
    return jnp.where(jnp.isfinite(blocks).all(), together, jnp.nan)


def _squares(steps: Int64[Array, "..."]) -> tuple[Array, Array, Array]:
    """sum n^2 exactly, in limbs of 26 bits, for |n| < 2^52 and a sum below 2^114."""
    n = jnp.abs(steps)
    high, low = n >> _LIMB, n & _MASK
    low_squares = low * low
    c = (low_squares & _MASK).sum()
    b = (2 * high * low).sum() + (low_squares >> _LIMB).sum() + (c >> _LIMB)
    return (high * high).sum() + (b >> _LIMB), b & _MASK, c & _MASK


def _absolutes(steps: Int64[Array, "..."]) -> tuple[Array, Array, Array]:
    """sum |n|, in the same limbs."""
    total = jnp.abs(steps).sum()
    return total >> 2 * _LIMB, (total >> _LIMB) & _MASK, total & _MASK
