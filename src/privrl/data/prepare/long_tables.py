"""Turn long tables, which have one row per measurement with its name and value, into one row per time.

A record of the wide form combines all rows of one person, episode and time. Rows with other names than those requested
have no value there. They are still records, which count for the beginning and end of an episode, so a person is not
lost if all their rows have other names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.prepare.preparation import Preparation
from privrl.data.prepare.raw import MISSING, ROW, RawTable, refuse_infinite
from privrl.data.prepare.times import is_null, sort_records
from privrl.data.schema.columns import refuse
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Place, TableError
from privrl.shapes import Int

if TYPE_CHECKING:
    import pyarrow as pa

_NAME, _NUMBER, _TEXT = "__name__", "__number__", "__text__"
_NO_NUMBER = "not a number"


@dataclass(frozen=True)
class LongTable:
    """A raw table whose columns `how.name` and `how.value` hold the name and the value of a measurement.

    **Formal guarantee.** As for `RawTable`, a row that is read is a function of that row of the file; and a person's
    rows of the wide form are a function of that person's rows.
    """

    raw: RawTable
    how: Preparation

    @property
    def _named(self) -> tuple[str, ...]:
        """The requested names; the position of a name is its number."""
        return tuple(self.how.named)

    @property
    def _items(self) -> dict[str, int]:
        """The word in the table for each requested name, with the number of the name."""
        own = {name: i for i, name in enumerate(self._named) if name not in self.how.items.values()}
        return own | {item: self._named.index(name) for item, name in self.how.items.items()}

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Yield the rows with the number of their name (-1: not requested), and the value as a number or as text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        how, items = self.how, pa.array(self._items, pa.large_string())
        number = np.array([*self._items.values(), -1], np.int16)  # index -1 is for words that are not requested
        assert how.name is not None and how.value is not None
        is_text = np.isin(self._named, how.text)
        for batch in self.raw.batches():
            first = batch.column(ROW)[0].as_py()
            refuse(
                is_null(batch.column(how.name)), how.name, self._from(first), "is null", "Every record needs a name."
            )
            with redact_errors(f"Column `{how.name}` cannot be read from {self.raw.place(first)} on"):
                text = batch.column(how.name).cast(pa.large_string())
                found = pc.index_in(text, value_set=items).fill_null(-1).to_numpy(zero_copy_only=False)
            numbers = number[found]
            values = batch.column(how.value)
            made = {name: batch.column(name) for name in (how.unit, how.time, how.episode) if name is not None}
            made |= {_NAME: pa.array(numbers), ROW: batch.column(ROW)}
            if how.text:
                wanted = (numbers >= 0) & ~is_text[numbers]
                copied = (numbers >= 0) & is_text[numbers]
                made[_TEXT] = pc.if_else(pa.array(copied), values, pa.scalar(None, values.type))
                values = self._parsed(pc.if_else(pa.array(wanted), values, pa.scalar(None, values.type)), first)
            yield pa.RecordBatch.from_pydict(made | {_NUMBER: values})

    def wide(self, columns: dict[str, "pa.Array"]) -> dict[str, "pa.Array"]:
        """Combine the records of whole people into one row for each time, with a column for each name."""
        import pyarrow as pa

        how, numbers = self.how, columns[ROW].to_numpy()
        assert how.value is not None
        _, rows = sort_records(columns, how, lambda i: self.raw.place(int(numbers[i])))
        begins = np.append(True, rows.times[1:] != rows.times[:-1])
        begins[rows.starts] = True
        record = np.cumsum(begins) - 1
        first = pa.array(rows.order[begins])
        kept = (how.unit, how.time, how.episode, ROW)
        made = {name: columns[name].take(first) for name in kept if name is not None}
        by_name = _by_number(columns[_NAME].to_numpy()[rows.order], len(self._named))
        for name, at in zip(self._named, by_name, strict=True):
            again = np.append(False, record[at][1:] == record[at][:-1])
            self._refuse_twice(again, numbers[rows.order[at]])
            source = np.full(len(first), -1, np.int64)
            source[record[at]] = rows.order[at]
            values = columns[_TEXT if name in how.text else _NUMBER]
            made[name] = values.take(pa.array(source, mask=source < 0))
        return made

    def _refuse_twice(self, again: np.ndarray, numbers: Int[np.ndarray, " N"]) -> None:
        remedy = "Keep one row per name and time."
        problem = "has a time twice in one episode under one name"
        refuse(again, self.how.time, lambda i: self.raw.place(int(numbers[i])), problem, remedy)

    def _parsed(self, values: "pa.Array", first: int) -> "pa.Array":
        """Parse texts that must be numbers, or mean a missing value."""
        import pyarrow as pa
        import pyarrow.compute as pc

        assert self.how.value is not None
        missing = pc.is_in(values, value_set=pa.array(MISSING, values.type))
        values = pc.if_else(missing, pa.scalar(None, values.type), values)
        if self.how.decimal == ",":
            pointed = pc.match_substring(values, ".")  # not a number here; no cell with a comma is one after this
            values = pc.if_else(pointed, pa.scalar(_NO_NUMBER, values.type), pc.replace_substring(values, ",", "."))
        try:
            found = values.cast(pa.float64())
        except pa.ArrowInvalid:
            found = None
        if found is None:
            raise TableError(
                f"Column `{self.how.value}` does not hold a number at {self.raw.place(first + _first_bad(values))}. "
                "Values are numbers unless their name is declared as text (`--text`). Correct the cell, or leave it "
                "empty."
            )
        refuse_infinite(found, self.how.value, self._from(first))
        return found

    def _from(self, first: int) -> Place:
        return lambda i: self.raw.place(first + i)


def _first_bad(values: "pa.Array") -> int:
    """Find the first text that is not a number by bisection, because errors of pyarrow quote the text but not its
    row."""
    import pyarrow as pa

    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            values.slice(low, middle - low).cast(pa.float64())
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _by_number(numbers: Int[np.ndarray, " R"], count: int) -> list[Int[np.ndarray, " N"]]:
    """The positions of each of the numbers 0, ..., count - 1, in order."""
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(count + 1))
    return [order[a:b] for a, b in pairwise(ends.tolist())]
