"""A dataset in memory: episodes from arrays or from a simulator."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, Unpack, final

import numpy as np
from jaxtyping import Bool, Int, Shaped

from privrl.data.dataset import AbstractDataset, Summary
from privrl.data.rows.encoding import encode_block
from privrl.data.rows.measured_columns import check_reported, check_vectors
from privrl.data.rows.transitions import Block, following_states, keep_first
from privrl.data.schema.columns import check_indices, check_propensities, check_rewards, refuse, to_whole_numbers
from privrl.data.schema.guard import redact_errors
from privrl.data.schema.table_schema import Bounds, Place, TableError
from privrl.mdp.measurements import ENDED, NOT_RECORDED, Category, Feature, Measurement, check_measurements
from privrl.mdp.reported_columns import ReportedColumns
from privrl.mdp.types import Trajectory
from privrl.privacy.canonical_ids import canonical_id

_PIECE = 4096  # units or episodes encoded at once


class Public(TypedDict, total=False):
    """The public facts about episodes, other than their horizon, and the owners: see `Episodes.from_arrays`."""

    num_states: int | None
    num_actions: int
    features: Sequence[Measurement]
    units: Sequence[object] | Shaped[np.ndarray, " N"] | None
    max_episodes_per_unit: int
    reward_range: tuple[float, float]
    least_propensity: float
    by: Category | None
    outcome: Feature | None


@final
@dataclass(frozen=True, eq=False)
class Episodes(AbstractDataset):
    """Episodes in memory; build them with `Episodes.from_arrays` or `Episodes.from_trajectories`."""

    bounds: Bounds
    summary: Summary
    _block: Block = field(repr=False)
    _everything: Block = field(repr=False)
    _ids: tuple[bytes, ...] | None = field(repr=False)
    _next_states_given: bool = field(repr=False)

    def check(self) -> Summary:
        return self.summary  # `from_arrays` has checked everything

    def blocks(self) -> Iterator[Block]:
        yield self._block

    def unit_ids(self) -> Iterator[list[bytes]]:
        for first in range(0, self.summary.num_units, _PIECE):
            yield [self._id_of(unit) for unit in range(first, min(first + _PIECE, self.summary.num_units))]

    def _id_of(self, unit: int) -> bytes:
        return canonical_id(unit) if self._ids is None else self._ids[unit]

    def encode_episodes(self) -> Iterator[tuple[Int[np.ndarray, " E"], list[bytes]]]:
        for first in range(0, len(self._everything.lengths), _PIECE):
            block = self._everything.slice(first, min(first + _PIECE, len(self._everything.lengths)))
            yield block.unit, encode_block(block, map(self._id_of, block.unit.tolist()), self._next_states_given)

    def with_sizes(self, num_states: int | None, num_actions: int) -> "Episodes":
        self.bounds.with_sizes(num_states, num_actions)
        return self

    @classmethod
    def from_trajectories(cls, trajectories: Trajectory, **public: Unpack[Public]) -> "Episodes":
        """Build a dataset from a batch of trajectories `[N, H]`; `public` is as in `from_arrays`."""
        t, horizon = trajectories, int(trajectories.rewards.shape[-1])
        columns = (t.states, t.actions, t.rewards, t.next_states, t.length)
        return cls.from_arrays(*columns, propensities=t.propensities, extras=t.extras, horizon=horizon, **public)

    @classmethod
    def from_arrays(
        cls,
        states: object,
        actions: object,
        rewards: object,
        next_states: object = None,
        lengths: object = None,
        units: Sequence[object] | Shaped[np.ndarray, " N"] | None = None,
        *,
        propensities: object = None,
        least_propensity: float = 0.0,
        extras: object = None,
        by: Category | None = None,
        outcome: Feature | None = None,
        horizon: int,
        num_states: int | None = None,
        num_actions: int,
        features: Sequence[Measurement] = (),
        max_episodes_per_unit: int = 1,
        reward_range: tuple[float, float] = (0.0, 1.0),
    ) -> "Episodes":
        """Build a dataset from arrays `[N, T]`, one line per episode.

        >>> import privrl
        >>> data = privrl.data.Episodes.from_arrays(
        ...     states=[[0, 1], [1, 1]], actions=[[1, 0], [0, 0]], rewards=[[0.0, 1.0], [0.5, 0.0]],
        ...     horizon=2, num_states=2, num_actions=2,
        ... )
        >>> data.num_units
        2

        Arguments:
            states, actions, rewards: `[N, T]`; entries from an episode's length on are ignored. With `features`, states
                are `[N, T, D]`: a measurement in its own unit of measurement, the position of a category in its list,
                NaN if the value is missing.
            next_states: `[N, T]`, -1 if not recorded. By default, the state one step later (-1 at the end). With
                `features` `[N, T, D]`: all entries infinite if not recorded, all entries -infinite if the episode has
                ended.
            lengths: `[N]`, at least 1. By default, every episode has `T` steps.
            units: `[N]`, the owner of each episode: whole numbers or texts, where 12, "12" and 12.0 are the same person
                (see `privrl.privacy.canonical_id`). By default, every episode belongs to a different person, identified
                by its position. Episodes of one owner are in the order of time: if there are more than
                `max_episodes_per_unit`, the first ones are used.
            propensities: `[N, T]`, the logged probabilities, in (0, 1], with which a program took the recorded actions.
            least_propensity: the public number below which no action of the program had a probability.
            extras: `[N, T, 2]`, what an evaluation only reports on: the position of the group in `by` (NaN: in no
                group), and the second outcome (NaN counts as 0). Give `by`, `outcome` or both.
            by, outcome: as in `read_parquet`.
            horizon, num_states, num_actions, max_episodes_per_unit, reward_range: the public bounds, see `Bounds`.
            features: instead of `num_states`, the columns of a state, `Feature(...)` and `Category(...)`.

        Raises:
            TableError: if an array has the wrong shape or an entry is outside its bounds.
            ValueError: if the bounds are invalid.
        """
        columns = check_measurements(features) if features else ()
        if not columns and num_states is None:
            raise ValueError("Give either `num_states`, for numbered states, or `features`, for measurements.")
        logged, sizes = propensities is not None, (horizon, num_states, num_actions)
        reported = ReportedColumns(by, outcome)
        if (extras is None) == bool(reported):
            raise ValueError("`extras` holds the values of `by` and `outcome`. Give it with them, or leave it out.")
        bounds = Bounds(*sizes, reward_range, max_episodes_per_unit, columns, logged, least_propensity, reported)
        grid = {"states": states, "actions": actions, "rewards": rewards}
        if next_states is not None:
            grid["next_states"] = next_states
        if propensities is not None:
            grid["propensities"] = propensities
        if extras is not None:
            grid["extras"] = extras
        arrays = {}
        for name, values in grid.items():
            with redact_errors(f"`{name}` cannot be converted to an array", "Give numbers [N, T]."):
                arrays[name] = np.asarray(values)
        _check_shapes(arrays, len(columns), horizon)
        shape = arrays["states"].shape[:2]
        length = _checked_lengths(lengths, shape)
        owner, ids = _numbered(units, shape[0])
        where = np.nonzero(np.arange(shape[1]) < length[:, None])

        def place(i: int) -> str:
            return f"episode {where[0][i]}, step {where[1][i]}"

        flat = {name: values[where] for name, values in arrays.items()}
        block = _checked_block(flat, owner, length, bounds, place)
        keep = keep_first(owner, max_episodes_per_unit)
        units_seen = int(owner.max()) + 1
        summary = Summary(units_seen, int(keep.sum()), int((~keep).sum()), len(block.states))
        everything = _grouped(block, np.ones(shape[0], bool))
        used = everything if keep.all() else _grouped(block, keep)
        return cls(bounds, summary, used, everything, ids, next_states is not None)


def _check_shapes(arrays: dict[str, np.ndarray], dim: int, horizon: int) -> None:
    shape, per_row = arrays["states"].shape, (dim,) if dim else ()
    more = f"[episodes, steps, {dim}], one number for each of the `features`" if dim else "[episodes, steps]"
    vectors = {"states": (per_row, more), "next_states": (per_row, more)}
    vectors["extras"] = ((2,), "[episodes, steps, 2], the group and the second outcome")
    for name, values in arrays.items():
        entry, wanted = vectors.get(name, ((), "[episodes, steps]"))
        if values.shape != (*shape[:2], *entry) or len(shape) < 2:
            other = "" if name == "states" else f" and `states` has {list(shape)}"
            raise TableError(f"`{name}` has shape {list(values.shape)}{other}; `{name}` must be {wanted}.")
    if 0 in shape:
        raise TableError(
            f"`states` has shape {list(shape)}, so it holds no step. Give at least one episode of one step."
        )
    if shape[1] > horizon:
        raise TableError(
            f"`states` has {shape[1]} steps and `horizon` is {horizon}. Give a larger `horizon` or cut the episodes."
        )


def _checked_lengths(lengths: object, shape: tuple[int, ...]) -> Int[np.ndarray, " N"]:
    if lengths is None:
        return np.full(shape[0], shape[1], np.int64)
    length = np.asarray(lengths)
    if length.shape != shape[:1]:
        raise TableError(
            f"`lengths` has shape {list(length.shape)}; `states` has {list(shape)}. Give {shape[0]} lengths, one per "
            "episode."
        )
    length = to_whole_numbers(length, "lengths", lambda i: f"episode {i}")
    remedy = f"It must be from 1 to {shape[1]}, the number of steps in the arrays."
    refuse((length < 1) | (length > shape[1]), "lengths", lambda i: f"episode {i}", "is out of range", remedy)
    return length


def _numbered(
    units: Sequence[object] | Shaped[np.ndarray, " N"] | None, num_episodes: int
) -> tuple[Int[np.ndarray, " N"], tuple[bytes, ...] | None]:
    """Number the units 0, 1, ... in the order of their first appearance; return the owner of each episode and all
    ids."""
    if units is None:
        return np.arange(num_episodes), None
    if len(units) != num_episodes:
        raise TableError(f"`units` names {len(units)} owners for {num_episodes} episodes. Give one owner per episode.")
    number: dict[bytes, int] = {}
    owner = np.empty(num_episodes, np.int64)
    for i, unit in enumerate(units):
        problem = None
        try:
            name = canonical_id(unit)
        except ValueError as error:
            problem = str(error)
        if problem is not None:
            raise TableError(f"Column `units` at episode {i}: {problem}")
        owner[i] = number.setdefault(name, len(number))
    return owner, tuple(number)


def _checked_block(
    flat: dict[str, np.ndarray],
    owner: Int[np.ndarray, " N"],
    length: Int[np.ndarray, " N"],
    bounds: Bounds,
    place: Place,
) -> Block:
    states = _checked_states(flat["states"], "states", bounds, place)
    actions = check_indices(flat["actions"], "actions", place, bounds, "num_actions")
    rewards = check_rewards(flat["rewards"], "rewards", place, bounds.reward_range)
    following = following_states(states, length)
    if "next_states" in flat:
        following = _checked_states(flat["next_states"], "next_states", bounds, place, unknown=True)
    logged = flat.get("propensities")
    if logged is not None:
        logged = check_propensities(logged, "propensities", place, bounds)
    extras = flat.get("extras")
    if extras is not None:
        extras = check_reported(extras, bounds.reported, "extras", place)
    return Block(owner, length, states, actions, rewards, following, logged, extras)


def _checked_states(
    values: Shaped[np.ndarray, "R *D"], name: str, bounds: Bounds, place: Place, unknown: bool = False
) -> Shaped[np.ndarray, "R *D"]:
    if not bounds.features:
        return check_indices(values, name, place, bounds, "num_states", unknown=unknown)
    known = np.ones(len(values), bool)
    if unknown and values.dtype.kind == "f":
        known = ~((values == NOT_RECORDED).all(axis=1) | (values == ENDED).all(axis=1))
    rows = np.flatnonzero(known)
    checked = np.empty(values.shape)
    checked[rows] = check_vectors(values[rows], bounds.features, name, lambda i: place(int(rows[i])))
    checked[~known] = values[~known]
    return checked


def _grouped(block: Block, keep: Bool[np.ndarray, " N"]) -> Block:
    """The kept episodes, with the episodes of a unit next to each other."""
    order = np.argsort(block.unit, kind="stable")
    order = order[keep[order]]
    starts = np.cumsum(block.lengths) - block.lengths
    lengths = block.lengths[order]
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = np.repeat(starts[order], lengths) + within
    return block.take(order, rows)
