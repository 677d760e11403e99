"""Read raw records from CSV or Parquet as batches of typed columns with row numbers; errors quote no cell.

The columns of a CSV file are read by their declared types, whatever their cells look like: ids as text (`007` and `7`
are different people), numbers as doubles, times as ISO 8601 or in a given format. A cell that does not fit is refused,
by its line. In a column of text only an empty cell is missing; "NA", "null" and "nan" are text.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from privrl.data.rows.batches import locate_rows, open_parquet, read_batches
from privrl.data.schema.columns import check_type, decode_sortable, describe_type, refuse
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Place, TableError
from privrl.shapes import Int

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

_Read = TypeVar("_Read")

Use = Literal["id", "time", "number", "value", "text", "end", "name", "group"]
"""The use of a raw column: an id, a time, a number, a value of any type to copy, text to copy, whether or when an
episode has ended, the name of a measurement, or a group."""
Cells = Literal["text", "number", "time", "zoned time", "truth"]
"""The declared type of the cells of a column in a CSV file."""
ROW = "__row__"
"""The name of the added column that numbers the rows."""

MISSING = (
    *("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "NaN", "nan", "-NaN", "-nan"),
    *("1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""The cells of a CSV file that mean a missing value in a column of numbers, times or truths. In a column of text, only
an empty cell does."""

_BLOCK_BYTES = 2**20  # of a CSV file, read at a time
_BATCH_ROWS = 2**16  # of a Parquet file, read at a time
_DECIMAL = "If numbers have a decimal comma, declare it (`--decimal ,`). "
_ZONES = "Do not mix times with and without a time zone. "
_RENAME = (
    "Give a CSV or Parquet file. If it is text with another character between cells, rename it to .csv, and declare "
    "the character (`--delimiter`)."
)
_TEXT_ENDINGS = (".tsv", ".tab", ".txt", ".psv", ".dat")
_TIMES = "Write times as in 1999-12-31 13:00:00, or give their format (`--time-format`). "
_WANTED: dict[Cells, tuple[str, str]] = {
    "text": ("text in UTF-8", "Write the file in UTF-8, or declare its encoding (`--encoding cp1252`)."),
    "number": ("a number", f"Columns hold numbers unless they are declared as text (`--text`). {_DECIMAL}"[:-1]),
    "time": ("a time without a time zone", f"{_TIMES}If all times have a time zone, declare it (`--zoned`)."),
    "zoned time": ("a time with a time zone", "Times are declared to end in Z or an offset such as +02:00."),
    "truth": ("true or false, or 1 or 0", "If it is the time of the end, declare it (`--end COL:time`)."),
}
"""The required content of a cell, and the remedy."""


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Attributes:
        delimiter: the character between cells, for example ";" or a tab.
        decimal: the decimal point of numbers, "." or ",".
        encoding: of its text, for example "cp1252". Line breaks must be those of ASCII, so UTF-16 is refused.
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise ValueError(
                f"`delimiter` is {self.delimiter!r}; give one character, such as `;` or a tab, other than a quotation "
                "mark."
            )
        if self.decimal not in (".", ",") or self.decimal == self.delimiter:
            raise ValueError(
                f"`decimal` is {self.decimal!r} and `delimiter` is {self.delimiter!r}; `decimal` must be `.` or `,` "
                "and differ from `delimiter`. Files with a decimal comma usually have the delimiter `;`."
            )
        try:
            known = "\r\n;1".encode(self.encoding).endswith(b"\r\n;1")
        except (LookupError, UnicodeError):
            known = False
        if not known:
            raise ValueError(
                f"`encoding` is {self.encoding!r}, which is unknown or does not write line breaks as ASCII does. Use "
                "utf-8, cp1252 or latin-1, or convert the file to UTF-8."
            )


@dataclass(frozen=True)
class _Lines:
    """The lines of a file that are not empty, by their number, and those that are.

    Attributes:
        count: the number of lines that are not empty; these are the rows of a CSV file, and its header.
        before: for each empty line, the number of lines before it that are not empty.
    """

    count: int
    before: Int[np.ndarray, " L"]

    @classmethod
    def from_path(cls, path: Path) -> "_Lines":
        """A line ends as it does for a CSV reader, quoted or not."""
        count, open_bytes, returned, empty = 0, 0, False, [np.zeros(0, np.int64)]
        with path.open("rb") as file:
            while piece := file.read(_BLOCK_BYTES):
                bytes_ = np.frombuffer(piece, np.uint8)
                feeds, returns = bytes_ == ord("\n"), bytes_ == ord("\r")
                ends = np.flatnonzero(returns | (feeds & ~np.append(returned, returns[:-1])))
                content = np.cumsum(~(feeds | returns))
                filled = np.diff(content[ends], prepend=-open_bytes) > 0
                numbers = count + np.cumsum(filled)
                empty.append(numbers[~filled])
                open_bytes = int(content[-1]) - int(content[ends[-1]]) if len(ends) else open_bytes + int(content[-1])
                count, returned = count + int(filled.sum()), bool(returns[-1])
        return cls(count + (open_bytes > 0), np.concatenate(empty))

    def line_of(self, number: int) -> int:
        """The number, from 1, of the line in the file that is line `number`, from 0, of those that are not empty."""
        return number + 1 + int(np.searchsorted(self.before, number, side="right"))


