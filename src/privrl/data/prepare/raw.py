"""Raw records, CSV or Parquet: batches of typed columns with the number of each row, and errors without cells.

In a CSV file every column is read as what it is declared to hold, whatever its cells look like: ids as text (so that
`007` and `7` stay two people), numbers as doubles, times as ISO 8601 or in a given format. A cell that is none is
refused, by its row. In text only an empty cell is missing; "NA", "null" and "nan" are text.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from privrl.data.rows.batches import locate_rows, open_parquet, read_batches
from privrl.data.schema.columns import check_type, decode_sortable, describe_type, refuse
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Place, TableError

if TYPE_CHECKING:
    import pyarrow as pa

Use = Literal["id", "time", "number", "value", "text", "end", "name"]
"""What a raw column is used as: an id, a time, a number, anything that can be copied, text that is copied, whether or
when an episode has ended, or the name of what was measured."""
Cells = Literal["text", "number", "time", "zoned time", "truth"]
"""What the cells of a column of a CSV file are read as."""
ROW = "__row__"
"""The column that holds the number of each row."""

MISSING = (
    *("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "NaN", "nan", "-NaN", "-nan"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""The cells of a CSV file that stand for no value in a column of numbers, times or truths. In a column of text, only an
empty cell does."""

_BLOCK_BYTES = 2**20
_BATCH_ROWS = 2**16
_ZONES = "Times with and without a time zone must not be mixed. "
_TIMES = "Write times as in 1999-12-31 13:00:00, or give their format. "
_WANTED: dict[Cells, tuple[str, str]] = {
    "text": ("text in UTF-8", "Write the file in UTF-8."),
    "number": ("a number", "Columns hold numbers unless they are declared as text (`--text`)."),
    "time": ("a time without a time zone", f"{_TIMES}Where all of them have a time zone, say so (`--zoned`)."),
    "zoned time": ("a time with a time zone", "Times are declared to end in Z or an offset such as +02:00."),
    "truth": ("true or false, or 1 or 0", "Where it is the time of the end, say so (`--end COL:time`)."),
}
"""What a cell must be, and what to do where it is none."""


