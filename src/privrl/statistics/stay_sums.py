"""What one stay adds to sums over (s, a), scaled down to a released clip level.

All of them look at the first time that a stay takes each (s, a) (a stopping time, so what follows is a fair draw in a
stationary world). A step is *usable* if its state is not terminal and its next state was recorded, or if it ended the
stay: it entered a public terminal state, or the stay stopped before the horizon without a next state. A stay that was
cut by the horizon has not ended: its last step is an ordinary transition, or unusable where no next state is known.

**Formal guarantee** (for all records, whatever they say). First visits are in different cells, so a stay's rows fill
different entries, and the norm of its vector is the root of the sum of their squares. The vector x is multiplied by
C/max(C, ||x||), with C the `level`, so ||x|| <= C afterwards.

- `ClippedVisits`, `ClippedNextStates`, `ClippedRewards`, `ClippedReturns`: every entry is non-negative, hence
  <x, y> >= 0 for two stays, and ||x - y||^2 = ||x||^2 + ||y||^2 - 2 <x, y> <= 2 C^2: sqrt(2) C under replace-one.
- `ClippedErrors`: entries have signs, so ||x - y|| <= ||x|| + ||y|| <= 2 C.

Under add-remove all cost C. All bounds are met. C, the function F of `ClippedErrors` and the cells of
`ClippedNextStates` come from earlier releases, so they are public. There is no L1 bound: shares of the budget that
move from one release to another are Gaussian.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.statistic import Adjacency, SumHints
from privrl.mdp.types import Trajectory, Transitions
from privrl.statistics.counts import first_visits
from privrl.statistics.row_statistics import AbstractRowStatistic, after_each, clipped_reward, within
from privrl.statistics.setting_checks import (
    SMALLEST,
    check_array,
    check_positive,
    check_sizes,
    check_terminal,
    unit_weights,
)


class AbstractStaySum(AbstractRowStatistic):
    """One stay's vector, scaled down to norm `level`.

    Arguments:
        num_states, num_actions, horizon: the size of the world.
        terminal: public states whose entry ends a stay.
        level: C, from an earlier release.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True)
    level: Float[Array, ""]
    stage: None = eqx.field(static=True, default=None, init=False)
    signed: ClassVar[bool] = False

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states, num_actions=self.num_actions, horizon=self.horizon)
        check_terminal(self.terminal, self.num_states)
        check_array("level", self.level, (), low=SMALLEST)

    @abc.abstractmethod
    def chosen(self, rows: Transitions, counted: Bool[Array, " H"], ended: Bool[Array, " H"]) -> Transitions:
        """The rows that count, with 1 in `count`; `counted` are steps inside the world at states that are live, and a
        row of `ended` ended its stay."""

    def rows(self, trajectory: Trajectory) -> Transitions:
        rows = self._unscaled(trajectory)
        scale = self.level / jnp.maximum(self._norm(rows), self.level)
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (scale * rows.count, scale * rows.reward))

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True)

    @property
    def distinct(self) -> bool:
        return True

    def norm(self, trajectory: Trajectory) -> Float[Array, ""]:
        """The L2 norm of a stay's vector before it is scaled."""
        return self._norm(self._unscaled(trajectory))

    def l2(self, adjacency: Adjacency) -> float:
        apart = 2.0 if self.signed else math.sqrt(2.0)
        return float(self.level) * (apart if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        raise ValueError(f"`{type(self).__name__}` is released with Gaussian noise; use `mechanism='gaussian'`.")

    def _unscaled(self, trajectory: Trajectory) -> Transitions:
        rows = Transitions.from_trajectory(trajectory)
        inside = within(rows, self.num_states, self.num_actions, "ignored") & (rows.count > 0)
        counted = inside & (rows.step < self.horizon) & ~self._is_terminal(rows.state)
        after = after_each(rows, trajectory.length, (self.num_states, self.num_actions, self.horizon), self.terminal)
        cleaned = (after, counted.astype(float), jnp.where(counted, clipped_reward(rows), 0.0))
        rows = eqx.tree_at(lambda r: (r.next_state, r.count, r.reward), rows, cleaned)
        return self.chosen(rows, counted, after == self.num_states)

    def _norm(self, rows: Transitions) -> Float[Array, ""]:
        return jnp.sqrt((self.terms(rows)[1] ** 2).sum())

    def _is_terminal(self, state: Int[Array | np.ndarray, " N"]) -> Bool[Array, " N"]:
        return jnp.isin(state, jnp.asarray(self.terminal, int))


class AbstractPairSum(AbstractStaySum):
    """A sum over the first visits of each (s, a) that are usable; rows that ended the stay have the next state S."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.num_states, self.num_actions

    def chosen(self, rows: Transitions, counted: Bool[Array, " H"], ended: Bool[Array, " H"]) -> Transitions:
        first = counted & first_visits(rows, counted)  # decided before a look at what came next
        first &= rows.next_state >= 0
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (first * 1.0, jnp.where(first, rows.reward, 0.0)))

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        inside = within(rows, self.num_states, self.num_actions, "ignored")
        cell = jnp.where(inside, rows.state * self.num_actions + rows.action, 0)
        return cell, jnp.where(inside, self._weight(rows), 0.0)

    @abc.abstractmethod
    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        """What each row adds to its cell, linear in `count` and `reward`."""


class ClippedVisits(AbstractPairSum):
    """How many stays took each (s, a): `[S, A]`."""

    def visits_of(self, entries: Float[Array, "..."]) -> Float[Array, "S A"]:
        return entries

    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        return jnp.asarray(rows.count)


class ClippedRewards(AbstractPairSum):
    """The rewards, each in [0, 1], that followed the first visits of each (s, a): `[S, A]`."""

    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        return jnp.asarray(rows.reward)


class ClippedErrors(AbstractPairSum):
    """TD errors r + gamma F(s') - F(s) by (s, a), with no F(s') where the stay ended: `[S, A]`.

    Arguments:
        values: F, from earlier releases, in [0, largest_value].
        discount: gamma in [0, 1].
        largest_value: what F is cut at.
    """

    values: Float[Array, " S"]
    discount: float = eqx.field(static=True)
    largest_value: float = eqx.field(static=True)
    signed: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_array("values", self.values, (self.num_states,))
        check_array("discount", jnp.asarray(self.discount), (), low=0.0, high=1.0)
        check_positive(largest_value=self.largest_value)

    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        F = jnp.append(unit_weights(self.values, self.largest_value), 0.0)
        after = F[jnp.clip(rows.next_state, 0, self.num_states)]
        moved = self.discount * after - F[jnp.clip(rows.state, 0, self.num_states)]
        return jnp.asarray(rows.reward) + moved * rows.count


class ClippedNextStates(AbstractPairSum):
    """Where the first visits of some (s, a) led: `[K, S + 1]`, the last column for stays that ended.

    Arguments:
        pairs: these (s, a), numbered s A + a and sorted, from earlier releases. Numbers from SA on are empty rows.
        split_ends: ends have two columns, `[K, S + 2]`: weighted with the reward r that ended the stay, and with 1 - r.
    """

    pairs: Int[Array, " K"]
    split_ends: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        if self.pairs.ndim != 1 or self.pairs.size == 0 or self.pairs.dtype.kind not in "iu":
            raise ValueError(
                f"`pairs` has shape {self.pairs.shape} and type {self.pairs.dtype}; give whole numbers, at least one."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pairs.shape[0], self.num_states + 1 + self.split_ends

    def terms(self, rows: Transitions) -> tuple[Int[Array, " P"], Float[Array, " P"]]:
        cell, count = super().terms(rows)
        at = jnp.minimum(jnp.searchsorted(self.pairs, cell), self.pairs.shape[0] - 1)
        asked = (self.pairs[at] == cell) & (rows.next_state >= 0)
        place = at * self.shape[1] + jnp.clip(rows.next_state, 0, self.num_states)
        count = jnp.where(asked, count, 0.0)
        if not self.split_ends:
            return place, count
        ended = rows.next_state == self.num_states
        good = jnp.where(ended, jnp.where(asked, rows.reward, 0.0), count)
        return jnp.concatenate([place, place + ended]), jnp.concatenate([good, jnp.where(ended, count - good, 0.0)])

    def _weight(self, rows: Transitions) -> Float[Array, " N"]:
        return jnp.asarray(rows.count)


class ClippedReturns(AbstractStaySum):
    """(G, 1 - G) on the states of a stay, G its discounted return from the first visit on: `[S, 2]`.

    Arguments:
        discount: gamma in [0, 1].
        largest_return: G is a share of it; what is above is cut.
        ended_only: stays that did not end are left out (where only ends pay, their return is not known).
    """

    discount: float = eqx.field(static=True)
    largest_return: float = eqx.field(static=True)
    ended_only: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_array("discount", jnp.asarray(self.discount), (), low=0.0, high=1.0)
        check_positive(largest_return=self.largest_return)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.num_states, 2

    def chosen(self, rows: Transitions, counted: Bool[Array, " H"], ended: Bool[Array, " H"]) -> Transitions:
        steps = jnp.arange(rows.reward.shape[0])
        ahead = jnp.maximum(steps[None, :] - steps[:, None], 0)
        to_go = jnp.triu(self.discount**ahead) @ rows.reward
        rows = eqx.tree_at(lambda r: r.action, rows, jnp.zeros_like(rows.action))  # states are told apart, not actions
        first = counted & first_visits(rows, counted)
        if self.ended_only:
            first &= (counted & ended).any()
        G = jnp.where(first, jnp.clip(to_go / self.largest_return, 0.0, 1.0), 0.0)
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (first * 1.0, G))

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, "N 2"]]:
        inside = within(rows, self.num_states, 1, "ignored")
        pairs = jnp.stack([rows.reward, rows.count - rows.reward], axis=-1)
        return jnp.where(inside, rows.state, 0), jnp.where(inside[:, None], pairs, 0.0)