@dataclass(frozen=True)
class RawTable:
    """A CSV or Parquet file, with the columns to read; `cells` declares the types of a CSV file.

    **Formal guarantee.** The types of all columns are functions of `cells`, or of the schema of a Parquet file, so a
    row that is read is a function of that row of the file. A row of a CSV file is one line: if a cell spans several
    lines, for which one open quotation mark is enough, the file is refused.
    """

    path: Path
    uses: Mapping[str, Use]
    cells: Mapping[str, Cells]
    time_format: str | None = None
    form: CsvFormat = CsvFormat()

    def __post_init__(self) -> None:
        if self.path.suffix.lower() not in (".csv", ".parquet"):
            raise TableError(f"`{self.path}` must end in .csv or .parquet. {_RENAME}")
        if not self.path.is_file():
            raise TableError(f"There is no file `{self.path}`. Give a CSV or Parquet file.")

    @property
    def size(self) -> int:
        """The approximate size of the columns in memory, in bytes."""
        if self.is_csv:
            return self.path.stat().st_size
        with open_parquet(self.path) as file:
            return int(file.metadata.num_rows) * 10 * (len(self.uses) + 1)

    @property
    def is_csv(self) -> bool:
        """Whether the file is a CSV file, by its name."""
        return self.path.suffix.lower() == ".csv"

    @functools.cached_property
    def _lines(self) -> _Lines:
        return _Lines.from_path(self.path)

    def place(self, row: int) -> str:
        """Locate a row, for an error: by its line in a CSV file."""
        if not self.is_csv:
            return locate_rows(self.path.name, row)(0)
        return f"line {self._lines.line_of(row + 1)} of `{self.path.name}`"

    def _from(self, first: int) -> Place:
        return lambda i: self.place(first + i)

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Yield all rows in order, with columns typed by their use, and their numbers."""
        import pyarrow as pa

        first = 0
        read = self._csv() if self.is_csv else self._parquet()
        for batch in read:
            rows = pa.array(np.arange(first, first + batch.num_rows))
            columns = [self._typed(batch, name, self._from(first)) for name in self.uses]
            yield pa.RecordBatch.from_arrays([*columns, rows], [*self.uses, ROW])
            first += batch.num_rows
        if first == 0:
            raise TableError(f"`{self.path.name}` has no rows. Give a table with at least one record.")

    def _typed(self, batch: "pa.RecordBatch", name: str, place: Place) -> "pa.Array":
        """A column without dictionary encoding; numbers become doubles and must be finite or missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        with redact_errors(f"Column `{name}` cannot be read from {place(0)} on"):
            values = decode_sortable(batch.column(name))
            if self.is_csv and self.cells[name] == "text":
                empty = pc.equal(values, pa.scalar("", values.type))
                values = pc.if_else(empty, pa.scalar(None, values.type), values)
            if self.uses[name] == "number":
                values = values.cast(pa.float64(), safe=False)
            numbers = values.cast(pa.float64(), safe=False) if pa.types.is_floating(values.type) else None
        if numbers is not None and self.uses[name] in ("number", "value"):
            refuse_infinite(numbers, name, place)
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

        names = csv_names(self.path, self.form)
        self._require(names)
        stamp, zoned = pa.timestamp("us"), pa.timestamp("us", "UTC")
        kinds = {"text": pa.string(), "number": pa.float64(), "time": stamp, "zoned time": zoned, "truth": pa.bool_()}
        types = {name: kinds[self.cells[name]] for name in self.uses}
        options = csv.ConvertOptions(
            column_types=types,
            include_columns=list(self.uses),
            null_values=MISSING,
            decimal_point=self.form.decimal,
            **self._parsers,
        )
        reader = self._next(
            lambda: csv.open_csv(self.path, _reading(self.form), _parsing(self.form), convert_options=options), names
        )
        texts = self._texts_of_times()
        rows = 0
        while True:
            batch = self._next(lambda: _next_batch(reader), names)
            if batch is None:
                break
            for name, column in next(texts).items():
                self._refuse_shifted(batch.column(name), column, name, self._from(rows))
            rows += batch.num_rows
            yield batch
        if rows and rows != self._lines.count - 1:
            raise self._open_cell(find_open_line(self.path, self.form.delimiter))

    def _texts_of_times(self) -> Iterator[dict[str, "pa.Array"]]:
        """The cells of times that have a format of their own, as text. Blocks are of equal size, so batches agree."""
        import pyarrow as pa
        from pyarrow import csv

        times = [name for name in self.uses if self.cells[name] in ("time", "zoned time")]
        if self.time_format is None or not times:
            while True:
                yield {}
        options = csv.ConvertOptions(column_types=dict.fromkeys(times, pa.string()), include_columns=times)
        with redact_errors(f"The times of `{self.path.name}` cannot be read"):
            reader = csv.open_csv(self.path, _reading(self.form), _parsing(self.form), convert_options=options)
            while (batch := _next_batch(reader)) is not None:
                yield {name: batch.column(name) for name in times}

    def _refuse_shifted(self, times: "pa.Array", text: "pa.Array", name: str, place: Place) -> None:
        """Raise if a time is not the one that its text states: pyarrow moves 31.02. into March, by a format.

        A time is written back in the format. If that is not the text, without zeros that pad numbers, ISO 8601 may be,
        which pyarrow reads strictly; the few others are read by Python.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.time_format is not None
        with redact_errors(f"Column `{name}` cannot be read from {place(0)} on"):
            written = pc.strftime(times.cast(pa.timestamp("s", times.type.tz), safe=False), self.time_format)
            other = pc.fill_null(pc.not_equal(_unpadded(written), _unpadded(text)), fill_value=False)
            bad = other.to_numpy(zero_copy_only=False).copy()
            cells = {i: text[i].as_py().strip() for i in np.flatnonzero(bad)}
            read = {cell: _read_strictly(cell, self.time_format) for cell in set(cells.values())}
            for i, cell in cells.items():
                bad[i] = read[cell] is None or read[cell] != times[i].value
        problem, remedy = "holds a date or a time that does not exist", "Correct the cell, or leave it empty."
        refuse(bad, name, place, problem, f"{remedy} If days and months are exchanged, correct `--time-format`.")

    def _open_cell(self, line: int | None) -> TableError:
        """The error of a cell that spans several lines; it begins in this line."""
        where = "" if line is None else f" at line {line}"
        return TableError(
            f"A cell of `{self.path.name}` holds a line break, or a quotation mark that is not closed on its "
            f"line{where}. Write every record on one line and double a quotation mark inside a cell, or write a "
            "Parquet file."
        )

    @property
    def _parsers(self) -> dict[str, list[object]]:
        from pyarrow import csv

        return {} if self.time_format is None else {"timestamp_parsers": [self.time_format, csv.ISO8601]}

    def _next(self, read: Callable[[], _Read], names: list[str]) -> _Read:
        """The result of `read`. Of an error of pyarrow only the column and the row are kept, which come before the
        quoted cell."""
        where = short = None
        try:
            return read()
        except Exception as error:
            short = re.match(r"CSV parse error: Row #(\d+): Expected \d+ columns, got \d+", str(error))
            where = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to \w+", str(error))
            kind = type(error).__name__
        line = find_open_line(self.path, self.form.delimiter)
        if line is not None:  # a reader counts a cell that spans lines as one line, so its number would be wrong
            raise self._open_cell(line)
        if short is not None:
            raise TableError(
                f"A row has too many or too few cells at {self.place(int(short[1]) - 2)}. Every line must have as many "
                "cells as the first line."
            )
        if where is None:
            raise TableError(
                f"`{self.path.name}` cannot be read ({kind}). Every line must have as many cells as the first line."
            )
        name = names[int(where[1])]
        row = f" at {self.place(int(where[2]) - 2)}" if where[2] else ""
        wanted, remedy = _WANTED[self.cells[name]]
        if self.uses[name] == "time" and self.cells[name] == "number":
            remedy = "The window has no unit, so times are read as numbers. For timestamps, give a unit, such as 4h."
        raise TableError(f"Column `{name}` does not hold {wanted}{row}. {remedy} Correct the cell, or leave it empty.")

    def _require(self, present: list[str]) -> None:
        for name in self.uses:
            if present.count(name) != 1:
                how_many = "no" if name not in present else "several"
                # A CSV file without a header has a person's record in its first line, so it is not quoted.
                named = "Its first line must name the columns."
                if self.is_csv:
                    named += " If another character than a comma is between cells, declare it (`--delimiter`)."
                else:
                    named = f"Its columns are {', '.join(f'`{column}`' for column in present)}."
                raise TableError(f"`{self.path.name}` has {how_many} column `{name}`. {named}")


def find_open_line(path: Path, delimiter: str) -> int | None:
    """The number, from 1, of the first line that ends inside a quoted cell; `None` if no line does."""
    number, between = 0, delimiter.encode()
    with path.open("rb") as file:
        for piece in file:
            for line in piece.splitlines():
                number += 1
                if _ends_open(line, between):
                    return number
    return None


def _ends_open(line: bytes, delimiter: bytes) -> bool:
    """Whether a cell of the line begins with a quotation mark that the line does not close; two of them are one
    character of the cell."""
    start = 0
    while True:
        if line[start : start + 1] == b'"':
            end = line.find(b'"', start + 1)
            while end >= 0 and line[end + 1 : end + 2] == b'"':
                end = line.find(b'"', end + 2)
            if end < 0:
                return True
            start = end
        start = line.find(delimiter, start) + 1
        if start == 0:
            return False


def csv_names(path: Path, form: CsvFormat) -> list[str]:
    """The names in the first line of a CSV file; no other line is read."""
    import pyarrow as pa
    from pyarrow import csv

    problem = f"`{path.name}` is not a CSV file, or cannot be read"
    remedy = (
        "Give a file whose first line names the columns, with the same number of cells in every line. If it is not in "
        "UTF-8, declare its encoding (`--encoding cp1252`)."
    )
    with redact_errors(problem, remedy), path.open("rb") as file:
        first = re.search(rb"[^\r\n]+", file.read(_BLOCK_BYTES))
        line = pa.BufferReader(b"" if first is None else first[0] + b"\n")
        return csv.open_csv(line, _reading(form), _parsing(form)).schema.names


def _reading(form: CsvFormat) -> "csv.ReadOptions":
    from pyarrow import csv

    return csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, encoding=form.encoding)


def _parsing(form: CsvFormat) -> "csv.ParseOptions":
    from pyarrow import csv

    return csv.ParseOptions(delimiter=form.delimiter)


def refuse_text_ending(path: Path) -> None:
    """Raise if a file has an ending of text other than .csv, so that it is not taken for a Parquet file."""
    if path.suffix.lower() in _TEXT_ENDINGS:
        raise TableError(f"`{path}` must end in .csv or .parquet. {_RENAME}")


def _unpadded(text: "pa.Array") -> "pa.Array":
    """Texts of times in small letters, without spaces at the ends and without zeros that pad numbers."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(pc.utf8_lower(pc.utf8_trim_whitespace(text)), r"\b0+(\d)", r"\1")


