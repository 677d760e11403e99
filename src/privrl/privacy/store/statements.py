"""Statements about many rows, from few different texts, so that a database prepares each of them once."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

Row: TypeAlias = Any
"""A row of a result: a tuple of entries, whose types the schema of the store fixes."""
SqlValue: TypeAlias = bytes | str | float | int | list[bytes] | list[bytes | None] | None
"""A value that is passed to a statement."""


@runtime_checkable
class QueryRows(Protocol):
    """The rows that a statement returns; the cursors of `sqlite3` and `psycopg` are of this form."""

    def fetchone(self) -> Row: ...
    def fetchall(self) -> list[Row]: ...
    def __iter__(self) -> Iterator[Row]: ...


Execute = Callable[..., QueryRows]
"""Runs a statement, with `?` for each of the values that follow it."""
_SIZES = (64, 32, 16, 8, 4, 2, 1)  # numbers of rows, or of values, that one statement may have


def insert_rows(execute: Execute, table: str, rows: Sequence[tuple[SqlValue, ...]]) -> None:
    """Adds rows to a table, in this order."""
    first = 0
    while first < len(rows):
        size = next(size for size in _SIZES if size <= len(rows) - first)
        row = f"({', '.join('?' * len(rows[first]))})"
        values = itertools.chain.from_iterable(rows[first : first + size])
        execute(f"INSERT INTO {table} VALUES {', '.join([row] * size)}", *values)
        first += size


def select_in(execute: Execute, query: str, values: Sequence[SqlValue], *before: SqlValue) -> list[Row]:
    """The rows that match one of the values, for a query that ends with `IN`. `before` are its other values."""
    found: list[Row] = []
    for first in range(0, len(values), _SIZES[0]):
        some = values[first : first + _SIZES[0]]
        size = min(size for size in _SIZES if size >= len(some))
        filled = [*some, *[some[-1]] * (size - len(some))]
        found += execute(f"{query} ({', '.join('?' * size)})", *before, *filled).fetchall()
    return found
