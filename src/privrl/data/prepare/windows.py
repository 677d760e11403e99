"""Turn times into steps: sort the records of whole people, cut them into windows, and summarise each window.

For an episode whose first record is at t_0, window w holds the records at times t_0 + w d <= t < t_0 + (w + 1) d. A
column's value in a window is the last, first, mean, largest or smallest value there, or their sum. If a window has no
value, that of an earlier window of the same episode is carried forward, by at most a public number of windows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from privrl.data.schema.columns import refuse
from privrl.data.schema.table_schema import Place
from privrl.shapes import Bool, Float, Int, Shaped

if TYPE_CHECKING:
    import pyarrow as pa

Aggregation = Literal["last", "first", "mean", "max", "min", "sum"]
"""How to combine the values of a column in one window."""
AGGREGATIONS: tuple[Aggregation, ...] = ("last", "first", "mean", "max", "min", "sum")
_MAX_WINDOWS = 2**62  # of an episode: windows are numbered by int64


@dataclass(frozen=True, repr=False)
class SortedRecords:
    """Records of whole people by unit, episode and time: the order of the rows of a table, and where episodes begin in
    it."""

    order: Int[np.ndarray, " R"]
    starts: Int[np.ndarray, " E"]
    times: Shaped[np.ndarray, " R"]

    @classmethod
    def from_columns(
        cls, units: "pa.Array", episodes: "pa.Array | None", times: Shaped[np.ndarray, " R"]
    ) -> "SortedRecords":
        """Sort by id, episode and time; records that are equal in all three keep their order.

        If times are timestamps (whole numbers), a person's episodes are in the order of time; if not, time may begin
        anew in every episode, and they are in the order in which they first appear.
        """
        key = _ranked(units)
        if episodes is not None:
            person, inner = key, _ranked(episodes)
            key = person * (int(inner.max()) + 1) + inner
            key = _by_start(person, key, times if times.dtype.kind == "i" else np.arange(len(key)))
        later = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & (times[1:] >= times[:-1]))
        order = np.arange(len(key)) if later.all() else np.lexsort((times, key))
        key = key[order]
        return cls(order, np.flatnonzero(np.append(True, key[1:] != key[:-1])), times[order])

    def check_times(self, column: str, place: Place) -> None:
        """Raise if two records of an episode have the same time; `place` locates a sorted row."""
        again = np.append(False, self.times[1:] == self.times[:-1])
        again[self.starts] = False
        refuse(again, column, place, "has a time twice in one episode", "Merge the rows that have the same time.")

    @property
    def lengths(self) -> Int[np.ndarray, " E"]:
        return np.diff(self.starts, append=len(self.order))

    @property
    def since_start(self) -> Shaped[np.ndarray, " R"]:
        """The time since the first record of the episode: exact for whole numbers, infinite if a float overflows."""
        return subtract_times(self.times, np.repeat(self.times[self.starts], self.lengths))


def subtract_times(later: Shaped[np.ndarray, " N"], earlier: Shaped[np.ndarray, " N"]) -> Shaped[np.ndarray, " N"]:
    """`later` - `earlier`, which is not negative; for int64 as uint64, in which every such difference is exact."""
    if later.dtype.kind == "i":
        return later.astype(np.int64).view(np.uint64) - earlier.astype(np.int64).view(np.uint64)
    with np.errstate(over="ignore"):
        return later - earlier


def count_windows(
    since: Shaped[np.ndarray, " N"], window: float | int, column: str, place: Place
) -> Int[np.ndarray, " N"]:
    """The number of whole windows in durations that are not negative, at most 2^62."""
    with np.errstate(over="ignore", invalid="ignore"):
        number = np.floor_divide(since, since.dtype.type(window))
    far = ~(number <= number.dtype.type(_MAX_WINDOWS))  # NaN is refused too
    refuse(far, column, place, "is too far from the first record of its episode", "Correct the time.")
    return number.astype(np.int64)


def _by_start(
    person: Int[np.ndarray, " R"], episode: Int[np.ndarray, " R"], times: Int[np.ndarray, " R"]
) -> Int[np.ndarray, " R"]:
    """Numbers of episodes in the order of person, first time, and the numbers that they had."""
    named, first, number = np.unique(episode, return_index=True, return_inverse=True)
    begin = np.full(len(named), np.iinfo(times.dtype).max, times.dtype)
    np.minimum.at(begin, number, times)
    place = np.empty(len(named), np.int64)
    place[np.lexsort((named, begin, person[first]))] = np.arange(len(named))
    return place[number]


def _ranked(ids: "pa.Array") -> Int[np.ndarray, " R"]:
    """The rank of each id among the distinct ids."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = ids.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.cast(pa.int64()).to_numpy()]


