"""Kept episodes in batches, as a statistic of them is summed: a function of both, of nothing else.

Batches have one size for each width, so few programs are compiled, and are filled up with empty records. Narrow numbers
become 64-bit ones first, so what is computed from a record does not depend on how it was kept.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int64, Shaped

from privrl.contracts.statistic import AbstractStatistic
from privrl.data.rows.episode_cache import Chunk, Rectangle, concatenate, padded_width
from privrl.data.rows.transitions import not_recorded
from privrl.mdp.measurements import NOT_RECORDED
from privrl.mdp.types import Trajectory, Transitions
from privrl.privacy.noise.arithmetic import RecordBatch, RepeatedBlocks
from privrl.statistics.row_statistics import AbstractRowStatistic

Marks = Callable[[int, int], Bool[np.ndarray, " n"]]
"""Which of the records `first`, ..., `first + count - 1` take part."""

WORKING = 2**19
"""Entries of the largest array that is made while records, or blocks, are summed at once."""

LANES = 64
"""Records, and rows, are summed in multiples of this many at once: see `batch_size`."""

_STEPS = 2**15  # of records that are summed at once


@dataclass(frozen=True)
class EpisodeForm:
    """What is public about a record: the horizon, the number of columns of a state (0: a number), and how many episodes
    a person may have."""

    horizon: int
    columns: int
    episodes: int

    def width(self, statistic: AbstractStatistic, narrow: int) -> int:
        """To which width records of this one are padded: their own, or the horizon. Programs on measurements are large,
        and are compiled for every width, so there a width of its own is at most a third of the horizon."""
        wasteful = self.columns > 0 and 3 * narrow > self.horizon
        return narrow if statistic.hints.any_width and not wasteful else self.horizon

    def blank(self, per_person: bool) -> Trajectory:
        """An empty record: of an episode, or of a person."""
        empty = Trajectory.empty(self.horizon, self.columns or None)
        return jax.tree.map(lambda x: np.stack([x] * self.episodes), empty) if per_person else empty


@dataclass(frozen=True)
class Shapes:
    """Of one record's contribution, and of its blocks (see `AbstractStatistic.parts`)."""

    contribution: tuple[int, ...]
    blocks: tuple[int, ...]

    @classmethod
    def of(cls, statistic: AbstractStatistic, form: EpisodeForm) -> "Shapes":
        """From public sizes alone, without any numbers."""
        leaves, structure = jax.tree.flatten(statistic)
        arrays = (jax.ShapeDtypeStruct(x.shape, x.dtype) if eqx.is_array(x) else x for x in leaves)
        return _shapes(structure, tuple(arrays), form)


@functools.lru_cache(maxsize=256)
def _shapes(structure: object, leaves: tuple[object, ...], form: EpisodeForm) -> Shapes:
    statistic = jax.tree.unflatten(structure, leaves)
    blank = form.blank(statistic.per_person)
    of_record = eqx.filter_eval_shape(
        lambda s, record: (s.contribution(record, None), s.parts(record, None)), statistic, blank
    )
    return Shapes(of_record[0].shape, of_record[1][1].shape)


def batches_of(
    statistic: AbstractStatistic, chunks: Iterator[Chunk], form: EpisodeForm, marks: Marks | None = None
) -> Iterator[RecordBatch]:
    """All records, or those that are marked, as an arithmetic sums them."""
    for rectangle, width in _batches(statistic, chunks, form, marks):
        taking_part, trajectories = jax.device_put(_wide(rectangle, width, statistic.per_person))
        yield RecordBatch(trajectories, taking_part)


def blocks_at(
    stage: int, statistic: AbstractRowStatistic, chunks: Iterator[Chunk], marks: Marks | None = None
) -> Iterator[RepeatedBlocks]:
    """The records of a plain statistic of one step, each of which is one row at most: the rows of that step."""
    for rows in _rows_at(stage, chunks, marks):
        yield RepeatedBlocks(*_terms_at(statistic, rows))


def _batches(
    statistic: AbstractStatistic, chunks: Iterator[Chunk], form: EpisodeForm, marks: Marks | None
) -> Iterator[tuple[Rectangle, int]]:
    """All records that take part in batches of one size per width, with the width to which they are padded."""
    waiting: dict[int, list[Rectangle]] = {}
    first = 0
    for chunk in chunks:
        people = statistic.per_person and form.episodes > 1
        count, rectangles = _of_people(chunk, form) if people else (chunk.count, chunk.rectangles)
        marked = None if marks is None else marks(first, count)
        first += count
        for one in rectangles:
            kept = waiting.setdefault(one.width, [])
            kept.append(one if marked is None else one.take(np.flatnonzero(marked[one.place])))
            width = form.width(statistic, one.width)
            size = batch_size(statistic, width, form)
            if sum(len(some.place) for some in kept) >= size:
                whole = kept[0] if len(kept) == 1 else concatenate(kept)
                end = len(whole.place) - len(whole.place) % size
                for begin in range(0, end, size):
                    yield whole.take(slice(begin, begin + size)), width
                waiting[one.width] = [whole.take(slice(end, None))] if end < len(whole.place) else []
    for narrow, kept in waiting.items():
        if any(len(some.place) for some in kept):
            width = form.width(statistic, narrow)
            yield concatenate(kept).pad(batch_size(statistic, width, form)), width


