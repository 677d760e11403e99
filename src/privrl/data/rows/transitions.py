"""Blocks of episodes laid end to end, and a count of their transitions in bounded memory."""

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from privrl.mdp.measurements import ENDED, NOT_RECORDED
from privrl.shapes import Bool, Float, Int, Shaped

if TYPE_CHECKING:
    from privrl.mdp.types import Transitions

_PENDING = 2**15  # new transitions that wait, at least, before they are merged


COLUMNS = ("states", "actions", "rewards", "next_states", "propensities", "extras")
"""The columns of an episode; the last two are optional."""

Index = slice | Shaped[np.ndarray, "..."]
"""Any index of an array: a slice, numbers or marks."""


@dataclass(frozen=True, repr=False)
class Block:
    """`E` whole episodes laid end to end in `R` rows. `unit` numbers the owners; episodes of a unit are adjacent.
    States are numbers `[R]` or vectors `[R, D]`. `propensities` are logged probabilities of the actions, and
    `extras` the columns that are only reported on (`mdp/reported_columns.py`), if there are any."""

    unit: Int[np.ndarray, " E"]
    lengths: Int[np.ndarray, " E"]
    states: Shaped[np.ndarray, "R *D"]
    actions: Int[np.ndarray, " R"]
    rewards: Float[np.ndarray, " R"]
    next_states: Shaped[np.ndarray, "R *D"]
    propensities: Float[np.ndarray, " R"] | None = None
    extras: Float[np.ndarray, "R 2"] | None = None

    @property
    def steps(self) -> Int[np.ndarray, " R"]:
        """The position of each row in its episode."""
        starts = np.cumsum(self.lengths) - self.lengths
        return np.arange(len(self.states)) - np.repeat(starts, self.lengths)

    @property
    def columns(self) -> dict[str, Shaped[np.ndarray, "R ..."]]:
        """The columns that have one entry per row, by name; those that the data have."""
        every = {name: getattr(self, name) for name in COLUMNS}
        return {name: column for name, column in every.items() if column is not None}

    def take(self, episodes: Index, rows: Index) -> "Block":
        """Select these episodes and their rows, by any index of an array."""
        taken = {name: column[rows] for name, column in self.columns.items()}
        return Block(self.unit[episodes], self.lengths[episodes], **taken)

    @staticmethod
    def concatenate(several: "Sequence[Block]") -> "Block":
        """Put blocks one after another."""
        if len(several) == 1:
            return several[0]
        every = [{"unit": one.unit, "lengths": one.lengths, **one.columns} for one in several]
        return Block(**concatenate_by_name(every))

    def slice(self, first: int, last: int) -> "Block":
        """Episodes first, ..., last - 1, as views."""
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])
        return self.take(slice(first, last), slice(ends[first], ends[last]))


def concatenate_by_name(several: "Sequence[dict[str, np.ndarray]]") -> dict[str, np.ndarray]:
    """Arrays of the same names, one after another."""
    if any(one.keys() != several[0].keys() for one in several):
        raise ValueError("These episodes do not have the same columns. Read them with one schema.")
    return {name: np.concatenate([one[name] for one in several]) for name in several[0]}


def keep_first(owner: Int[np.ndarray, " E"], count: int) -> Bool[np.ndarray, " E"]:
    """Mark the first `count` episodes of each owner, in their order; `owner` is a number per episode."""
    order = np.argsort(owner, kind="stable")
    grouped = owner[order]
    keep = np.empty(len(grouped), bool)
    keep[order] = np.arange(len(grouped)) - np.searchsorted(grouped, grouped) < count
    return keep


