"""Where people go next, in features: the transition moments of a linear world, and where episodes start.

With M_h = sum phi(s_h, a_h) e_{s_{h+1}}^T, every regression on a function of the next state is post-processing:
sum phi(s_h, a_h) V(s_{h+1}) = M_h V, for all V at once.
"""

import functools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.contracts.statistic import Adjacency, SumHints
from privrl.mdp.features import AbstractFeatures, OneHotFeatures
from privrl.mdp.types import Transitions
from privrl.statistics.row_statistics import AbstractRowStatistic, clipped_reward, within
from privrl.statistics.setting_checks import check_array, check_features, check_sizes, unit_features, unit_weights

_ROUNDING = 1.0 + 1e-12  # the two lengths below are computed in float64, and must not come out too small


class FeatureTransitions(AbstractRowStatistic):
    """The sum of w_h(s, a) phi(s, a) into slot (h, s') of a table `[H, S, d]`: the transposes of M_1, ..., M_H.

    Arguments:
        features: phi(s, a), public.
        horizon: number of steps H.
        with_rewards: one more slot (h, S) per step for sum (r - 1/2) w phi, for rewards in [0, 1] that are not known:
            `[H, S + 1, d]`. Centring is free (sum r phi is that slot plus half of the others) and needs less noise.
        weights: public w in [0, 1] per step, 1 where not given.

    A step whose next state was not recorded (-1) adds to no slot of a state, so M_h 1 then falls short of the sum of
    all features taken; a learner that needs them to agree spreads the rest evenly (`LSVIUCB` does). Its reward counts.

    **Formal guarantee** (for all records). Write n for the largest norm of a feature and D for the largest distance of
    two, both read off the public table. One episode has at most one transition at step h. Two transitions into
    different next states move the table of step h by sqrt(|w x|^2 + |w' x'|^2) <= sqrt(2) n; into the same one by
    |w x - w' x'|, which is convex in (w, w'), hence largest at a corner of [0, 1]^2: at most max(D, n). So
    Delta = max(sqrt(2) n, D) bounds one step. Rewards add an orthogonal slot: |c w x - c' w' x'| with c, c' in
    [-1/2, 1/2] is at most n, hence sqrt(Delta^2 + n^2) together (uncentred it would be max(D, n) in place of n, for
    sqrt(2) Delta). Different steps are different slots, so the whole episode moves the table by sqrt(H) times that.
    Adding or removing an episode: sqrt(H) n, with rewards sqrt(5/4 H) n. All scale with the largest weight.

    Two transitions have at one step the inner product w w' <x, x'> (1[same next state] + c c'). If <x, x'> is
    negative, this is at least 5/4 <x, x'> with rewards (<x, x'> without), and otherwise at least -<x, x'>/4 >= -n^2/4
    (0 without). From 2 <x, x'> = |x|^2 + |x'|^2 - |x - x'|^2 and the bounds n and D alone no more than
    -<x, x'> <= D^2/4 follows, so that is the bound if a feature has a negative entry.
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    with_rewards: bool = eqx.field(static=True, default=False)
    weights: Float[Array, "H S A"] | None = None
    stage: None = eqx.field(static=True, default=None, init=False)

    def __check_init__(self) -> None:
        check_features(self.features)
        check_sizes(horizon=self.horizon)
        if self.weights is not None:
            shape = (self.horizon, self.features.num_states, self.features.num_actions)
            check_array("weights", self.weights, shape, low=0.0, high=1.0)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.horizon, self.features.num_states + self.with_rewards, self.features.dim

    @property
    def hints(self) -> SumHints:
        return SumHints(plain=True)

    @property
    def nonnegative(self) -> bool:
        """Where features are, and no reward is centred."""
        return not self.with_rewards and bool((np.asarray(self.features.table) >= 0.0).all())

    @property
    def least_inner_product(self) -> float:
        norm, distance = reach(self.features)
        opposite = 0.0 if bool((np.asarray(self.features.table) >= 0.0).all()) else min(norm, distance / 2.0) ** 2
        most = max(1.25 * opposite, 0.25 * norm**2) if self.with_rewards else opposite
        return -self.horizon * self._largest_weight**2 * most

    def terms(self, rows: Transitions) -> tuple[Int[Array, " P"], Float[Array, "P d"]]:
        """One block per row, and with rewards a second one."""
        S, A, slots = self.features.num_states, self.features.num_actions, self.shape[1]
        taken = within(rows, S, A, "ignored") & (rows.step >= 0) & (rows.step < self.horizon) & (rows.count > 0)
        known = taken & within(rows, S, A, "needed")
        s, a, h = (jnp.where(taken, x, 0) for x in (rows.state, rows.action, rows.step))
        phi = unit_features(self.features, s, a, taken)
        if self.weights is not None:
            phi = phi * unit_weights(self.weights)[h, s, a][:, None]
        place = h * slots + jnp.where(known, rows.next_state, 0)
        block = phi * jnp.where(known, rows.count, 0.0)[:, None]
        if not self.with_rewards:
            return place, block
        centred = jnp.where(taken, clipped_reward(rows) - 0.5 * rows.count, 0.0)
        return jnp.concatenate([place, h * slots + S]), jnp.concatenate([block, phi * centred[:, None]])

    @property
    def _largest_weight(self) -> float:
        return 1.0 if self.weights is None else float(jnp.max(self.weights))

    def l2(self, adjacency: Adjacency) -> float:
        norm, distance = reach(self.features)
        if adjacency == "replace-one":
            step = max(math.sqrt(2.0) * norm, distance)
            step = math.hypot(step, norm) if self.with_rewards else step
        else:
            step = norm * (math.sqrt(1.25) if self.with_rewards else 1.0)
        return self._largest_weight * math.sqrt(self.horizon) * step

    def l1(self, adjacency: Adjacency) -> float:
        """Two terms of L1 norm at most n_1 = max |phi|_1 differ by at most 2 n_1; the centred rewards add half."""
        norm = float(np.abs(np.asarray(self.features.table)).sum(axis=-1).max()) * _ROUNDING
        step = (1.5 if self.with_rewards else 1.0) * norm
        return self._largest_weight * self.horizon * (2.0 if adjacency == "replace-one" else 1.0) * step


class StartCounts(AbstractRowStatistic):
    """How many episodes began in each state: `[S]`.

    **Formal guarantee.** One episode adds a single 1, or nothing: two differ by at most sqrt(2) in L2 and 2 in L1; one
    has both norms at most 1.
    """

    num_states: int = eqx.field(static=True)

    @property
    def nonnegative(self) -> bool:
        return True

    @property
    def stage(self) -> Int[Array, ""]:
        return jnp.zeros((), int)

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.num_states,)

    @property
    def hints(self) -> SumHints:
        return SumHints(plain=True, row_by_row=True)

    def terms(self, rows: Transitions) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
        state = jnp.asarray(rows.state)
        first = (rows.step == 0) & (state >= 0) & (state < self.num_states)
        return jnp.where(first, state, 0), jnp.where(first, rows.count, 0.0)

    def l2(self, adjacency: Adjacency) -> float:
        return math.sqrt(2.0) if adjacency == "replace-one" else 1.0

    def l1(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency == "replace-one" else 1.0


def reach(features: AbstractFeatures) -> tuple[float, float]:
    """The largest norm of a feature and the largest distance between two, rounded up: what sensitivities are made of.

    One-hot features are known. Otherwise the distances of all pairs are computed, a few thousand rows at a time.
    """
    if type(features) is OneHotFeatures:
        return 1.0, math.sqrt(2.0) if features.dim > 1 else 0.0
    x = np.unique(np.asarray(features.table).reshape(-1, features.dim), axis=0)
    squares = (x**2).sum(axis=1)
    chunks = np.array_split(np.arange(len(x)), -(-len(x) // 2048))
    pairs = (squares[rows, None] + squares - 2.0 * x[rows] @ x.T for rows in chunks)
    furthest = functools.reduce(max, (float(part.max()) for part in pairs), 0.0)
    return math.sqrt(float(squares.max())) * _ROUNDING, math.sqrt(furthest) * _ROUNDING
