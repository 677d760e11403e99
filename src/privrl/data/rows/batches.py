"""Parquet files as a stream of record batches, with the place of every row."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.rows.files import FolderColumns, Stamp, describe_file
from privrl.data.schema.columns import check_type, decode_sortable, folder_type
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Place, Schema, TableError
from privrl.shapes import Int

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


Piece = tuple[int, int, int]
"""The number of a file, its first row group, and the one after its last."""


@dataclass(frozen=True)
class Table:
    """One table in one or more Parquet files, read in order, `batch_rows` rows at a time.

    With `sort`, the whole table is read into memory and sorted by unit, episode and step; a unit's episodes are in the
    order in which they first appear, whatever their ids are. Without it, nothing is kept.
    A column that is in no file may be in folder names (`site=3/part-0.parquet`). Its type follows from its part in the
    schema: the unit, the episode and categories are text; all others are numbers, or true or false.

    Attributes:
        row_groups: the number of rows of each row group of each file.
        pieces: the row groups to read, in this order.
    """

    files: tuple[Path, ...]
    schema: Schema
    sort: bool = False
    batch_rows: int = 16_384
    row_groups: tuple[tuple[int, ...], ...] = field(init=False, repr=False)
    pieces: tuple[Piece, ...] = field(init=False, repr=False)
    _folders: FolderColumns = field(init=False, repr=False)
    _stamps: tuple[Stamp, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stamps", tuple(Stamp.from_path(path) for path in self.files))
        object.__setattr__(self, "_folders", folder_columns(self.files, self.schema))
        kinds: dict[str, str] = {}
        groups = []
        for number, path in enumerate(self.files):
            name = describe_file(self.files, number)
            with open_parquet(path) as file:
                footer = file.metadata
                groups.append(tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups)))
                with redact_errors(f"The names and types of the columns of {name} cannot be read"):
                    fields = [(field.name, field.type) for field in file.schema_arrow]  # a name may occur twice
            names, types = [name for name, _ in fields], self._folders.types(number) | dict(fields)
            self.schema.require(names + [name for name in types if name not in names], name)
            for part, column in self.schema.columns.items():
                kind = check_type(types[column], part, column, path.name)
                if kinds.setdefault(part, kind) != kind:
                    raise TableError(
                        f"Column `{column}` holds {kinds[part]} in {describe_file(self.files, 0)} and {kind} in "
                        f"{name}. Write all files with the same type."
                    )
        object.__setattr__(self, "row_groups", tuple(groups))
        object.__setattr__(self, "pieces", tuple((number, 0, len(rows)) for number, rows in enumerate(groups)))
        if self.num_rows == 0:
            # The message leaves out the folder's name, which may be that of a person.
            name = f"`{self.files[0].name}` has" if len(self.files) == 1 else f"All {len(self.files)} files have"
            raise TableError(f"{name} no rows. Give a table with at least one step.")

    def select(self, pieces: tuple[Piece, ...]) -> "Table":
        """Restrict the table to these row groups.

        Files are compared with their stamps from when this table was opened. Paths become absolute, so that another
        process can read them.
        """
        table = copy.copy(self)
        object.__setattr__(table, "files", tuple(path.absolute() for path in self.files))
        object.__setattr__(table, "pieces", pieces)
        return table

    @property
    def num_rows(self) -> int:
        return sum(self._rows(piece) for piece in self.pieces)

    def _rows(self, piece: Piece) -> int:
        number, first, end = piece
        return sum(self.row_groups[number][first:end])

    def refuse_changed(self) -> None:
        """Raise if a file has changed since the table was opened, because the results of earlier checks no longer
        hold."""
        for number in sorted({number for number, _, _ in self.pieces}):
            if not Stamp.from_path(self.files[number]).matches(self._stamps[number]):
                name = describe_file(self.files, number)
                raise TableError(
                    f"{name} has changed since the table was opened, so it is not read further. Open the table again "
                    "when no program writes to it."
                )

    def batches(self, parts: Sequence[str]) -> Iterator[tuple["pa.RecordBatch", Place]]:
        """Yield record batches with the columns of these parts, and the place of each row."""
        import pyarrow as pa

        self.refuse_changed()
        columns = list(dict.fromkeys(self.schema.columns[part] for part in parts))
        if self.sort:
            yield from self._sorted_batches(columns)
            return
        for piece in self.pieces:
            for number, (batch, row) in enumerate(self._read(piece, columns)):
                yield batch, self._place(piece[0], row)
                if number % 4 == 3:
                    # Without this, the allocator keeps tens of megabytes of freed pages on a long table.
                    pa.default_memory_pool().release_unused()

    def _read(self, piece: Piece, columns: list[str]) -> Iterator[tuple["pa.RecordBatch", int]]:
        """The batches of a piece, and the row of the file at which each begins."""
        number, first, end = piece
        path, row = self.files[number], sum(self.row_groups[number][:first])
        with open_parquet(path) as file:
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in read_batches(file, self.batch_rows, there, path.name, range(first, end)):
                yield batch if there == columns else self._folders.add_to(batch, number, columns), row
                row += batch.num_rows

    def _place(self, number: int, first: int) -> Place:
        return lambda i: f"row {first + i} of {describe_file(self.files, number)} (rows count from 0)"

    def _sorted_batches(self, columns: list[str]) -> Iterator[tuple["pa.RecordBatch", Place]]:
        table, rows = self._sorted
        ends = np.cumsum([self._rows(piece) for piece in self.pieces])
        first = 0
        for batch in table.select(columns).to_batches(max_chunksize=self.batch_rows):
            numbers = rows[first : first + batch.num_rows]

            def place(i: int, numbers: np.ndarray = numbers) -> str:
                at = int(np.searchsorted(ends, numbers[i], side="right"))
                number, group, _ = self.pieces[at]
                before = 0 if at == 0 else ends[at - 1]
                return self._place(number, int(numbers[i] - before) + sum(self.row_groups[number][:group]))(0)

            yield batch, place
            first += batch.num_rows

    @cached_property
    def _sorted(self) -> tuple["pa.Table", np.ndarray]:
        import pyarrow as pa
        import pyarrow.compute as pc

        names = list(dict.fromkeys(self.schema.columns.values()))
        batches = ((batch, piece[0]) for piece in self.pieces for batch, _ in self._read(piece, names))
        pieces = [_plain(batch, names, self.files[number].name) for batch, number in batches]
        keys = [self.schema.columns[part] for part in ("unit", "episode", "step") if part in self.schema.columns]
        with redact_errors("The table cannot be sorted", "Sort it before reading it."):
            table = pa.concat_tables(pieces).combine_chunks()
            order = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in dict.fromkeys(keys)]).to_numpy()
            if self.schema.episode is not None:
                ids = [table[column].combine_chunks() for column in (self.schema.unit, self.schema.episode)]
                order = _by_appearance(order, *(_codes(column) for column in ids))
            return table.take(pa.array(order)), order


def _codes(ids: "pa.Array") -> Int[np.ndarray, " R"]:
    """A number for each distinct id; -1 for none."""
    import pyarrow as pa

    return ids.dictionary_encode().indices.cast(pa.int64()).fill_null(-1).to_numpy()


def _by_appearance(
    order: Int[np.ndarray, " R"], units: Int[np.ndarray, " R"], episodes: Int[np.ndarray, " R"]
) -> Int[np.ndarray, " R"]:
    """The same rows with each unit's episodes in the order of their first rows in the table."""
    unit, episode = units[order], episodes[order]
    new_unit = np.append(True, unit[1:] != unit[:-1])
    new = new_unit | np.append(True, episode[1:] != episode[:-1])
    begins = np.flatnonzero(new)
    rank = np.empty(len(begins), np.int64)
    rank[np.lexsort((np.minimum.reduceat(order, begins), np.cumsum(new_unit)[begins]))] = np.arange(len(begins))
    return order[np.argsort(rank[np.cumsum(new) - 1], kind="stable")]


