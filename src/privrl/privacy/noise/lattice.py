"""Sums on a lattice: every contribution is a vector of whole numbers, so noise hides all of it, to the last bit.

Adding floating-point noise to a floating-point sum is not private: which floats are possible depends on the sum. Here a
contribution is truncated toward zero to multiples of a public power of 2, its norm is checked in whole numbers, sums
are 64-bit integers, and so is the noise.

**Formal guarantee** (for all records, in whole numbers; g is the granularity). One record's steps n satisfy
sum n^2 <= (C/g)^2 exactly (sum |n| <= C/g for L1), C the norm that the statistic claims, raised by 2^-41 of itself so
that vectors whose norm is an irrational C are not cut for C's own rounding. A vector that still exceeds it (none of
fewer than 4,096 entries does) is multiplied by 1 - 2^-30, which moves it at most 2^-30 max(C - D, 0) beyond D from
another. Truncating keeps signs and moves no entry away from zero, so if two entries have the same sign
|[x] - [y]| <= |x - y| + 1 step, and otherwise |[x] - [y]| <= |x - y|: two records' steps differ by at most
D/g + sqrt(m), with D the statistic's own sensitivity and m the largest number of entries that two records fill (D/g + m
in L1). The float arithmetic that made the entries is covered, with the 2^-41, by a margin of 2^-40 in the sensitivity,
far more than the rounding of any statistic here.
"""

import functools
import json
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int64, PyTree, Shaped

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.arithmetic import AbstractArithmetic, AbstractSummands, empty_contributes
from privrl.privacy.noise.bounding import SHRINK, LatticeBounds, sum_batch, sum_cells, sum_repeated
from privrl.privacy.noise.discrete import discrete_gaussian, discrete_laplace
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.privacy.noise.maximum import MaximumNoise, noisy_maximum
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import Randomness, white_noise
from privrl.privacy.noise.symmetric import mirror_triangle, on_diagonal, pack_triangle

_BITS = 32  # sensitivity and noise are at least 2^32 steps
_MARGIN = 2.0**-40  # covers the rounding of float arithmetic, relative to the sensitivity
_LARGEST_EXPONENT = 900  # keeps quotients by the granularity normal; processors may flush subnormal numbers
_LARGEST_NOISE = 2**55  # the largest scale, in steps, that can be drawn


class LatticeError(ValueError):
    """A sum cannot be represented exactly, or a contribution is not finite. Nothing was released."""


