"""Counts of visits, transitions and rewards in finite worlds, with their sensitivities.

Three ways to count (`counting`): `"per-stage"` keeps the step h as an axis; `"pooled"` adds up every visit;
`"first-visit"` counts only the first time an episode takes a given (s, a), which is a stopping time, so what follows is
still a fair draw from the kernel of a stationary world. With `stage=h` only step h is counted, and has no axis.

**Formal guarantee** (for all records; n is the largest number of non-zero cells: 1 for one stage, H for per-stage,
min(H, SA) for first visits). Per-stage and first-visit counts are 0/1 vectors with at most n ones, so two of them
differ by at most sqrt(2 n) in L2 and 2 n in L1. Pooled counts are non-negative with sum at most H: sqrt(2) H, reached
by H visits of one cell against H of another. With `contribution_norm` C the whole vector of one episode is scaled to
norm at most C; non-negative vectors of norm at most C are at distance at most sqrt(2) C, and their L1 norm is at
most C sqrt(n). Sums of rewards in [0, 1] are dominated by the counts entry by entry, so the same bounds hold, and
leaving out cells can only bring two vectors closer. Under add-remove the bound is that of one vector's own norm.
"""

import abc
import math
from dataclasses import replace
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from privrl.contracts.statistic import AbstractCategorical, Adjacency, SumHints
from privrl.mdp.types import Trajectory, Transitions
from privrl.statistics.row_statistics import AbstractRowStatistic, clipped_reward, within
from privrl.statistics.setting_checks import as_stage, check_choice, check_positive, check_sizes, check_stage

Counting = Literal["per-stage", "pooled", "first-visit"]
Asking = Literal["first-visit", "stage-pair"]
_Index = tuple[Array | np.ndarray, ...]


def same_pair(rows: Transitions) -> Bool[Array, "H H"]:
    """Which rows of one episode have the same (state, action)."""
    return (rows.state[:, None] == rows.state[None, :]) & (rows.action[:, None] == rows.action[None, :])


def first_visits(rows: Transitions, counted: Bool[Array, " H"]) -> Bool[Array, " H"]:
    """The rows of one episode at which a (state, action) pair is taken for the first time."""
    same = same_pair(rows) & counted[None, :]
    return ~jnp.any(jnp.tril(same, k=-1), axis=1)


