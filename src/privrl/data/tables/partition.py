"""Rows in pieces that hold whole people: an external partition by id, in memory that does not grow with the table."""

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

_MOST = 512  # files that are open at once


def partition(
    batches: Iterable["pa.RecordBatch"], unit: str, place: Place, pieces: int, folder: Path | None = None
) -> Iterator["pa.Table"]:
    """The rows of all batches in `pieces` tables, some of which may be empty; a person is in one of them with all rows,
    which are in the order in which they came.

    A person's piece depends on a hash of their id alone. With several pieces the rows go to temporary files, in
    `folder` or where the system has them, which are removed at the end; they are as secret as the table.

    Arguments:
        batches: record batches of one schema.
        unit: the column of ids, none of them null.
        place: says where row i of all batches together stands.
    """
    import pyarrow as pa

    pieces = max(1, min(pieces, _MOST))
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
    """Writes every row to the file of its person; returns the schema."""
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
