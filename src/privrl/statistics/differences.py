"""What one stay says about values: how it went on from each state, and how a public feature moved along each action.

Both statistics look at first visits only (a stopping time, so what follows is a fair draw in a stationary world), and
scale one stay's whole vector down to a public L2 norm. A stay has *ended* where it enters a public terminal state, or
where it stops before the horizon and the next state was not recorded. A stay that was cut by the horizon has not: its
last step is a step like any other, and is left out where no next state is known.

**Formal guarantee** (for all records, whatever they say). Write x and y for two stays' vectors, of norm at most C each.
If <x, y> >= 0, then ||x - y||^2 = ||x||^2 + ||y||^2 - 2 <x, y> <= 2 C^2: replace-one costs sqrt(2) C in L2, not 2 C;
add-remove costs C. So it is enough that inner products are not negative. Each vector has one block per cell and <x, y>
is the sum over cells of the blocks' inner products, multiplied by the two stays' scalings, which are positive.

- `ReturnsToGo`: every entry is non-negative.
- `Differences`: the block of a cell is (wn, wT r, wT (1-r), 0, 0) if the stay ended there and (wn, 0, 0, wM m, wR r)
  otherwise, with r in [0, 1] and m in [-1, 1]. Two endings: wn^2 + wT^2 (r r' + (1-r)(1-r')) >= 0. Two others:
  wn^2 + wM^2 m m' + wR^2 r r' >= wn^2 - wM^2 >= 0, since 0 <= wM <= wn (negative weights are refused: wM = -2 wn is
  below wn, and its square is not). One of each: wn^2. A move of F that is not a number counts as none (m = 0).

Both bounds are met, by long stays without a common cell. The feature F and its scale b come from earlier releases, so
they are public. In L1: a vector of norm C with at most k non-zero entries has L1 norm at most C sqrt(k).
"""

import math

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
    check_not_negative,
    check_positive,
    check_sizes,
    check_terminal,
)


class _AbstractStay(AbstractRowStatistic):
    """One stay's vector, scaled down to norm `contribution_norm`; no two have a negative inner product."""

    contribution_norm: eqx.AbstractVar[float]
    stage: None = eqx.field(static=True, default=None, init=False)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True)

    @property
    def distinct(self) -> bool:
        return True  # first visits are in different cells

    def l2(self, adjacency: Adjacency) -> float:
        return self.contribution_norm * (math.sqrt(2.0) if adjacency == "replace-one" else 1.0)


class ReturnsToGo(_AbstractStay):
    """(G, 1 - G) on the states of a stay, G its return from the first visit on, as a share of `return_bound`.

    The sum over stays, shape `[S, 2]`, says how well people fared from each state and how many came by.

    Arguments:
        num_states, horizon: the size of the world.
        contribution_norm: one stay's vector is scaled down to this L2 norm.
        return_bound: the largest return; what is above is cut.
        terminal: public states whose entry ends a stay.
        ended_only: stays that did not end are left out (where only ends pay, their return is not known).
    """

    num_states: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    contribution_norm: float = eqx.field(static=True)
    return_bound: float = eqx.field(static=True, default=1.0)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    ended_only: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states, horizon=self.horizon)
        check_terminal(self.terminal, self.num_states)
        check_positive(contribution_norm=self.contribution_norm, return_bound=self.return_bound)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.num_states, 2

    def rows(self, trajectory: Trajectory) -> Transitions:
        """The first row of each state, with the scale of the stay in `count` and scale times G in `reward`."""
        rows = Transitions.from_trajectory(trajectory)
        rows = eqx.tree_at(lambda r: r.action, rows, jnp.zeros_like(rows.action))  # states are told apart, not actions
        counted = _counted(rows, self.num_states, 1, self.horizon)
        to_go = jnp.cumsum(jnp.where(counted, clipped_reward(rows), 0.0)[::-1])[::-1]
        first = (counted & first_visits(rows, counted)).astype(float)
        if self.ended_only:
            after = after_each(rows, trajectory.length, (self.num_states, 1, self.horizon), self.terminal)
            first *= (counted & (after == self.num_states)).any()
        G = first * jnp.clip(to_go / self.return_bound, 0.0, 1.0)
        scale = _scale(jnp.stack([G, first - G], axis=-1), self.contribution_norm)
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (scale * first, scale * G))

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, "N 2"]]:
        inside = within(rows, self.num_states, 1, "ignored")
        pairs = jnp.stack([rows.reward, rows.count - rows.reward], axis=-1)
        return jnp.where(inside, rows.state, 0), jnp.where(inside[:, None], pairs, 0.0)

    def l1(self, adjacency: Adjacency) -> float:
        states = min(self.horizon, self.num_states)
        norm = min(float(states), self.contribution_norm * math.sqrt(2.0 * states))
        return norm * (2.0 if adjacency == "replace-one" else 1.0)