class AbstractCounts(AbstractRowStatistic):
    """A non-negative table over (s, a), with the step in front if counted per stage."""

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    counting: Counting = eqx.field(static=True, default="per-stage")
    contribution_norm: float | None = eqx.field(static=True, default=None)
    stage: Int[Array, ""] | None = eqx.field(default=None, converter=as_stage)

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states, num_actions=self.num_actions, horizon=self.horizon)
        check_choice("counting", self.counting, get_args(Counting))
        if self.contribution_norm is not None:
            check_positive(contribution_norm=self.contribution_norm)
        if self.stage is not None:
            check_stage(self.stage, self.horizon)
            if self.counting != "per-stage":
                raise ValueError(f"`stage={self.stage}` needs `counting='per-stage'`, not {self.counting!r}.")

    @property
    def nonnegative(self) -> bool:
        return True

    @property
    def _cells(self) -> tuple[int, ...]:
        """The shape of the table of one stage."""
        return self.num_states, self.num_actions

    def _in_world(self, rows: Transitions) -> Bool[Array, " N"]:
        """Which rows are a visit that this table can hold; the others must not count as first visits either."""
        return within(rows, self.num_states, self.num_actions, "ignored")

    def _place(self, rows: Transitions) -> tuple[_Index, Bool[Array, " N"]]:
        """The cell of each row that is in the world, and which of these cells are kept."""
        return (rows.state, rows.action), jnp.ones_like(rows.state, bool)

    @abc.abstractmethod
    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        """What each row adds to its cell; between 0 and `count`."""

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, plain=self.counting != "first-visit" and self.contribution_norm is None)

    @property
    def distinct(self) -> bool:
        return self.counting != "pooled"  # first visits are in different cells, and so are steps

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.horizon, *self._cells) if self.counting == "per-stage" and self.stage is None else self._cells

    def rows(self, trajectory: Trajectory) -> Transitions:
        rows = Transitions.from_trajectory(trajectory)
        weight = jnp.where(self._inside(rows), rows.count, 0.0)
        if self.counting == "first-visit":
            weight = jnp.where(first_visits(rows, weight > 0), weight, 0.0)
        if self.contribution_norm is not None:
            norm = jnp.maximum(self._norm(rows, weight), self.contribution_norm)
            weight = weight * (self.contribution_norm / norm)
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (weight, rows.reward * weight))

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        cell, kept = self._place(rows)
        inside = self._inside(rows) & kept
        if self.counting == "per-stage" and self.stage is None:
            cell = (rows.step, *cell)
        place = jnp.ravel_multi_index(tuple(jnp.where(inside, i, 0) for i in cell), self.shape, mode="clip")
        return place, jnp.where(inside, self._weight(rows), 0.0)

    def l2(self, adjacency: Adjacency) -> float:
        norm = float(self.horizon) if self.counting == "pooled" else math.sqrt(self._cell_bound)
        norm = norm if self.contribution_norm is None else min(norm, self.contribution_norm)
        return norm * (math.sqrt(2.0) if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        norm = float(self.horizon) if self.counting == "pooled" else float(self._cell_bound)
        if self.contribution_norm is not None:
            norm = min(norm, self.contribution_norm * math.sqrt(self._cell_bound))
        return norm * (2.0 if adjacency == "replace-one" else 1.0)

    @property
    def _cell_bound(self) -> int:
        if self.counting == "per-stage":
            return self.horizon if self.stage is None else 1
        if self.counting == "pooled":
            return self.horizon
        return min(self.horizon, self.num_states * self.num_actions)

    def _inside(self, rows: Transitions) -> Bool[Array, " N"]:
        inside = self._in_world(rows) & (rows.step >= 0) & (rows.step < self.horizon)
        return inside if self.stage is None else inside & (rows.step == self.stage)

    def _norm(self, rows: Transitions, weight: Float[Array, " H"]) -> Float[Array, ""]:
        """At least the norm of this episode's table: merging next states can only raise it."""
        if self.counting != "pooled":
            return jnp.sqrt(jnp.sum(weight**2))
        return jnp.sqrt(weight @ same_pair(rows).astype(float) @ weight)


class VisitCounts(AbstractCounts):
    """n(s, a): how often each action was taken in each state."""

    @property
    def hints(self) -> SumHints:
        hints = super().hints
        return replace(hints, row_by_row=hints.plain)

    def visits_of(self, entries: Float[Array, "..."]) -> Float[Array, "S A"]:
        return entries.reshape(-1, self.num_states, self.num_actions).sum(axis=0)

    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        return jnp.asarray(rows.count)


class RewardSums(AbstractCounts):
    """The sum of the rewards that followed each (s, a); rewards are clipped to [0, 1]."""

    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        return clipped_reward(rows)


class TransitionCounts(AbstractCounts, AbstractCategorical):
    """n(s, a, s'): how often each next state followed.

    Arguments:
        pairs: only these (s, a), numbered s A + a and sorted; they must come from earlier releases. The table is then
            `[K, S]`, and noise is drawn for what is of use. Numbers from SA on are rows that stay empty.
        with_end: one more next state for the end of an episode, where none was recorded (-1). Without it such rows do
            not count.
        asking: the query under local privacy, where a person answers with one symbol. The policy published to them
            is deterministic, and person number i is asked by their number alone.
            `"first-visit"`: i has a public target (s, a), in turn among the pairs that the published policy can play,
            and reports the next state at their first visit, or "never": S + 1 symbols. A first visit is a
            stopping time, so a report that is not "never" is a draw from P(.|s,a). Counted per stage, the target is
            (h, s) in turn, and the action the policy's.
            `"stage-pair"`: i reports (s_h, s_{h+1}) at h = i mod H, or "none" if their episode was shorter:
            S^2 + 1 symbols. It asks for more at once, which pays at large epsilon only.
    """

    pairs: Int[Array, " K"] | None = None
    with_end: bool = eqx.field(static=True, default=False)
    asking: Asking = eqx.field(static=True, default="first-visit")

    def __check_init__(self) -> None:
        check_choice("asking", self.asking, get_args(Asking))
        if self.pairs is None:
            return
        if self.pairs.ndim != 1 or self.pairs.size == 0 or self.pairs.dtype.kind not in "iu":
            raise ValueError(
                f"`pairs` has shape {self.pairs.shape} and type {self.pairs.dtype}; give whole numbers, at least one."
            )
        if isinstance(self.pairs, jax.core.Tracer):  # any numbers will do: a row is put where its number is, or nowhere
            return
        pairs, last = np.asarray(self.pairs), self.num_states * self.num_actions
        if not (pairs[0] >= 0 and ((np.diff(pairs) > 0) | (pairs[1:] >= last)).all() and (np.diff(pairs) >= 0).all()):
            raise ValueError(f"`pairs` must be sorted numbers, at least 0, and those below {last} all different.")

    @property
    def _cells(self) -> tuple[int, ...]:
        after = self.num_states + self.with_end
        return (self.num_states, self.num_actions, after) if self.pairs is None else (self.pairs.shape[0], after)

    @property
    def hints(self) -> SumHints:
        hints = super().hints
        return replace(hints, row_by_row=hints.plain)

    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        return jnp.asarray(rows.count)

    def _in_world(self, rows: Transitions) -> Bool[Array, " N"]:
        inside = within(rows, self.num_states, self.num_actions, "needed")
        if not self.with_end:
            return inside
        return inside | (within(rows, self.num_states, self.num_actions, "ignored") & (rows.next_state == -1))

    def _place(self, rows: Transitions) -> tuple[_Index, Bool[Array, " N"]]:
        after = jnp.where(rows.next_state < 0, self.num_states, rows.next_state)
        if self.pairs is None:
            return (rows.state, rows.action, after), jnp.ones_like(rows.state, bool)
        number = rows.state * self.num_actions + rows.action
        at = jnp.minimum(jnp.searchsorted(self.pairs, number), self.pairs.shape[0] - 1)
        return (at, after), self.pairs[at] == number

    @property
    def num_symbols(self) -> int:
        return 1 + (self.num_states if self.asking == "first-visit" else self.num_states**2)

    def symbol(self, record: PyTree, query: PyTree, index: Int[Array, ""]) -> Int[Array, ""]:
        rows = Transitions.from_trajectory(record)
        if self.asking == "stage-pair":
            h = index % self.horizon
            pair = rows.state[h] * self.num_states + rows.next_state[h]
            return jnp.where((rows.count > 0)[h] & self._inside(rows)[h], pair, self.num_symbols - 1).astype(int)
        h, s, a = self._target(query, index)
        here = (rows.state == s) & (rows.action == a) & (rows.count > 0)
        if self.counting == "per-stage":
            here = here & (rows.step == h)
        first = jnp.argmax(here)  # decided without a look at what came next
        return jnp.where(here[first] & self._inside(rows)[first], rows.next_state[first], self.num_states).astype(int)

    def tally(self, frequencies: Float[Array, " k"], query: PyTree, index: Int[Array, ""]) -> Array:
        cell: tuple[Array, ...]
        if self.asking == "stage-pair":
            h = index % self.horizon
            cell = (h, jnp.arange(self.num_states), query.policy.probabilities[h].argmax(axis=-1))
            frequencies = frequencies[:-1].reshape(self.num_states, self.num_states)
        else:
            cell, frequencies = self._target(query, index), frequencies[:-1]
        return jnp.zeros(self.shape).at[cell if self.counting == "per-stage" else cell[1:]].set(frequencies)

    def _target(self, query: PyTree, index: Int[Array, ""]) -> tuple[Array, Array, Array]:
        """The public (h, s, a) of person number `index`; h counts only where counts are per stage."""
        policy = query.policy.probabilities
        if self.counting == "per-stage":
            h, s = jnp.divmod(index % (self.horizon * self.num_states), self.num_states)
            return h, s, policy[h, s].argmax()
        turn = jnp.cumsum(policy.max(axis=0).ravel() > 0)  # pairs that are never played have nothing to tell
        s, a = jnp.divmod(jnp.argmax(turn == 1 + index % turn[-1]), self.num_actions)
        return jnp.zeros_like(s), s, a
