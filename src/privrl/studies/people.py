"""What a curator sums over: the episodes of a data set at rest, in bounded memory, or nobody's."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float64, Int, Int64

from privrl.contracts.statistic import AbstractStatistic
from privrl.data.dataset import AbstractDataset
from privrl.data.part import Part
from privrl.data.transitions import Block
from privrl.mdp.types import Trajectory, Transitions
from privrl.privacy.noise.lattice import Lattice, filled_by, lattice_of_blocks, lattice_total
from privrl.privacy.trust.curator import AbstractPeople
from privrl.statistics.rows import AbstractRowStatistic

_COINS = 2**16  # secret coins that are drawn at once, and
_DRAWN = 1024  # drawn episodes that are summed at once: shapes that do not depend on how many were drawn


class Nobody(AbstractPeople):
    """No people at all: sums over them are zero."""

    num_units = 0
    records_per_unit = 1

    def total(self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None) -> Array:
        del included
        return jnp.zeros(statistic.raw_shape)

    def units(
        self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None, lattice: Lattice
    ) -> Int64[np.ndarray, "..."]:
        del included, lattice
        return np.zeros(statistic.units_shape, np.int64)

    def filled(self, statistic: AbstractStatistic) -> int:
        return 1

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "Nobody":
        return self

    def coins(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        del key, purpose
        return np.zeros(0)


class Records(AbstractPeople):
    """The curator's view of a data set: exact sums over kept episodes, in bounded memory."""

    def __init__(self, data: AbstractDataset) -> None:
        self._data = data

    @property
    def num_units(self) -> int:
        return self._data.num_units

    @property
    def num_episodes(self) -> int:
        return self._data.num_episodes

    @property
    def records_per_unit(self) -> int:
        return self._data.max_episodes_per_unit

    def part(self, chosen: Bool[np.ndarray, " U"]) -> "Records":
        return Records(Part(self._data, chosen))

    def coins(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        return self._data.unit_coins(key, purpose)

    def total(self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None) -> Array:
        if isinstance(statistic, AbstractRowStatistic) and statistic.plain and included is None:
            return _shaped(statistic, _of_rows(statistic, self._rows(statistic)))
        _refuse_unless_empty_is_zero(statistic, self._data.horizon)
        summed = jnp.zeros(statistic.raw_shape)
        for batch in self._batches(included):  # the sum is used only if the whole pass was faultless
            summed = summed + _shaped(statistic, _of_batch(statistic, jax.tree.map(_wide, batch)))
        return summed

    def units(
        self, statistic: AbstractStatistic, included: Callable[[int], np.ndarray] | None, lattice: Lattice
    ) -> Int64[np.ndarray, "..."]:
        contribution = jax.eval_shape(statistic.contribution, Trajectory.empty(self._data.horizon), None)
        _check_shape(statistic, contribution.shape)
        _refuse_unless_empty_is_zero(statistic, self._data.horizon)
        if isinstance(statistic, AbstractRowStatistic) and statistic.row_by_row and included is None:
            rows = self._rows(statistic)
            once = eqx.tree_at(
                lambda r: (r.count, r.reward), rows, ((rows.count > 0) * 1.0, jnp.zeros_like(rows.reward))
            )
            slots, blocks = _terms(statistic, once)
            lattice.check_room(int(rows.count.sum()))
            return lattice_of_blocks(statistic, slots, blocks, jnp.rint(rows.count).astype(int), lattice)
        summed, records = np.zeros(statistic.units_shape, np.int64), 0
        for batch in self._batches(included):
            taking_part = jnp.asarray(np.asarray(batch.length) > 0)
            summed += lattice_total(statistic, jax.tree.map(_wide, batch), None, taking_part, lattice)
            records += len(taking_part)
        lattice.check_room(records)
        return summed

    def filled(self, statistic: AbstractStatistic) -> int:
        return filled_by(statistic, Trajectory.empty(self._data.horizon), None)

    def _batches(self, included: Callable[[int], np.ndarray] | None) -> Iterator[Trajectory]:
        """All episodes in batches of one shape, filled up with empty ones; or only those that `included` marks."""
        if included is None:
            yield from self._data.batches(check_first=False)
            return
        coins = np.zeros(0, bool)
        for block in self._data.blocks():
            while len(coins) < len(block.lengths):
                coins = np.concatenate([coins, included(_COINS)])
            drawn, coins = np.flatnonzero(coins[: len(block.lengths)]), coins[len(block.lengths) :]
            for first in range(0, len(drawn), _DRAWN):
                yield _padded(block, drawn[first : first + _DRAWN], self._data.horizon)

    def _rows(self, statistic: AbstractRowStatistic) -> Transitions:
        """The distinct transitions; only those of its step for a statistic of one step, in arrays of one size."""
        rows = self._data.transitions()
        if statistic.stage is None:
            return jax.tree.map(_wide, rows)
        ends = np.searchsorted(rows.step, np.arange(self._data.horizon + 1))  # rows are sorted by step
        first, last = ends[int(statistic.stage) : int(statistic.stage) + 2]
        size = int(np.max(np.diff(ends)))
        return jax.tree.map(lambda x: _wide(np.pad(x[first:last], (0, size - (last - first)))), rows)


def _shaped(statistic: AbstractStatistic, total: Array) -> Array:
    _check_shape(statistic, total.shape)
    return total


def _check_shape(statistic: AbstractStatistic, shape: tuple[int, ...]) -> None:
    if shape != statistic.raw_shape:
        raise ValueError(
            f"`{type(statistic).__name__}` contributes arrays of shape {shape}, not the {statistic.raw_shape} that its "
            "sensitivity speaks of. Nothing was released."
        )


def _refuse_unless_empty_is_zero(statistic: AbstractStatistic, horizon: int) -> None:
    """Batches are filled up with empty records, so these must contribute nothing (rows of count 0 never do)."""
    if isinstance(statistic, AbstractRowStatistic):
        return
    if bool(jnp.any(_of_one(statistic, Trajectory.empty(horizon)) != 0)):
        raise ValueError(
            f"`{type(statistic).__name__}` contributes something for an empty record (`length` 0), which must "
            "contribute zero. Nothing was released."
        )


def _wide(x: np.ndarray) -> Array:
    """The array in 64 bits, as all arithmetic here is."""
    return jnp.asarray(x, float if np.issubdtype(x.dtype, np.floating) else int)


@eqx.filter_jit
def _of_rows(statistic: AbstractRowStatistic, rows: Any) -> Array:
    return statistic.of_rows(rows)


@eqx.filter_jit
def _terms(statistic: AbstractRowStatistic, rows: Any) -> tuple[Array, Array]:
    return statistic.terms(rows)


@eqx.filter_jit
def _of_one(statistic: AbstractStatistic, record: Trajectory) -> Array:
    return statistic.contribution(record, None)


@eqx.filter_jit
def _of_batch(statistic: AbstractStatistic, batch: Trajectory) -> Array:
    return statistic.total(batch, None)


def _padded(block: Block, episodes: Int[np.ndarray, " n"], horizon: int) -> Trajectory:
    """Some episodes of a block, padded to the horizon, and filled up with empty ones to a batch of `_DRAWN`."""
    lengths = np.zeros(_DRAWN, np.int32)
    lengths[: len(episodes)] = block.lengths[episodes]
    starts = np.zeros(_DRAWN, np.int64)
    starts[: len(episodes)] = (np.cumsum(block.lengths) - block.lengths)[episodes]
    taken = np.arange(horizon) < lengths[:, None]
    rows = np.where(taken, starts[:, None] + np.arange(horizon), 0)
    return Trajectory(
        states=np.where(taken, block.states[rows], 0),
        actions=np.where(taken, block.actions[rows], 0),
        rewards=np.where(taken, block.rewards[rows], 0.0),
        next_states=np.where(taken, block.next_states[rows], -1),
        length=lengths,
    )
