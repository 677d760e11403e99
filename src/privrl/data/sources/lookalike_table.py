"""Write a table of invented people with the columns and bounds of a schema.

No record is read. The people live in a small artificial world: measurements fluctuate inside their bounds, actions push
the first measurement and are more frequent if it is low, and staying near the middle pays. So commands, run times and
the width of intervals can be tried before any budget is spent. The values mean nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.schema.table_schema import Bounds, Schema
from privrl.mdp.measurements import BinnedAction, Category, Measurement
from privrl.shapes import Bool, Float, Int
from privrl.writing import whole_file

if TYPE_CHECKING:
    import pyarrow as pa

_PEOPLE = 4096  # people invented at once
_MISSING = 0.2  # the share of missing values in columns that may have them


def write_lookalike(
    path: str | Path, schema: Schema, bounds: Bounds, *, people: int, rewards_at_end: bool = False, seed: int = 0
) -> int:
    """Write a table of invented people and return the number of its rows; `read_parquet` reads it with the same columns
    and bounds.

    **Formal guarantee.** The table depends only on the arguments; no other table is opened.

    Arguments:
        path: the new Parquet file.
        schema, bounds: the columns and the public bounds.
        people: the number of people.
        rewards_at_end: only the last step of an episode pays.
        seed: of the random numbers.
    """
    import pyarrow.parquet as pq

    path = Path(path)
    if people < 1:
        raise ValueError(f"`people` is {people}; it must be at least 1.")
    if path.suffix != ".parquet":
        raise ValueError(f"`{path}` must end in .parquet.")
    num_rows = 0
    with whole_file(path, secret=True) as temporary:
        writer = None
        for table in _tables(_World(schema, bounds, rewards_at_end), people, np.random.default_rng(seed)):
            writer = writer or pq.ParquetWriter(temporary, table.schema)
            writer.write_table(table)
            num_rows += table.num_rows
        assert writer is not None
        writer.close()
    return num_rows


def _tables(world: "_World", people: int, rng: np.random.Generator) -> Iterator["pa.Table"]:
    for first in range(0, people, _PEOPLE):
        yield world.table(first, min(_PEOPLE, people - first), rng)


@dataclass(frozen=True)
class _World:
    """A hidden vector h in R^D, or of one entry, moves by h' = .9 h + .3 push(a) e_1 + .3 noise."""

    schema: Schema
    bounds: Bounds
    rewards_at_end: bool

    def table(self, first: int, people: int, rng: np.random.Generator) -> "pa.Table":
        """One row per step of these people."""
        import pyarrow as pa

        schema, bounds = self.schema, self.bounds
        most = bounds.max_episodes_per_unit if schema.episode is not None else 1
        each = rng.integers(1, most + 1, people)
        owner = np.repeat(np.arange(first, first + people), each)
        number = np.arange(len(owner)) - np.repeat(np.cumsum(each) - each, each)
        length = rng.integers(-(-bounds.horizon // 2), bounds.horizon + 1, len(owner))
        hidden, actions = self._lived(len(owner), rng)
        held = np.arange(bounds.horizon) < length[:, None]
        episode, step = np.nonzero(held)
        last = step == length[episode] - 1
        x, after = hidden[:, :-1][held], hidden[:, 1:][held]
        columns: dict[str, object] = {schema.unit: owner[episode]}
        if schema.episode is not None:
            columns[schema.episode] = number[episode]
        columns[schema.step] = step
        columns |= self._states(x, after, last, rng)
        columns |= self._actions(actions[held], rng)
        columns[schema.reward] = self._rewards(after, last, rng)
        if schema.terminated is not None:
            columns[schema.terminated] = last & (length[episode] < bounds.horizon)
        if schema.propensity is not None:
            columns[schema.propensity] = rng.uniform(0.1, 1.0, len(step))
        columns |= self._reported(first, owner[episode], rng)
        return pa.table(columns)

    def _reported(self, first: int, owner: Int[np.ndarray, " R"], rng: np.random.Generator) -> dict[str, object]:
        """A group for each person, and a share of the second outcome for each row."""
        import pyarrow as pa

        by, outcome = self.schema.reported.by, self.schema.reported.outcome
        columns: dict[str, object] = {}
        if by is not None and by.name not in {feature.name for feature in self.schema.features}:
            each = rng.integers(0, len(by.values), int(owner.max()) + 1 - first)
            columns[by.name] = pa.array(by.values, pa.string()).take(pa.array(each[owner - first]))
        if outcome is not None and outcome.name not in {feature.name for feature in self.schema.features}:
            columns[outcome.name] = rng.uniform(0.0, outcome.high / self.bounds.horizon, len(owner))
        return columns

    def _lived(
        self, episodes: int, rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "E H1 D"], Int[np.ndarray, "E H"]]:
        A, H, D = self.bounds.known("num_actions"), self.bounds.horizon, max(1, len(self.bounds.features))
        h = rng.normal(size=(episodes, D))
        lived, actions = [h], []
        push = np.linspace(-0.5, 1.0, A)
        for _ in range(H):
            wanted = np.rint((A - 1) / (1.0 + np.exp(2.0 * h[:, 0]))).astype(np.int64)
            a = np.where(rng.random(episodes) < 0.5, rng.integers(0, A, episodes), wanted)
            h = 0.9 * h + 0.3 * rng.normal(size=h.shape)
            h[:, 0] += 0.3 * push[a]
            lived.append(h)
            actions.append(a)
        return np.stack(lived, axis=1), np.stack(actions, axis=1)

    def _states(
        self,
        x: Float[np.ndarray, "R D"],
        after: Float[np.ndarray, "R D"],
        last: Bool[np.ndarray, " R"],
        rng: np.random.Generator,
    ) -> dict[str, object]:
        import pyarrow as pa

        if self.schema.state is None:
            return {f.name: _measured(f, x[:, j], rng) for j, f in enumerate(self.bounds.features)}
        S = self.bounds.known("num_states")

        def numbered(h: Float[np.ndarray, "R D"]) -> Int[np.ndarray, " R"]:
            return np.minimum((_share(h[:, 0]) * S).astype(np.int64), S - 1)

        columns: dict[str, object] = {self.schema.state: numbered(x)}
        if self.schema.next_state is not None:
            columns[self.schema.next_state] = pa.array(numbered(after), mask=last)
        return columns

    def _actions(self, actions: Int[np.ndarray, " R"], rng: np.random.Generator) -> dict[str, object]:
        if self.schema.action is not None:
            return {self.schema.action: actions}
        columns: dict[str, object] = {}
        for dose in reversed(self.schema.doses):
            actions, part = np.divmod(actions, dose.num_actions)
            columns[dose.name] = _dosed(dose, part, rng)
        return columns

    def _rewards(
        self, after: Float[np.ndarray, "R D"], last: Bool[np.ndarray, " R"], rng: np.random.Generator
    ) -> Float[np.ndarray, " R"]:
        good = np.exp(-(after[:, 0] ** 2))
        low, high = self.bounds.reward_range
        paid = (rng.random(len(good)) < good) & last if self.rewards_at_end else good
        return low + (high - low) * paid


def _share(h: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
    """A number in (0, 1)."""
    return 1.0 / (1.0 + np.exp(-h))


def _measured(feature: Measurement, h: Float[np.ndarray, " R"], rng: np.random.Generator) -> "pa.Array":
    """Values of a column, inside its bounds or from its list; some are missing if that is allowed."""
    import pyarrow as pa

    missing = rng.random(len(h)) < (_MISSING if feature.missing else 0.0)
    if isinstance(feature, Category):
        number = np.minimum((_share(h) * len(feature.values)).astype(np.int64), len(feature.values) - 1)
        return pa.array(feature.values, pa.string()).take(pa.array(number, mask=missing))
    return pa.array(feature.at(2.0 * _share(h) - 1.0), mask=missing)


def _dosed(dose: BinnedAction, actions: Int[np.ndarray, " R"], rng: np.random.Generator) -> Float[np.ndarray, " R"]:
    """A dose inside the interval of each action; the last interval is as wide as the one before."""
    edges = np.append(dose.edges, 2 * dose.edges[-1] - dose.edges[-2])
    return edges[actions] + rng.random(len(actions)) * 0.99 * np.diff(edges)[actions]