def batch_size(statistic: AbstractStatistic, width: int, form: EpisodeForm) -> int:
    """The number of records of this width that are summed at once, so that memory stays bounded: a multiple of
    `LANES`.

    **Formal guarantee.** What is computed from a record must not depend on its place in a batch, because the length
    of one person's record decides the places of all records after it. Compiled loops and matrix products take rows
    in groups of a power of two and treat the remaining rows by other code, whose last bits differ; with a multiple
    of 64 rows none remain. Tests move records to other places, at lengths that are not multiples of a power of two,
    and compare whole numbers.
    """
    steps = width * (form.episodes if statistic.per_person else 1)
    most = min(_STEPS // steps, WORKING // max(1, statistic.hints.working_entries(steps)))
    return max(1, most // LANES) * LANES


def _of_people(chunk: Chunk, form: EpisodeForm) -> tuple[int, list[Rectangle]]:
    """How many people a chunk has, and rectangles of all their episodes, as wide as the longest one of each needs."""
    block = chunk.to_block()
    begin = np.flatnonzero(np.diff(block.unit, prepend=-1))
    starts = np.cumsum(block.lengths) - block.lengths
    count = np.diff(begin, append=len(block.unit))
    each = padded_width(np.maximum.reduceat(block.lengths, begin), form.horizon)
    made = []
    for width in np.unique(each).tolist():
        place = np.flatnonzero(each == width)
        held = np.arange(form.episodes) < count[place][:, None]
        chosen = np.where(held, begin[place][:, None] + np.arange(form.episodes), 0)
        lengths = np.where(held, block.lengths[chosen], 0)
        taken = np.arange(width) < lengths[..., None]
        rows = np.where(taken, starts[chosen][..., None] + np.arange(width), 0)
        columns = {name: column[rows] for name, column in block.columns.items()}
        for name, values in columns.items():
            values[~taken] = not_recorded(block.states) if name == "next_states" else 0
        made.append(Rectangle(place, block.unit[begin[place]], lengths, **columns))
    return len(begin), made


def _rows_at(stage: int, chunks: Iterator[Chunk], marks: Marks | None) -> Iterator[Transitions]:
    """The rows of one step, one per record that reaches it, in batches of one size, filled up with rows of count 0."""
    waiting: list[tuple[np.ndarray, ...]] = []
    for chunk in chunks:
        marked = None if marks is None else marks(chunk.first, chunk.count)
        for one in chunk.rectangles:
            if one.width > stage:
                there = one.length > stage if marked is None else (one.length > stage) & marked[one.place]
                columns = (one.states, one.actions, one.next_states, one.rewards)
                waiting.append(tuple(column[there, stage] for column in columns))
        while sum(len(rows[0]) for rows in waiting) >= _STEPS:
            together = tuple(map(np.concatenate, zip(*waiting, strict=True)))
            yield _rows(stage, tuple(column[:_STEPS] for column in together))
            waiting = [tuple(column[_STEPS:] for column in together)]
    if waiting:
        yield _rows(stage, tuple(map(np.concatenate, zip(*waiting, strict=True))))


def _rows(stage: int, columns: tuple[np.ndarray, ...]) -> Transitions:
    missing = _STEPS - len(columns[0])
    state, action, after = (np.pad(column.astype(np.int64), (0, missing)) for column in columns[:3])
    count = np.pad(np.ones(len(columns[0])), (0, missing))
    reward = np.pad(columns[3].astype(np.float64), (0, missing))
    return Transitions(np.full(_STEPS, stage), state, action, after, count, reward)


@eqx.filter_jit
def _terms_at(statistic: AbstractRowStatistic, rows: Transitions) -> tuple[Int[Array, " N"], Array, Int64[Array, " N"]]:
    return *statistic.terms(rows), jnp.asarray(rows.count).astype(jnp.int64)


def _wide(narrow: Rectangle, width: int, per_person: bool) -> tuple[Bool[np.ndarray, " B"], Trajectory]:
    """Which records have steps, and all of them in 64 bits and of this width: episodes, or people with theirs."""
    length = narrow.length
    more = [(0, 0)] * length.ndim + [(0, width - narrow.rewards.shape[-1])]
    vectors = narrow.states.ndim > len(more)

    def padded(values: Shaped[np.ndarray, "..."], kind: type, by: float = 0.0) -> Shaped[np.ndarray, "..."]:
        x: np.ndarray = values.astype(kind)
        return np.pad(x, more + [(0, 0)] * (x.ndim - len(more)), constant_values=by) if more[-1][1] else x

    kind = float if vectors else int
    records = Trajectory(
        padded(narrow.states, kind),
        padded(narrow.actions, int),
        padded(narrow.rewards, float),
        padded(narrow.next_states, kind, NOT_RECORDED if vectors else -1),
        length.astype(int),
        None if narrow.propensities is None else padded(narrow.propensities, float),
        None if narrow.extras is None else padded(narrow.extras, float),
    )
    alone = per_person and length.ndim == 1  # each person has one episode
    taking_part = np.any((length > 0).reshape(length.shape[0], -1), axis=1)
    return taking_part, jax.tree.map(lambda x: x[:, None], records) if alone else records
