"""Rewrite a table as files that each hold whole people, so that several workers can sum its shards."""

import contextlib
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from privrl.data.rows.batches import locate_rows, open_parquet, read_batches
from privrl.data.rows.files import FolderColumns, Paths, describe_file, parquet_files
from privrl.data.schema.columns import decode, decoded_type, describe_type, find_changes, folder_type
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.partition import partition
from privrl.writing import create_private, whole_folder

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE_BYTES = 2**28  # about the size of a piece, which is sorted in memory
_BATCH_ROWS = 2**16  # rows read at a time
_GROUP_ROWS = 2**18  # about the rows of a row group
_MAX_FILES = 512
FILES = ("part-*.parquet",)
"""The names of the files that are written."""


def spread(
    source: Paths,
    target: str | Path,
    *,
    unit: str,
    files: int,
    episode: str | None = None,
    step: str | None = None,
    overwrite: bool = False,
) -> int:
    """Rewrite the table so that each person, with all rows, is in one of at most `files` files.

    Files are sorted by person, then episode and step if these columns are named. All columns are kept with their types;
    dictionaries are decoded. Columns in folder names become text (the step: whole numbers). All source files must have
    the same columns of the same types.

    The folder `target` is created as a whole or not at all; only its owner can read it. Memory is that of one piece of
    the table; larger tables go through temporary files next to `target`. A file to which no person is assigned is not
    written.

    Arguments:
        source: the table, as for `read_parquet`.
        target: the new folder.
        unit, episode, step: names of columns.
        files: the largest number of files.
        overwrite: whether `target` may replace a folder that this function wrote.

    Returns:
        the number of files written.

    Raises:
        TableError: if a column is missing, or files have different columns or types.
        ValueError: if `files` is out of range, or the folder of `target` does not exist.

    **Formal guarantee.** The file of a person depends only on their id, and rows are moved, not changed: no statistic
    of the data is computed, and no budget is spent.
    """
    target = Path(target)
    if not 1 <= files <= _MAX_FILES:
        raise ValueError(f"`files` is {files}; it must be from 1 to {_MAX_FILES}.")
    if not target.absolute().parent.is_dir():
        raise ValueError(f"There is no folder `{target.parent}` for `{target.name}`. Create it first.")
    paths = parquet_files(source)
    keys = list(dict.fromkeys(name for name in (unit, episode, step) if name is not None))
    folders = FolderColumns(paths, {} if step is None else {step: folder_type("step")})
    schema = _schema(folders, keys)
    size = sum(path.stat().st_size for path in paths)
    pieces = min(_MAX_FILES // files, math.ceil(size / _PIECE_BYTES / files)) * files
    with whole_folder(target, FILES, overwrite=overwrite, secret=True) as temporary:
        return _write(folders, schema, temporary, keys, pieces, files)


def _schema(folders: FolderColumns, keys: list[str]) -> "pa.Schema":
    """The columns of all files, which must agree and contain `keys`; an error if there are no rows."""
    import pyarrow as pa

    found, rows = pa.schema([]), 0
    for number, path in enumerate(folders.files):
        name = describe_file(folders.files, number)
        with open_parquet(path) as file, redact_errors(f"The names and types of the columns of {name} cannot be read"):
            columns = [(field.name, decoded_type(field.type)) for field in file.schema_arrow]
            rows += file.metadata.num_rows
        present = [column for column, _ in columns]
        columns += [one for one in folders.types(number).items() if one[0] not in present]
        schema = pa.schema([(column, decoded_type(dtype)) for column, dtype in columns])
        for key in keys:
            if schema.names.count(key) != 1:
                raise TableError(f"{name} has no column `{key}`, or several. Its columns are {schema.names}.")
        found = schema if number == 0 else found
        if schema.names != found.names:
            raise TableError(
                f"{name} and {describe_file(folders.files, 0)} have different columns. Write the same columns."
            )
        for first, other in zip(found, schema, strict=True):
            if first.type != other.type:
                _refuse_types(first, other, describe_file(folders.files, 0), name)
    if rows == 0:
        raise TableError(f"{describe_file(folders.files, 0)} has no rows. Give a table with at least one row.")
    return found


def _refuse_types(first: "pa.Field", other: "pa.Field", one_file: str, other_file: str) -> NoReturn:
    one, another = describe_type(first.type), describe_type(other.type)
    if one == another:
        another += " of another precision, unit, time zone or structure"
    raise TableError(
        f"Column `{first.name}` holds {one} in {one_file} and {another} in {other_file}. Write all files with the same "
        "type."
    )


def _write(folders: FolderColumns, schema: "pa.Schema", folder: Path, keys: list[str], pieces: int, files: int) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    everyone = partition(_batches(folders, schema), keys[0], lambda i: f"row {i} of all files", pieces, folder)
    writers: dict[int, pq.ParquetWriter] = {}
    with contextlib.ExitStack() as stack:
        for number, piece in enumerate(everyone):
            if piece.num_rows:
                with redact_errors("The rows of a piece cannot be sorted"):
                    ordered = piece.sort_by([(key, "ascending") for key in keys])
                # The number of pieces is a multiple of `files`, so this is the hash of the id modulo `files`.
                file = number % files
                if file not in writers:
                    name = create_private(folder / f"part-{file:05d}.parquet")
                    writers[file] = stack.enter_context(pq.ParquetWriter(name, ordered.schema))
                for group in _groups(ordered, keys[0]):
                    writers[file].write_table(group)
                del ordered
            del piece
            pa.default_memory_pool().release_unused()
    return len(writers)


def _groups(ordered: "pa.Table", unit: str) -> Iterator["pa.Table"]:
    """Cut into row groups of about `_GROUP_ROWS` rows that end between two people, so that shards can be cut at all of
    them."""
    ids = ordered.column(unit).combine_chunks()
    starts = np.append(np.flatnonzero(find_changes(ids, None)), len(ids))
    wanted = np.append(np.arange(0, len(ids), _GROUP_ROWS), len(ids))
    edges = np.unique(starts[np.searchsorted(starts, wanted)])
    for first, end in itertools.pairwise(edges.tolist()):
        yield ordered.slice(first, end - first)


def _batches(folders: FolderColumns, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """Yield all rows with the types of the schema; values are not converted."""
    import pyarrow as pa

    for number, path in enumerate(folders.files):
        first = 0
        with open_parquet(path) as file:
            there = [name for name in schema.names if name in file.schema_arrow.names]
            for batch in read_batches(file, _BATCH_ROWS, there, path.name):
                whole = folders.add_to(batch, number, schema.names)
                with redact_errors(f"`{path.name}` cannot be decoded from {locate_rows(path.name, first)(0)} on"):
                    columns = [decode(whole.column(name)) for name in schema.names]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)
                first += batch.num_rows
