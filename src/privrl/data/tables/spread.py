"""The rows of a table into files that hold whole people, so that shards of it can be added up on several workers."""

import contextlib
import itertools
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.rows.batches import opened, place_in, read_batches
from privrl.data.rows.files import Paths, parquet_files
from privrl.data.schema.columns import changes, plain
from privrl.data.schema.guard import guarded
from privrl.data.schema.table_schema import TableError
from privrl.data.tables.partition import partitioned

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE_BYTES = 2**28  # of a table that is sorted in memory
_BATCH_ROWS = 2**16
_GROUP_ROWS = 2**18  # of a row group
_MOST = 512  # pieces


def spread(
    source: Paths,
    target: str | Path,
    *,
    unit: str,
    files: int,
    episode: str | None = None,
    step: str | None = None,
) -> int:
    """Writes the table anew: each person with all rows in one of at most `files` files, sorted by person (then episode
    and step, where they are named). All columns are kept; dictionaries are written out. Returns how many files.

    The folder `target` appears whole or not at all, readable by its owner alone. Memory is that of one piece of the
    table; larger tables go through temporary files beside `target`. A file that no person falls into is not written.

    **Formal guarantee.** Which file a person goes to depends on their id alone, and rows are moved, not changed:
    nothing is computed about anybody, and no budget is spent.
    """
    target = Path(target)
    if not 1 <= files <= _MOST:
        raise ValueError(f"`files` is {files}; it must be from 1 to {_MOST}.")
    if target.exists():
        raise ValueError(f"`{target}` exists. Give a new folder.")
    if not target.absolute().parent.is_dir():
        raise ValueError(f"There is no folder `{target.parent}` to put `{target.name}` into. Make it first.")
    paths = parquet_files(source)
    keys = list(dict.fromkeys(name for name in (unit, episode, step) if name is not None))
    schema = _schema(paths, keys)
    size = sum(path.stat().st_size for path in paths)
    pieces = min(_MOST // files, math.ceil(size / _PIECE_BYTES / files)) * files
    temporary = Path(tempfile.mkdtemp(dir=target.absolute().parent, prefix=".privrl-"))  # with mode 700
    try:
        written = _write(paths, schema, temporary, keys, pieces, files)
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return written


def _schema(paths: tuple[Path, ...], keys: list[str]) -> "pa.Schema":
    """The columns of all files, which must be the same; `keys` are among them, and there are rows."""
    found, rows = None, 0
    for path in paths:
        with opened(path) as file, guarded(f"The names and types of the columns of `{path.name}` cannot be read"):
            schema, rows = file.schema_arrow.remove_metadata(), rows + file.metadata.num_rows
        for name in keys:
            if schema.names.count(name) != 1:
                raise TableError(f"`{path.name}` has no column `{name}`, or several. Its columns are {schema.names}.")
        found = found or schema
        if schema.names != found.names:
            raise TableError(f"`{path.name}` has other columns than `{paths[0].name}`. Write all files alike.")
    if rows == 0:
        raise TableError(f"`{paths[0].name}` has no rows. Give a table with at least one.")
    return found


def _write(paths: tuple[Path, ...], schema: "pa.Schema", folder: Path, keys: list[str], pieces: int, files: int) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    everyone = partitioned(_batches(paths, schema), keys[0], lambda i: f"row {i} of all files", pieces, folder)
    writers: dict[int, pq.ParquetWriter] = {}
    with contextlib.ExitStack() as stack:
        for number, piece in enumerate(everyone):
            if piece.num_rows:
                with guarded("The rows of a piece cannot be sorted"):
                    ordered = piece.sort_by([(key, "ascending") for key in keys])
                file = number % files  # pieces are a multiple of files: so is the hash of an id modulo files
                if file not in writers:
                    writer = pq.ParquetWriter(folder / f"part-{file:05d}.parquet", ordered.schema)
                    writers[file] = stack.enter_context(writer)
                for group in _groups(ordered, keys[0]):
                    writers[file].write_table(group)
                del ordered
            del piece
            pa.default_memory_pool().release_unused()
    return len(writers)


def _groups(ordered: "pa.Table", unit: str) -> Iterator["pa.Table"]:
    """Runs of about so many rows that end between two people, a row group each: shards can be cut at all of them."""
    ids = ordered.column(unit).combine_chunks()
    starts = np.append(np.flatnonzero(changes(ids, None)), len(ids))
    wanted = np.append(np.arange(0, len(ids), _GROUP_ROWS), len(ids))
    edges = np.unique(starts[np.searchsorted(starts, wanted)])
    for first, end in itertools.pairwise(edges.tolist()):
        yield ordered.slice(first, end - first)


def _batches(paths: tuple[Path, ...], schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """All rows, with the types of the first file."""
    import pyarrow as pa

    types: pa.Schema | None = None
    for path in paths:
        first = 0
        with opened(path) as file:
            for batch in read_batches(file, _BATCH_ROWS, schema.names, path.name):
                with guarded(f"`{path.name}` cannot be decoded from {place_in(path.name, first)(0)} on"):
                    columns = [plain(batch.column(name)) for name in schema.names]
                    if types is None:
                        types = pa.schema([(n, c.type) for n, c in zip(schema.names, columns, strict=True)])
                    columns = [c.cast(t) for c, t in zip(columns, types.types, strict=True)]  # raises if it would round
                    yield pa.RecordBatch.from_arrays(columns, schema=types)
                first += batch.num_rows
