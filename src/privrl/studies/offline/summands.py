"""The episodes of a data set, in the forms in which an arithmetic can add them up."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from privrl.contracts.statistic import AbstractStatistic
from privrl.data.dataset import AbstractDataset
from privrl.mdp.types import Trajectory, Transitions
from privrl.privacy.noise.arithmetic import AbstractSummands, RecordBatch, RepeatedBlocks
from privrl.statistics.row_statistics import AbstractRowStatistic
from privrl.studies.offline.batched_sums import EpisodeForm, Marks, Shapes, batches_of, blocks_at
from privrl.studies.offline.row_sums import blocks_of_rows


@dataclass(frozen=True)
class EpisodeSummands(AbstractSummands):
    """What the kept episodes of a data set contribute to a statistic: all of them, or those that `marks` draws.

    The shortcuts are those that the statistic's `hints` allow. Statistics of whole persons have none, because several
    episodes are one record.
    """

    data: AbstractDataset
    statistic: AbstractStatistic
    marks: Marks | None = None

    @property
    def contribution_shape(self) -> tuple[int, ...]:
        return self._shapes.contribution

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The shape of one record's blocks (see `AbstractStatistic.parts`)."""
        return self._shapes.blocks

    @property
    def record_entries(self) -> int:
        return math.prod(self._shapes.blocks)

    def empty_contributes(self) -> bool:
        if isinstance(self.statistic, AbstractRowStatistic):
            return False  # rows of count 0 add nothing
        return bool(_contributes(self.statistic, self._form.blank(self.statistic.per_person)))

    def batches(self) -> Iterator[RecordBatch]:
        return batches_of(self.statistic, self.data.chunks(), self._form, self.marks)

    def rounded_sum(self) -> Float[Array, "..."] | None:
        statistic = self._row_statistic
        if statistic is None or self.marks is not None:
            return None
        return _of_rows(statistic, self._rows(statistic))

    def repeated_blocks(self) -> tuple[int, Iterator[RepeatedBlocks]] | None:
        """Distinct rows are cheapest, but do not say whose they are; the rows of one step do."""
        statistic = self._row_statistic
        if statistic is None:
            return None
        if statistic.hints.row_by_row and self.marks is None:
            return 0, blocks_of_rows(statistic, self._rows(statistic))
        if statistic.stage is None:
            return None
        return self.record_entries, blocks_at(int(statistic.stage), statistic, self.data.chunks(), self.marks)

    @property
    def _form(self) -> EpisodeForm:
        return EpisodeForm(self.data.horizon, len(self.data.features), self.data.max_episodes_per_unit)

    @property
    def _shapes(self) -> Shapes:
        return Shapes.of(self.statistic, self._form)

    @property
    def _row_statistic(self) -> AbstractRowStatistic | None:
        """The statistic, if its sum over people is a sum over all their transitions."""
        statistic = self.statistic
        plain = isinstance(statistic, AbstractRowStatistic) and statistic.hints.plain and not statistic.per_person
        return statistic if plain else None  # type: ignore[return-value]

    def _rows(self, statistic: AbstractRowStatistic) -> Transitions:
        """The distinct transitions; only those of its step for a statistic of one step, in arrays of one size."""
        rows = self.data.transitions()
        if statistic.stage is None:
            return jax.tree.map(_wide, rows)
        ends = np.searchsorted(rows.step, np.arange(self.data.horizon + 1))  # rows are sorted by step
        first, last = ends[int(statistic.stage) : int(statistic.stage) + 2]
        size = int(np.max(np.diff(ends)))
        return jax.tree.map(lambda x: _wide(np.pad(x[first:last], (0, size - (last - first)))), rows)


def _wide(x: np.ndarray) -> Array:
    """The array in 64 bits, as all arithmetic here is."""
    return jnp.asarray(x, float if np.issubdtype(x.dtype, np.floating) else int)


@eqx.filter_jit
def _of_rows(statistic: AbstractRowStatistic, rows: Transitions) -> Array:
    return statistic.of_rows(rows)


@eqx.filter_jit
def _contributes(statistic: AbstractStatistic, record: Trajectory) -> Bool[Array, ""]:
    return jnp.any(statistic.contribution(record, None) != 0)
