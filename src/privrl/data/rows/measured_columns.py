"""Read columns of measurements as vectors and doses as actions; move values to their bounds or refuse them.

An error names the column and the row, never the value in the cell.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.schema.columns import (
    describe_values,
    read_column,
    read_numbers,
    read_required_numbers,
    refuse,
    refuse_not_finite,
)
from privrl.data.schema.table_schema import Place, TableError
from privrl.mdp.measurements import BinnedAction, Category, Feature, Measurement, product_actions
from privrl.mdp.reported_columns import GROUP, OUTCOME, ReportedColumns
from privrl.shapes import Bool, Float, Int, Shaped

if TYPE_CHECKING:
    import pyarrow as pa

_MISSING = (
    "Declare the column with `missing=True` (`NAME:LO..HI:missing`), or fill in the value before reading the table."
)


def read_measurements(
    batch: "pa.RecordBatch", features: Sequence[Measurement], place: Place
) -> Float[np.ndarray, "R D"]:
    """The states of a batch: measurements inside their bounds, positions of categories, NaN for missing values."""
    states = np.empty((batch.num_rows, len(features)))
    for j, feature in enumerate(features):
        states[:, j] = (
            _codes(batch, feature, place) if isinstance(feature, Category) else _numbers(batch, feature, place)
        )
    return states


def read_doses(batch: "pa.RecordBatch", doses: Sequence[BinnedAction], place: Place) -> Int[np.ndarray, " R"]:
    """The actions of a batch: the number of the interval that holds the dose; for several drugs, the product action."""
    parts = []
    for dose in doses:
        values = read_required_numbers(batch, dose.name, place).astype(np.float64)
        refuse_not_finite(values, dose.name, place)
        remedy = (
            f"The first edge is {dose.edges[0]:g}. Start the edges at the smallest possible dose, or correct the row."
        )
        actions = dose.bin(values)
        refuse(actions < 0, dose.name, place, "is below the first edge", remedy)
        parts.append(actions)
    return product_actions(doses, parts).astype(np.int32)


def read_reported(batch: "pa.RecordBatch", reported: ReportedColumns, place: Place) -> Float[np.ndarray, "R 2"]:
    """The columns that are only reported on: the position of the group, and the second outcome within its bounds."""
    extras = np.full((batch.num_rows, 2), np.nan)
    if reported.by is not None:
        extras[:, [GROUP]] = read_measurements(batch, [reported.by], place)
    if reported.outcome is not None:
        extras[:, [OUTCOME]] = read_measurements(batch, [reported.outcome], place)
    return _complete(extras)


def check_reported(
    extras: Shaped[np.ndarray, "R 2"], reported: ReportedColumns, name: str, place: Place
) -> Float[np.ndarray, "R 2"]:
    """Check the same columns in memory; an entry of a column that is not declared does not matter."""
    checked = np.full(extras.shape, np.nan)
    for entry, column in ((GROUP, reported.by), (OUTCOME, reported.outcome)):
        if column is not None:
            checked[:, [entry]] = check_vectors(extras[:, [entry]], [column], f"{name}[..., {entry}]", place)
    return _complete(checked)


def _complete(extras: Float[np.ndarray, "R 2"]) -> Float[np.ndarray, "R 2"]:
    """A missing outcome counts as 0, and -0.0 as 0.0; a missing group has one encoding."""
    group, outcome = extras[:, GROUP], extras[:, OUTCOME]
    found = np.stack([np.where(np.isnan(group), np.nan, group), np.where(np.isnan(outcome), 0.0, outcome)], axis=1)
    return np.where(found == 0.0, 0.0, found)


def check_vectors(
    states: Shaped[np.ndarray, "R D"], features: Sequence[Measurement], name: str, place: Place
) -> Float[np.ndarray, "R D"]:
    """Check vectors in memory, with categories as positions in their lists and NaN for missing values."""
    if states.dtype.kind not in "iuf":
        raise TableError(f"`{name}` holds {describe_values(states)}; measurements must be numbers. Convert them first.")
    checked = states.astype(np.float64)
    for j, feature in enumerate(features):
        column = f"{name}[..., {j}] ({feature.name})"
        values = checked[:, j]
        if isinstance(feature, Category):
            _refuse_missing(np.isnan(values), feature, place, column)
            wrong = ~np.isnan(values) & ~np.isin(values, np.arange(len(feature.values)))
            remedy = f"Give the position of the value in its list, from 0 to {len(feature.values) - 1}."
            refuse(wrong, column, place, "is not the position of a category", remedy)
        else:
            checked[:, j] = _within(values, np.isnan(values), feature, place, column)
    return checked


def _numbers(batch: "pa.RecordBatch", feature: Feature, place: Place) -> Float[np.ndarray, " R"]:
    values, null = read_numbers(batch, feature.name, place)
    values = values.astype(np.float64)
    return _within(values, null | np.isnan(values), feature, place, feature.name)


def _within(
    values: Float[np.ndarray, " R"], missing: Bool[np.ndarray, " R"], feature: Feature, place: Place, column: str
) -> Float[np.ndarray, " R"]:
    _refuse_missing(missing, feature, place, column)
    remedy = "Write null for a missing value, and declare the column with `missing=True`."
    refuse(np.isinf(values), column, place, "is infinite", remedy)
    return np.where(missing, np.nan, feature.clip(values))


def _codes(batch: "pa.RecordBatch", category: Category, place: Place) -> Float[np.ndarray, " R"]:
    import pyarrow as pa
    import pyarrow.compute as pc

    def positions(values: "pa.Array") -> np.ndarray:
        text = values if pa.types.is_large_string(values.type) else values.cast(pa.large_string())
        found = pc.index_in(text, value_set=pa.array(category.values, pa.large_string()))
        return found.fill_null(-1).to_numpy(zero_copy_only=False)

    codes, null = read_column(batch, category.name, place, positions)
    _refuse_missing(null, category, place, category.name)
    remedy = f"Its public values are {', '.join(category.values)}. Add the missing value there, or correct the row."
    refuse((codes < 0) & ~null, category.name, place, "holds none of the declared values", remedy)
    return np.where(null, np.nan, codes.astype(np.float64))


def _refuse_missing(missing: Bool[np.ndarray, " R"], feature: Measurement, place: Place, column: str) -> None:
    if not feature.missing:
        refuse(missing, column, place, "has no value (it is null or NaN)", _MISSING)
