"""Bounding what one record contributes: by its norm in floating point, and exactly in whole units of a lattice.

What is compiled takes the numbers of a lattice as arguments (`LatticeBounds`), so another release needs no other
program. The guarantee of sums of units is stated in `lattice.py`; it rests on `LatticeBounds.units`.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int64

from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.symmetric import doubled, packed

SHRINK = 1.0 - 2.0**-30
"""Multiplies vectors that exceed their norm: by more than the rounding of 2^22 entries."""

_LIMB = 26  # squares of units are summed in limbs of this many bits
_MASK = (1 << _LIMB) - 1
_WHOLE = 2.0**52  # units are exact below
_SMALLEST = float(np.finfo(np.float64).tiny)  # subnormal numbers count as 0: processors may drop them


def clip_by_norm(
    x: Float[Array, "*shape"], bound: float | Float[Array, ""], entries: int = 0
) -> Float[Array, "*shape"]:
    """Scales an array down to L2 (Frobenius) norm `bound`; leaves it alone if it is within, zeros it if not finite.

    `entries` is a public number of entries, at least those of `x`, that decides the last bits of what is scaled: the
    same vector comes out with more zeros behind it and with fewer.

    **Formal guarantee.** Whatever `x` holds (infinities, NaN, overflow), the result has norm at most
    `bound (1 + n 2^-53)` for n entries: an array that is scaled stays below `bound`, because the factor is reduced by
    more than all rounding; one that is left alone has a *computed* norm within `bound`, and a sum of n squares is
    computed to that precision. Arrays on the bound (one-hot vectors, say) come back unchanged.
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
    """What compiled code needs to know of a lattice, as arrays: another release needs no other program."""

    grid: Float[Array, ""]
    norm: Float[Array, ""]
    limit: tuple[Int[Array, ""], Int[Array, ""], Int[Array, ""]]
    kind: str = eqx.field(static=True)

    @classmethod
    def of(cls, granularity: float, norm: float, limit: int, kind: str) -> "LatticeBounds":
        """From the numbers of a `Lattice`; the limit has up to 114 bits."""
        limbs = tuple(np.array(x, np.int64) for x in (limit >> 2 * _LIMB, limit >> _LIMB & _MASK, limit & _MASK))
        grid, largest, parts = jax.device_put((np.array(granularity), np.array(norm), limbs))
        return cls(grid, largest, parts, kind)

    def units(
        self, x: Float[Array, "..."], symmetric: bool, entries: int = 0
    ) -> tuple[Int64[Array, "..."], Bool[Array, ""]]:
        """One record's whole units, within the limit exactly, and whether the entries were numbers at all.

        Of symmetric matrices the upper triangle, within the limit of the whole matrix. `entries`: see `clip_by_norm`.
        """
        whole, x = (doubled, packed(x)) if symmetric else (lambda entries: entries, x)
        finite = jnp.isfinite(x).all()
        if self.kind == "l2":
            clipped, sum_limbs = clip_by_norm(whole(x), self.norm, entries), _squares
        else:
            bounded = jnp.clip(jnp.where(finite, whole(x), 0.0), -self.norm, self.norm)  # its sum cannot overflow
            clipped, sum_limbs = bounded * (self.norm / jnp.maximum(jnp.abs(bounded).sum(), self.norm)), _absolutes
        x = clipped[..., : x.shape[-1]] if symmetric else clipped
        exact = jnp.trunc(jnp.clip(x / self.grid, -_WHOLE, _WHOLE)).astype(jnp.int64)
        smaller = jnp.trunc(jnp.clip(x * SHRINK / self.grid, -_WHOLE, _WHOLE)).astype(jnp.int64)
        (a, b, c), (high, middle, low) = sum_limbs(whole(exact)), self.limit
        within = (a < high) | ((a == high) & ((b < middle) | ((b == middle) & (c <= low))))
        return jnp.where(within, exact, smaller), finite


def _of_record(
    statistic: AbstractStatistic,
    record: Any,
    query: Any,
    bounds: LatticeBounds,
    takes_part: Bool[Array, ""],
    entries: int = 0,
) -> tuple[Int[Array, " P"], Int64[Array, "P *block"], Bool[Array, ""], Bool[Array, ""]]:
    """The slots of one record and its units in them, whether its entries are numbers, and whether they are 0 where it
    takes no part."""
    slots, blocks = statistic.parts(record, query)
    _check_blocks(statistic, blocks)
    blocks = blocks if statistic.distinct else _merged(slots, blocks)
    units, finite = bounds.units(jnp.where(takes_part, blocks, 0.0), statistic.symmetric, entries)
    return slots, units, finite, takes_part | ~jnp.any(blocks != 0)


def of_each(
    statistic: AbstractStatistic, records: Any, query: Any, bounds: LatticeBounds
) -> tuple[Int64[Array, "B *shape"], Bool[Array, " B"]]:
    """Every record's own contribution, as `Lattice.of_one` gives it, and whether its entries are numbers; for compiled
    code, which takes the `bounds` of a lattice as an argument."""

    def alone(record: Any) -> tuple[Array, Array]:
        slots, units, finite, _ = _of_record(statistic, record, query, bounds, jnp.asarray(True))
        return _placed(statistic, slots, units), finite

    return jax.vmap(alone)(records)