def following_states(
    states: Shaped[np.ndarray, "R *D"], lengths: Int[np.ndarray, " E"], ended: Bool[np.ndarray, " R"] | None = None
) -> Shaped[np.ndarray, "R *D"]:
    """The state of the next row of the same episode.

    After the last row it is -1 for numbered states. For vectors it is `ENDED` if the row is marked as the end of its
    episode, and `NOT_RECORDED` otherwise.
    """
    last = np.cumsum(lengths) - 1
    following = np.empty_like(states)
    following[:-1] = states[1:]
    following[last] = not_recorded(states)
    if ended is not None and states.ndim > 1:
        following[last[ended[last]]] = ENDED
    return following


def not_recorded(states: Shaped[np.ndarray, "..."]) -> float:
    """The value of a next state that was not recorded: -1 for numbers, `NOT_RECORDED` for vectors."""
    return NOT_RECORDED if states.dtype.kind == "f" else -1


class TransitionCounter:
    """Counts of distinct (step, state, action, next state), merged into a sorted table as blocks arrive.

    A transition has the number ((h S + s) A + a)(S + 1) + s' + 1, with s' = -1 if the next state was not recorded. A
    known transition is added in place. New transitions wait until they are half as many as the known ones, so that each
    is merged O(log) times. Memory is that of the distinct rows plus a constant.
    """

    def __init__(self, num_states: int, num_actions: int) -> None:
        self._S, self._A = num_states, num_actions
        self._code = np.empty(0, np.int64)
        self._count = np.empty(0, np.float64)
        self._reward = np.empty(0, np.float64)
        self._pending: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._waiting = 0

    def add(self, block: Block) -> None:
        code = block.steps.astype(np.int64)
        code = (code * self._S + block.states) * self._A + block.actions
        code = code * (self._S + 1) + block.next_states + 1
        code, count, reward = _summed(code, np.ones(len(code)), block.rewards)
        at = np.searchsorted(self._code, code)
        known = at < len(self._code)
        known[known] = self._code[at[known]] == code[known]
        self._count[at[known]] += count[known]
        self._reward[at[known]] += reward[known]
        self._pending.append((code[~known], count[~known], reward[~known]))
        self._waiting += int((~known).sum())
        if self._waiting > max(_PENDING, len(self._code) // 2):
            self._merge()

    def _merge(self) -> None:
        parts = [(self._code, self._count, self._reward), *self._pending]
        self._pending, self._waiting = [], 0
        code, count, reward = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._code, self._count, self._reward = _summed(code, count, reward)

    def transitions(self) -> "Transitions":
        """The distinct rows so far, sorted by step, state, action and next state."""
        from privrl.mdp.types import Transitions  # needs JAX, and checking a table does not

        self._merge()
        rest, next_state = np.divmod(self._code, self._S + 1)
        rest, action = np.divmod(rest, self._A)
        step, state = np.divmod(rest, self._S)
        step, state, action, after = (x.astype(np.int32) for x in (step, state, action, next_state - 1))
        return Transitions(step, state, action, after, self._count, self._reward)


def _summed(
    code: Int[np.ndarray, " N"], count: Float[np.ndarray, " N"], reward: Float[np.ndarray, " N"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    distinct, inverse = np.unique(code, return_inverse=True)
    size = len(distinct)
    return distinct, np.bincount(inverse, count, size), np.bincount(inverse, reward, size)


class AbstractBlocks(abc.ABC):
    """Episodes of a finite world in pieces of bounded size, whose transitions are counted once."""

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the used episodes in pieces of bounded size; episodes of a unit are adjacent."""

    @property
    @abc.abstractmethod
    def num_states(self) -> int:
        """States are 0, ..., num_states - 1."""

    @property
    @abc.abstractmethod
    def num_actions(self) -> int:
        """Actions are 0, ..., num_actions - 1."""

    def transitions(self) -> "Transitions":
        """The distinct transitions of the used episodes, with counts and sums of rewards.

        They are computed once, in one pass, and sorted by step, state, action and next state.
        """
        return self._transitions

    @cached_property
    def _transitions(self) -> "Transitions":
        counter = TransitionCounter(self.num_states, self.num_actions)
        for block in self.blocks():
            counter.add(block)
        return counter.transitions()
