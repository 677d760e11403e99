"""Raw records, CSV or Parquet: batches of typed columns with the number of each row, and errors without cells.

In a CSV file ids are read as text (so that `007` and `7` stay two people), columns of numbers as numbers, and times as
ISO 8601 or in a given format. A column never changes its type further down.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from privrl.data.columns import kind_of, plain, words_of_type
from privrl.data.guard import guarded
from privrl.data.schema import Place, TableError
from privrl.data.table import opened, place_in, read_batches

if TYPE_CHECKING:
    import pyarrow as pa

Use = Literal["id", "time", "number", "value", "end"]
"""What a raw column is read as: an id, a time, a number, anything that can be copied, or a truth or time of the end."""
ROW = "__row__"
"""The column that holds the number of each row."""

_BLOCK_BYTES = 2**20
_BATCH_ROWS = 2**16
_ZONES = "Times with and without a time zone must not be mixed. "


@dataclass(frozen=True)
class RawTable:
    """A CSV or Parquet file of which these columns are used."""

    path: Path
    uses: Mapping[str, Use]
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
        with opened(self.path) as file:
            return int(file.metadata.num_rows) * 10 * (len(self.uses) + 1)

    def place(self, row: int) -> str:
        """Where a row stands."""
        return place_in(self.path.name, row)(0)

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """All rows in order, with columns of the types that their uses say, and their numbers."""
        import pyarrow as pa

        first = 0
        read = self._csv() if self.path.suffix.lower() == ".csv" else self._parquet()
        for batch in read:
            rows = pa.array(np.arange(first, first + batch.num_rows))
            columns = [self._typed(batch, name, place_in(self.path.name, first)) for name in self.uses]
            yield pa.RecordBatch.from_arrays([*columns, rows], [*self.uses, ROW])
            first += batch.num_rows
        if first == 0:
            raise TableError(f"`{self.path.name}` has no rows. Give a table with at least one record.")

    def _typed(self, batch: "pa.RecordBatch", name: str, place: Place) -> "pa.Array":
        """A column without dictionary encoding; numbers as doubles, which must be finite where they are given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        with guarded(f"Column `{name}` cannot be read from {place(0)} on"):
            values = plain(batch.column(name))
            if self.uses[name] != "number":
                return values
            values = values.cast(pa.float64(), safe=False)
            bad = pc.fill_null(pc.is_inf(values), fill_value=False).to_numpy(zero_copy_only=False)
        if bad.any():
            raise TableError(
                f"Column `{name}` is infinite at {place(int(bad.argmax()))}. Leave the cell empty where nothing was "
                "measured."
            )
        return values

    def _parquet(self) -> Iterator["pa.RecordBatch"]:
        with opened(self.path) as file:
            with guarded(f"The names and types of the columns of `{self.path.name}` cannot be read"):
                fields = [(field.name, field.type) for field in file.schema_arrow]
            self._require([name for name, _ in fields])
            for name, use in self.uses.items():
                _check_type(dict(fields)[name], use, name, self.path.name)
            yield from read_batches(file, _BATCH_ROWS, list(self.uses), self.path.name)

    def _csv(self) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyarrow import csv

        guessed = self._guessed()
        self._require(guessed.names)
        types: dict[str, pa.DataType] = {}
        for name, use in self.uses.items():
            types[name] = _csv_type(guessed.field(name).type, use)
            _check_type(types[name], use, name, self.path.name)
        options = csv.ConvertOptions(
            column_types=types, include_columns=list(self.uses), strings_can_be_null=True, **self._parsers
        )
        reader = self._next(lambda: csv.open_csv(self.path, self._reading, convert_options=options), guessed.names)
        while True:
            batch = self._next(lambda: _next_batch(reader), guessed.names)
            if batch is None:
                return
            yield batch

    @property
    def _reading(self) -> Any:
        from pyarrow import csv

        return csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES)

    @property
    def _parsers(self) -> dict[str, Any]:
        from pyarrow import csv

        return {} if self.time_format is None else {"timestamp_parsers": [self.time_format, csv.ISO8601]}

    def _guessed(self) -> "pa.Schema":
        """Names and types, as the first block of the file suggests them."""
        from pyarrow import csv

        problem = f"`{self.path.name}` is not a CSV file, or cannot be read"
        with guarded(problem, "Give a file with a line of names and as many cells in every line."):
            options = csv.ConvertOptions(strings_can_be_null=True, **self._parsers)
            with csv.open_csv(self.path, self._reading, convert_options=options) as reader:
                return reader.schema

    def _next(self, read: Callable[[], Any], names: list[str]) -> Any:
        """What `read` gives; an error says which column and row, as pyarrow says it before it quotes the cell."""
        where = None
        try:
            return read()
        except Exception as error:
            where = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+)", str(error))
            kind = type(error).__name__
        if where is None:
            raise TableError(
                f"`{self.path.name}` cannot be read ({kind}). Every line needs as many cells as the first one has."
            )
        name = names[int(where[1])]
        row = f" at {self.place(int(where[2]) - 2)}" if where[2] else ""
        wanted = {"double": "a number", "timestamp": "a time like the first ones"}.get(where[3], "such a value")
        zones = _ZONES if where[3] == "timestamp" else ""
        raise TableError(f"Column `{name}` does not hold {wanted}{row}. {zones}Correct the cell, or leave it empty.")

    def _require(self, present: list[str]) -> None:
        for name in self.uses:
            if present.count(name) != 1:
                how_many = "no" if name not in present else "several"
                # the first line of a CSV file may be somebody's record
                named = "Its first line must name the columns."
                if self.path.suffix.lower() != ".csv":
                    named = f"Its columns are {', '.join(f'`{column}`' for column in present)}."
                raise TableError(f"`{self.path.name}` has {how_many} column `{name}`. {named}")


def _next_batch(reader: Any) -> Any:
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


def _csv_type(guess: "pa.DataType", use: Use) -> "pa.DataType":
    import pyarrow as pa
    from pyarrow import types

    if use == "id":
        return pa.string()
    if types.is_timestamp(guess):
        return pa.timestamp("us", guess.tz)
    if use == "number" or types.is_null(guess) or types.is_integer(guess) or types.is_floating(guess):
        return pa.float64()
    return pa.timestamp("us") if types.is_date(guess) else guess


def _check_type(dtype: "pa.DataType", use: Use, name: str, file: str) -> None:
    """Refuses a column that cannot be used as it is to be."""
    from pyarrow import types

    value = dtype.value_type if types.is_dictionary(dtype) else dtype
    number = types.is_integer(value) or types.is_floating(value)
    if use in ("id", "number", "value"):
        kind_of(value, "unit" if use == "id" else "feature" if use == "number" else "copied", name, file)
    elif not (number or types.is_timestamp(value) or (use == "end" and types.is_boolean(value))):
        wanted = "times or numbers" if use == "time" else "true or false, or times"
        raise TableError(
            f"Column `{name}` of `{file}` holds {words_of_type(value)}; it must hold {wanted}. Write times as in "
            f"1999-12-31 13:00:00, or give their format. {_ZONES}Write all of them alike."
        )