@dataclass(frozen=True)
class Lattice(AbstractArithmetic[np.ndarray]):
    """The public grid of one release, and the noise on it: exact arithmetic, for real people.

    Attributes:
        granularity: g, a power of 2.
        norm: C, the claimed norm of one record's contribution.
        sensitivity: how far one person can move the sum, rounding included.
        noise: the parameter of the noise in steps: s of the discrete Gaussian, t of the discrete Laplace.
        kind: the norm in which all of these are measured, `"l2"` or `"l1"`.
    """

    exact: ClassVar[bool] = True
    granularity: float
    norm: float
    sensitivity: float
    noise: int
    kind: str

    @property
    def scale(self) -> float:
        """The scale of the noise."""
        return self.noise * self.granularity

    @property
    def limit(self) -> int:
        """The largest sum of squared steps (of absolute steps for L1) that one record may have, exactly."""
        largest = Fraction(self.norm) * (1 + Fraction(_MARGIN) / 2) / Fraction(self.granularity)
        return math.floor(largest**2) if self.kind == "l2" else math.floor(largest)

    def to_bytes(self) -> bytes:
        """The bytes that a store keeps: JSON, which keeps every digit of a float."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Lattice":
        """Reads what `to_bytes` wrote."""
        return cls(**json.loads(content))

    def check_room(self, records: int) -> None:
        """Refuses sums that might not fit in 64 bits, with noise of forty scales included."""
        one = self.norm / self.granularity
        if not (one < 2.0**52 and records * one + 40.0 * self.noise < 2.0**62):
            raise LatticeError(
                f"Sums of {records:,} records do not fit in 64 bits with this noise (granularity "
                f"{self.granularity:.3g}). Nothing was released. Lower the budget of this release, or split the table."
            )

    def zeros(self, statistic: AbstractStatistic) -> Int64[np.ndarray, "..."]:
        return np.zeros(statistic.steps_shape, np.int64)

    def total(
        self, statistic: AbstractStatistic, records: PyTree, query: PyTree, taking_part: Bool[Array, " B"]
    ) -> Int64[np.ndarray, "..."]:
        return _checked(*sum_batch(statistic, records, query, taking_part, self.bounds))

    def add_batch(
        self,
        total: Int64[np.ndarray, "..."],
        statistic: AbstractStatistic,
        records: PyTree,
        query: PyTree,
        taking_part: Bool[Array, " B"],
        entries: int,
    ) -> Int64[np.ndarray, "..."]:
        """Adds a batch to a sum in place; if the batch fills fewer cells than the sum has, only these are added.

        Refuses a statistic that contributes something for the empty records by which a batch is filled up.
        """
        cells, added, finite, silent = sum_cells(statistic, records, query, taking_part, self.bounds, entries)
        if not silent:
            raise ValueError(empty_contributes(statistic))
        steps = _checked(added, finite)
        if cells is None:
            total += steps
        else:
            np.add.at(total.reshape(-1), np.asarray(cells), steps)
        return total

    def sum_records(
        self, statistic: AbstractStatistic, summands: AbstractSummands, onto: Int64[np.ndarray, "..."] | None = None
    ) -> Int64[np.ndarray, "..."]:
        """Rounds equal blocks once and multiplies them by their number, if available; otherwise sums batch by batch."""
        repeated = summands.repeated_blocks()
        if repeated is None:
            return self.sum_batches(statistic, summands, onto)
        entries, parts = repeated
        total, records = self.zeros(statistic) if onto is None else onto, 0
        for part in parts:
            total += self.sum_blocks(statistic, *part, entries)
            records += int(part.counts.sum())
        self.check_room(records)
        return total

    def represent(self, name: str, value: Float[Array, "..."], bound: float) -> Int64[np.ndarray, "..."]:
        """Truncates the entries toward zero. Refuses a `bound` that leaves no room for the noise in 64 bits."""
        if not bound / self.granularity + 40.0 * self.noise < 2.0**62:
            raise LatticeError(
                f"`{name}` does not fit in 64 bits: its `bound` {bound:g} is too large against the noise of scale "
                f"{self.scale:.3g}. Nothing was released. Lower its budget, or find a tighter bound."
            )
        return np.trunc(np.asarray(value, np.float64) / self.granularity).astype(np.int64)

    def round_record(self, statistic: AbstractStatistic, record: PyTree, query: PyTree) -> Int64[np.ndarray, "..."]:
        """One record's contribution in whole steps."""
        alone = jax.tree.map(lambda x: jnp.asarray(x)[None], record)
        return self.total(statistic, alone, query, jnp.ones(1, bool))

    @property
    def bounds(self) -> LatticeBounds:
        """The numbers of this lattice that compiled code needs."""
        return _bounds(self)

    def sum_blocks(
        self,
        statistic: AbstractStatistic,
        slots: Int[Array, " N"],
        blocks: Float[Array, "N *block"],
        counts: Int[Array, " N"],
        entries: int = 0,
    ) -> Int64[np.ndarray, "..."]:
        """The exact sum of blocks, of which block i is the contribution of `counts[i]` records."""
        return _checked(*sum_repeated(statistic, slots, blocks, counts, self.bounds, entries))

    def add_noise(
        self, distribution: AbstractNoise, total: Int64[np.ndarray, "..."], randomness: Randomness
    ) -> Int64[np.ndarray, "..."]:
        """Adds discrete noise of the distribution's kind, one draw for each number. For a choice, returns the number of
        the largest score.

        With the key of a simulation the noise is floating-point noise, rounded to the lattice, and protects no one.
        """
        if isinstance(distribution, MaximumNoise):
            if not isinstance(randomness, Words):
                raise LatticeError("A choice in whole numbers requires cryptographic words. Nothing was released.")
            return noisy_maximum(randomness, total, self.noise)
        if not isinstance(randomness, Words):
            noise = distribution.from_white(white_noise(distribution.white, randomness, distribution.shape))
            entries = pack_triangle(noise) if noise.shape != total.shape else noise  # a symmetric matrix
            return np.asarray(total + np.rint(np.asarray(entries) / self.granularity).astype(np.int64))
        if isinstance(distribution, LaplaceNoise):
            return np.asarray(total + discrete_laplace(randomness, self.noise, total.shape))
        if not isinstance(distribution, SymmetricNoise):
            return np.asarray(total + discrete_gaussian(randomness, self.noise, total.shape))
        diagonal, drawn = on_diagonal(total), np.empty_like(total)
        drawn[~diagonal] = discrete_gaussian(randomness, _over_root_two(self.noise), (int((~diagonal).sum()),))
        drawn[diagonal] = discrete_gaussian(randomness, self.noise, (distribution.dim,))
        return total + drawn

    def release(self, distribution: AbstractNoise, noisy: Int64[np.ndarray, "..."]) -> Release:
        """The release of noisy steps. Reading them as floating-point numbers and mirroring them is post-processing."""
        if isinstance(distribution, SymmetricNoise):
            return Release(self.value(distribution, noisy), SymmetricNoise(self.scale, distribution.dim))
        if isinstance(distribution, MaximumNoise):
            return Release(jnp.asarray(noisy), MaximumNoise(jnp.asarray(self.scale, float), distribution.shape))
        if isinstance(distribution, LaplaceNoise):
            kept = LaplaceNoise(self.scale, distribution.shape, symmetric=distribution.symmetric)
            return Release(self.value(distribution, noisy), kept)
        return Release(self.value(distribution, noisy), GaussianNoise(self.scale, distribution.shape))

    def value(self, distribution: AbstractNoise, steps: Shaped[np.ndarray, "..."]) -> Float[Array, "..."]:
        """Steps as floating-point numbers in the shape of the distribution; an upper triangle becomes a matrix."""
        entries = mirror_triangle(steps) if steps.shape != distribution.shape else steps
        return jax.device_put(entries.astype(np.float64) * self.granularity)

    def covers(self, other: "Lattice", parameter: float) -> bool:
        """Whether a release made on this lattice costs at most `parameter`, if `other` is the lattice chosen now.

        Allows for different rounding on another computer, which the margin of `choose_lattice` covers, and for nothing
        else.
        """
        alike = self.kind == other.kind and math.isclose(self.norm, other.norm, rel_tol=_MARGIN)
        if not alike or self.sensitivity * (1.0 + _MARGIN / 4) < other.sensitivity:
            return False
        needed = self.sensitivity / self.granularity / parameter
        spread = math.sqrt(self.noise**2 - 4) if self.kind == "l2" else self.noise
        return needed <= spread


