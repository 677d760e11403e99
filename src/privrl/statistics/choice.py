"""One person's scores for several candidates, of which only the number of the best is ever released.

b(a|s) is practice as the learn group's releases show it, V its values of states in units of the largest return, and
pi_j a candidate. Per stay

    x_j = m_j + sum over steps of (pi_j(a|s)/b(a|s) - 1) (r + V(s') - V(s)),    V(s') = 0 after the end,

cut to [-c, c]; a person's scores are those of their first stay (`off_policy.py`). If practice depends on the recorded
state alone, the weights have mean 0 under it, whatever V is, and E x_j - m_j is the sum, over practice's visits, of the
mean of r + V(s') - V(s) under pi_j less that under b. For V the values of practice this is what pi_j gains, to first
order in how far it departs from practice. Practice itself has weights 0. A stay ends on entering a terminal state, or
where it stops before the horizon and no next state was recorded; a last step that is cut by the horizon counts if its
next state is known.

**Formal guarantee** (for all records, whatever they say). Rewards are clipped to [0, 1], what is not a number counts
as 0, and every x_j lies in [-c, c]. Hence for two people d = x - y has entries in [-2c, 2c]: its
spread max d - min d is at most 4c, its L2 norm 2c sqrt(k) and its L1 norm 2c k; for one person alone 2c, c sqrt(k) and
c k. All are met. Weights and V come from releases about other people, or are public.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractScores, Adjacency
from privrl.mdp.types import Trajectory, Transitions
from privrl.statistics.off_policy import of_first_stay
from privrl.statistics.row_statistics import clipped_reward
from privrl.statistics.setting_checks import check_array, check_positive, check_sizes, check_terminal


class CandidateScores(AbstractScores):
    """The scores x_j of k candidates.

    Arguments:
        weights: pi_j(a|s)/b(a|s) - 1 of every candidate, or a multiple of it, by step where the second axis is the
            horizon.
        values: V, one number per state.
        horizon: the number of steps.
        terminal: public states whose entry ends a stay.
        reward_unit: what a reward is divided by: the largest return of a stay.
        limit: c.
        margins: m_j: what others must seem to be worth more than candidate j to be chosen over it; public, or from
            releases about other people.
    """

    weights: Float[Array, "k G S A"]
    values: Float[Array, " S"]
    horizon: int = eqx.field(static=True)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    reward_unit: float = eqx.field(static=True, default=1.0)
    limit: float = eqx.field(static=True, default=3.0)
    margins: Float[Array, " k"] | None = None
    symmetric: bool = eqx.field(static=True, default=False, init=False)
    per_person = True

    def __check_init__(self) -> None:
        k, G, S, A = self.weights.shape
        check_sizes(horizon=self.horizon, num_states=S, num_actions=A)
        check_terminal(self.terminal, S)
        check_positive(reward_unit=self.reward_unit, limit=self.limit)
        check_array("weights", self.weights, (k, G, S, A))
        check_array("values", self.values, (S,))
        if self.margins is not None:
            check_array("margins", self.margins, (k,))
        if k < 2 or G not in (1, self.horizon):
            raise ValueError(
                f"`weights` has shape {self.weights.shape}; give those of at least two candidates, for all steps "
                f"together or for each of {self.horizon}."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.weights.shape[0],)

    def contribution(self, record: Trajectory, query: None) -> Float[Array, " k"]:
        del query
        return of_first_stay(self._of_stay, record)

    def _of_stay(self, stay: Trajectory) -> Float[Array, " k"]:
        _, G, S, A = self.weights.shape
        rows = Transitions.from_trajectory(stay)
        ends = jnp.zeros(S, bool).at[jnp.asarray(self.terminal, int)].set(True)
        inside = (rows.state >= 0) & (rows.state < S) & (rows.action >= 0) & (rows.action < A)
        s, a = jnp.where(inside, rows.state, 0), jnp.where(inside, rows.action, 0)
        known = (rows.next_state >= 0) & (rows.next_state < S)
        after = jnp.where(known, rows.next_state, 0)
        stops = (rows.step == stay.length - 1) & (stay.length < self.horizon)
        ended = jnp.where(known, ends[after], stops)
        counted = inside & (rows.count > 0) & ~ends[s] & (known | ended)
        follows = jnp.where(ended, 0.0, self.values[after])
        change = clipped_reward(rows) / self.reward_unit + follows - self.values[s]
        step = jnp.minimum(jnp.asarray(rows.step), G - 1)
        x = jnp.where(counted[None], self.weights[:, step, s, a] * change[None], 0.0).sum(axis=1)
        x = jnp.where(jnp.isnan(x), 0.0, x) + (0.0 if self.margins is None else self.margins)
        return jnp.clip(x, -self.limit, self.limit)

    def spread(self, adjacency: Adjacency) -> float:
        return self.limit * (4.0 if adjacency == "replace-one" else 2.0)

    def l2(self, adjacency: Adjacency) -> float:
        return self._apart(adjacency) * math.sqrt(self.shape[0])

    def l1(self, adjacency: Adjacency) -> float:
        return self._apart(adjacency) * self.shape[0]

    def _apart(self, adjacency: Adjacency) -> float:
        return self.limit * (2.0 if adjacency == "replace-one" else 1.0)
