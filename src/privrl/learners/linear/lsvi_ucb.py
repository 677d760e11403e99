"""LSVI-UCB for finite linear worlds (Jin et al. 2020), from one continual release of transition moments.

What is released at the public end of each block: M_h = sum phi(s,a) e_{s'}^T for every step h, and how many episodes
began in each state. No Gram matrix is released, and no value function is ever asked about: M_h V is post-processing.

    schedule   intervals of 1, 1.3, 1.3^2, ... episodes; the first tenth of each plays the optimistic policy, the rest
               the greedy one, and both parts end with a release
    counts     n_h(s) = states of the block's people at step h: from v^T dM_{h-1} (who arrived) and dM_h 1 (who left),
               by inverse variance, projected on {n >= 0, sum n = length of the block};  v solves phi(s,a)^T v = 1
               n_h(s,a) = n_h(s) pi_h(a|s), with pi the policy that was published, corrected by dM_h 1 where pi mixes
    Gram       G_h += sum n_h(s,a) phi phi^T: always positive semidefinite
    moments    M_h += (G_h v - M_h 1) 1^T / S, since M_h 1 = G_h v without noise
    planning   for h = H, ..., 1, with V = V_{h+1} in [lo, hi], R = hi - lo, q = R^2/12, m the average of V, u = V - m:
                 tau^2 = q/m2,  s2 = s^2 (|u|^2 + c q),  D_i = g_i^2 tau^2 + g_i q + s2       (G_h = sum g_i b_i b_i^T)
                 PV    = m + sum_i x_i tau^2 g_i (M_h u)_i / D_i,  clipped to [lo, hi]
                 width = sqrt(r sum_i x_i^2 q/(g_i + 1/12) + sum_i x_i^2 tau^2 s2/D_i)
                 Q_h   = r_h + min(PV + bonus width, hi);  V_h = max_a Q_h;  pi_h greedy, ties shared

The estimate is the posterior mean of a regression whose prior gives PV the mean of V over all states and the variance
of a number that is uniform on its range: m2 is the mean of |phi|^2, s^2 the variance of an entry of M_h,
c = 1/(1/|v|^2 + 1/S) what the counts add to it, and r = clip(12 Var/R^2, .02, 1) with Var the variance of V(s'),
estimated in the same way from (V - m)^2. Centring matters most: a ridge that shrinks V towards 0 locks in. No minimum
is taken over earlier Q: of noisy values it collapses. Without noise s^2 = 0, and these lines are the algorithm without
privacy.

With `smallest_weight` = f the variance weights of LSVI-UCB++ are added: a table
w_h(s,a) = f/clip(12 Var/R^2, f, 1) is published with every policy, and transitions count with these weights:

    M_h = sum w phi e_{s'}^T                                                                        (release `moments`)
    n_h = states of the block's people at step h, projected on {n >= 0, sum n = length of the block}  (release `visits`)
    G_h += sum n_h(s,a) w_h(s,a) phi phi^T, n_h(s,a) from n_h, the published policy and dM_h 1

Weighted moments no longer say how many people arrived where, so states are counted separately, for a fifth of the
budget, in the place of first states. A weighted transition has variance w^2 Var <= f R^2/12: M and G divided by f fit
the regressions as they are. Noise does not shrink with the weights, so a transition that is weighed down is drowned
sooner, and with one-hot features weights cancel altogether: measure before you use it.

With `returns` > 0 people come back, and how many records a block has is secret. The released first states (`visits` of
the first step) add up to how many records there were in all blocks so far, with noise of variance S s^2; the length of
a block is what `learners/returns.py` makes of that, less the lengths so far, and at least 0. So errors do not add up
over blocks: those of all lengths together are those of one release, up to where lengths were cut. In the projection
above, an error of the length is shared among the states that remain positive. Hence a count has, besides the variance
c s^2, at most that of the number of records, which c is raised by: widths cover it.

**Formal guarantee** (for all of them). A plan is a function of releases, of public numbers of first arrivals and of
settings: post-processing. With `returns` = 0 nothing is computed otherwise than without it.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, Plan, Query, Releases
from privrl.contracts.release import Declared
from privrl.learners.linear.transition_moments import (
    Spectrum,
    consistent_moments,
    constant_weights,
    counted_states,
    gram_of_counts,
    mean_reward,
    optimistic_mean,
    pair_counts,
    state_counts,
    variance_weights,
    weighted_pair_counts,
)
from privrl.learners.returns import check_returns, number_of_records
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy, number
from privrl.privacy.continual.mechanisms import check_blocks, every
from privrl.statistics.next_states import FeatureTransitions, StartCounts
from privrl.statistics.regressions import StateVisits, WeightedTransitions
from privrl.statistics.setting_checks import check_terminal

_VISITS = 0.25  # budget of the states against that of weighted moments
_LONGEST = 2**53  # nobody counts more episodes than this


class Seen(eqx.Module):
    """What is remembered between plans, all of it public: the last plan and releases, and the Gram matrices so far.

    `num_seen` people are accounted for: those who came after them and acted on `policy` are in the next sums.
    `counted` are the first states, or with `weights` the states at every step. Where people come back, `first` of those
    in the sums took part for the first time, and `records` is the sum of the lengths of all blocks.
    """

    policy: TabularPolicy
    weights: Float[Array, "H S A"] | None
    moments: Float[Array, "H slots d"]
    counted: Float[Array, "*H S"]
    gram: Float[Array, "H d d"]
    num_seen: Int[Array, ""]
    first: Float[Array, ""] | None
    records: Float[Array, ""] | None


class LSVIUCB(AbstractOnlineLearner):
    """Optimistic least-squares value iteration on linear features of a finite world.

    Arguments:
        features: phi(s, a) with norm at most 1, of which some combination is constantly 1 (as in every linear MDP).
        horizon: number of steps H.
        rewards: known mean rewards `[G, S, A]` in [0, 1], G = 1 or H. Left out they are estimated, and paid for.
        arrival_rewards: known payments `[S]` in [0, 1] for entering a state, instead of `rewards`.
        terminal: public states that end an episode and pay nothing.
        bonus: size of the optimistic bonus; an array leaf, so that several can be run together.
        growth: how fast the intervals of the schedule grow.
        exploration: share of each interval that plays the optimistic policy.
        every_episode: plan after every episode, always optimistically, instead of on the schedule.
        smallest_weight: weigh transitions by their variances, with weights from this one in (0, 1] to 1; an array leaf.
            Without, every transition counts fully.
        returns: how many further episodes of each person may be in the sums, where how many are is secret.
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    arrival_rewards: Float[Array, " S"] | None = None
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    bonus: Float[Array, ""] = eqx.field(converter=number, default=1.15)
    growth: float = eqx.field(static=True, default=1.3)
    exploration: float = eqx.field(static=True, default=0.1)
    every_episode: bool = eqx.field(static=True, default=False)
    smallest_weight: Float[Array, ""] | None = eqx.field(
        converter=lambda f: None if f is None else number(f), default=None
    )
    returns: int = eqx.field(static=True, default=0)
    one_plan_per_block: ClassVar[bool] = True

    def __check_init__(self) -> None:
        check_returns(self.returns)
        if not (self.growth > 1.0 and 0.0 < self.exploration <= 1.0):
            raise ValueError(
                f"`growth` is {self.growth} and `exploration` {self.exploration}; use a growth above 1 and a share in "
                "(0, 1]."
            )
        f = self.smallest_weight
        if f is not None and not isinstance(f, jax.core.Tracer) and not (f.ndim > 0 or 0.0 < float(f) <= 1.0):
            raise ValueError(f"`smallest_weight` is {float(f)}; weights lie in (0, 1]. Leave it out for no weights.")
        if self.rewards is not None and self.arrival_rewards is not None:
            raise ValueError("`rewards` and `arrival_rewards` are both given; say in one way what is known.")
        check_terminal(self.terminal, self.features.num_states)
        if not isinstance(self.features.table, jax.core.Tracer):
            gap = float(jnp.max(jnp.abs(self.features.table @ constant_weights(self.features) - 1.0)))
            if not gap <= 1e-6:
                raise ValueError(
                    "No combination of the `features` is constantly 1, so no linear MDP has them (probabilities add up "
                    "to 1). Append a constant feature and divide by the largest norm."
                )

    @property
    def _estimates_rewards(self) -> bool:
        return self.rewards is None and self.arrival_rewards is None

    @property
    def _live(self) -> Bool[Array, " S"]:
        return jnp.ones(self.features.num_states, bool).at[jnp.asarray(self.terminal, int)].set(False)

    def bounds(self) -> dict[str, Any]:
        known = "estimated" if self._estimates_rewards else "known"
        bounds: dict[str, Any] = {"feature norm": 1.0, "horizon": self.horizon, "rewards": known}
        return bounds | ({"reward range": [0.0, 1.0]} if self._estimates_rewards else {})

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.every_episode:
            return every(num_users, 1)
        ends, _ = explore_then_exploit(self.growth, self.exploration)
        return np.append(ends[ends < num_users], num_users)

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        S, H = self.features.num_states, self.horizon
        if self.smallest_weight is None:
            moments = FeatureTransitions(self.features, H, with_rewards=self._estimates_rewards)
            return (
                Declared("moments", moments, access="running", times=num_blocks, weight=float(H)),
                Declared("starts", StartCounts(S), access="running", times=num_blocks),
            )
        weighted = WeightedTransitions(self.features, H, self._estimates_rewards)
        return (
            Declared("moments", weighted, access="running", times=num_blocks),
            Declared("visits", StateVisits(S, H), access="running", times=num_blocks, weight=_VISITS),
        )

    def init(self) -> Seen:
        H, S, A, d = self.horizon, self.features.num_states, self.features.num_actions, self.features.dim
        moments, policy = jnp.zeros((H, S + self._estimates_rewards, d)), TabularPolicy.uniform(H, S, A)
        weights, counted = (None, (S,)) if self.smallest_weight is None else (jnp.ones((H, S, A)), (H, S))
        nobody = jnp.zeros(()) if self.returns else None
        seen = (jnp.zeros(counted), jnp.zeros((H, d, d)), jnp.zeros((), int))
        return Seen(policy, weights, moments, *seen, nobody, nobody)

    def with_returns(self, returns: int) -> "LSVIUCB":
        return replace(self, returns=returns)

    def acted_on(self, memory: Seen, published: Seen, others: Int[Array, ""]) -> Seen:
        changed = (published.policy, published.weights, memory.num_seen + others)
        return eqx.tree_at(
            lambda seen: (seen.policy, seen.weights, seen.num_seen), memory, changed, is_leaf=lambda x: x is None
        )

    def plan(self, memory: Seen, released: Releases, ask: Query, num_seen: Int[Array, ""]) -> tuple[Seen, Plan]:
        del ask
        S, phi = self.features.num_states, self.features.table
        moments, counted = released["moments"], released["starts" if memory.weights is None else "visits"]
        s2, length = moments.noise.variance, (num_seen - memory.num_seen).astype(float)
        first, records, of_records = None, None, None
        if memory.first is not None and memory.records is not None:
            totals = counted.value if memory.weights is None else counted.value[0]
            first = memory.first + length
            found, variance = number_of_records(
                totals.sum(), S * counted.noise.variance, first, self.returns * num_seen.astype(float)
            )
            length, of_records = jnp.maximum(found - memory.records, 0.0), variance / jnp.where(s2 > 0, s2, 1.0)
            records = memory.records + length
        pi, dM = memory.policy.probabilities, (moments.value - memory.moments)[:, :S]
        new = counted.value - memory.counted
        if memory.weights is None:
            n = state_counts(dM, new, pi, self.features, self._live, length, s2, counted.noise.variance)
            n = jnp.where(self._live[None], n, 0.0)
            pairs = pair_counts(n, pi, phi, dM.sum(axis=1), S * s2)
        else:
            n = counted_states(new, self._live, bool(self.terminal), length)
            pairs = weighted_pair_counts(n, pi, memory.weights, phi, dM.sum(axis=1), S * s2)
        gram = memory.gram + gram_of_counts(pairs, phi)
        M = consistent_moments(moments.value[:, :S], gram, self.features)
        f = jnp.ones(()) if self.smallest_weight is None else self.smallest_weight
        spectrum = Spectrum.of(gram / f, self.features, s2 / f**2, of_records)
        Q, weights = self._values(spectrum, M / f, moments.value[:, S:] / f, self._optimism(num_seen))
        policy = TabularPolicy.greedy(Q)
        seen = Seen(policy, weights, moments.value, counted.value, gram, num_seen, first, records)
        return seen, Plan(policy, weights)

    def _optimism(self, num_seen: Int[Array, ""]) -> Float[Array, ""]:
        """The size of the bonus in the coming block: 0 where the schedule plays the greedy policy."""
        if self.every_episode:
            return self.bonus
        ends, explores = explore_then_exploit(self.growth, self.exploration)
        block = jnp.searchsorted(jnp.asarray(ends), num_seen, side="right")
        return jnp.where(jnp.asarray(explores)[block], self.bonus, 0.0)

    def _values(
        self,
        spectrum: Spectrum,
        M: Float[Array, "H S d"],
        reward_moments: Float[Array, "H columns d"],
        bonus: Float[Array, ""],
    ) -> tuple[Float[Array, "H S A"], Float[Array, "H S A"] | None]:
        """Backward induction: Q of every step, and the weights of the coming block."""
        S, A = self.features.num_states, self.features.num_actions
        paid, f = jnp.zeros(S) if self.arrival_rewards is None else self.arrival_rewards, self.smallest_weight

        def stage(V: Float[Array, " S"], inputs: Any) -> tuple[Array, tuple[Array, Array | None]]:
            known, M_h, R_h, at = inputs
            r = mean_reward(at, R_h[0], bonus) if self._estimates_rewards else known
            Q = r + optimistic_mean(at, M_h, V + paid, bonus)
            weights = None if f is None else variance_weights(at, M_h, V + paid, f)
            return jnp.where(self._live, Q.max(axis=-1), 0.0), (Q, weights)

        known = jnp.zeros((1, S, A)) if self.rewards is None else self.rewards
        known = jnp.broadcast_to(known, (self.horizon, S, A))
        _, (Q, weights) = jax.lax.scan(stage, jnp.zeros(S), (known, M, reward_moments, spectrum), reverse=True)
        return Q, weights


@lru_cache(maxsize=64)
def explore_then_exploit(growth: float, exploration: float) -> tuple[Int[np.ndarray, " B"], Bool[np.ndarray, " B"]]:
    """Public ends of blocks for any number of episodes, and which of them explore.

    Interval i has ceil(growth^i) episodes; the first share `exploration` of them, at least one, explores.
    """
    ends, explores, end, i = [], [], 0, 0
    while end < _LONGEST:
        length = math.ceil(growth**i)
        first = max(1, math.floor(exploration * length))
        for size, flag in ((first, True), (length - first, False)):
            if size > 0:
                end += size
                ends.append(end)
                explores.append(flag)
        check_blocks(len(ends), end)
        i += 1
    return np.array(ends, np.int64), np.array(explores)