def choose_lattice(
    *,
    parameter: float,
    sensitivity: float,
    norm: float,
    filled: int,
    kind: str,
    records: int = 1,
    factor: float = 1.0,
    rounds: int = 0,
) -> Lattice:
    """Chooses the lattice on which a release costs at most `parameter` (mu of Gaussian noise, epsilon of Laplace
    noise).

    Arguments:
        sensitivity: D, how far replacing (or adding) one record can move the sum.
        norm: C, the norm of one record's contribution.
        filled: the largest number of entries that two records fill.
        kind: "l2" with Gaussian noise, "l1" with Laplace noise.
        records: the largest number of records of one person.
        factor, rounds: for a continual mechanism that releases `rounds` weighted sums, each rounded to whole steps: the
            norm of the weights of one record, and how often its share is rounded.

    **Formal guarantee.** Gaussian noise: s >= sqrt((D/(g mu))^2 + 4) for the sensitivity D with rounding included,
    which is what the exact guarantee of the discrete Gaussian needs (docs/proofs/noise.md). Laplace noise: t >= D/(g
    epsilon) with delta = 0; the margin covers what discrete noise costs beyond Laplace noise if a delta is above 0.
    """
    exponent = math.floor(math.log2(min(sensitivity, sensitivity / parameter))) - _BITS
    grid = 2.0**exponent
    rounding = math.sqrt(filled) if kind == "l2" else float(filled)
    shrunk = (1.0 - SHRINK) * max(norm - sensitivity, 0.0)
    once = factor * ((sensitivity + shrunk) / grid * (1.0 + _MARGIN) + rounding)
    steps = records * (once + (math.sqrt(filled * rounds) if kind == "l2" else float(filled * rounds)))
    noise = math.ceil(steps / parameter * (1.0 + _MARGIN)) + (kind == "l2")
    if abs(exponent) > _LARGEST_EXPONENT or noise > _LARGEST_NOISE:
        raise LatticeError(
            f"No lattice suits a sensitivity of {sensitivity:.3g} with a budget of {parameter:.3g}. Nothing was "
            "released. Scale the statistic to a size near 1, or give it a larger share of the budget."
        )
    return Lattice(grid, norm, steps * grid, noise, kind)


def count_filled(statistic: AbstractStatistic, record: PyTree, query: PyTree) -> int:
    """The largest number of entries of the sum that two records of this form can fill."""
    _, blocks = jax.eval_shape(statistic.parts, record, query)
    return count_filled_by_blocks(statistic, blocks.shape)


def count_filled_by_blocks(statistic: AbstractStatistic, shape: tuple[int, ...]) -> int:
    """The same number, for records whose blocks have this shape."""
    return min(math.prod(statistic.raw_shape), 2 * math.prod(shape))


def _checked(total: Array, finite: Array) -> Int64[np.ndarray, "..."]:
    if not bool(finite):
        raise LatticeError("A contribution is infinite or NaN. Nothing was released.")
    return np.array(total)


@functools.lru_cache(maxsize=64)
def _bounds(lattice: Lattice) -> LatticeBounds:
    return LatticeBounds.from_lattice(lattice.granularity, lattice.norm, lattice.limit, lattice.kind)


def _over_root_two(s: int) -> int:
    """The smallest integer that is at least s / sqrt 2."""
    root = math.isqrt((s * s + 1) // 2)
    return root if 2 * root * root >= s * s else root + 1
