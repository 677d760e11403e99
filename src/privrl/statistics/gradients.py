"""The gradient of one person's squared temporal differences, clipped: a step of Q-learning on whole episodes.

With Q public (from earlier releases) and y = r + discount max_a' Q(s', a'), the loss of an episode is half the sum of
(Q(s,a) - y)^2 over its steps. With the targets y held fixed, its gradient in a table Q
has in cell (s, a) the sum of Q(s,a) - y over the steps that took it; in the parameters theta of any other Q it is that
table times dQ(s,a)/dtheta, summed over cells. The *whole episode's* gradient is clipped, not each step's.

**Formal guarantee** (for all records and every Q). What is summed has L2 norm at most C. Two gradients may point in
opposite directions (one episode wants Q(s,a) up, another wants it down), so replacing a person moves the sum by up to
2C, adding one by C. A gradient of n entries (n = min(H, SA) cells of a table, or all parameters) has L1 norm at most
C sqrt(n). The norm is that of the whole gradient: differences at one (s, a) are added first, so visits that pull the
same way cannot hide in a sum of squares of single steps.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.types import Trajectory, Transitions
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.privacy.noise.sensitivities import l2_of_sum
from privrl.statistics.counts import first_visits, same_pair
from privrl.statistics.row_statistics import AbstractRowStatistic, clipped_reward, within
from privrl.statistics.setting_checks import check_array, check_positive, check_sizes, check_terminal


class AbstractEpisodeGradient(AbstractStatistic):
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
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        """Gradients are cut whatever Q holds, and one that is not finite counts as zero."""
        values = self.values
        if values.ndim != 2 or values.size == 0:
            raise ValueError(f"`values` has shape {values.shape}; it must be (states, actions).")
        check_sizes(horizon=self.horizon)
        check_positive(norm=self.norm)
        check_terminal(self.terminal, values.shape[0])
        check_array("values", values, values.shape)
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"`discount` is {self.discount}; it must lie in [0, 1].")

    def differences(self, rows: Transitions) -> tuple[Bool[Array, " N"], Float[Array, " N"]]:
        """Which rows count, and Q(s,a) - r - discount max_a' Q(s',a') of each (0 where it does not count)."""
        S, A = self.values.shape
        counted = within(rows, S, A, "ignored") & (rows.count > 0) & (rows.step < self.horizon)
        s, a = jnp.where(counted, rows.state, 0), jnp.where(counted, rows.action, 0)
        continues = within(rows, S, A, "needed")
        V = self.values.max(axis=-1).at[jnp.asarray(self.terminal, int)].set(0.0)
        following = jnp.where(continues, V[jnp.where(continues, rows.next_state, 0)], 0.0)
        difference = self.values[s, a] - clipped_reward(rows) - self.discount * following
        return counted, jnp.where(counted, difference, 0.0)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True)

    def l2(self, adjacency: Adjacency) -> float:
        return l2_of_sum(self.norm, adjacency)


class BellmanGradient(AbstractEpisodeGradient, AbstractRowStatistic):
    """The gradient in a table Q."""

    stage: None = eqx.field(static=True, default=None, init=False)

    @property
    def distinct(self) -> bool:
        return True  # one row per visited cell

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def rows(self, trajectory: Trajectory) -> Transitions:
        """One row per visited cell (the first visit), with the cell's part of the clipped gradient as its `reward`."""
        rows = Transitions.from_trajectory(trajectory)
        counted, difference = self.differences(rows)
        first = counted & first_visits(rows, counted)
        together = jnp.where(same_pair(rows) & first[:, None], difference[None, :], 0.0).sum(axis=-1)
        gradient = clip_by_norm(together, self.norm, self.horizon)
        return eqx.tree_at(lambda r: (r.count, r.reward), rows, (first.astype(float), gradient))

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        S, A = self.shape
        inside = within(rows, S, A, "ignored")
        return jnp.where(inside, rows.state * A + rows.action, 0), jnp.where(inside, rows.reward, 0.0)

    def l1(self, adjacency: Adjacency) -> float:
        return self.l2(adjacency) * math.sqrt(min(self.horizon, math.prod(self.shape)))


class ParameterGradient(AbstractEpisodeGradient):
    """The gradient in the parameters of a Q function that is not a table.

    `slopes` are dQ(s,a)/dtheta `[S, A, d]`, public: the features of a linear Q, the Jacobian of a network.
    """

    slopes: Float[Array, "S A d"] = eqx.field(kw_only=True)

    def __check_init__(self) -> None:
        if self.slopes.ndim != 3 or self.slopes.shape[2] < 1:
            raise ValueError(f"`slopes` has shape {self.slopes.shape}; it must be (states, actions, parameters).")
        check_array("slopes", self.slopes, (*self.values.shape, self.slopes.shape[2]))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.slopes.shape[-1:]

    def contribution(self, record: Trajectory, query: object) -> Float[Array, " d"]:
        del query
        S, A, d = self.slopes.shape
        rows = Transitions.from_trajectory(record)
        counted, difference = self.differences(rows)
        cell = jnp.where(counted, rows.state * A + rows.action, 0)
        table = jnp.zeros(S * A).at[cell].add(difference)
        gradient = jnp.matmul(table, self.slopes.reshape(S * A, d), precision="highest")
        return clip_by_norm(gradient, self.norm)

    def l1(self, adjacency: Adjacency) -> float:
        return self.l2(adjacency) * math.sqrt(self.slopes.shape[-1])


class EpisodeCount(AbstractStatistic):
    """How many episodes there are.

    **Formal guarantee.** An episode adds 1, one without steps 0: replacing or adding one moves the count by at most 1.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=(), init=False)
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    @property
    def nonnegative(self) -> bool:
        return True

    def contribution(self, record: PyTree, query: PyTree) -> Float[Array, ""]:
        del query
        return jnp.asarray(record.length > 0, float)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True)

    def l2(self, adjacency: Adjacency) -> float:
        del adjacency
        return 1.0

    def l1(self, adjacency: Adjacency) -> float:
        return self.l2(adjacency)
