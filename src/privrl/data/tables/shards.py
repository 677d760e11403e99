"""Split a table into shards: runs of whole row groups, fixed by the data, such that no person is in two of them.

The boundaries of shards depend only on the files, not on the workers: a shard ends after about a million rows, between
two row groups and between two people. So the same table has the same shards on every machine and after every restart.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from jaxtyping import Int, UInt64

from privrl.data.dataset import AbstractDataset, Summary
from privrl.data.rows.batches import Piece, Table, open_parquet
from privrl.data.rows.transitions import Block
from privrl.data.schema.columns import find_changes, hashes, read_ids, take_ids
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Bounds, TableError
from privrl.data.tables.parquet import ParquetEpisodes
from privrl.data.tables.part import Part
from privrl.executors.executor import AbstractExecutor

SHARD_ROWS = 2**20
"""The approximate number of rows of a shard."""

_SHARD = "Rewrite the table with `privrl shard IN OUT --unit COL --files N`, which puts every person into one file."


@dataclass(frozen=True)
class Group:
    """One of several groups into which people are split by a keyed hash of their ids (`AbstractDataset.unit_draws`)."""

    key: bytes = field(repr=False)
    purpose: str
    edges: tuple[float, ...]
    index: int


class Shard:
    """A shard in the memory of a worker: its episodes, and the groups of its people.

    A worker that lacks it rebuilds it from files and keys, so no episode is sent from one process to another.
    """

    def __init__(self, data: ParquetEpisodes) -> None:
        self.data = data
        self._groups: dict[Group, AbstractDataset] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"data": replace(self.data), "_groups": {}}  # the state before the first pass

    @property
    def kept_rows(self) -> int:
        """The number of rows, for balancing the work of workers; it is not released."""
        return self.data.table.num_rows

    def __sizeof__(self) -> int:
        return 64 * self.kept_rows  # tells a scheduler what moving it costs: the new worker reads and checks it again

    def part(self, group: Group | None) -> AbstractDataset:
        """All people, or the people of a group; an error if a file has changed since the table was opened."""
        self.data.table.refuse_changed()  # also if all episodes are cached and no file is read
        if group is None:
            return self.data
        if group not in self._groups:
            coins = self.data.unit_draws(group.key, group.purpose)
            self._groups[group] = Part(self.data, np.searchsorted(group.edges, coins, side="right") == group.index)
        return self._groups[group]


@final
@dataclass(frozen=True, eq=False)
class ShardedEpisodes(AbstractDataset):
    """A table whose shards are held by an executor; people and episodes keep their numbers of the table.

    Shards count, check, compute digests, and sum for a curator (`studies/offline/sharded_records.py`). Everything else
    reads the table in this process.
    """

    whole: ParquetEpisodes
    executor: AbstractExecutor = field(repr=False)
    shards: tuple[Shard, ...] = field(repr=False)
    _found: list[tuple[Summary, ...]] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def from_dataset(
        cls, data: AbstractDataset, executor: AbstractExecutor, rows: int = SHARD_ROWS
    ) -> "ShardedEpisodes":
        """Cut a table into shards.

        Raises:
            ValueError: if the data are not a table in files, or the table is sorted in memory.
        """
        if isinstance(data, ShardedEpisodes):
            return data
        if not isinstance(data, ParquetEpisodes):
            raise ValueError(
                f"An `executor` reads shards of a table in Parquet files, not `{type(data).__name__}`. Open the table "
                "with `read_parquet`, or leave out `executor`."
            )
        if data.table.sort:
            raise ValueError(f"A table that is sorted in memory cannot be cut into shards. Leave out `sort`. {_SHARD}")
        pieces = _pieces(data.table, rows)
        return cls(data, executor, tuple(Shard(replace(data, table=data.table.select(piece))) for piece in pieces))

    @property
    def bounds(self) -> Bounds:  # type: ignore[override]
        return self.whole.bounds

    def start_executor(self) -> AbstractExecutor:
        """Start the executor with these shards, and return it."""
        self.executor.start(self.shards)
        return self.executor

    def summaries(self) -> tuple[Summary, ...]:
        """The counts of every shard; raises if a person is in two shards."""
        if not self._found:
            executor = self.start_executor()
            found = dict(executor.map_shards(_checked))
            self._refuse_people_in_two()
            self._found.append(tuple(found[i] for i in range(len(self.shards))))
        return self._found[0]

    def check(self) -> Summary:
        found = self.summaries()
        columns = zip(*((s.num_units, s.num_episodes, s.num_left_out, s.num_rows) for s in found), strict=True)
        return Summary(*(sum(column) for column in columns))

    def with_sizes(self, num_states: int | None, num_actions: int) -> "ShardedEpisodes":
        whole = self.whole.with_sizes(num_states, num_actions)
        if whole.bounds == self.bounds:
            return self  # workers keep their shards
        shards = (Shard(shard.data.with_sizes(num_states, num_actions)) for shard in self.shards)
        return ShardedEpisodes(whole, self.executor, tuple(shards))

    def digest(self, key: bytes) -> bytes:
        self.summaries()
        return (self.start_executor().sum_shards(_digest, key) % 2**256).to_bytes(32, "big")

    def blocks(self) -> Iterator[Block]:
        return self.whole.blocks()

    def unit_ids(self) -> Iterator[list[bytes]]:
        return self.whole.unit_ids()

    def encode_episodes(self) -> Iterator[tuple[Int[np.ndarray, " E"], list[bytes]]]:
        return self.whole.encode_episodes()

    def _refuse_people_in_two(self) -> None:
        """Look for people in two shards by keyed hashes of their ids, 8 bytes each; equal hashes are checked with
        another key.

        No hashes are needed if the footers give the shards disjoint ranges of ids and every shard finds its ids within
        its own range. That check is necessary, because a footer is only a claim of the program that wrote the file.
        """
        executor = self.start_executor()
        if _are_disjoint([shard.data.table for shard in self.shards]) and all(
            dict(executor.map_shards(_within_footers)).values()
        ):
            return
        first, second = (int(word) for word in np.random.SeedSequence().generate_state(2, np.uint64))
        seen = np.sort(np.concatenate([words for _, words in executor.map_shards(_unit_hashes, first)]))
        suspects = np.unique(seen[1:][seen[1:] == seen[:-1]])
        if not len(suspects):
            return
        again = np.concatenate([words for _, words in executor.map_shards(_again, suspects, first, second)])
        if len(np.unique(again, axis=0)) < len(again):
            raise TableError(
                f"Column `{self.whole.table.schema.unit}`: a unit is in two shards, but its rows must be together. "
                f"{_SHARD}"
            )


def _checked(shard: Shard) -> Summary:
    return shard.data.check()


def _digest(shard: Shard, key: bytes) -> int:
    return int.from_bytes(shard.data.digest(key), "big")


def _unit_hashes(shard: Shard, salt: int) -> UInt64[np.ndarray, " U"]:
    return np.concatenate([words[:, 0] for words in _hashed_units(shard.data.table, [salt])])


def _within_footers(shard: Shard) -> bool:
    """Whether every id lies within the range that the footers of its shard claim."""
    import pyarrow.compute as pc

    table = shard.data.table
    bounds = _range(table)
    if bounds is None:
        return False
    low, high = (bound.encode() if isinstance(bound, str) else bound for bound in bounds)
    for batch, place in table.batches(["unit"]):
        ids = read_ids(batch, table.schema.unit, place)
        with redact_errors(f"Column `{table.schema.unit}` cannot be read from {place(0)} on"):
            found = pc.min_max(ids).as_py()
        if not low <= found["min"] <= found["max"] <= high:
            return False
    return True


def _again(shard: Shard, suspects: UInt64[np.ndarray, " N"], first: int, second: int) -> UInt64[np.ndarray, "M 2"]:
    words = np.concatenate(list(_hashed_units(shard.data.table, [first, second])))
    return words[np.isin(words[:, 0], suspects)]


def _hashed_units(table: Table, salts: Sequence[int]) -> Iterator[UInt64[np.ndarray, "U K"]]:
    """Keyed hashes of all units in order, one column per key; every unit is known to be in one piece."""
    previous, column = None, table.schema.unit
    for batch, place in table.batches(["unit"]):
        ids = read_ids(batch, column, place)
        starts = np.flatnonzero(find_changes(ids, previous))
        previous = ids[-1].as_py()
        units = take_ids(ids, starts, column, place)
        yield np.stack([hashes(units, salt) for salt in salts], axis=1)


def _pieces(table: Table, rows: int) -> list[tuple[Piece, ...]]:
    """Runs of consecutive row groups of about `rows` rows, cut between two people."""
    groups = [(file, group, size) for file, sizes in enumerate(table.row_groups) for group, size in enumerate(sizes)]
    groups = [one for one in groups if one[2]]
    runs: list[tuple[Piece, ...]] = []
    run: list[Piece] = []
    held = 0
    for number, (file, group, size) in enumerate(groups):
        if run and run[-1][0] == file and run[-1][2] == group:
            run[-1] = (file, run[-1][1], group + 1)
        else:
            run.append((file, group, group + 1))
        held += size
        last = number + 1 == len(groups)
        if last or (held >= rows and _parted(table, (file, group), groups[number + 1][:2])):
            runs.append(tuple(run))
            run, held = [], 0
    return runs


def _parted(table: Table, one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether row group `other`, which follows row group `one`, begins with another person."""
    return _edge(table, one, last=True) != _edge(table, other, last=False)


