"""Observations from outside, checked before a policy sees them, and a list of what is unusual about them.

Unknown names, unknown categories, text in place of numbers and numbers that are not finite are errors: a misspelt name
would otherwise count as missing, and change the advice. No error and no remark quotes a value.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privrl.mdp.measurements import Category, Feature, Measurement
from privrl.shapes import Float

STATE = "state"
"""The name of the only entry of an observation in a finite world."""
Remark = Literal["missing", "unexpectedly missing", "below the bounds", "above the bounds"]


@dataclass(frozen=True)
class Unusual:
    """A remark about one entry of an observation.

    Attributes:
        column: the name of the entry.
        remark: "missing" if the column may be missing, "unexpectedly missing" if it never is in the table that the
            policy was learnt from; "below the bounds" or "above the bounds" if the value lies outside the public bounds
            and counts as the nearer one.
    """

    column: str
    remark: Remark

    def __str__(self) -> str:
        return f"`{self.column}` is {self.remark}"


def read_row(
    columns: Sequence[Measurement], observation: Mapping[str, Any] | Sequence[Any] | np.ndarray
) -> tuple[list[float], tuple[Unusual, ...]]:
    """One row of measurements, and what is unusual about it.

    Arguments:
        columns: the declared columns.
        observation: a mapping from names to values, in which a category is its text and a missing value is `None`, NaN
            or left out; or numbers in the order of the columns, in which a category is its position in its list.

    Returns:
        numbers in the order of the columns, with NaN for missing values, before they are moved into their bounds.

    Raises:
        ValueError: a name or a category is unknown, a value is not a finite number, or the number of entries is wrong.
    """
    if isinstance(observation, Mapping):
        _check_names(columns, observation)
        row = [_entry(column, observation.get(column.name)) for column in columns]
    else:
        if isinstance(observation, str) or np.ndim(observation) != 1 or len(observation) != len(columns):
            raise ValueError(
                f"An observation must hold {len(columns)} numbers: {', '.join(column.name for column in columns)}; it "
                f"has the shape {np.shape(observation)}."
            )
        row = [_position(column, value) for column, value in zip(columns, observation, strict=True)]
    return row, tuple(filter(None, map(_remark, columns, row)))


def read_rows(columns: Sequence[Measurement], observations: object) -> Float[np.ndarray, "*batch D"]:
    """Numbers in the order of the columns, or a mapping from names to values, as rows; `read_row` has the errors."""
    if isinstance(observations, Mapping):
        return np.array(read_row(columns, observations)[0])
    rows = np.asarray(observations, float)
    if rows.shape[-1:] != (len(columns),):
        raise ValueError(
            f"`observation` has shape {rows.shape}; it must hold {len(columns)} numbers: "
            f"{', '.join(column.name for column in columns)}."
        )
    for place, column in enumerate(columns):
        values = rows[..., place]
        known = values[~np.isnan(values)]
        if isinstance(column, Category) and not np.isin(known, np.arange(len(column.values))).all():
            raise _unknown_position(column)
        if np.isinf(known).any():
            raise _not_finite(column)
    return rows


def read_state(observation: object, num_states: int, names: Sequence[str] = ()) -> int:
    """The number of a state, from its number, from its name, or from a mapping with the entry `state`.

    Raises:
        ValueError: there is no state of this number or name.
    """
    if isinstance(observation, Mapping):
        if set(observation) != {STATE}:
            raise ValueError(f"An observation must have the entry `{STATE}` and no other.")
        observation = observation[STATE]
    if isinstance(observation, str):
        found = [number for number, name in enumerate(names) if name == observation]
        if len(found) != 1:
            known = "give the number of the state" if not names else "the name is unknown, or two states have it"
            raise ValueError(f"The state is given by a name: {known}.")
        return found[0]
    number = whole_number(observation)
    if number is None or not 0 <= number < num_states:
        raise ValueError(f"A state must be a whole number in [0, {num_states}): a state of the world.")
    return number


def whole_number(value: object) -> int | None:
    """The value, if it is a whole number, also one that is written as 1.0; `None` for anything else."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    if isinstance(value, (int, np.integer)):
        return int(value)
    return int(value) if math.isfinite(value) and value == int(value) else None


def _check_names(columns: Sequence[Measurement], observation: Mapping[str, object]) -> None:
    names = [column.name for column in columns]
    for name in observation:
        if name not in names:
            raise ValueError(f"`{name}` is not a column of this policy. Its columns are {', '.join(names)}.")


def _entry(column: Measurement, value: object) -> float:
    """An entry of a mapping as a number."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return math.nan
    if isinstance(column, Feature):
        return _number(column, value)
    if isinstance(value, (bool, np.bool_)):
        value = "true" if value else "false"
    text = value if isinstance(value, str) else str(whole_number(value))
    if (text is not value and whole_number(value) is None) or text not in column.values:
        raise ValueError(f"`{column.name}` is not one of its categories: {', '.join(column.values)}.")
    return float(column.values.index(text))


def _position(column: Measurement, value: object) -> float:
    """An entry of a list as a number."""
    if value is None:
        return math.nan
    number = _number(column, value)
    if isinstance(column, Category) and not math.isnan(number) and number not in range(len(column.values)):
        raise _unknown_position(column)
    return number


def _number(column: Measurement, value: object) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        kind = "text" if isinstance(value, str) else f"of the type `{type(value).__name__}`"
        raise ValueError(f"`{column.name}` is {kind}; it must be a number.")
    try:
        number = float(value)
    except OverflowError as error:
        raise _not_finite(column) from error
    if math.isinf(number):
        raise _not_finite(column)
    return number


def _remark(column: Measurement, value: float) -> Unusual | None:
    if math.isnan(value):
        return Unusual(column.name, "missing" if column.missing else "unexpectedly missing")
    if isinstance(column, Category) or column.low <= value <= column.high:
        return None
    return Unusual(column.name, "below the bounds" if value < column.low else "above the bounds")


def _unknown_position(column: Category) -> ValueError:
    return ValueError(
        f"`{column.name}` must be the position of a category in its list, from 0 to {len(column.values) - 1}, or NaN."
    )


def _not_finite(column: Measurement) -> ValueError:
    return ValueError(f"`{column.name}` is not finite; it must be a number, or NaN if it is missing.")