def _of_batch(
    statistic: AbstractStatistic,
    records: Any,
    query: Any,
    taking_part: Bool[Array, " B"],
    bounds: LatticeBounds,
    entries: int = 0,
) -> tuple[Int[Array, " N"], Int64[Array, "N *block"], Bool[Array, ""], Bool[Array, ""]]:
    """The slots of all records and their units in them, and what `_of_record` says of all of them."""

    def of_record(record: Any, takes_part: Bool[Array, ""]) -> tuple[Array, Array, Array, Array]:
        return _of_record(statistic, record, query, bounds, takes_part, entries)

    slots, units, finite, silent = jax.vmap(of_record)(records, taking_part)
    return slots.reshape(-1), units.reshape(-1, *units.shape[2:]), finite.all(), silent.all()


@eqx.filter_jit
def summed(
    statistic: AbstractStatistic, records: Any, query: Any, taking_part: Bool[Array, " B"], bounds: LatticeBounds
) -> tuple[Int64[Array, "..."], Bool[Array, ""]]:
    """The sum over the records of a batch that take part, and whether all entries were numbers."""
    slots, units, finite, _ = _of_batch(statistic, records, query, taking_part, bounds)
    return _placed(statistic, slots, units), finite


@eqx.filter_jit
def cells_of(
    statistic: AbstractStatistic,
    records: Any,
    query: Any,
    taking_part: Bool[Array, " B"],
    bounds: LatticeBounds,
    entries: int,
) -> tuple[Int[Array, " n"] | None, Int64[Array, "..."], Bool[Array, ""], Bool[Array, ""]]:
    """The sum over a batch: all of it, or where that is larger than the batch, the cells that it fills and the units
    to be added there; whether all entries were numbers, and 0 for records that take no part."""
    slots, units, finite, silent = _of_batch(statistic, records, query, taking_part, bounds, entries)
    if units.size >= math.prod(statistic.units_shape):
        return None, _placed(statistic, slots, units), finite, silent
    block = math.prod(units.shape[1:])
    cells = slots[:, None] * block + jnp.arange(block)[None, :]
    return cells.reshape(-1), units.reshape(-1), finite, silent


@eqx.filter_jit
def summed_blocks(
    statistic: AbstractStatistic,
    slots: Int[Array, " N"],
    blocks: Float[Array, "N *block"],
    counts: Int[Array, " N"],
    bounds: LatticeBounds,
    entries: int,
) -> tuple[Int64[Array, "..."], Bool[Array, ""]]:
    """The sum of blocks that `counts` records contribute each, one block per record."""
    _check_blocks(statistic, blocks)
    units, finite = jax.vmap(lambda block: bounds.units(block, statistic.symmetric, entries))(blocks)
    repeated = counts.astype(jnp.int64).reshape(-1, *(1,) * (units.ndim - 1)) * units
    return _placed(statistic, slots, repeated), finite.all()


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


def _placed(
    statistic: AbstractStatistic, slots: Int[Array, " N"], units: Int64[Array, "N *block"]
) -> Int64[Array, "..."]:
    """Blocks added up in their slots; a symmetric matrix is one block."""
    block, shape = units.shape[1:], statistic.units_shape
    return jnp.zeros((math.prod(shape) // math.prod(block), *block), jnp.int64).at[slots].add(units).reshape(shape)


def _merged(slots: Int[Array, " P"], blocks: Float[Array, "P *block"]) -> Float[Array, "P *block"]:
    """The blocks of one record with those of the same slot added into the first of them, so that norms are true."""
    if blocks.shape[0] == 1:
        return blocks
    same = slots[:, None] == slots[None, :]
    first = ~jnp.any(jnp.tril(same, k=-1), axis=1)
    # Products with 0 are exact except with infinities: what is not finite must stay visible.
    together = jnp.tensordot(
        (same & first[:, None]).astype(float), jnp.where(jnp.isfinite(blocks), blocks, 0.0), axes=1
    )
    return jnp.where(jnp.isfinite(blocks).all(), together, jnp.nan)


def _squares(units: Int64[Array, "..."]) -> tuple[Array, Array, Array]:
    """sum n^2 exactly, in limbs of 26 bits, for |n| < 2^52 and a sum below 2^114."""
    n = jnp.abs(units)
    high, low = n >> _LIMB, n & _MASK
    low_squares = low * low
    c = (low_squares & _MASK).sum()
    b = (2 * high * low).sum() + (low_squares >> _LIMB).sum() + (c >> _LIMB)
    return (high * high).sum() + (b >> _LIMB), b & _MASK, c & _MASK


def _absolutes(units: Int64[Array, "..."]) -> tuple[Array, Array, Array]:
    """sum |n|, in the same limbs."""
    total = jnp.abs(units).sum()
    return total >> 2 * _LIMB, (total >> _LIMB) & _MASK, total & _MASK