def folder_columns(files: tuple[Path, ...], schema: Schema) -> FolderColumns:
    """The columns in folder names, with the types of their parts. If a column plays two parts, the first decides."""
    return FolderColumns(files, {column: folder_type(part) for part, column in reversed(schema.columns.items())})


def open_parquet(path: Path) -> "pq.ParquetFile":
    """Open a Parquet file so that only a small part of it is in memory at a time."""
    import pyarrow.parquet as pq

    problem = f"`{path.name}` is not a Parquet file, or cannot be read"
    remedy = "Give a Parquet file or a folder of Parquet files."
    if path.suffix.lower() == ".csv":
        remedy += " `privrl prepare` makes a table of steps from a CSV file."
    with redact_errors(problem, remedy):
        # With a small buffer and no prefetching, a large row group is never in memory as a whole.
        return pq.ParquetFile(path, buffer_size=2**16, pre_buffer=False)


def read_batches(
    file: "pq.ParquetFile", batch_rows: int, columns: list[str], name: str, groups: Sequence[int] | None = None
) -> Iterator["pa.RecordBatch"]:
    """Yield the record batches with rows of an open file, or of some of its row groups.

    Raises:
        TableError: if the number of rows differs from the footer's.
    """
    with redact_errors(f"`{name}` cannot be read"):
        groups = range(file.metadata.num_row_groups) if groups is None else groups
        rows = sum(file.metadata.row_group(i).num_rows for i in groups)
        batches = file.iter_batches(batch_rows, row_groups=list(groups), columns=columns, use_threads=False)
    first = 0
    while True:
        with redact_errors(f"`{name}` cannot be read from row {first} on"):
            batch = next(batches, None)
        if batch is None:
            break
        first += batch.num_rows
        if batch.num_rows:
            yield batch
    if first != rows:
        raise TableError(f"`{name}` has more or fewer rows than its footer states. Write the file again.")


def _plain(batch: "pa.RecordBatch", columns: list[str], name: str) -> "pa.Table":
    """The batch without dictionary encoding, its columns in this order."""
    import pyarrow as pa

    with redact_errors(f"`{name}` cannot be decoded"):
        return pa.table({column: decode_sortable(batch.column(column)) for column in columns})


def locate_rows(name: str, first: int) -> Place:
    """The place of entry i, if entry 0 is row `first` of the file."""
    return lambda i: f"row {first + i} of `{name}` (rows count from 0)"
