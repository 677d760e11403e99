"""Check the rows of a table as they stream by, each batch given the last row of the batch before."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.rows.batches import Table
from privrl.data.rows.measured_columns import read_doses, read_measurements, read_reported
from privrl.data.schema.columns import (
    check_indices,
    check_propensities,
    check_rewards,
    find_changes,
    hashes,
    read_ids,
    read_required_numbers,
    read_whole_numbers,
    refuse,
    take_ids,
    to_whole_numbers,
)
from privrl.data.schema.fingerprints import Fingerprints, fingerprint, hash_pairs
from privrl.data.schema.table_schema import Bounds, Place, TableError
from privrl.shapes import Bool, Float, Int, Shaped

if TYPE_CHECKING:
    import pyarrow as pa

_FAR = 2**62  # the largest step: the difference of two steps fits into 64 bits
_SORT = "Sort the table by unit, episode and step, or read it with `sort=True`."


@dataclass(frozen=True, repr=False)
class Rows:
    """Checked rows: the first row and the owner (number and ids) of each episode, and the values of the table's columns
    (`None` if the table has no such column)."""

    starts: Int[np.ndarray, " E"]
    unit: Int[np.ndarray, " E"]
    unit_ids: "pa.Array"
    episode_ids: "pa.Array | None"
    steps: Int[np.ndarray, " R"]
    states: Shaped[np.ndarray, "R *D"]
    actions: Int[np.ndarray, " R"]
    rewards: Float[np.ndarray, " R"]
    next_states: Int[np.ndarray, " R"] | None
    ended: Bool[np.ndarray, " R"] | None
    propensities: Float[np.ndarray, " R"] | None = None
    extras: Float[np.ndarray, "R 2"] | None = None


def read_steps(batch: "pa.RecordBatch", column: str, place: Place) -> Int[np.ndarray, " R"]:
    """The numbers of steps, small enough that their differences are exact."""
    steps = read_whole_numbers(batch, column, place)
    refuse((steps < -_FAR) | (steps > _FAR), column, place, "is too large", "Count steps from 0.")
    return steps


def read_ends(batch: "pa.RecordBatch", column: str, place: Place) -> Bool[np.ndarray, " R"]:
    """Where a row marks the end of an episode: true or false, or 1 or 0."""
    ended = read_required_numbers(batch, column, place)
    if ended.dtype == bool:
        return ended
    numbers = to_whole_numbers(ended, column, place)
    refuse((numbers < 0) | (numbers > 1), column, place, "is neither 0 nor 1", "Write true or false.")
    return numbers == 1


class RowChecker:
    """Check the rows of one table in order; between batches it keeps one row, and a fingerprint per id.

    Units are numbered 0, 1, ... in the order in which they begin, whatever the batches.

    Arguments:
        table, bounds: the table and its public bounds.
        salt: the key of the hashes of ids.
        grouped: an earlier pass has found every unit and episode in one piece, so no fingerprints are kept.
        refuse: called with the rows that are out of order; by default it raises.
    """

    def __init__(
        self, table: Table, bounds: Bounds, salt: int, grouped: bool = False, refuse: Callable[..., None] = refuse
    ) -> None:
        self._table, self._schema, self._bounds, self._salt = table, table.schema, bounds, salt
        self._grouped, self._refuse = grouped, refuse
        self._units, self._episodes = Fingerprints(), Fingerprints()
        self._unit: object = None
        self._episode: object = None
        self._num_units = 0
        self._step, self._position, self._ended = 0, -1, False

    def check(self, batch: "pa.RecordBatch", place: Place) -> Rows:
        """Check one batch."""
        new_unit, new_episode, units, episodes = self._boundaries(batch, place)
        starts = np.flatnonzero(new_episode)
        number = self._num_units - 1 + np.cumsum(new_unit)[starts]
        self._num_units += int(new_unit.sum())
        self._remember(units, episodes, new_unit[starts])
        steps = self._check_steps(batch, place, new_episode)
        states, actions = self._states(batch, place), self._actions(batch, place)
        column = self._schema.reward
        rewards = check_rewards(read_required_numbers(batch, column, place), column, place, self._bounds.reward_range)
        after = self._schema.next_state
        following = None if after is None else self._indices(batch, after, place, "num_states", missing=-1)
        ended = self._check_end(batch, place, new_episode)
        name = self._schema.propensity
        logged = None
        if name is not None:
            p = read_required_numbers(batch, name, place)
            logged = check_propensities(p, name, place, self._bounds)
        extras = read_reported(batch, self._schema.reported, place) if self._schema.reported else None
        who = (starts, number, units, episodes, steps)
        return Rows(*who, states, actions, rewards, following, ended, logged, extras)

    def check_order(self, batch: "pa.RecordBatch", place: Place) -> None:
        """Check only the order of the rows of one batch."""
        new_unit, new_episode, units, episodes = self._boundaries(batch, place)
        self._remember(units, episodes, new_unit[np.flatnonzero(new_episode)])
        self._check_steps(batch, place, new_episode)
        self._check_end(batch, place, new_episode)

    def _states(self, batch: "pa.RecordBatch", place: Place) -> Shaped[np.ndarray, "R *D"]:
        if self._schema.state is None:
            return read_measurements(batch, self._schema.features, place)
        return self._indices(batch, self._schema.state, place, "num_states")

    def _actions(self, batch: "pa.RecordBatch", place: Place) -> Int[np.ndarray, " R"]:
        if self._schema.action is None:
            return read_doses(batch, self._schema.doses, place)
        return self._indices(batch, self._schema.action, place, "num_actions")

    def _indices(
        self, batch: "pa.RecordBatch", column: str, place: Place, bound: str, missing: int | None = None
    ) -> Int[np.ndarray, " R"]:
        values = read_whole_numbers(batch, column, place, missing)
        return check_indices(values, column, place, self._bounds, bound, unknown=missing is not None)

    def _boundaries(
        self, batch: "pa.RecordBatch", place: Place
    ) -> tuple[Bool[np.ndarray, " R"], Bool[np.ndarray, " R"], "pa.Array", "pa.Array | None"]:
        """Where units and episodes begin, and the unit id and episode id of each beginning episode."""
        units = read_ids(batch, self._schema.unit, place)
        new_unit = new_episode = find_changes(units, self._unit)
        self._unit = units[-1].as_py()
        if self._schema.episode is None:
            return new_unit, new_unit, take_ids(units, np.flatnonzero(new_unit), self._schema.unit, place), None
        episodes = read_ids(batch, self._schema.episode, place)
        new_episode = new_unit | find_changes(episodes, self._episode)
        self._episode = episodes[-1].as_py()
        starts = np.flatnonzero(new_episode)
        names = take_ids(episodes, starts, self._schema.episode, place)
        return new_unit, new_episode, take_ids(units, starts, self._schema.unit, place), names

    def _remember(self, units: "pa.Array", episodes: "pa.Array | None", new_unit: Bool[np.ndarray, " E"]) -> None:
        """Keep a fingerprint of each beginning unit and episode; two units may use the same episode numbers."""
        if self._grouped:
            return
        unit = hashes(units, self._salt)
        self._units.add(unit[new_unit])
        if episodes is not None:
            self._episodes.add(hash_pairs(unit, hashes(episodes, self._salt)))

    def _check_steps(
        self, batch: "pa.RecordBatch", place: Place, new_episode: Bool[np.ndarray, " R"]
    ) -> Int[np.ndarray, " R"]:
        column = self._schema.step
        steps = read_steps(batch, column, place)
        gap = np.diff(steps, prepend=self._step)
        inside = ~new_episode
        self._refuse(inside & (gap == 0), column, place, "has a step twice in one episode", "Keep one row per step.")
        remedy = f"Steps of an episode must be consecutive: fill in the missing one. If it is further down: {_SORT}"
        self._refuse(inside & (gap > 1), column, place, "skips a step", remedy)
        self._refuse(inside & (gap < 0), column, place, "goes back within an episode", _SORT)
        # The first row of the running episode is at index -(position + 1), counted from the start of this batch.
        index = np.arange(len(steps))
        position = index - np.maximum.accumulate(np.where(new_episode, index, -(self._position + 1)))
        remedy = f"`horizon` is {self._bounds.horizon}. Cut the episode or give a larger `horizon`."
        self._refuse(position >= self._bounds.horizon, column, place, "goes beyond the horizon", remedy)
        self._step, self._position = int(steps[-1]), int(position[-1])
        return steps

    def _check_end(
        self, batch: "pa.RecordBatch", place: Place, new_episode: Bool[np.ndarray, " R"]
    ) -> Bool[np.ndarray, " R"] | None:
        column = self._schema.terminated
        if column is None:
            return None
        ended = read_ends(batch, column, place)
        before = np.concatenate([[self._ended], ended[:-1]])
        remedy = "Mark only the last row of an episode, or give the rows that follow another `episode`."
        self._refuse(
            before & ~new_episode, column, place, "was true one row earlier, but the episode continues", remedy
        )
        self._ended = bool(ended[-1])
        return ended

    def finish(self) -> None:
        """After the last row, raise if a unit or an episode appeared again after another one."""
        units, episodes = self._units.repeated(), self._episodes.repeated()
        if not len(units) and not len(episodes):
            return
        # A fingerprint occurred twice, by chance or because an id did. Compare the ids themselves for those few.
        known: set[tuple[object, ...]] = set()
        self._unit = self._episode = None
        parts = [part for part in ("unit", "episode") if part in self._schema.columns]
        for batch, place in self._table.batches(parts):
            new_unit, new_episode, ids, names = self._boundaries(batch, place)
            starts = np.flatnonzero(new_episode)
            unit = hashes(ids, self._salt)
            for i in np.flatnonzero(new_unit[starts] & np.isin(fingerprint(unit), units)).tolist():
                _refuse_known("a unit", (ids[i].as_py(),), known, self._schema.unit, place(int(starts[i])))
            if names is None or self._schema.episode is None:
                continue
            both = hash_pairs(unit, hashes(names, self._salt))
            for i in np.flatnonzero(np.isin(fingerprint(both), episodes)).tolist():
                named = (ids[i].as_py(), names[i].as_py())
                _refuse_known("an episode", named, known, self._schema.episode, place(int(starts[i])))


def _refuse_known(what: str, ids: tuple[object, ...], known: set[tuple[object, ...]], column: str, place: str) -> None:
    if ids in known:
        raise TableError(
            f"Column `{column}`: at {place}, {what} appears again after another one. Its rows must be together. {_SORT}"
        )
    known.add(ids)
