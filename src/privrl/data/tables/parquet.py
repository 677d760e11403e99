"""Tables in Parquet files as a dataset that is read and checked once, and then summed from a cache.

A table has one row per step and is grouped by unit, then episode, with steps in order (or is read with `sort=True`, in
memory). A pass holds one batch of rows, the episodes of the current unit (at most `max_episodes_per_unit` of them and
the one being read), and 4 bytes per unit and per episode to notice an id that appears again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import final

import numpy as np

from privrl.data.dataset import AbstractDataset, Summary
from privrl.data.rows.batches import Table
from privrl.data.rows.encoding import EpisodeEncoder
from privrl.data.rows.episode_cache import MAX_MEMORY_BYTES, Chunk, EpisodeCache, release_memory
from privrl.data.rows.files import Paths, parquet_files
from privrl.data.rows.row_checks import RowChecker, Rows
from privrl.data.rows.transitions import COLUMNS, Block, concatenate_by_name, following_states, keep_first
from privrl.data.schema.columns import canonical_ids, find_changes, read_ids, take_ids
from privrl.data.schema.fingerprints import new_salt
from privrl.data.schema.table_schema import Bounds, declare_table
from privrl.mdp.measurements import BinnedAction, Category, Feature, Measurement
from privrl.shapes import Bool, Int, Shaped


def read_parquet(
    path: Paths,
    *,
    unit: str,
    step: str,
    state: str | None = None,
    action: str | BinnedAction | Sequence[BinnedAction],
    reward: str,
    horizon: int,
    features: Sequence[Measurement] = (),
    num_states: int | None = None,
    num_actions: int | None = None,
    episode: str | None = None,
    next_state: str | None = None,
    terminated: str | None = None,
    propensity: str | None = None,
    least_propensity: float = 0.0,
    by: Category | None = None,
    outcome: Feature | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    max_episodes_per_unit: int = 1,
    max_actions: int = 12,
    sort: bool = False,
    batch_rows: int = 16_384,
    in_memory: int = MAX_MEMORY_BYTES,
) -> "ParquetEpisodes":
    """Open a table of episodes: a Parquet file, a folder of Parquet files, a pattern (`stays/*.parquet`), or several
    paths.

    Files are read in the order of their names, including those of subfolders. A column that no file has may be in
    folder names (`site=3/part-0.parquet`). There, the unit, the episode and categories are text (`007` and `7` are
    different people), `terminated` is true or false, and all other columns are numbers.

    Columns are checked when the table is opened. All rows are checked before anything is summed.

    If a unit has more than `max_episodes_per_unit` episodes, the first ones in the table are used, so a unit's episodes
    must be in the order of time. Only then does no treatment influence which episodes are used.

    Arguments:
        path: the file, folder, pattern or paths.
        unit, step, state, action, reward: names of columns. The unit is the person protected by privacy. An action may
            also be a dose, `BinnedAction(name, edges)`, or several doses, whose product is the action.
        features: instead of `state`, the columns of measurements that make up a state, `Feature(name, low, high)` and
            `Category(name, values)`. Their bounds are public, and values outside are moved to the nearer bound.
        episode: the column that tells the episodes of a unit apart. Without it, each unit is one episode.
        next_state: null or -1 if not recorded. Without it, the state of the next row (unknown at the end).
        terminated: true on the last row of an episode that ended. With `features`, episodes without it count as cut
            off.
        propensity: the logged probability, in (0, 1], with which a program took the recorded action.
        least_propensity: the public number below which no action of the program had a probability, taken or not. A row
            below it is refused.
        by: the groups by which an evaluation reports, `Category("sex", ("female", "male"))`; null: in no group.
        outcome: a second outcome that an evaluation reports, `Feature("cost", 0, 50_000)`, up to the public largest
            total of an episode; null counts as 0.
        horizon, num_states, num_actions, reward_range, max_episodes_per_unit: the public bounds, see `Bounds`. The
            learner may supply the numbers of states and actions later (`with_sizes`).
        max_actions: the largest number of actions that doses may make; it guards against an accidental product of many.
        sort: sort the table by unit, episode and step first. This reads it into memory.
        batch_rows: rows read at a time.
        in_memory: the largest cache of checked episodes in memory, in bytes. A larger cache is kept in a scratch file
            without a name, readable only by its owner.

    Raises:
        TableError: if a file or column is missing or has the wrong type.
        ValueError: if the bounds are invalid or contradict each other.
    """
    schema, bounds = declare_table(
        unit=unit,
        step=step,
        state=state,
        action=action,
        reward=reward,
        horizon=horizon,
        features=features,
        num_states=num_states,
        num_actions=num_actions,
        episode=episode,
        next_state=next_state,
        terminated=terminated,
        propensity=propensity,
        least_propensity=least_propensity,
        by=by,
        outcome=outcome,
        reward_range=reward_range,
        max_episodes_per_unit=max_episodes_per_unit,
        max_actions=max_actions,
    )
    if batch_rows < 1:
        raise ValueError(f"`batch_rows` is {batch_rows}; it must be at least 1.")
    return ParquetEpisodes(Table(parquet_files(path), schema, sort, batch_rows), bounds, new_salt(), in_memory)


@final
@dataclass(frozen=True, eq=False)
class ParquetEpisodes(AbstractDataset):
    """Episodes in Parquet files; open them with `read_parquet`."""

    table: Table
    bounds: Bounds
    _salt: int = field(repr=False)
    in_memory: int = field(default=MAX_MEMORY_BYTES, repr=False)
    _passed: list[tuple[Summary, EpisodeCache]] = field(default_factory=list, init=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the results of a pass, so that another process checks for itself and no row is sent."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"_passed": []}

    def check(self) -> Summary:
        if not self._passed:
            for _ in self._pass():
                pass
        return self._passed[0][0]

    def with_sizes(self, num_states: int | None, num_actions: int) -> "ParquetEpisodes":
        bounds = self.bounds.with_sizes(num_states, num_actions)
        return self if bounds == self.bounds else replace(self, bounds=bounds)

    def chunks(self) -> Iterator[Chunk]:
        self.check()
        self.table.refuse_changed()
        release_memory()
        for number, chunk in enumerate(self._passed[0][1]):
            yield chunk
            if number % 8 == 7:
                release_memory()
        self.table.refuse_changed()

    def blocks(self) -> Iterator[Block]:
        if self._passed:
            yield from (chunk.to_block() for chunk in self.chunks())
        else:
            yield from (block for _, block in self._pass())

    def unit_ids(self) -> Iterator[list[bytes]]:
        self.check()  # from here on, every unit is known to be in one piece
        column, previous = self.table.schema.unit, None
        for batch, place in self.table.batches(["unit"]):
            ids = read_ids(batch, column, place)
            starts = np.flatnonzero(find_changes(ids, previous))
            previous = ids[-1].as_py()
            yield canonical_ids(take_ids(ids, starts, column, place))

    def encode_episodes(self) -> Iterator[tuple[Int[np.ndarray, " E"], list[bytes]]]:
        encoder = EpisodeEncoder()
        for rows, _ in self._pass():
            yield encoder.finish() if rows is None else encoder.add(rows)

    def _pass(self) -> Iterator[tuple[Rows | None, Block]]:
        """Check all rows; yield the rows of each batch and the chosen episodes that they complete, then `None` and the
        episodes of the last unit. The first pass fills the cache for later passes."""
        checker = RowChecker(self.table, self.bounds, self._salt, grouped=bool(self._passed))
        assembler, held = _Assembler(self.max_episodes_per_unit), EpisodeCache(self.bounds, self.in_memory)
        for batch, place in self.table.batches(list(self.table.schema.columns)):
            rows = checker.check(batch, place)
            block = assembler.add(rows)
            if not self._passed:
                held.add(block)
            yield rows, block
        checker.finish()
        block = assembler.finish()
        held.add(block)
        yield None, block
        summary = assembler.summary(self.table.num_rows)
        self.table.refuse_changed()
        if not self._passed:
            self._passed[:] = [(summary, held)]


@dataclass(frozen=True, repr=False)
class _Open:
    """Episodes laid end to end; the last of them may still be running."""

    unit: Int[np.ndarray, " E"]
    starts: Int[np.ndarray, " E"]
    columns: dict[str, Shaped[np.ndarray, "R ..."]]

    @property
    def lengths(self) -> Int[np.ndarray, " E"]:
        return np.diff(self.starts, append=len(self.columns["states"]))

    def take(self, keep: Bool[np.ndarray, " E"]) -> "_Open":
        lengths = self.lengths
        rows = np.repeat(keep, lengths)
        kept = lengths[keep]
        columns = {name: column[rows] for name, column in self.columns.items()}
        return _Open(self.unit[keep], np.cumsum(kept) - kept, columns)


class _Assembler:
    """Assemble rows into episodes, and keep the first `most` of each unit.

    Of the current unit only its first `most` episodes and the running one are carried over, so memory is bounded even
    if all episodes belong to one person.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: _Open | None = None
        self._num_episodes = self._num_kept = 0

    def add(self, rows: Rows) -> Block:
        """The chosen episodes of the units that these rows complete."""
        self._num_episodes += len(rows.starts)
        every = {name: getattr(rows, name) for name in (*COLUMNS, "ended")}
        columns = {name: column for name, column in every.items() if column is not None}
        everything = _Open(rows.unit, rows.starts, columns)
        if self._open is not None:
            everything = _joined(self._open, everything)
        chosen = keep_first(everything.unit, self._most)
        closed = everything.unit < everything.unit[-1]
        carried = chosen & ~closed
        carried[-1] = True  # rows that follow may belong to the last episode
        self._open = everything.take(carried)
        return self._block(everything.take(chosen & closed))

    def finish(self) -> Block:
        """The chosen episodes of the last unit."""
        assert self._open is not None  # a table has rows
        return self._block(self._open.take(keep_first(self._open.unit, self._most)))

    def summary(self, num_rows: int) -> Summary:
        assert self._open is not None
        num_units = int(self._open.unit[-1]) + 1
        return Summary(num_units, self._num_kept, self._num_episodes - self._num_kept, num_rows)

    def _block(self, chosen: _Open) -> Block:
        self._num_kept += len(chosen.unit)
        columns, lengths = dict(chosen.columns), chosen.lengths
        ended = columns.pop("ended", None)
        if "next_states" not in columns:
            columns["next_states"] = following_states(columns["states"], lengths, ended)
        return Block(chosen.unit, lengths, **columns)


def _joined(first: _Open, second: _Open) -> _Open:
    """Rows of `second` before its first start belong to the last episode of `first`."""
    columns = concatenate_by_name([first.columns, second.columns])
    starts = np.concatenate([first.starts, second.starts + len(first.columns["states"])])
    return _Open(np.concatenate([first.unit, second.unit]), starts, columns)