@dataclass(frozen=True)
class RawTable:
    """A CSV or Parquet file of which these columns are used; `cells` says how a CSV file is read.

    **Formal guarantee.** The types of all columns are functions of `cells`, or of the schema of a Parquet file, so a
    row that is read is a function of that row of the file. A row of a CSV file is one line: if a cell spans several
    lines, for which one open quotation mark is enough, the file is refused.
    """

    path: Path
    uses: Mapping[str, Use]
    cells: Mapping[str, Cells]
    time_format: str | None = None

    def __post_init__(self) -> None:
        if self.path.suffix.lower() not in (".csv", ".parquet"):
            raise TableError(f"`{self.path}` must end in .csv or .parquet.")
        if not self.path.is_file():
            raise TableError(f"There is no file `{self.path}`. Give a CSV or Parquet file.")

    @property
    def size(self) -> int:
        """About how many bytes the columns take in memory."""
        if self.path.suffix.lower() == ".csv":
            return self.path.stat().st_size
        with open_parquet(self.path) as file:
            return int(file.metadata.num_rows) * 10 * (len(self.uses) + 1)

    def place(self, row: int) -> str:
        """Where a row stands."""
        return locate_rows(self.path.name, row)(0)

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """All rows in order, with columns of the types that their uses say, and their numbers."""
        import pyarrow as pa

        first = 0
        read = self._csv() if self.path.suffix.lower() == ".csv" else self._parquet()
        for batch in read:
            rows = pa.array(np.arange(first, first + batch.num_rows))
            columns = [self._typed(batch, name, locate_rows(self.path.name, first)) for name in self.uses]
            yield pa.RecordBatch.from_arrays([*columns, rows], [*self.uses, ROW])
            first += batch.num_rows
        if first == 0:
            raise TableError(f"`{self.path.name}` has no rows. Give a table with at least one record.")

    def _typed(self, batch: "pa.RecordBatch", name: str, place: Place) -> "pa.Array":
        """A column without dictionary encoding; numbers as doubles, which must be finite where they are given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        with redact_errors(f"Column `{name}` cannot be read from {place(0)} on"):
            values = decode_sortable(batch.column(name))
            if self.path.suffix.lower() == ".csv" and self.cells[name] == "text":
                empty = pc.equal(values, pa.scalar("", values.type))
                values = pc.if_else(empty, pa.scalar(None, values.type), values)
            if self.uses[name] != "number":
                return values
            values = values.cast(pa.float64(), safe=False)
        refuse_infinite(values, name, place)
        return values

    def _parquet(self) -> Iterator["pa.RecordBatch"]:
        with open_parquet(self.path) as file:
            with redact_errors(f"The names and types of the columns of `{self.path.name}` cannot be read"):
                fields = [(field.name, field.type) for field in file.schema_arrow]
            self._require([name for name, _ in fields])
            for name, use in self.uses.items():
                _check_type(dict(fields)[name], use, name, self.path.name)
            yield from read_batches(file, _BATCH_ROWS, list(self.uses), self.path.name)

    def _csv(self) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyarrow import csv

        names = self._names()
        self._require(names)
        stamp, zoned = pa.timestamp("us"), pa.timestamp("us", "UTC")
        kinds = {"text": pa.string(), "number": pa.float64(), "time": stamp, "zoned time": zoned, "truth": pa.bool_()}
        types = {name: kinds[self.cells[name]] for name in self.uses}
        options = csv.ConvertOptions(
            column_types=types, include_columns=list(self.uses), null_values=MISSING, **self._parsers
        )
        reader = self._next(lambda: csv.open_csv(self.path, self._reading, convert_options=options), names)
        rows = 0
        while True:
            batch = self._next(lambda: _next_batch(reader), names)
            if batch is None:
                break
            rows += batch.num_rows
            yield batch
        if rows and rows != _lines(self.path) - 1:
            raise TableError(
                f"A cell of `{self.path.name}` holds a line break, or a quotation mark that is not closed on its line, "
                "which hides the lines after it. Write every record on one line, and a quotation mark inside a cell as "
                "two; or write a Parquet file."
            )

    @property
    def _reading(self) -> Any:
        from pyarrow import csv

        return csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)

    @property
    def _parsers(self) -> dict[str, Any]:
        from pyarrow import csv

        return {} if self.time_format is None else {"timestamp_parsers": [self.time_format, csv.ISO8601]}

    def _names(self) -> list[str]:
        """The first line of the file."""
        from pyarrow import csv

        problem = f"`{self.path.name}` is not a CSV file, or cannot be read"
        remedy = "Give a file with a line of names and as many cells in every line."
        with redact_errors(problem, remedy), csv.open_csv(self.path, self._reading) as reader:
            return reader.schema.names

    def _next(self, read: Callable[[], Any], names: list[str]) -> Any:
        """What `read` gives; an error says which column and row, as pyarrow says it before it quotes the cell."""
        where = None
        try:
            return read()
        except Exception as error:
            where = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to \w+", str(error))
            kind = type(error).__name__
        if where is None:
            raise TableError(
                f"`{self.path.name}` cannot be read ({kind}). Every line needs as many cells as the first one has."
            )
        name = names[int(where[1])]
        row = f" at {self.place(int(where[2]) - 2)}" if where[2] else ""
        wanted, remedy = _WANTED[self.cells[name]]
        if self.uses[name] == "time" and self.cells[name] == "number":
            remedy = (
                "The length of a window is a number, so times are; for timestamps, give it with a unit, such as 4h."
            )
        raise TableError(f"Column `{name}` does not hold {wanted}{row}. {remedy} Correct the cell, or leave it empty.")

    def _require(self, present: list[str]) -> None:
        for name in self.uses:
            if present.count(name) != 1:
                how_many = "no" if name not in present else "several"
                # the first line of a CSV file may be somebody's record
                named = "Its first line must name the columns."
                if self.path.suffix.lower() != ".csv":
                    named = f"Its columns are {', '.join(f'`{column}`' for column in present)}."
                raise TableError(f"`{self.path.name}` has {how_many} column `{name}`. {named}")


def _lines(path: Path) -> int:
    """How many lines of a file are not empty; a line ends as it does for a reader of CSV files, quoted or not."""
    count, ended = 0, True
    with path.open("rb") as file:
        while piece := file.read(_BLOCK_BYTES):
            bytes_ = np.frombuffer(piece, np.uint8)
            ends = (bytes_ == ord("\n")) | (bytes_ == ord("\r"))
            count += int(np.count_nonzero(~ends & np.append(ended, ends[:-1])))
            ended = bool(ends[-1])
    return count


def refuse_infinite(values: "pa.Array", name: str, place: Place) -> None:
    """Raises if a number is infinite; `place` says where they stand."""
    import pyarrow.compute as pc

    with redact_errors(f"Column `{name}` cannot be read from {place(0)} on"):
        bad = pc.fill_null(pc.is_inf(values), fill_value=False).to_numpy(zero_copy_only=False)
    refuse(bad, name, place, "is infinite", "Leave the cell empty where nothing was measured.")


def _next_batch(reader: Any) -> Any:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


_PARTS: dict[Use, str] = {"id": "unit", "name": "name", "number": "feature", "value": "copied"}
"""As what a table of steps would have the column."""


def _check_type(dtype: "pa.DataType", use: Use, name: str, file: str) -> None:
    """Refuses a column that cannot be used as it is to be."""
    from pyarrow import types

    value = dtype.value_type if types.is_dictionary(dtype) else dtype
    number = types.is_integer(value) or types.is_floating(value)
    if use in _PARTS:
        check_type(value, _PARTS[use], name, file)
    elif use == "text":
        if not (types.is_string(value) or types.is_large_string(value)):
            raise TableError(f"Column `{name}` of `{file}` holds {describe_type(value)}; it is declared as text.")
    elif not (number or types.is_timestamp(value) or (use == "end" and types.is_boolean(value))):
        wanted = "times or numbers" if use == "time" else "true or false, or times"
        raise TableError(
            f"Column `{name}` of `{file}` holds {describe_type(value)}; it must hold {wanted}. {_TIMES}{_ZONES}"
            "Write all of them alike."
        )
