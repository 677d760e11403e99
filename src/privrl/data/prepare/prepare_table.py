"""Turn raw records into a table of steps: times become windows, windows become states, actions and rewards.

Each row of the result is computed from one person's records, with public settings. So replacing a person replaces only
that person's rows of the result, and preparing a table costs no budget. Every person has at least one step, so the
number of people does not change.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.data.prepare.grid import NEXT_STATE, STATE, StateGrid
from privrl.data.prepare.long_tables import LongTable
from privrl.data.prepare.preparation import Preparation
from privrl.data.prepare.raw import ROW, RawTable
from privrl.data.prepare.times import sort_records
from privrl.data.prepare.windows import Aggregation, Windows, count_windows, summarise
from privrl.data.schema.columns import NO_PROPENSITY, refuse
from privrl.data.schema.declaration import SETTINGS
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Place
from privrl.data.tables.partition import partition
from privrl.shapes import Bool, Float, Int
from privrl.writing import whole_file

if TYPE_CHECKING:
    import pyarrow as pa

_PIECE_BYTES = 2**24  # about the size of a piece of the table in memory
_WINDOWS = 2**19  # windows laid out at once
_INVERTED_RANGE = "With `--good low`, 1 minus the reward is written. Scale the column to [0, 1] first."


def prepare(source: str | Path, target: str | Path, how: Preparation) -> None:
    """Write a table of steps, which `read_parquet` reads.

    The columns are those of the person (and the episode), `step`, the measurements (null if none was made) or the
    numbers of states, the actions, `propensity`, `by`, `outcome` and the reward, and `terminated` if `end` is given.
    The public settings that a schema needs are written into the metadata of the file. Rows are grouped by person,
    episode and step. With timestamps, a person's episodes are in the order of time; with plain numbers, which may begin
    anew in every episode, in the order in which they appear. Within each piece of a large table, people are in the
    order of their ids. The file is written as a whole or not at all. Memory is that of a piece of the table and of the
    records of one person; larger tables go through temporary files next to `target`.

    **Formal guarantee.** If nothing is refused, a person's rows of the result, with their types, are a function of that
    person's rows of `source`, of `how` and, for Parquet, of the types in the schema of the file, which are public; and
    every person has at least one row. So a guarantee for one person of the result is a guarantee for one person of
    `source`, and no budget is spent. Cells are refused by rules about one person's rows. The number of rows, a sum over
    people, is not reported.

    Arguments:
        source: a CSV or Parquet file of raw records.
        target: the new Parquet file.
        how: the public settings.

    Raises:
        TableError: if a column is missing or a cell does not fit its declared type.
        ValueError: if `target` does not end in .parquet.
    """
    import pyarrow.parquet as pq

    source, target = Path(source), Path(target)
    raw = RawTable(source, how.uses, how.cells, how.time_format, how.csv)
    if target.suffix != ".parquet":
        raise ValueError(f"`{target}` must end in .parquet.")
    with whole_file(target, secret=True) as temporary:
        writer: Any = None
        for steps in _steps(raw, how, target.parent):
            steps = steps.replace_schema_metadata({SETTINGS: json.dumps(public_settings(how))})
            writer = writer or pq.ParquetWriter(temporary, steps.schema)
            writer.write_table(steps)
        writer.close()


def public_settings(how: Preparation) -> dict[str, object]:
    """The lines of a schema that follow from the settings alone."""
    found: dict[str, object] = {"unit": how.unit, "step": "step", "reward": how.paid, "good": "high"}
    found |= {} if how.episode is None else {"episode": how.episode}
    found |= {} if how.end is None else {"terminated": "terminated"}
    found |= {} if how.propensity is None else {"propensity": how.propensity}
    found |= {name: column for name, column in (("by", how.by), ("outcome", how.outcome)) if column is not None}
    found |= {"horizon": how.horizon, "rewards_at_end": how.reward_each is None, "action": list(how.action)}
    if how.states is not None:
        found |= {"state": STATE, "next_state": NEXT_STATE, "num_states": len(how.states.names)}
        found |= {} if how.states.end_state is None else {"terminal": [how.states.end_state]}
    return found


def _steps(raw: RawTable, how: Preparation, folder: Path) -> Iterator["pa.Table"]:
    import pyarrow as pa

    pieces = math.ceil(raw.size / _PIECE_BYTES)
    long = None if how.name is None else LongTable(raw, how)
    batches = raw.batches() if long is None else long.batches()
    for piece in partition(batches, how.unit, raw.place, pieces, folder):
        if piece.num_rows:
            columns = {name: piece.column(name).combine_chunks() for name in piece.column_names}
            yield from _tables(raw, how, columns if long is None else long.wide(columns))
            pa.default_memory_pool().release_unused()


def _tables(raw: RawTable, how: Preparation, columns: dict[str, "pa.Array"]) -> Iterator["pa.Table"]:
    """The steps of some people, in halves if few records span many windows."""
    piece = _Piece(raw, how, columns)
    if int(piece.count.sum()) > _WINDOWS and len(piece.count) > 1:
        for rows in piece.halves():
            yield from _tables(raw, how, {name: values.take(rows) for name, values in columns.items()})
    else:
        yield piece.steps()


class _Piece:
    """All records of some people; `count` is the number of steps of each episode."""

    count: Int[np.ndarray, " E"]

    def __init__(self, raw: RawTable, how: Preparation, columns: dict[str, "pa.Array"]) -> None:
        self._how, self._columns = how, columns
        rows = columns[ROW].to_numpy()
        unsorted: Place = lambda i: raw.place(int(rows[i]))  # noqa: E731
        clock, self._sorted = sort_records(columns, how, unsorted)
        numbers = rows[self._sorted.order]
        self._place: Place = lambda i: raw.place(int(numbers[i]))
        self._sorted.check_times(how.time, self._place)
        self._of_row = count_windows(self._sorted.since_start, clock.window, how.time, self._place)
        final = self._of_row[self._sorted.starts + self._sorted.lengths - 1]
        ends = None if how.end is None else self._column(how.end)
        self._ended, last = clock.find_ends(ends, self._sorted, final, how, self._place)
        self._lag = 1 if how.state_at == "start" else 0
        self._last = last
        self._cut = last + 1 - self._lag > how.horizon
        self.count = np.clip(last + 1 - self._lag, 1, how.horizon)

    def halves(self) -> tuple["pa.Array", "pa.Array"]:
        """The rows of the first half of the episodes, and of the second."""
        import pyarrow as pa

        middle = int(self._sorted.starts[len(self.count) // 2])
        return pa.array(self._sorted.order[:middle]), pa.array(self._sorted.order[middle:])

    def _column(self, name: str) -> "pa.Array":
        """A column in the order of the sorted rows."""
        import pyarrow as pa

        order = self._sorted.order
        values = self._columns[name]
        in_order = len(order) < 2 or bool((order[1:] > order[:-1]).all())
        return values if in_order else values.take(pa.array(order))

    def steps(self) -> "pa.Table":
        """One row per step."""
        import pyarrow as pa

        how, rows, count, lag = self._how, self._sorted, self.count, self._lag
        windows = Windows.from_records(rows, self._of_row, count + lag)
        step = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        state = np.repeat(np.cumsum(count + lag) - (count + lag), count) + step
        owner = pa.array(np.repeat(rows.starts, count))
        table = {how.unit: self._column(how.unit).take(owner)}
        if how.episode is not None:
            table[how.episode] = self._column(how.episode).take(owner)
        table["step"] = pa.array(step)
        is_last = np.append(step[1:] == 0, True)
        ended = None if self._ended is None else is_last & np.repeat(self._ended & ~self._cut, count)
        if how.states is None:
            for name, way in how.columns.items():
                table[name] = self._summary(name, way, windows, how.carried_windows, state)
        else:
            table[STATE] = pa.array(self._numbered(how.states, windows, state, np.ones(len(state), bool)))
            over = is_last & (how.reward_each is None) if ended is None else ended
            table[NEXT_STATE] = self._next_states(how.states, windows, state, step, over)
        for name, way in how.action.items():
            table[name] = self._summary(name, way, windows, 0, state + lag).fill_null(how.idle)
        if how.propensity is not None:
            table[how.propensity] = self._propensities(how.propensity, windows, state + lag)
        if how.by is not None:
            table[how.by] = self._first_values(how.by)
        if how.outcome is not None:
            table[how.outcome] = self._summary(how.outcome, "sum", windows, 0, state + lag)
        rewards = self._rewards(windows, state + lag, is_last, np.cumsum(count) - 1)
        table[how.paid] = pa.array(rewards)
        if ended is not None:
            table["terminated"] = pa.array(ended)
        return pa.table(table)

    def _next_states(
        self,
        grid: StateGrid,
        windows: Windows,
        at: Int[np.ndarray, " S"],
        step: Int[np.ndarray, " S"],
        over: Bool[np.ndarray, " S"],
    ) -> "pa.Array":
        """The state after each step; null after the last window, unless the episode is over there."""
        import pyarrow as pa

        known = step < np.repeat(self._last, self.count)
        found = self._numbered(grid, windows, np.where(known, at + 1, at), known & ~over)
        if grid.end_state is not None:
            found = np.where(over, grid.end_state, found)
        return pa.array(found, mask=~(known | over))

    def _numbered(
        self, grid: StateGrid, windows: Windows, at: Int[np.ndarray, " S"], needed: Bool[np.ndarray, " S"]
    ) -> Int[np.ndarray, " S"]:
        """The numbers of the states in these windows; 0 where none is needed."""
        cells, how = {}, self._how
        episode = np.searchsorted(np.cumsum(windows.count), at, side="right")
        starts = self._sorted.starts
        begin: Place = lambda i: self._place(int(starts[episode[i]]))  # noqa: E731
        for column in grid.columns:
            values = self._summary(column.name, how.columns[column.name], windows, how.carried_windows, at)
            with redact_errors(f"Column `{column.name}` cannot be cut into a grid"):
                found, outside = column.cells(values)
            null = values.is_null().to_numpy(zero_copy_only=False)
            problem = "has no value in a window of the episode that begins"
            remedy = f"Append `:missing` to its grid, carry values forward (`--carry`), or fill in `{column.name}`."
            refuse(needed & outside & null, column.name, begin, problem, remedy)
            problem = "has a value that is not in its grid in the episode that begins"
            refuse(needed & outside, column.name, begin, problem, "List all values of the column, or correct the cell.")
            cells[column.name] = np.where(needed, found, 0)
        return np.where(needed, grid.number(cells), 0)

    def _summary(
        self, name: str, way: Aggregation, windows: Windows, carried: int, at: Int[np.ndarray, " S"]
    ) -> "pa.Array":
        """The value of a column in these windows, null if it has none."""
        import pyarrow as pa

        with redact_errors(f"Column `{name}` cannot be combined"):
            values, given = summarise(self._column(name), way, windows)
            group = windows.carry_forward(given, carried)[at]
            return values.take(pa.array(group, mask=group < 0))

    def _first_values(self, name: str) -> "pa.Array":
        """The first value of each episode, for each of its steps; null if it has none."""
        import pyarrow as pa

        values = self._column(name)
        null = values.is_null().to_numpy(zero_copy_only=False)
        row = np.minimum.reduceat(np.where(null, len(values), np.arange(len(values))), self._sorted.starts)
        row = np.repeat(row, self.count)
        return values.take(pa.array(row, mask=row == len(values)))

    def _propensities(self, name: str, windows: Windows, at: Int[np.ndarray, " S"]) -> "pa.Array":
        """The logged probability of the action of each step: several decisions in one window have no probability."""
        import pyarrow as pa

        logged = self._column(name).to_numpy(zero_copy_only=False)
        refuse((logged <= 0.0) | (logged > 1.0), name, self._place, "is outside (0, 1]", NO_PROPENSITY)
        given = np.where(np.isnan(logged), np.nan, 1.0)
        number, _ = summarise(pa.array(given), "sum", windows)
        group = windows.group_of[at]
        several = (group < 0) | (number.to_numpy(zero_copy_only=False)[group] != 1)
        episode = np.searchsorted(np.cumsum(windows.count), at, side="right")
        begin: Place = lambda i: self._place(int(self._sorted.starts[episode[i]]))  # noqa: E731
        problem = "does not have exactly one value in every window of the episode that begins"
        remedy = "A step has one decision, and its probability is logged. Choose windows (`--every`) with one each."
        refuse(several, name, begin, problem, remedy)
        return self._summary(name, "last", windows, 0, at)

    def _rewards(
        self, windows: Windows, at: Int[np.ndarray, " S"], is_last: Bool[np.ndarray, " S"], ends: Int[np.ndarray, " E"]
    ) -> Float[np.ndarray, " S"]:
        how, starts = self._how, self._sorted.starts
        begin: Place = lambda i: self._place(int(starts[i]))  # noqa: E731 an episode is located by its first record
        if how.reward_each is not None:
            rewards = self._summary(how.reward, how.reward_each, windows, 0, at).to_numpy(zero_copy_only=False)
            episode = np.searchsorted(ends, np.arange(len(rewards)))
            problem = "has no value in a window of the episode that begins"
            refuse(
                np.isnan(rewards), how.reward, lambda i: begin(int(episode[i])), problem, "Every step needs a reward."
            )
            if how.good == "high":
                return rewards
            problem = "is outside [0, 1] in a window of the episode that begins"
            outside = (rewards < 0.0) | (rewards > 1.0)
            refuse(outside, how.reward, lambda i: begin(int(episode[i])), problem, _INVERTED_RANGE)
            return 1.0 - rewards
        values = self._column(how.reward).to_numpy(zero_copy_only=False)
        row = np.maximum.reduceat(np.where(np.isnan(values), -1, np.arange(len(values))), starts)
        remedy = "Write it on the last record of the episode."
        refuse(row < 0, how.reward, begin, "has no value in the episode that begins", remedy)
        paid, rewards = values[row], np.zeros(len(is_last))
        if how.good == "low":
            outside = (paid < 0.0) | (paid > 1.0)
            refuse(outside, how.reward, lambda i: self._place(int(row[i])), "is outside [0, 1]", _INVERTED_RANGE)
            paid = 1.0 - paid
        rewards[is_last] = paid
        return rewards
