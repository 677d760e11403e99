"""One query that was put to people, and what any record would answer."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int64, Shaped

from privrl.audit.surface.neighbouring_records import picked, wide
from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.bounding import LatticeBounds, round_each
from privrl.privacy.noise.lattice import Lattice, LatticeError
from privrl.privacy.noise.symmetric import double_triangle
from privrl.privacy.trust.curator import Curator

CHUNK = 512


class Asked(eqx.Module):
    """One release about people: a statistic, what was published when they took part, and what was asked afterwards."""

    name: str = eqx.field(static=True)
    statistic: AbstractStatistic
    published: Any = None
    query: Any = None
    block: int = eqx.field(static=True, default=0)
    index: int = eqx.field(static=True, default=0)
    release: Release | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.statistic.shape

    @property
    def scale(self) -> float:
        """That of the noise in its release."""
        assert self.release is not None
        return scale_of(self.release.noise)

    def released_by(self, curator: Curator, value: Array | None = None) -> Release:
        """Asked again, of the curator's own people."""
        del value
        return curator(self.name, self.statistic)

    def white(self, values: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
        """Values as the noise is drawn: entry by entry."""
        return values

    def answers(self, records: Any) -> Float[np.ndarray, "N D"]:
        """The answer that each of these stacked records alone would give."""
        chunks = (_answers(self.statistic, self.published, self.query, chunk) for chunk in _chunks(records))
        return np.concatenate([np.asarray(part) for part in chunks])[: _count(records)]

    @property
    def on_lattice(self) -> bool:
        """Whether contributions are released as they are, so that they exist in whole numbers."""
        return self.statistic.raw_shape == self.statistic.shape

    def to_steps(self, records: Any, lattice: Lattice) -> Int64[np.ndarray, "N D"]:
        """The whole units that each of these records alone adds to the exact sum; of a matrix, all its entries."""
        bounds = lattice.bounds
        parts = [_units(self.statistic, self.published, chunk, bounds) for chunk in _chunks(records)]
        units, finite = (
            np.concatenate([np.asarray(x) for x in leaf])[: _count(records)] for leaf in zip(*parts, strict=True)
        )
        if not finite.all():
            raise LatticeError(f"A contribution to `{self.name}` is infinite or not a number.")
        return units


def scale_of(noise: AbstractNoise) -> float:
    """The scale of a noise distribution that has one."""
    return float(noise.scale)  # type: ignore[attr-defined]


def _count(records: Any) -> int:
    return len(jax.tree.leaves(records)[0])


def _chunks(records: Any) -> Iterator[Any]:
    """Records of 64 bits in chunks of one size, the last one filled up, so that one program serves all."""
    for start in range(0, _count(records), CHUNK):
        yield wide(picked(records, np.minimum(np.arange(start, start + CHUNK), _count(records) - 1)))


@eqx.filter_jit
def _answers(statistic: AbstractStatistic, published: Any, query: Any, records: Any) -> Float[Array, "N D"]:
    def one(record: Any) -> Array:
        return statistic.answer(statistic.contribution(record, published), query).ravel()

    return jax.vmap(one)(records)


@eqx.filter_jit
def _units(
    statistic: AbstractStatistic, published: Any, records: Any, bounds: LatticeBounds
) -> tuple[Int64[Array, "N D"], Bool[Array, " N"]]:
    """What the shipped code makes of each record alone."""
    units, finite = round_each(statistic, records, published, bounds)
    return jax.vmap(double_triangle if statistic.symmetric else jnp.ravel)(units), finite