@dataclass(frozen=True, repr=False)
class Windows:
    """Windows 0, ..., `count` - 1 of each episode laid end to end, each with its group of records, or -1.

    Groups are the windows that have records, in order; `groups` is the first sorted row of each. Records after an
    episode's last window are in no window, and no record is in a window of another episode.
    """

    groups: Int[np.ndarray, " G"]
    group_of: Int[np.ndarray, " W"]
    first: Int[np.ndarray, " W"]
    count: Int[np.ndarray, " E"]

    @classmethod
    def from_records(
        cls, rows: SortedRecords, window: Int[np.ndarray, " R"], count: Int[np.ndarray, " E"]
    ) -> "Windows":
        """Build the windows from the window number of every sorted row, and the number of windows of each episode."""
        episode = np.repeat(np.arange(len(count)), rows.lengths)
        begins = np.append(True, (window[1:] != window[:-1]) | (episode[1:] != episode[:-1]))
        groups = np.flatnonzero(begins)
        offset = np.cumsum(count) - count
        inside = (window[groups] >= 0) & (window[groups] < count[episode[groups]])
        group_of = np.full(int(count.sum()), -1, np.int64)
        at = offset[episode[groups]] + window[groups]
        group_of[at[inside]] = np.flatnonzero(inside)
        return cls(groups, group_of, np.repeat(offset, count), count)

    def carry_forward(self, given: Bool[np.ndarray, " G"], most: int) -> Int[np.ndarray, " W"]:
        """For each window, the group whose value is used there: its own if it is `given`, else the last group that is
        given at most `most` windows earlier in the episode; -1 if there is no such group."""
        here = np.arange(len(self.group_of))
        own = (self.group_of >= 0) & given[self.group_of]
        latest = np.maximum.accumulate(np.where(own, here, -1))
        usable = (latest >= self.first) & (here - latest <= most)
        return np.where(usable, self.group_of[np.maximum(latest, 0)], -1)


def summarise(values: "pa.Array", how: Aggregation, windows: Windows) -> tuple["pa.Array", Bool[np.ndarray, " G"]]:
    """One value per group of records, and whether the group has a value.

    `values` are sorted; they must be numbers unless `how` is last or first.
    """
    import pyarrow as pa

    if how in ("last", "first"):
        given = values.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(values.type):
            given &= ~np.isnan(values.to_numpy(zero_copy_only=False))
        row = _chosen_rows(given, how, windows)
        return values.take(pa.array(row, mask=row < 0)), row >= 0
    numbers = values.to_numpy(zero_copy_only=False)  # NaN where null
    missing = np.isnan(numbers)
    count = np.add.reduceat((~missing).astype(np.int64), windows.groups)
    return pa.array(_COMBINED[how](numbers, missing, count, windows.groups)), count > 0


def _chosen_rows(given: Bool[np.ndarray, " R"], how: Aggregation, windows: Windows) -> Int[np.ndarray, " G"]:
    """The last or first row of each group that has a value, or -1."""
    here = np.arange(len(given))
    if how == "last":
        return np.maximum.reduceat(np.where(given, here, -1), windows.groups)
    row = np.minimum.reduceat(np.where(given, here, len(given)), windows.groups)
    return np.where(row < len(given), row, -1)


_Missing = Bool[np.ndarray, " R"]
_Counts = Int[np.ndarray, " G"]


def _mean(x: Float[np.ndarray, " R"], missing: _Missing, count: _Counts, groups: _Counts) -> Float[np.ndarray, " G"]:
    return np.add.reduceat(np.where(missing, 0.0, x), groups) / np.maximum(count, 1)


def _sum(x: Float[np.ndarray, " R"], missing: _Missing, count: _Counts, groups: _Counts) -> Float[np.ndarray, " G"]:
    del count
    return np.add.reduceat(np.where(missing, 0.0, x), groups)


def _max(x: Float[np.ndarray, " R"], missing: _Missing, count: _Counts, groups: _Counts) -> Float[np.ndarray, " G"]:
    del missing, count
    return np.fmax.reduceat(x, groups)


def _min(x: Float[np.ndarray, " R"], missing: _Missing, count: _Counts, groups: _Counts) -> Float[np.ndarray, " G"]:
    del missing, count
    return np.fmin.reduceat(x, groups)


_COMBINED: dict[Aggregation, Callable[..., Float[np.ndarray, " G"]]] = {
    "mean": _mean,
    "sum": _sum,
    "max": _max,
    "min": _min,
}
