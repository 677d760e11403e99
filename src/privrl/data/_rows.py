"""The checks of a table's rows as they stream by, each batch in the light of the row before it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from privrl.data._identity import Fingerprints, fingerprint, ranks
from privrl.data._schema import Bounds, Place, TableError, bounded_rewards, refuse, refuse_outside, whole_numbers
from privrl.data._table import Table, changes, column_of, hashes

if TYPE_CHECKING:
    import pyarrow as pa

_SORT = "Sort the table by unit, episode and step, or read it with `sort=True`."


@dataclass(frozen=True, repr=False)
class Rows:
    """Checked rows: where units and episodes begin, a random number per beginning episode, and the values."""

    new_unit: Bool[np.ndarray, " R"]
    new_episode: Bool[np.ndarray, " R"]
    rank: UInt64[np.ndarray, " E"]
    states: Int[np.ndarray, " R"]
    actions: Int[np.ndarray, " R"]
    rewards: Float[np.ndarray, " R"]
    next_states: Int[np.ndarray, " R"] | None


class RowChecker:
    """Checks the rows of one table in order; between batches it remembers one row and a fingerprint per id.

    `grouped` says that an earlier pass has found every unit and episode in one piece; then no fingerprints are kept.
    """

    def __init__(self, table: Table, bounds: Bounds, salt: int, grouped: bool = False) -> None:
        self._table, self._schema, self._bounds, self._salt = table, table.schema, bounds, salt
        self._S, self._A = bounds.known("num_states"), bounds.known("num_actions")
        self._grouped = grouped
        self._units, self._episodes = Fingerprints(), Fingerprints()
        self._unit: Any = None
        self._episode: Any = None
        self._step, self._position, self._ended = 0, -1, False

    def rows(self, batch: "pa.RecordBatch", place: Place) -> Rows:
        """One batch, checked."""
        new_unit, new_episode, rank = self._boundaries(batch, place)
        self._check_steps(batch, place, new_episode)
        column = self._schema.state
        states = whole_numbers(column_of(batch, column, place).to_numpy(), column, place)
        refuse_outside(states, column, place, self._S, "num_states")
        column = self._schema.action
        actions = whole_numbers(column_of(batch, column, place).to_numpy(), column, place)
        refuse_outside(actions, column, place, self._A, "num_actions")
        column = self._schema.reward
        rewards = column_of(batch, column, place).to_numpy()
        rewards = bounded_rewards(rewards, column, place, self._bounds.reward_range)
        next_states = None
        if self._schema.next_state is not None:
            column = self._schema.next_state
            next_states = whole_numbers(column_of(batch, column, place, missing=-1).to_numpy(), column, place)
            refuse_outside(next_states, column, place, self._S, "num_states", unknown=True)
            next_states = next_states.astype(np.int32)
        self._check_end(batch, place, new_episode)
        narrow = states.astype(np.int32), actions.astype(np.int32)
        return Rows(new_unit, new_episode, rank, *narrow, rewards, next_states)

    def _boundaries(
        self, batch: "pa.RecordBatch", place: Place
    ) -> tuple[Bool[np.ndarray, " R"], Bool[np.ndarray, " R"], UInt64[np.ndarray, " E"]]:
        units = column_of(batch, self._schema.unit, place)
        new_unit = changes(units, self._unit)
        self._unit = units[-1].as_py()
        if self._schema.episode is None:
            unit = hashes(units.take(np.flatnonzero(new_unit)), self._salt)
            if not self._grouped:
                self._units.add(unit)
            return new_unit, new_unit, unit
        episodes = column_of(batch, self._schema.episode, place)
        new_episode = new_unit | changes(episodes, self._episode)
        self._episode = episodes[-1].as_py()
        starts = np.flatnonzero(new_episode)
        unit, episode = hashes(units.take(starts), self._salt), hashes(episodes.take(starts), self._salt)
        rank = ranks(unit, episode)
        if not self._grouped:
            self._units.add(unit[new_unit[starts]])
            self._episodes.add(rank)  # an episode is known by its unit and its id: units may number theirs alike
        return new_unit, new_episode, rank

    def _check_steps(self, batch: "pa.RecordBatch", place: Place, new_episode: Bool[np.ndarray, " R"]) -> None:
        column = self._schema.step
        steps = whole_numbers(column_of(batch, column, place).to_numpy(), column, place)
        gap = np.diff(steps, prepend=self._step)
        inside = ~new_episode
        refuse(inside & (gap == 0), column, place, "has a step twice in one episode", "Keep one row per step.")
        remedy = f"Steps of an episode follow each other; fill in the missing one. If it is further down: {_SORT}"
        refuse(inside & (gap > 1), column, place, "skips a step", remedy)
        refuse(inside & (gap < 0), column, place, "goes back within an episode", _SORT)
        index = np.arange(len(steps))
        position = index - np.maximum.accumulate(np.where(new_episode, index, -(self._position + 1)))
        remedy = f"`horizon` is {self._bounds.horizon}. Cut the episode or give a larger `horizon`."
        refuse(position >= self._bounds.horizon, column, place, "goes beyond the horizon", remedy)
        self._step, self._position = int(steps[-1]), int(position[-1])

    def _check_end(self, batch: "pa.RecordBatch", place: Place, new_episode: Bool[np.ndarray, " R"]) -> None:
        column = self._schema.terminated
        if column is None:
            return
        ended = column_of(batch, column, place).to_numpy(zero_copy_only=False)
        if ended.dtype != bool:
            numbers = whole_numbers(ended, column, place)
            refuse((numbers < 0) | (numbers > 1), column, place, "is neither 0 nor 1", "Write true or false.")
            ended = numbers == 1
        before = np.concatenate([[self._ended], ended[:-1]])
        remedy = "Mark the last row of an episode only, or give what follows an `episode` of its own."
        refuse(before & ~new_episode, column, place, "was true one row earlier, and the episode goes on", remedy)
        self._ended = bool(ended[-1])

    def finish(self) -> None:
        """After the last row: raises if a unit or an episode came back after another one."""
        units, episodes = self._units.repeated(), self._episodes.repeated()
        if not len(units) and not len(episodes):
            return
        # A fingerprint came twice: by chance, or because an id did. Look at those few ids again.
        known: set[Any] = set()
        unit_before = episode_before = None
        parts = [part for part in ("unit", "episode") if part in self._schema.columns]
        for batch, place in self._table.batches(parts):
            ids = column_of(batch, self._schema.unit, place)
            new_unit = changes(ids, unit_before)
            unit_before = ids[-1].as_py()
            starts = np.flatnonzero(new_unit)
            for i in starts[np.isin(fingerprint(hashes(ids.take(starts), self._salt)), units)].tolist():
                _refuse_known("a unit", (ids[i].as_py(),), known, self._schema.unit, place(i))
            if self._schema.episode is None:
                continue
            names = column_of(batch, self._schema.episode, place)
            new_episode = new_unit | changes(names, episode_before)
            episode_before = names[-1].as_py()
            starts = np.flatnonzero(new_episode)
            rank = ranks(hashes(ids.take(starts), self._salt), hashes(names.take(starts), self._salt))
            for i in starts[np.isin(fingerprint(rank), episodes)].tolist():
                both = (ids[i].as_py(), names[i].as_py())
                _refuse_known("an episode", both, known, self._schema.episode, place(i))


def _refuse_known(what: str, ids: tuple[Any, ...], known: set[Any], column: str, place: str) -> None:
    if ids in known:
        raise TableError(
            f"Column `{column}`: at {place} {what} comes back after another one; its rows must be together. {_SORT}"
        )
    known.add(ids)
