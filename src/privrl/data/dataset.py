"""The interface that every dataset offers to `fit`: counts, batches of padded episodes, and transitions."""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from privrl.data.rows.encoding import sum_hashes
from privrl.data.rows.episode_cache import Chunk, EpisodeCache
from privrl.data.rows.transitions import AbstractBlocks, Block, not_recorded
from privrl.data.schema.table_schema import Bounds
from privrl.mdp.measurements import Measurement
from privrl.mdp.reported_columns import ReportedColumns
from privrl.privacy.canonical_ids import keyed_hash
from privrl.shapes import Float64, Int

if TYPE_CHECKING:
    from privrl.mdp.types import Trajectory


@dataclass(frozen=True)
class Summary:
    """Counts from a full pass of checks: people, episodes used, episodes left out, and rows of the table."""

    num_units: int
    num_episodes: int
    num_left_out: int
    num_rows: int


class AbstractDataset(AbstractBlocks):
    """People and their episodes, checked against public bounds.

    **Formal guarantee.** `batches` and `transitions` contain at most `max_episodes_per_unit` episodes of each unit,
    each of at most `horizon` steps, with states, actions and rewards inside their bounds, or else they raise. A
    measurement outside its bounds is moved to the nearer bound. Of each unit the first episodes in
    the table are used, whatever other units have. So replacing one unit replaces at most `max_episodes_per_unit` of the
    episodes that are summed.
    """

    bounds: Bounds

    @abc.abstractmethod
    def check(self) -> Summary:
        """Check every row, once.

        Raises:
            TableError: at the first problem. The message names the place, never the value.
        """

    @abc.abstractmethod
    def with_sizes(self, num_states: int | None, num_actions: int) -> "AbstractDataset":
        """Return the same episodes with these numbers of states (`None`: states are vectors) and actions.

        Raises:
            ValueError: if the data were declared with other numbers.
        """

    @abc.abstractmethod
    def unit_ids(self) -> Iterator[list[bytes]]:
        """Yield the canonical ids of all units in the order of their numbers, in pieces of bounded size. Secret."""

    @abc.abstractmethod
    def encode_episodes(self) -> Iterator[tuple[Int[np.ndarray, " E"], list[bytes]]]:
        """Yield every episode, used or left out, as the number of its unit and one message.

        A message holds the ids and all rows of an episode unambiguously (see `data/rows/encoding.py`). Messages come in
        any order, in pieces of bounded size. Secret.
        """

    def chunks(self) -> Iterator[Chunk]:
        """Yield the used episodes in narrow rectangles, which are built once. Every row is checked before the first
        chunk. Secret."""
        yield from self._held

    @cached_property
    def _held(self) -> EpisodeCache:
        held = EpisodeCache(self.bounds)
        for block in self.blocks():
            held.add(block)
        return held

    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        """Return a number in [0, 1) for every unit, indexed by its number in `blocks`: the first 53 bits of HMAC(key,
        purpose || id).

        **Formal guarantee.** A unit's number depends on the key, the purpose and its canonical id, and on nothing else:
        neither on any record, nor on the other units in the table, nor on the position of its rows. Units have distinct
        ids. Without the key, the numbers cannot be told from independent uniform ones (assuming that HMAC-SHA256 is a
        pseudorandom function); see `docs/proofs/tables.md#splitting-people-into-groups`.
        """
        hash_of = keyed_hash(key, f"coin/{purpose}")
        coins, first = np.empty(self.num_units), 0
        for ids in self.unit_ids():
            words = np.frombuffer(b"".join(hash_of(unit)[:8] for unit in ids), ">u8")
            coins[first : first + len(ids)] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
            first += len(ids)
        return coins

    def digest(self, key: bytes) -> bytes:
        """Return 32 bytes that identify the table: the sum of HMAC(key, episode) modulo 2^256.

        One pass computes it and checks every row. It is as secret as the table, because a holder of the key can test
        guesses against it.

        **Formal guarantee.** The digest depends on the multiset of all episodes (used or left out) with their ids and
        rows, not on files, batches, the order of episodes, the width of numbers or dictionary encoding. Two tables,
        chosen without the key, that differ in any cell, row or person have the same digest with a probability below
        2^-190.
        """
        return sum_hashes(keyed_hash(key, "table"), (messages for _, messages in self.encode_episodes()))

    @property
    def num_units(self) -> int:
        """The number of people."""
        return self.check().num_units

    @property
    def num_episodes(self) -> int:
        """The number of episodes used. Episodes left out by `max_episodes_per_unit` do not count."""
        return self.check().num_episodes

    @property
    def features(self) -> tuple[Measurement, ...]:
        """The columns of a state if states are vectors of measurements; empty if states are numbers."""
        return self.bounds.features

    @property
    def logged(self) -> bool:
        """Whether every step has the logged probability with which a program took its action."""
        return self.bounds.propensities

    @property
    def least_propensity(self) -> float:
        """The public number below which no action of the program had a probability; 0 if none was given."""
        return self.bounds.least_propensity

    @property
    def reported(self) -> ReportedColumns:
        """The columns that an evaluation only reports on."""
        return self.bounds.reported

    @property
    def horizon(self) -> int:
        return self.bounds.horizon

    @property
    def num_states(self) -> int:
        return self.bounds.known("num_states")

    @property
    def num_actions(self) -> int:
        return self.bounds.known("num_actions")

    @property
    def reward_range(self) -> tuple[float, float]:
        return self.bounds.reward_range

    @property
    def max_episodes_per_unit(self) -> int:
        return self.bounds.max_episodes_per_unit

    def batches(self, size: int = 4096, *, check_first: bool = True) -> Iterator["Trajectory"]:
        """Yield the used episodes, `size` at a time and padded to the horizon.

        The last batch is filled up with episodes of length 0, so that all batches have one shape.

        Arguments:
            size: episodes per batch.
            check_first: check the whole table before the first batch. Pass `False` only if no batch is used before the
                last one has arrived: rows are also checked as they are read.
        """
        if size < 1:
            raise ValueError(f"`size` is {size}; it must be at least 1.")
        if check_first:
            self.check()
        return _padded(self.blocks(), size, self.bounds)


def _padded(blocks: Iterator[Block], size: int, bounds: Bounds) -> Iterator["Trajectory"]:
    batch, filled = _empty(size, bounds), 0
    for block in blocks:
        done = 0
        while done < len(block.lengths):
            part = block.slice(done, min(done + size - filled, len(block.lengths)))
            at = np.repeat(np.arange(filled, filled + len(part.lengths)), part.lengths), part.steps
            for name, column in part.columns.items():
                getattr(batch, name)[at] = column
            batch.length[filled : filled + len(part.lengths)] = part.lengths
            done, filled = done + len(part.lengths), filled + len(part.lengths)
            if filled == size:
                yield batch
                batch, filled = _empty(size, bounds), 0
    if filled:
        yield batch


def _empty(size: int, bounds: Bounds) -> "Trajectory":
    from privrl.mdp.types import Trajectory  # needs JAX, and checking a table does not

    actions = np.zeros((size, bounds.horizon), np.int32)
    states = np.zeros((*actions.shape, len(bounds.features))) if bounds.features else np.zeros_like(actions)
    after = np.full_like(states, not_recorded(states))
    p = np.zeros(actions.shape) if bounds.propensities else None
    extras = np.zeros((*actions.shape, 2)) if bounds.reported else None
    return Trajectory(states, actions, np.zeros(actions.shape), after, np.zeros(size, np.int32), p, extras)
