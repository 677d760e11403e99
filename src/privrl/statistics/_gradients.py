"""The gradient of one person's squared temporal differences, clipped: a step of fitted Q iteration.

With Q public (from earlier releases) and y = r + discount max_a' Q(s', a'), the loss of an episode is half the sum of
(Q(s,a) - y)^2 over its steps, and its gradient, targets held fixed, is the table that has in cell (s, a) the sum of
Q(s,a) - y over the steps that took it. The *whole episode's* gradient is clipped, not each step's.

**Formal guarantee** (for all records and every Q). What is summed has L2 norm at most C. Two such tables may point in
opposite directions (one episode wants Q(s,a) up, another wants it down), so replacing a person moves the sum by up to
2C, adding one by C. An episode fills at most n = min(H, SA) cells, so its L1 norm is at most C sqrt(n). The norm is
that of the cells: differences at one (s, a) are added first, so visits that pull the same way cannot hide in a sum of
squares of single steps.
"""

import math
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.mdp import Trajectory, Transitions
from privrl.privacy import AbstractStatistic, Adjacency, clip_by_norm
from privrl.statistics._counts import first_visits, same_pair
from privrl.statistics._rows import AbstractRowStatistic, clipped_reward, within


class BellmanGradient(AbstractRowStatistic):
    """Sum over episodes of the clipped gradient of half their squared temporal differences.

    Arguments:
        values: the public Q `[S, A]`.
        horizon: the largest number of steps of an episode.
        norm: C, the clip level of one episode.
        discount: of the next value.
        terminal: public states after which nothing comes; a next state that was not recorded is such an end too.
    """

    values: Float[Array, "S A"]
    horizon: int = eqx.field(static=True)
    norm: float = eqx.field(static=True)
    discount: float = eqx.field(static=True, default=0.95)
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    plain: Literal[False] = eqx.field(static=True, default=False, init=False)
    stage: None = eqx.field(static=True, default=None, init=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def rows(self, trajectory: Trajectory) -> Transitions:
        """One row per visited cell (the first visit), with the cell's part of the clipped gradient as its `reward`."""
        S, A = self.values.shape
        rows = Transitions.of(trajectory)
        counted = within(rows, S, A, "ignored") & (rows.count > 0) & (rows.step < self.horizon)
        s, a = jnp.where(counted, rows.state, 0), jnp.where(counted, rows.action, 0)
        continues = within(rows, S, A, "needed")
        V = self.values.max(axis=-1).at[jnp.asarray(self.terminal, int)].set(0.0)
        following = jnp.where(continues, V[jnp.where(continues, rows.next_state, 0)], 0.0)
        difference = self.values[s, a] - clipped_reward(rows) - self.discount * following
        difference = jnp.where(counted, difference, 0.0)
        first = counted & first_visits(rows, counted)
        together = jnp.where(same_pair(rows) & first[:, None], difference[None, :], 0.0).sum(axis=-1)
        gradient = clip_by_norm(together, self.norm)
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (first.astype(float), gradient))

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        S, A = self.values.shape
        inside = within(rows, S, A, "ignored")
        return jnp.where(inside, rows.state * A + rows.action, 0), jnp.where(inside, rows.reward, 0.0)

    def l2(self, adjacency: Adjacency) -> float:
        return (2.0 if adjacency == "replace-one" else 1.0) * self.norm

    def l1(self, adjacency: Adjacency) -> float:
        return self.l2(adjacency) * math.sqrt(min(self.horizon, math.prod(self.shape)))


class EpisodeCount(AbstractStatistic):
    """How many episodes there are.

    **Formal guarantee.** An episode adds 1, one without steps 0: replacing or adding one moves the count by at most 1.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=(), init=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def contribution(self, record: Any, question: Any) -> Float[Array, ""]:
        del question
        return (record.length > 0).astype(float)

    def l2(self, adjacency: Adjacency) -> float:
        del adjacency
        return 1.0

    def l1(self, adjacency: Adjacency) -> float:
        return self.l2(adjacency)
