"""Partition rows into pieces that hold whole people, in bounded memory."""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.schema.columns import hashes, read_ids
from privrl.data.schema.table_schema import Place
from privrl.writing import create_private

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_PIECES = 512  # temporary files open at the same time


def partition(
    batches: Iterable["pa.RecordBatch"], unit: str, place: Place, pieces: int, folder: Path | None = None
) -> Iterator["pa.Table"]:
    """Yield the rows of all batches in `pieces` tables, some of which may be empty.

    All rows of a person are in one table, in their original order. The table depends only on a hash of the person's id.
    With several pieces, rows go through temporary files in `folder` (by default, the system's), which are removed at
    the end; they are as secret as the table.

    Arguments:
        batches: record batches of one schema.
        unit: the column of ids, without nulls.
        place: locates row i of all batches together.
        pieces: the number of tables, at most 512.
        folder: where temporary files go.
    """
    import pyarrow as pa

    pieces = max(1, min(pieces, _MAX_PIECES))
    if pieces == 1:
        yield pa.Table.from_batches([batch for batch, _ in _with_ids(batches, unit, place)])
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".privrl-") as temporary:
        files = [Path(temporary) / f"{piece}.arrow" for piece in range(pieces)]
        schema = _spread(_with_ids(batches, unit, place), files)
        for file in files:
            if file.exists():
                with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
                    yield reader.read_all()
                file.unlink()
            else:
                yield schema.empty_table()


def _with_ids(
    batches: Iterable["pa.RecordBatch"], unit: str, place: Place
) -> Iterator[tuple["pa.RecordBatch", "pa.Array"]]:
    before = 0
    for batch in batches:
        yield batch, read_ids(batch, unit, _shifted(place, before))
        before += batch.num_rows


def _shifted(place: Place, before: int) -> Place:
    return lambda i: place(before + i)


def _spread(batches: Iterator[tuple["pa.RecordBatch", "pa.Array"]], files: list[Path]) -> "pa.Schema":
    """Write every row to the file of its person; return the schema."""
    import pyarrow as pa

    writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
    schema = None
    with contextlib.ExitStack() as stack:
        for batch, ids in batches:
            schema = batch.schema
            piece = (hashes(ids, 0) % np.uint64(len(files))).astype(np.uint16)
            order = np.argsort(piece, kind="stable")
            sorted_batch = batch.take(pa.array(order))
            ends = np.searchsorted(piece[order], np.arange(len(files) + 1))
            for number in np.flatnonzero(np.diff(ends)).tolist():
                if number not in writers:
                    sink = stack.enter_context(pa.OSFile(create_private(files[number]), "wb"))
                    writers[number] = stack.enter_context(pa.ipc.new_stream(sink, schema))
                writers[number].write_batch(sorted_batch.slice(ends[number], ends[number + 1] - ends[number]))
    assert schema is not None  # a table has rows
    return schema
