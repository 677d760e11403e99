"""Parquet files as a stream of record batches: which rows there are, of which types, and where each one stands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.data.columns import kind_of, plain
from privrl.data.guard import guarded
from privrl.data.schema import Place, Schema, TableError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Table:
    """One table in one or more Parquet files, read in order, `batch_rows` rows at a time.

    With `sort` the whole table is read into memory and sorted by unit, episode and step; without it, nothing is kept.
    """

    files: tuple[Path, ...]
    schema: Schema
    sort: bool = False
    batch_rows: int = 16_384
    _rows_per_file: tuple[int, ...] = field(init=False, repr=False)
    _stamps: tuple[tuple[int, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stamps", _stamps(self.files))
        kinds: dict[str, str] = {}
        rows = []
        for path in self.files:
            with opened(path) as file:
                rows.append(file.metadata.num_rows)
                with guarded(f"The names and types of the columns of `{path.name}` cannot be read"):
                    fields = [(field.name, field.type) for field in file.schema_arrow]  # a name may occur twice
                self.schema.require([name for name, _ in fields], f"`{path.name}`")
                types = dict(fields)
                for part, column in self.schema.columns.items():
                    kind = kind_of(types[column], part, column, path.name)
                    if kinds.setdefault(part, kind) != kind:
                        raise TableError(
                            f"Column `{column}` holds {kinds[part]} in `{self.files[0].name}` and {kind} in "
                            f"`{path.name}`. Write all files with the same type."
                        )
        if sum(rows) == 0:
            name = self.files[0].name if len(self.files) == 1 else self.files[0].parent.name
            raise TableError(f"`{name}` has no rows. Give a table with at least one step of one episode.")
        object.__setattr__(self, "_rows_per_file", tuple(rows))

    @property
    def num_rows(self) -> int:
        return sum(self._rows_per_file)

    def refuse_changed(self) -> None:
        """Raises if a file was written to since the table was opened: what was checked then holds no more."""
        if _stamps(self.files) != self._stamps:
            raise TableError("The files have changed since the table was opened. Open it again.")

    def batches(self, parts: Sequence[str]) -> Iterator[tuple["pa.RecordBatch", Place]]:
        """Record batches with the columns of these parts, and where each row stands."""
        import pyarrow as pa

        self.refuse_changed()
        columns = list(dict.fromkeys(self.schema.columns[part] for part in parts))
        if self.sort:
            yield from self._sorted_batches(columns)
            return
        for path in self.files:
            first = 0
            with opened(path) as file:
                for number, batch in enumerate(read_batches(file, self.batch_rows, columns, path.name)):
                    yield batch, place_in(path.name, first)
                    first += batch.num_rows
                    if number % 4 == 3:
                        # the allocator would keep freed pages for later, tens of megabytes on a long table
                        pa.default_memory_pool().release_unused()

    def _sorted_batches(self, columns: list[str]) -> Iterator[tuple["pa.RecordBatch", Place]]:
        table, rows = self._sorted
        ends = np.cumsum(self._rows_per_file)
        first = 0
        for batch in table.select(columns).to_batches(max_chunksize=self.batch_rows):
            numbers = rows[first : first + batch.num_rows]

            def place(i: int, numbers: np.ndarray = numbers) -> str:
                file = int(np.searchsorted(ends, numbers[i], side="right"))
                before = 0 if file == 0 else ends[file - 1]
                return place_in(self.files[file].name, int(numbers[i] - before))(0)

            yield batch, place
            first += batch.num_rows

    @cached_property
    def _sorted(self) -> tuple["pa.Table", np.ndarray]:
        import pyarrow as pa
        import pyarrow.compute as pc

        names = list(dict.fromkeys(self.schema.columns.values()))
        pieces = []
        for path in self.files:
            with opened(path) as file:
                pieces += [
                    _plain(batch, names, path.name) for batch in read_batches(file, self.batch_rows, names, path.name)
                ]
        keys = [self.schema.columns[part] for part in ("unit", "episode", "step") if part in self.schema.columns]
        with guarded("The table cannot be sorted", "Sort it before reading it."):
            table = pa.concat_tables(pieces).combine_chunks()
            order = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in dict.fromkeys(keys)])
            return table.take(order), order.to_numpy()


def parquet_files(path: str | Path) -> tuple[Path, ...]:
    """The file itself, or the `*.parquet` files of a folder by name."""
    path = Path(path)
    if path.is_dir():
        files = tuple(sorted(path.glob("*.parquet")))
        if not files:
            raise TableError(f"The folder `{path.name}` holds no `*.parquet` file. Give another one, or a file.")
        return files
    if not path.is_file():
        raise TableError(f"There is no file or folder `{path}`. Give a Parquet file or a folder of them.")
    return (path,)


def _stamps(files: tuple[Path, ...]) -> tuple[tuple[int, int], ...]:
    stats = [path.stat() for path in files]
    return tuple((stat.st_size, stat.st_mtime_ns) for stat in stats)


def opened(path: Path) -> Any:
    """A Parquet file, of which little is held at a time."""
    import pyarrow.parquet as pq

    problem = f"`{path.name}` is not a Parquet file, or cannot be read"
    with guarded(problem, "Give a Parquet file or a folder of them."):
        # with a small buffer and nothing fetched ahead, a large row group is never held whole
        return pq.ParquetFile(path, buffer_size=2**16, pre_buffer=False)


def read_batches(file: Any, batch_rows: int, columns: list[str], name: str) -> Iterator["pa.RecordBatch"]:
    """The record batches of an open file that have rows; an error unless they are as many rows as the file says."""
    with guarded(f"`{name}` cannot be read"):
        batches = file.iter_batches(batch_rows, columns=columns, use_threads=False)
    first = 0
    while True:
        with guarded(f"`{name}` cannot be read from row {first} on"):
            batch = next(batches, None)
        if batch is None:
            break
        first += batch.num_rows
        if batch.num_rows:
            yield batch
    if first != file.metadata.num_rows:
        raise TableError(f"`{name}` has other rows than its footer says. Write the file again.")


def _plain(batch: "pa.RecordBatch", columns: list[str], name: str) -> "pa.Table":
    """The batch without dictionary encoding, its columns in this order."""
    import pyarrow as pa

    with guarded(f"`{name}` cannot be decoded"):
        return pa.table({column: plain(batch.column(column)) for column in columns})


def place_in(name: str, first: int) -> Place:
    """Where entry i stands, if entry 0 is row `first` of the file."""
    return lambda i: f"row {first + i} of `{name}` (rows count from 0)"