def _edge(table: Table, group: tuple[int, int], *, last: bool) -> object:
    """The last or the first id of a row group."""
    found = None
    for batch, place in table.select(((group[0], group[1], group[1] + 1),)).batches(["unit"]):
        ids = read_ids(batch, table.schema.unit, place)
        found = ids[-1 if last else 0].as_py()
        if not last:
            break
    return found


def _are_disjoint(tables: Sequence[Table]) -> bool:
    """Whether the footers claim disjoint ranges of ids, so that no person can be in two shards."""
    ranges = []
    for table in tables:
        found = _range(table)
        if found is None:
            return False
        ranges.append(found)
    ranges.sort()
    return all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


def _range(table: Table) -> tuple[Any, Any] | None:
    """The range of ids (whole numbers or texts) that the footers claim; `None` if a footer claims none."""
    lows, highs = [], []
    for number, first, end in table.pieces:
        with open_parquet(table.files[number]) as file:
            names = [file.metadata.schema.column(i).path for i in range(file.metadata.num_columns)]
            if table.schema.unit not in names:
                return None
            column = names.index(table.schema.unit)
            for group in range(first, end):
                with redact_errors(f"The footer of `{table.files[number].name}` cannot be read"):
                    found = file.metadata.row_group(group).column(column).statistics
                    bounds: tuple[Any, Any] = (None, None)
                    if found is not None and found.has_min_max:
                        bounds = found.min, found.max
                if not isinstance(bounds[0], int | str):
                    return None
                lows.append(bounds[0])
                highs.append(bounds[1])
    return min(lows), max(highs)
