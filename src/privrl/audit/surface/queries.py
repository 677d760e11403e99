"""One query about people, and the answer of any record to it."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int64, Shaped

from privrl.audit.surface.neighbouring_records import AnyRecords, pick_records, widen_records
from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.bounding import LatticeBounds, round_each
from privrl.privacy.noise.lattice import Lattice, LatticeError
from privrl.privacy.noise.symmetric import double_triangle
from privrl.privacy.trust.curator import Curator

CHUNK = 512


class Query(eqx.Module):
    """One release about people: a statistic, what was published when they took part, and the query afterwards."""

    name: str = eqx.field(static=True)
    statistic: AbstractStatistic
    published: object = None
    query: object = None
    block: int = eqx.field(static=True, default=0)
    index: int = eqx.field(static=True, default=0)
    release: Release | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.statistic.shape

    @property
    def scale(self) -> float:
        """The scale of the noise in its release."""
        assert self.release is not None
        return noise_scale(self.release.noise)

    def release_with(self, curator: Curator, value: Array | None = None) -> Release:
        """Make the query again, about the curator's own people."""
        del value
        return curator(self.name, self.statistic)

    def white(self, values: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
        """Return values in the form in which the noise is drawn: entry by entry."""
        return values

    def answers(self, records: AnyRecords) -> Float[np.ndarray, "N D"]:
        """Return the answer of each of these stacked records alone."""
        taken = as_taken_by(self.statistic, records)
        chunks = (_answers(self.statistic, self.published, self.query, chunk) for chunk in _chunks(taken))
        return np.concatenate([np.asarray(part) for part in chunks])[: _count(records)]

    @property
    def on_lattice(self) -> bool:
        """Whether contributions are released without a further computation, so that they exist in whole numbers."""
        return self.statistic.raw_shape == self.statistic.shape

    def to_steps(self, records: AnyRecords, lattice: Lattice) -> Int64[np.ndarray, "N D"]:
        """Return the whole steps that each record alone adds to the exact sum; of a matrix, all its entries."""
        bounds = lattice.bounds
        taken = as_taken_by(self.statistic, records)
        parts = [_units(self.statistic, self.published, chunk, bounds) for chunk in _chunks(taken)]
        units, finite = (
            np.concatenate([np.asarray(x) for x in leaf])[: _count(records)] for leaf in zip(*parts, strict=True)
        )
        if not finite.all():
            raise LatticeError(f"A contribution to `{self.name}` is infinite or not a number.")
        return units


def as_taken_by(statistic: AbstractStatistic, records: AnyRecords) -> AnyRecords:
    """Return stacked people with one episode each as stacked episodes, unless the statistic is one of people."""
    alone = isinstance(records, Trajectory) and np.ndim(records.length) == 2 and np.shape(records.length)[1] == 1
    return jax.tree.map(lambda leaf: leaf[:, 0], records) if alone and not statistic.per_person else records


def noise_scale(noise: AbstractNoise) -> float:
    """Return the scale of a noise distribution that has one."""
    return float(noise.scale)  # type: ignore[attr-defined]


def _count(records: AnyRecords) -> int:
    return len(jax.tree.leaves(records)[0])


def _chunks(records: AnyRecords) -> Iterator[AnyRecords]:
    """Split records into chunks of one size in 64 bits, the last one filled up, so that one program serves all."""
    for start in range(0, _count(records), CHUNK):
        yield widen_records(pick_records(records, np.minimum(np.arange(start, start + CHUNK), _count(records) - 1)))


@eqx.filter_jit
def _answers(
    statistic: AbstractStatistic, published: object, query: object, records: AnyRecords
) -> Float[Array, "N D"]:
    def one(record: AnyRecords) -> Array:
        return statistic.answer(statistic.contribution(record, published), query).ravel()

    return jax.vmap(one)(records)


@eqx.filter_jit
def _units(
    statistic: AbstractStatistic, published: object, records: AnyRecords, bounds: LatticeBounds
) -> tuple[Int64[Array, "N D"], Bool[Array, " N"]]:
    """Return what the shipped code makes of each record alone."""
    units, finite = round_each(statistic, records, published, bounds)
    return jax.vmap(double_triangle if statistic.symmetric else jnp.ravel)(units), finite