class Differences(_AbstractStay):
    """How often each (s, a) was taken, how often it ended a stay and how, and how the feature F moved along it.

    The sum over stays has shape `[S, A, 4]`: wn times visits, wT times endings weighted with r and with 1 - r, and wM
    times clip((F(s') - F(s))/b, -1, 1); with `reward_weight`, a fifth entry is wR times the rewards paid on the way.

    Arguments:
        num_states, num_actions, horizon: the size of the world.
        terminal: public states whose entry ends a stay.
        contribution_norm: C; one stay's whole vector is scaled down to this L2 norm.
        visit_weight, ending_weight, difference_weight: wn, wT and wM, with wM <= wn.
        feature, scale: F on states, and b > 0; from earlier releases.
        reward_weight: wR, or `None` where rewards are paid at the end alone.
        return_bound: rewards that end a stay are divided by it.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True)
    contribution_norm: float = eqx.field(static=True)
    visit_weight: float = eqx.field(static=True)
    ending_weight: float = eqx.field(static=True)
    difference_weight: float = eqx.field(static=True)
    feature: Float[Array, " S"]
    scale: Float[Array, ""]
    reward_weight: float | None = eqx.field(static=True, default=None)
    return_bound: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states, num_actions=self.num_actions, horizon=self.horizon)
        check_terminal(self.terminal, self.num_states)
        check_positive(contribution_norm=self.contribution_norm, return_bound=self.return_bound)
        names = ("visit_weight", "ending_weight", "difference_weight")
        check_not_negative(**{name: getattr(self, name) for name in names})
        if self.reward_weight is not None:
            check_not_negative(reward_weight=self.reward_weight)
        check_array("feature", self.feature, (self.num_states,))
        check_array("scale", self.scale, (), low=SMALLEST)
        if self.difference_weight > self.visit_weight:
            raise ValueError(
                f"`difference_weight` is {self.difference_weight} and `visit_weight` is {self.visit_weight}; the "
                "sensitivity needs `difference_weight` <= `visit_weight`."
            )
        if not self.return_bound >= 1.0:
            raise ValueError(f"`return_bound` is {self.return_bound}; it must be at least 1, the largest reward.")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.num_states, self.num_actions, 4 if self.reward_weight is None else 5

    def visits_of(self, entries: Float[Array, "..."]) -> Float[Array, "S A"]:
        return entries[..., 0]

    def rows(self, trajectory: Trajectory) -> Transitions:
        """The first row of each (s, a), if it says what came next; the end of the stay is written as S."""
        rows = Transitions.from_trajectory(trajectory)
        counted = _counted(rows, self.num_states, self.num_actions, self.horizon) & ~self._is_terminal(rows.state)
        after = after_each(rows, trajectory.length, (self.num_states, self.num_actions, self.horizon), self.terminal)
        first = (counted & first_visits(rows, counted) & (after >= 0)).astype(float)
        rows = eqx.tree_at(
            lambda r: (r.next_state, r.count, r.reward), rows, (after, first, first * clipped_reward(rows))
        )
        scale = _scale(self._blocks(rows), self.contribution_norm)
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (scale * rows.count, scale * rows.reward))

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, "N entries"]]:
        inside = within(rows, self.num_states, self.num_actions, "ignored")
        cell = jnp.where(inside, rows.state * self.num_actions + rows.action, 0)
        return cell, jnp.where(inside[:, None], self._blocks(rows), 0.0)

    def l1(self, adjacency: Adjacency) -> float:
        cells = min(self.horizon, self.num_states * self.num_actions)
        return self.contribution_norm * math.sqrt(3.0 * cells) * (2.0 if adjacency == "replace-one" else 1.0)

    def _is_terminal(self, state: Int[Array | np.ndarray, " N"]) -> Bool[Array, " N"]:
        return jnp.isin(state, jnp.asarray(self.terminal, int))

    def _blocks(self, rows: Transitions) -> Float[Array, "N entries"]:
        """Every row's block of its cell, linear in `count` and `reward`."""
        F, S = self.feature, self.num_states
        ended = rows.next_state == S
        moved = (rows.next_state >= 0) & ~ended
        difference = F[jnp.where(moved, rows.next_state, 0)] - F[jnp.clip(rows.state, 0, S - 1)]
        m = difference / self.scale
        m = jnp.where(moved & ~jnp.isnan(m), jnp.clip(m, -1.0, 1.0), 0.0)
        r = rows.reward / self.return_bound
        wn, wT, wM = self.visit_weight, self.ending_weight, self.difference_weight
        entries = [
            wn * rows.count,
            wT * jnp.where(ended, r, 0.0),
            wT * jnp.where(ended, rows.count - r, 0.0),
            wM * m * rows.count,
        ]
        if self.reward_weight is not None:
            entries.append(self.reward_weight * jnp.where(ended, 0.0, rows.reward))
        return jnp.stack(entries, axis=-1)


def _counted(rows: Transitions, num_states: int, num_actions: int, horizon: int) -> Bool[Array, " H"]:
    """The steps that were taken, inside the world and before the horizon."""
    return within(rows, num_states, num_actions, "ignored") & (rows.count > 0) & (rows.step < horizon)


def _scale(entries: Float[Array, "H entries"], bound: float) -> Float[Array, ""]:
    """min(1, bound/norm) of one stay; its rows are in different cells, so this is the norm of its whole vector."""
    return bound / jnp.maximum(jnp.sqrt((entries**2).sum()), bound)
