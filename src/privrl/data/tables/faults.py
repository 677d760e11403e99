"""List every kind of fault in every column of a table, each with its first row.

A message reads like an error: it names the file, the row and the column, but neither the value nor the number of rows
with this fault. Faults are looked for in three steps, each of which needs the result of the one before: the names and
types of columns, the cells of each column on its own, and the order of rows.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.data.rows.batches import Table, folder_columns, open_parquet
from privrl.data.rows.files import Paths, describe_file, parquet_files
from privrl.data.rows.measured_columns import read_doses, read_measurements, read_reported
from privrl.data.rows.row_checks import RowChecker, read_ends, read_steps
from privrl.data.schema.columns import (
    check_indices,
    check_propensities,
    check_rewards,
    check_type,
    read_ids,
    read_numbers,
    read_required_numbers,
    read_whole_numbers,
    refuse,
    take_ids,
)
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Bounds, Place, Schema, TableError, declare_table, require_column
from privrl.data.tables.parquet import read_parquet
from privrl.mdp.measurements import Feature
from privrl.mdp.reported_columns import ReportedColumns
from privrl.shapes import Bool

if TYPE_CHECKING:
    import pyarrow as pa

_MOVED = "It is moved to the bound. If this is unexpected, check the unit of measurement, and correct the bound."
_ORDER = ("unit", "episode", "step", "terminated")
_Read = Callable[["pa.RecordBatch", Place], object]


def find_faults(paths: Paths, columns: dict[str, Any]) -> list[str]:
    """List the problems of a table, one message for each kind of fault; `columns` holds the arguments of
    `read_parquet`."""
    declared = {name: value for name, value in columns.items() if name != "sort"}
    schema, bounds = declare_table(**declared)
    found = _Found()
    files = parquet_files(paths)
    for number in range(len(files)):
        _look_at_types(files, number, schema, found)
    if not found.messages:
        with found:  # `Table` raises if files have different types, or no rows
            table = Table(files, schema, columns.get("sort", False))
            for part, column in schema.columns.items():
                _look_at_cells(table, part, _reader(part, column, schema, bounds), found)
            if not found.columns & {schema.columns.get(part) for part in _ORDER}:
                _look_at_order(table, bounds, found)
    if not found.messages:
        with found:
            read_parquet(paths, **columns).check()
    return list(found.messages.values())


def find_outside(paths: Paths, columns: dict[str, Any]) -> list[str]:
    """The first row outside each public bound of a table; values outside are moved to the bound.

    A message names neither the value nor the number of rows. A column that cannot be read is a fault, and left out
    here.
    """
    declared = {name: value for name, value in columns.items() if name != "sort"}
    schema, _ = declare_table(**declared)
    found = _Found()
    with suppress(TableError):  # `Table` raises if files have different types, or no rows
        table = Table(parquet_files(paths), schema, columns.get("sort", False))
        bounded = {f"feature {feature.name}": feature for feature in schema.features if isinstance(feature, Feature)}
        if schema.reported.outcome is not None:
            bounded["outcome"] = schema.reported.outcome
        for part, feature in bounded.items():
            with suppress(TableError):
                _look_outside(table, part, feature, found)
    return list(found.messages.values())


def _look_outside(table: Table, part: str, feature: Feature, found: "_Found") -> None:
    for batch, place in table.batches([part]):
        values, null = read_numbers(batch, feature.name, place)
        known = ~null & np.isfinite(values)  # an infinite value is a fault
        for bad, bound in (
            (known & (values < feature.low), f"below {feature.low:g}"),
            (known & (values > feature.high), f"above {feature.high:g}"),
        ):
            found.refuse(bad, feature.name, place, f"is {bound}", _MOVED)


class _Found:
    """Messages by kind; as a context manager it collects the error that is raised inside."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], str] = {}

    @property
    def columns(self) -> set[str]:
        return {column for column, _ in self.messages}

    def add(self, error: TableError) -> None:
        self.messages.setdefault(error.kind or ("", str(error)), str(error))

    def refuse(self, bad: Bool[np.ndarray, " N"], column: str, place: Place, problem: str, remedy: str) -> None:
        """Collect the error that `refuse` raises."""
        with self:
            refuse(bad, column, place, problem, remedy)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, TableError):
            self.add(error)
        return isinstance(error, TableError)


def _look_at_types(files: tuple[Path, ...], number: int, schema: Schema, found: _Found) -> None:
    name = describe_file(files, number)
    with found, open_parquet(files[number]) as file:
        with redact_errors(f"The names and types of the columns of {name} cannot be read"):
            fields = [(field.name, field.type) for field in file.schema_arrow]
        types = folder_columns(files, schema).types(number) | dict(fields)
        present = [column for column, _ in fields]
        present += [column for column in types if column not in present]
        for part, column in schema.columns.items():
            with found:
                require_column(part, column, present, name)
                check_type(types[column], part, column, files[number].name)


def _look_at_cells(table: Table, part: str, read: _Read, found: _Found) -> None:
    """Find all kinds of faults in one column: rows with one kind are left out, and the rest is read again."""
    import pyarrow as pa

    for batch, place in table.batches([part]):
        rows, left = np.arange(batch.num_rows), batch
        while left.num_rows:
            try:
                read(left, _at(rows, place))
                break
            except TableError as error:
                found.add(error)
                if error.rows is None:
                    return
                keep = ~error.rows
            rows, left = rows[keep], left.filter(pa.array(keep))


def _at(rows: np.ndarray, place: Place) -> Place:
    return lambda i: place(int(rows[i]))


def _look_at_order(table: Table, bounds: Bounds, found: _Found) -> None:
    checker = RowChecker(table, bounds, salt=0, refuse=found.refuse)
    parts = [part for part in _ORDER if part in table.schema.columns]
    for batch, place in table.batches(parts):
        checker.check_order(batch, place)
    checker.finish()


def _reader(part: str, column: str, schema: Schema, bounds: Bounds) -> _Read:
    """The function that reads the cells of a column, as the checks of whole rows do."""
    kind = part.split(" ")[0]
    if kind in ("unit", "episode"):
        return lambda batch, place: take_ids(read_ids(batch, column, place), np.arange(batch.num_rows), column, place)
    if kind in ("state", "action"):
        size = f"num_{kind}s"
        return lambda batch, place: check_indices(read_whole_numbers(batch, column, place), column, place, bounds, size)
    if kind == "next_state":
        return lambda batch, place: check_indices(
            read_whole_numbers(batch, column, place, -1), column, place, bounds, "num_states", unknown=True
        )
    if kind == "reward":
        span = bounds.reward_range
        return lambda batch, place: check_rewards(read_required_numbers(batch, column, place), column, place, span)
    if kind == "propensity":
        return lambda batch, place: check_propensities(
            read_required_numbers(batch, column, place), column, place, bounds
        )
    if kind in ("step", "terminated"):
        read = read_steps if kind == "step" else read_ends
        return lambda batch, place: read(batch, column, place)
    if kind in ("by", "outcome"):
        alone = ReportedColumns(**{kind: getattr(schema.reported, kind)})
        return lambda batch, place: read_reported(batch, alone, place)
    doses = [dose for dose in schema.doses if dose.name == column]
    features = [feature for feature in schema.features if feature.name == column]
    return lambda batch, place: read_doses(batch, doses, place) if doses else read_measurements(batch, features, place)
