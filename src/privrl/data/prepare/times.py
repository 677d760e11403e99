"""Times of records as numbers, and ends of episodes: marked on the last record, or given as a time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.prepare.preparation import Preparation, is_unitless, parse_duration
from privrl.data.prepare.windows import SortedRecords, count_windows, subtract_times
from privrl.data.schema.columns import refuse
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Place, TableError
from privrl.shapes import Bool, Int, Shaped

if TYPE_CHECKING:
    import pyarrow as pa

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNLIKE = (
    "The columns `{time}` and `{end}` differ: only one has a time zone, or only one holds numbers. Write both in the "
    "same way."
)


@dataclass(frozen=True, repr=False)
class Clock:
    """The times of some records, without gaps, and the length of a window in the same unit of time."""

    times: Shaped[np.ndarray, " R"]
    window: float | int
    dtype: "pa.DataType"

    @classmethod
    def from_column(cls, values: "pa.Array", how: Preparation, place: Place) -> "Clock":
        """Read the column of times; `place` locates its entries."""
        import pyarrow as pa

        refuse(is_null(values), how.time, place, "is null", "Every record needs a time. Leave out records without one.")
        every = parse_duration(how.every, "every")
        if not pa.types.is_timestamp(values.type):
            numbers = values.cast(pa.float64(), safe=False).to_numpy()
            refuse(~np.isfinite(numbers), how.time, place, "is NaN or infinite", "Every record needs a time.")
            if not (is_unitless(how.every) and is_unitless(how.carry)):
                raise TableError(
                    f"Column `{how.time}` holds numbers, `every` is {how.every!r} and `carry` is {how.carry!r}. Give "
                    "both as numbers in the unit of the column, or write timestamps."
                )
            return cls(numbers, every, values.type)
        ticks = every * _TICKS[values.type.unit]
        if not isinstance(how.every, str) or ticks != int(ticks) or ticks < 1:
            raise TableError(
                f"Column `{how.time}` holds timestamps and `every` is {how.every!r}. Give `every` with a unit, such as "
                "4h, and at least as long as the resolution of the column."
            )
        return cls(values.cast(pa.int64()).to_numpy(), int(ticks), values.type)

    def find_ends(
        self,
        values: "pa.Array | None",
        rows: SortedRecords,
        last: Int[np.ndarray, " E"],
        how: Preparation,
        place: Place,
    ) -> tuple[Bool[np.ndarray, " E"] | None, Int[np.ndarray, " E"]]:
        """Find which episodes have ended (`None`: the table does not record it), and the last window of each.

        Arguments:
            values: the column of ends in the order of the sorted rows.
            rows: the sorted records.
            last: the window of the last record of each episode.
            how: the public settings.
            place: locates a sorted row.
        """
        import pyarrow as pa

        if values is None or how.end is None:
            return None, last
        final = rows.starts + rows.lengths - 1
        if pa.types.is_timestamp(values.type) or how.end_time:
            return self._until(values, rows, last, how, place)
        true = _truths(values, how.end, place)
        early = true.copy()
        early[final] = False
        refuse(early, how.end, place, "is true before the last record of an episode", "Mark only the last record.")
        return true[final], last

    def _until(
        self, values: "pa.Array", rows: SortedRecords, last: Int[np.ndarray, " E"], how: Preparation, place: Place
    ) -> tuple[Bool[np.ndarray, " E"], Int[np.ndarray, " E"]]:
        """The same for a column of times: the last time given in an episode is its end."""
        assert how.end is not None
        ends, given = self._read(values, how.end, how.time, place)
        row = np.maximum.reduceat(np.where(given, np.arange(len(given)), -1), rows.starts)
        known, end = row >= 0, ends[row]
        late = np.repeat(known, rows.lengths) & (rows.times > np.repeat(end, rows.lengths))
        remedy = "Correct the time: no record can be later than the end of its episode."
        refuse(late, how.time, place, f"is after `{how.end}`, a negative duration,", remedy)
        begin = rows.times[rows.starts]
        whole = subtract_times(np.where(known, end, begin), begin)
        full = count_windows(whole, self.window, how.end, lambda i: place(int(rows.starts[i])))
        return known, np.maximum(last, full - (whole % whole.dtype.type(self.window) == 0))

    def _read(
        self, values: "pa.Array", column: str, time: str, place: Place
    ) -> tuple[Shaped[np.ndarray, " R"], Bool[np.ndarray, " R"]]:
        """Ends in the unit of the times, and a mask of those that are given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kinds = [pa.types.is_timestamp(dtype) for dtype in (values.type, self.dtype)]
        if pa.types.is_boolean(values.type) or kinds[0] != kinds[1]:
            raise TableError(_UNLIKE.format(time=time, end=column))
        if not kinds[0]:
            numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)  # NaN where null
            refuse(np.isinf(numbers), column, place, "is infinite", "Leave it empty if the episode has not ended.")
            return numbers, ~np.isnan(numbers)
        if (values.type.tz is None) != (self.dtype.tz is None):
            raise TableError(_UNLIKE.format(time=time, end=column))
        with redact_errors(f"Column `{column}` cannot be read"):
            alike = pc.CastOptions(pa.timestamp(self.dtype.unit, values.type.tz), allow_time_truncate=True)
            return pc.cast(values, options=alike).cast(pa.int64()).fill_null(0).to_numpy(), ~is_null(values)


def sort_records(columns: dict[str, "pa.Array"], how: Preparation, place: Place) -> tuple[Clock, SortedRecords]:
    """Sort the records of whole people by id, episode and time; `place` locates entry i of the columns."""
    clock = Clock.from_column(columns[how.time], how, place)
    if how.episode is None:
        return clock, SortedRecords.from_columns(columns[how.unit], None, clock.times)
    refuse(is_null(columns[how.episode]), how.episode, place, "is null", "Every record needs an episode.")
    return clock, SortedRecords.from_columns(columns[how.unit], columns[how.episode], clock.times)


def is_null(values: "pa.Array") -> Bool[np.ndarray, " R"]:
    """A mask of the nulls of a column."""
    return values.is_null().to_numpy(zero_copy_only=False)


def _truths(values: "pa.Array", column: str, place: Place) -> Bool[np.ndarray, " R"]:
    """A column of true and false, or of 1 and 0; nulls are false."""
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        return values.fill_null(False).to_numpy(zero_copy_only=False)
    numbers = values.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
    remedy = "Write true or false. If the column holds times, declare it (`--end COL:time`)."
    refuse((numbers != 0.0) & (numbers != 1.0), column, place, "is neither 0 nor 1", remedy)
    return numbers == 1.0
