"""Numbered states from measurements: public edges cut each column into intervals, and a state is one cell of the grid.

The cells are numbered row by row, the last column fastest. If it is recorded which episodes have ended, one more state
after them is the end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from privrl.shapes import Bool, Int

if TYPE_CHECKING:
    import pyarrow as pa

STATE, NEXT_STATE = "state", "next_state"
_MISSING = ":missing"


@dataclass(frozen=True)
class GridColumn:
    """A column of a grid with its public cells.

    Attributes:
        name: the column.
        edges: where the intervals of a number begin; the first one has no lower bound, the last no upper bound.
        values: instead of edges, all values of a column of text.
        missing: whether a missing value is a cell of its own; otherwise it is refused.
    """

    name: str
    edges: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    missing: bool = False

    @classmethod
    def parse(cls, words: str, text: Sequence[str]) -> "GridColumn":
        """Parse `NAME:65,78[:missing]`, or `NAME:a,b[:missing]` for a column of text.

        >>> GridColumn.parse("map:65,78", ())
        GridColumn(name='map', edges=(65.0, 78.0), values=(), missing=False)
        """
        missing = words.endswith(_MISSING)
        name, colon, cells = words.removesuffix(_MISSING).rpartition(":")
        entries = tuple(cell.strip() for cell in cells.split(","))
        if not colon or not name or not all(entries):
            raise ValueError(
                f"`{words}` does not declare a grid. Write NAME:EDGES, for example `map:65,78` or "
                "`lactate:2,4:missing`; for a column of text, NAME:a,b,c with all its values."
            )
        if name in text:
            if len(set(entries)) != len(entries):
                raise ValueError(f"`{words}` names a value twice.")
            return cls(name, values=entries, missing=missing)
        try:
            edges = tuple(map(float, entries))
        except ValueError:
            raise ValueError(
                f"`{words}` has an edge that is not a number. If the column is text, declare it (`--text {name}`)."
            ) from None
        if not all(map(math.isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
            raise ValueError(f"The edges in `{words}` must be finite and each larger than the one before.")
        return cls(name, edges, missing=missing)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each cell."""
        ends = [f"{edge:g}" for edge in self.edges]
        if self.values:
            found = [f"{self.name} {value}" for value in self.values]
        else:
            inner = [f"{low} <= {self.name} < {high}" for low, high in pairwise(ends)]
            found = [f"{self.name} < {ends[0]}", *inner, f"{self.name} >= {ends[-1]}"]
        return (*found, f"{self.name} missing") if self.missing else tuple(found)

    def cells(self, values: "pa.Array") -> tuple[Int[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
        """The cell of each value, and a mask of the values that have none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        null = values.is_null().to_numpy(zero_copy_only=False)
        if self.values:
            found = pc.index_in(values, value_set=pa.array(self.values, values.type)).fill_null(-1)
            number = found.to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            null |= np.isnan(numbers)
            number = np.searchsorted(np.asarray(self.edges), np.where(null, 0.0, numbers), side="right")
        number = np.where(null, len(self.names) - 1 if self.missing else -1, number)
        return number, number < 0


@dataclass(frozen=True)
class StateGrid:
    """The columns of a grid, in the order in which cells are numbered.

    Attributes:
        columns: at least one column.
        ends: whether there is a state for episodes that have ended.
    """

    columns: tuple[GridColumn, ...]
    ends: bool

    @property
    def num_cells(self) -> int:
        """The number of cells."""
        return math.prod(len(column.names) for column in self.columns)

    @property
    def end_state(self) -> int | None:
        """The number of the state of episodes that have ended."""
        return self.num_cells if self.ends else None

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every state."""
        names = [""]
        for column in self.columns:
            names = [f"{before}, {cell}" if before else cell for before in names for cell in column.names]
        return (*names, "ended") if self.ends else tuple(names)

    def number(self, cells: Mapping[str, Int[np.ndarray, " N"]]) -> Int[np.ndarray, " N"]:
        """The states with these cells of their columns."""
        shape = [len(column.names) for column in self.columns]
        return np.ravel_multi_index([cells[column.name] for column in self.columns], shape)