def _read_strictly(cell: str, form: str) -> int | None:
    """The microseconds since 1970 of a time in ISO 8601 or in this format; `None` if there is no such time."""
    for read in (datetime.fromisoformat, lambda text: datetime.strptime(text, form)):
        try:
            found = read(cell)
        except ValueError:
            continue
        zoned = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return None


def refuse_infinite(values: "pa.Array", name: str, place: Place) -> None:
    """Raise if a number is infinite; `place` locates entry i."""
    import pyarrow.compute as pc

    with redact_errors(f"Column `{name}` cannot be read from {place(0)} on"):
        bad = pc.fill_null(pc.is_inf(values), fill_value=False).to_numpy(zero_copy_only=False)
    refuse(bad, name, place, "is infinite", "Leave the cell empty if nothing was measured.")


def _next_batch(reader: "csv.CSVStreamingReader") -> "pa.RecordBatch | None":
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


_PARTS: dict[Use, str] = {"id": "unit", "name": "name", "number": "feature", "value": "copied", "group": "by"}
"""The part that plays the same role in a table of steps, whose types are allowed."""


def _check_type(dtype: "pa.DataType", use: Use, name: str, file: str) -> None:
    """Refuse a column whose type does not fit its use."""
    from pyarrow import types

    value = dtype.value_type if types.is_dictionary(dtype) else dtype
    number = types.is_integer(value) or types.is_floating(value)
    if use in _PARTS:
        check_type(value, _PARTS[use], name, file)
    elif use == "text":
        if not (types.is_string(value) or types.is_large_string(value)):
            raise TableError(
                f"Column `{name}` of `{file}` holds {describe_type(value)}, but it is declared as text. Correct the "
                "declaration, or convert the column."
            )
    elif not (number or types.is_timestamp(value) or (use == "end" and types.is_boolean(value))):
        wanted = "times or numbers" if use == "time" else "true or false, or times"
        raise TableError(
            f"Column `{name}` of `{file}` holds {describe_type(value)}; it must hold {wanted}. {_TIMES}{_ZONES}"
            "Write all times in the same way."
        )
