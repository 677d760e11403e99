"""Columns of real tables: measurements with public bounds, categories from public lists, doses cut at public edges.

A state of a table with these columns is a vector x in R^D, one entry per declared column, in the table's units of
measurement: a measurement inside its bounds, the position of a category in its list, and NaN if a column that may be
`missing` has no value. Every number here is a public argument and is never read off the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

from privrl.shapes import Float, Int, Shaped

NOT_RECORDED = float("inf")
"""Every entry of a next state that is unknown, because the record was cut off."""
ENDED = float("-inf")
"""Every entry of a next state that does not exist, because the episode has ended."""


@final
@dataclass(frozen=True)
class Feature:
    """A measurement with public bounds; values outside are moved to the nearer bound.

    >>> Feature("lactate", 0.1, 20, missing=True, log=True)
    Feature(name='lactate', low=0.1, high=20.0, missing=True, log=True)

    Arguments:
        name: the column.
        low, high: the bounds, from domain knowledge.
        missing: whether the column may have no value. Then the entry is NaN; otherwise a null is an error.
        log: whether the measurement is scaled by its logarithm; then `low` must be above 0.
    """

    name: str
    low: float
    high: float
    missing: bool = False
    log: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        low, high = _finite(self.low, f"`low` of `{self.name}`"), _finite(self.high, f"`high` of `{self.name}`")
        if not low < high:
            raise ValueError(f"`{self.name}` has the bounds {low:g}..{high:g}. Give the smaller one first.")
        if not np.isfinite(high - low):
            raise ValueError(f"The bounds of `{self.name}` are too far apart to be subtracted. Give closer ones.")
        if self.log and not low > 0.0:
            raise ValueError(
                f"`{self.name}` is scaled by its logarithm, but its lower bound is {low:g}. Give a bound above 0, or "
                "leave out `log`."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def clip(self, values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Move values into the bounds; NaN stays NaN."""
        return np.clip(values, self.low, self.high)

    def at(self, position: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """The values at positions in [-1, 1] between the bounds, the inverse of `quadratic_features.positions`."""
        low, high = (np.log(self.low), np.log(self.high)) if self.log else (self.low, self.high)
        x = low + (high - low) * (np.asarray(position) + 1.0) / 2.0
        return self.clip(np.exp(x) if self.log else x)

    def __str__(self) -> str:
        """The form that commands read: `NAME:LO..HI[:missing][:log]`."""
        low, high = (repr(bound).removesuffix(".0") for bound in (self.low, self.high))
        return f"{self.name}:{low}..{high}" + ":missing" * self.missing + ":log" * self.log


@final
@dataclass(frozen=True)
class Category:
    """A column that holds one of several public values; its entry is the position of the value in `values`.

    Arguments:
        name: the column: text, whole numbers, or true and false.
        values: all values that may occur, as text; another value in the table is an error.
        missing: whether the column may have no value. Then the entry is NaN; otherwise a null is an error.
    """

    name: str
    values: Sequence[str]
    missing: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        values = tuple(str(value) for value in self.values)
        if isinstance(self.values, str) or len(values) < 2 or "" in values or len(set(values)) != len(values):
            raise ValueError(f"`values` of `{self.name}` must be at least two different texts that are not empty.")
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        """The form that commands read: `NAME:a,b,c[:missing]`."""
        return f"{self.name}:{','.join(self.values)}" + ":missing" * self.missing


Measurement = Feature | Category
"""A declared column of a state."""


@final
@dataclass(frozen=True)
class BinnedAction:
    """A dose cut into actions: k edges make the actions [e_0, e_1), ..., [e_(k-1), infinity); below e_0 is an error.

    >>> BinnedAction("insulin", (0, 0.02, 0.05)).num_actions
    3

    Arguments:
        name: the column.
        edges: at least two finite numbers, increasing.
    """

    name: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        edges = tuple(_finite(edge, f"An edge of `{self.name}`") for edge in self.edges)
        if len(edges) < 2 or any(not a < b for a, b in pairwise(edges)):
            raise ValueError(
                f"`edges` of `{self.name}` are {', '.join(f'{edge:g}' for edge in edges) or 'empty'}. Give at least "
                "two increasing numbers. Each of them starts an action."
            )
        object.__setattr__(self, "edges", edges)

    @property
    def num_actions(self) -> int:
        return len(self.edges)

    def bin(self, doses: Float[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        """The action of each dose; -1 for doses below the first edge and for NaN."""
        actions = np.searchsorted(np.asarray(self.edges), doses, side="right") - 1
        return np.where(np.isnan(doses), -1, actions)

    def describe_actions(self) -> tuple[str, ...]:
        """A description of each action, for tables and pictures."""
        ends = [*(f"to below {edge:g}" for edge in self.edges[1:]), "or more"]
        return tuple(f"{self.name} {edge:g} {end}" for edge, end in zip(self.edges, ends, strict=True))


def product_actions(drugs: Sequence[BinnedAction], parts: Sequence[Shaped[np.ndarray, " N"]]) -> Int[np.ndarray, " N"]:
    """Combine the actions of several drugs into one number, the last drug counting fastest: a_1 A_2 + a_2 for two."""
    number = np.zeros(len(parts[0]), np.int64)
    for drug, part in zip(drugs, parts, strict=True):
        number = number * drug.num_actions + part
    return number


def describe_product_actions(drugs: Sequence[BinnedAction]) -> tuple[str, ...]:
    """A description of each action of several drugs, in the order of `product_actions`."""
    words: tuple[str, ...] = ("",)
    for drug in drugs:
        words = tuple(f"{before}, {word}" if before else word for before in words for word in drug.describe_actions())
    return words


def check_measurements(features: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Check declared columns: at least one, and no name twice."""
    given = tuple(features)
    for feature in given:
        if not isinstance(feature, Feature | Category):
            raise ValueError(
                f"`features` holds a `{type(feature).__name__}`. Give `Feature(name, low, high)` or "
                "`Category(name, values)`."
            )
    names = [feature.name for feature in given]
    if not names or len(set(names)) != len(names):
        raise ValueError(
            f"`features` names {', '.join(names) or 'no column'}. Give at least one column, and each column once."
        )
    return given


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"A column has the name {name!r}. Give text that is not empty.")


def _finite(number: float, what: str) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float | np.integer | np.floating):
        raise ValueError(f"{what} is {number!r}; give a number.")
    if not np.isfinite(number):
        raise ValueError(f"{what} is {number!r}; give a finite number.")
    return float(number)
