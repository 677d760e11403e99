"""Parquet files as a stream of record batches: which rows there are, of which types, and where each one stands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Shaped, UInt64

from privrl.data._identity import hash_integers, hash_strings
from privrl.data._schema import Place, Schema, TableError, refuse

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
    num_rows: int = field(init=False)
    _stamps: tuple[tuple[int, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stamps", _stamps(self.files))
        kinds: dict[str, str] = {}
        rows = 0
        for path in self.files:
            with _opened(path) as file:
                rows += file.metadata.num_rows
                self.schema.require(file.schema_arrow.names, f"`{path.name}`")
                for part, column in self.schema.columns.items():
                    kind = _kind(file.schema_arrow.field(column).type, part, column, path.name)
                    if kinds.setdefault(part, kind) != kind:
                        raise TableError(
                            f"Column `{column}` holds {kinds[part]} in `{self.files[0].name}` and {kind} in "
                            f"`{path.name}`. Write all files with the same type."
                        )
        if rows == 0:
            name = self.files[0].name if len(self.files) == 1 else self.files[0].parent.name
            raise TableError(f"`{name}` has no rows. Give a table with at least one step of one episode.")
        object.__setattr__(self, "num_rows", rows)

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
            with _opened(path) as file:
                for number, batch in enumerate(file.iter_batches(self.batch_rows, columns=columns, use_threads=False)):
                    yield batch, _place_in(path.name, first)
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
                return _place_in(self.files[file].name, int(numbers[i] - before))(0)

            yield batch, place
            first += batch.num_rows

    @cached_property
    def _rows_per_file(self) -> list[int]:
        counts = []
        for path in self.files:
            with _opened(path) as file:
                counts.append(file.metadata.num_rows)
        return counts

    @cached_property
    def _sorted(self) -> tuple["pa.Table", np.ndarray]:
        import pyarrow as pa
        import pyarrow.compute as pc

        names = list(dict.fromkeys(self.schema.columns.values()))
        pieces = []
        for path in self.files:
            with _opened(path) as file:
                pieces.append(file.read(columns=names))
        table = pa.concat_tables(pieces, promote_options="permissive").unify_dictionaries().combine_chunks()
        keys = [self.schema.columns[part] for part in ("unit", "episode", "step") if part in self.schema.columns]
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


def _opened(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # with a small buffer and nothing fetched ahead, a large row group is never held whole
        return pq.ParquetFile(path, buffer_size=2**16, pre_buffer=False)
    except pa.ArrowInvalid:
        raise TableError(f"`{path.name}` is not a Parquet file. Give a Parquet file or a folder of them.") from None


def _place_in(name: str, first: int) -> Place:
    return lambda i: f"row {first + i} of `{name}` (rows count from 0)"


def _kind(dtype: "pa.DataType", part: str, column: str, file: str) -> str:
    """What a column holds, in words; an error if it cannot play its part."""
    from pyarrow import types

    kind = str(dtype)
    value = dtype.value_type if types.is_dictionary(dtype) else dtype
    if types.is_integer(value) or types.is_floating(value):
        kind = "whole numbers" if part in ("unit", "episode") and types.is_integer(value) else "numbers"
    elif types.is_string(value) or types.is_large_string(value):
        kind = "text"
    elif types.is_boolean(value):
        kind = "true or false"
    allowed = {"unit": ("whole numbers", "text"), "terminated": ("true or false", "numbers")}
    allowed["episode"] = allowed["unit"]
    if kind not in allowed.get(part, ("numbers",)):
        wanted = " or ".join(allowed.get(part, ("numbers",)))
        raise TableError(
            f"Column `{column}` of `{file}` holds {kind}; the {part.replace('_', ' ')} must be {wanted}. "
            f"Convert the column before reading the table."
        )
    return kind


def column_of(batch: "pa.RecordBatch", column: str, place: Place, missing: int | None = None) -> "pa.Array":
    """A column without dictionary encoding and without nulls (they become `missing`, or an error)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = batch.column(column)
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    if values.null_count and missing is None:
        bad = pc.is_null(values).to_numpy(zero_copy_only=False)
        refuse(bad, column, place, "is null", "Remove the episode or fill the value in before reading the table.")
    return pc.fill_null(values, missing) if values.null_count else values


def changes(ids: "pa.Array", previous: Any) -> Bool[np.ndarray, " N"]:
    """Where an id differs from the id one row above; `previous` is the last id of the rows before (`None` at first)."""
    import pyarrow.compute as pc

    changed = np.empty(len(ids), bool)
    changed[0] = ids[0].as_py() != previous
    changed[1:] = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy(zero_copy_only=False)
    return changed


def hashes(ids: "pa.Array", salt: int) -> UInt64[np.ndarray, " N"]:
    """Keyed 64-bit hashes of ids."""
    import pyarrow as pa

    if pa.types.is_integer(ids.type):
        return hash_integers(ids.to_numpy(), salt)
    text = ids.cast(pa.large_binary())
    _, offsets, data = text.buffers()
    ends: Shaped[np.ndarray, " M"] = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
    return hash_strings(ends, np.frombuffer(data or b"", np.uint8), salt)
