"""Many rows in one statement, from few different statements: a database prepares each of them once."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

_SIZES = (64, 32, 16, 8, 4, 2, 1)  # of rows, or of values, in one statement


def insert_rows(execute: Callable[..., Any], table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Adds rows to a table, in this order."""
    first = 0
    while first < len(rows):
        size = next(size for size in _SIZES if size <= len(rows) - first)
        row = f"({', '.join('?' * len(rows[first]))})"
        values = itertools.chain.from_iterable(rows[first : first + size])
        execute(f"INSERT INTO {table} VALUES {', '.join([row] * size)}", *values)
        first += size


def select_in(execute: Callable[..., Any], query: str, values: Sequence[Any], *before: Any) -> list[tuple[Any, ...]]:
    """The rows of a query that ends with `IN` for any of these values; `before` are those of its other places."""
    found: list[tuple[Any, ...]] = []
    for first in range(0, len(values), _SIZES[0]):
        some = values[first : first + _SIZES[0]]
        size = min(size for size in _SIZES if size >= len(some))
        filled = [*some, *[some[-1]] * (size - len(some))]
        found += execute(f"{query} ({', '.join('?' * size)})", *before, *filled).fetchall()
    return found
