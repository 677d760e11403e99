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
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.contracts.release import Declared, Release
from privrl.learners.linear.transition_moments import (
    Spectrum,
    consistent_moments,
    constant_weights,
    gram_of_counts,
    pair_counts,
    state_counts,
)
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy
from privrl.privacy.continual.mechanisms import every
from privrl.statistics.next_states import FeatureTransitions, StartCounts

_LONGEST = 2**53  # nobody counts more episodes than this


class Seen(eqx.Module):
    """What is remembered between plans, all of it public: the last plan and releases, and the Gram matrices so far.

    `num_seen` people are accounted for: those who came after them and acted on `policy` are in the next sums.
    """

    policy: TabularPolicy
    moments: Float[Array, "H slots d"]
    starts: Float[Array, " S"]
    gram: Float[Array, "H d d"]
    num_seen: Int[Array, ""]


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
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    arrival_rewards: Float[Array, " S"] | None = None
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    bonus: Float[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, float), default=1.15)
    growth: float = eqx.field(static=True, default=1.3)
    exploration: float = eqx.field(static=True, default=0.1)
    every_episode: bool = eqx.field(static=True, default=False)
    one_plan_per_block: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if not (self.growth > 1.0 and 0.0 < self.exploration <= 1.0):
            raise ValueError(
                f"`growth` is {self.growth} and `exploration` {self.exploration}; use a growth above 1 and a share in "
                "(0, 1]."
            )
        if self.rewards is not None and self.arrival_rewards is not None:
            raise ValueError("`rewards` and `arrival_rewards` are both given; say in one way what is known.")
        S = self.features.num_states
        outside = [s for s in self.terminal if not 0 <= s < S]
        if outside:
            raise ValueError(f"`terminal` names {outside}; states are numbered from 0 to {S - 1}.")
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
        moments = FeatureTransitions(self.features, self.horizon, with_rewards=self._estimates_rewards)
        starts = StartCounts(self.features.num_states)
        return (
            Declared("moments", moments, access="running", times=num_blocks, weight=float(self.horizon)),
            Declared("starts", starts, access="running", times=num_blocks),
        )

    def init(self) -> Seen:
        H, S, A, d = self.horizon, self.features.num_states, self.features.num_actions, self.features.dim
        moments = jnp.zeros((H, S + self._estimates_rewards, d))
        policy = TabularPolicy.uniform(H, S, A)
        return Seen(policy, moments, jnp.zeros(S), jnp.zeros((H, d, d)), jnp.zeros((), int))

    def acted_on(self, memory: Seen, published: Seen, others: Int[Array, ""]) -> Seen:
        changed = (published.policy, memory.num_seen + others)
        return eqx.tree_at(lambda seen: (seen.policy, seen.num_seen), memory, changed)

    def plan(
        self,
        memory: Seen,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[Seen, Plan]:
        del ask
        S, phi = self.features.num_states, self.features.table
        moments, starts = released["moments"], released["starts"]
        s2 = moments.noise.variance
        pi, dM = memory.policy.probabilities, (moments.value - memory.moments)[:, :S]
        length = (num_seen - memory.num_seen).astype(float)
        block = (dM, starts.value - memory.starts, pi, self.features, self._live, length, s2, starts.noise.variance)
        n = jnp.where(self._live[None], state_counts(*block), 0.0)
        gram = memory.gram + gram_of_counts(pair_counts(n, pi, phi, dM.sum(axis=1), S * s2), phi)
        M = consistent_moments(moments.value[:, :S], gram, self.features)
        spectrum = Spectrum.of(gram, self.features, s2)
        policy = TabularPolicy.greedy(self._values(spectrum, M, moments.value[:, S:], self._optimism(num_seen)))
        return Seen(policy, moments.value, starts.value, gram, num_seen), Plan(policy)

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
    ) -> Float[Array, "H S A"]:
        """Backward induction: Q of every step."""
        S, A = self.features.num_states, self.features.num_actions
        paid = jnp.zeros(S) if self.arrival_rewards is None else self.arrival_rewards

        def stage(V: Float[Array, " S"], inputs: Any) -> tuple[Array, Array]:
            known, M_h, R_h, at = inputs
            r = mean_reward(at, R_h[0], bonus) if self._estimates_rewards else known
            Q = r + optimistic_mean(at, M_h, V + paid, bonus)
            return jnp.where(self._live, Q.max(axis=-1), 0.0), Q

        known = jnp.zeros((1, S, A)) if self.rewards is None else self.rewards
        known = jnp.broadcast_to(known, (self.horizon, S, A))
        _, Q = jax.lax.scan(stage, jnp.zeros(S), (known, M, reward_moments, spectrum), reverse=True)
        return Q


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
        i += 1
    return np.array(ends, np.int64), np.array(explores)


def optimistic_mean(
    at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"], bonus: Float[Array, ""]
) -> Float[Array, "S A"]:
    """The mean of V(s') after every (s, a), plus `bonus` times its uncertainty, at most the largest V."""
    R, middle = V.max() - V.min(), V.mean()
    mean, doubt = at.next_mean(M, V)
    squares, _ = at.next_mean(M, (V - middle) ** 2)
    spread = 12.0 * (squares - (mean - middle) ** 2) / jnp.where(R > 0, R**2, 1.0)
    width = jnp.sqrt(jnp.clip(spread, 0.02, 1.0) * at.luck(R) + doubt)
    return jnp.minimum(mean + bonus * width, V.max())


def mean_reward(at: Spectrum, targets: Float[Array, " d"], bonus: Float[Array, ""]) -> Float[Array, "S A"]:
    """Mean rewards in [0, 1] from the sums of phi (r - 1/2), plus `bonus` times their uncertainty."""
    centred, doubt = at.regression(targets, jnp.ones(()), jnp.ones(()))
    width = jnp.sqrt(at.luck(jnp.ones(())) + doubt)
    return jnp.clip(0.5 + jnp.clip(centred, -0.5, 0.5) + bonus * width, 0.0, 1.0)
