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

With `returns` > 0 people return, and the number of records in a block is secret. The released first states (`visits`
of the first step) add up to the number of records in all blocks so far, with noise of variance S s^2; the length of
a block is what `learners/returns.py` makes of that, less the lengths so far, and at least 0. In the projection above,
an error of the length is shared among the states that remain positive. Hence a count has, besides the variance c s^2,
at most that of the number of records, which c is raised by: widths cover it.

`AbstractLSVIUCB` has all of this. `LSVIUCB` counts every transition fully; `WeightedLSVIUCB` in `lsvi_ucb_weighted.py`
weighs transitions by their variances.

**Formal guarantee** (for all of them). A plan is a function of releases, of public numbers of first arrivals and of
settings: post-processing. With `returns` = 0 nothing is computed otherwise than without it.
"""

import abc
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, OnlineAsk, Plan, Releases
from privrl.contracts.release import Declared
from privrl.learners.linear.transition_moments import (
    Spectrum,
    consistent_moments,
    constant_weights,
    gram_of_counts,
    mean_reward,
    optimistic_mean,
    pair_counts,
    state_counts,
)
from privrl.learners.returns import RecordsSoFar, check_returns
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy, number
from privrl.privacy.continual.mechanisms import check_blocks, every
from privrl.statistics.next_states import FeatureTransitions, StartCounts
from privrl.statistics.setting_checks import check_terminal

_LONGEST = 2**53  # no person has more episodes than this


class Seen(eqx.Module):
    """What is remembered between plans, all of it public: the last plan and releases, and the Gram matrices so far.

    `num_seen` people are accounted for: those who came after them and acted on `policy` are in the next sums.
    `counted` are the first states, or with `weights` the states at every step. `returning` is there if people come
    back.
    """

    policy: TabularPolicy
    weights: Float[Array, "H S A"] | None
    moments: Float[Array, "H slots d"]
    counted: Float[Array, "*H S"]
    gram: Float[Array, "H d d"]
    num_seen: Int[Array, ""]
    returning: RecordsSoFar | None


class AbstractLSVIUCB(AbstractOnlineLearner):
    """Optimistic least-squares value iteration on linear features of a finite world, from transition moments.

    A subclass says which states are counted besides the moments, and how its transitions are weighed.

    The arguments are described in `LSVIUCB`.
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
    returns: int = eqx.field(static=True, default=0)
    one_plan_per_block: ClassVar[bool] = True
    _counts: eqx.AbstractClassVar[str]  # the release of counted states

    def __check_init__(self) -> None:
        check_returns(self.returns)
        if not (self.growth > 1.0 and 0.0 < self.exploration <= 1.0):
            raise ValueError(
                f"`growth` is {self.growth} and `exploration` {self.exploration}; use a growth above 1 and a share in "
                "(0, 1]."
            )
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

    def bounds(self) -> dict[str, object]:
        known = "estimated" if self._estimates_rewards else "known"
        bounds: dict[str, object] = {"feature norm": 1.0, "horizon": self.horizon, "rewards": known}
        return bounds | ({"reward range": [0.0, 1.0]} if self._estimates_rewards else {})

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.every_episode:
            return every(num_users, 1)
        ends, _ = explore_then_exploit(self.growth, self.exploration)
        return np.append(ends[ends < num_users], num_users)

    @property
    @abc.abstractmethod
    def _scale(self) -> Float[Array, ""]:
        """By which moments and Gram matrices are divided: the smallest weight of a transition."""

    @abc.abstractmethod
    def _first_states(self, counted: Float[Array, "*H S"]) -> Float[Array, " S"]:
        """How many records began in each state, from the counted states."""

    @abc.abstractmethod
    def _pairs(
        self,
        memory: Seen,
        counted: Float[Array, "*H S"],
        dM: Float[Array, "H S d"],
        length: Float[Array, ""],
        variances: tuple[Float[Array, ""], Float[Array, ""]],
    ) -> Float[Array, "H S A"]:
        """n_h(s, a) of a block of this length, weighted, from its new states and moments and the `variances` of an
        entry of the moments and of the counted states."""

    @abc.abstractmethod
    def _weights(self, at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"]) -> Float[Array, "S A"] | None:
        """The weights w_h(s, a) of the coming block at one step."""

    def _memory(self, counted: tuple[int, ...], weights: Float[Array, "H S A"] | None) -> Seen:
        """Before any block; `counted` is the shape of the counted states."""
        H, S, A, d = self.horizon, self.features.num_states, self.features.num_actions, self.features.dim
        moments, policy = jnp.zeros((H, S + self._estimates_rewards, d)), TabularPolicy.uniform(H, S, A)
        seen = (jnp.zeros(counted), jnp.zeros((H, d, d)), jnp.zeros((), int))
        return Seen(policy, weights, moments, *seen, RecordsSoFar.from_nothing() if self.returns else None)

    def with_returns(self, returns: int) -> "AbstractLSVIUCB":
        return replace(self, returns=returns)

    def acted_on(self, memory: Seen, published: Seen, others: Int[Array, ""]) -> Seen:
        changed = (published.policy, published.weights, memory.num_seen + others)
        return eqx.tree_at(
            lambda seen: (seen.policy, seen.weights, seen.num_seen), memory, changed, is_leaf=lambda x: x is None
        )

    def plan(self, memory: Seen, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[Seen, Plan]:
        del ask
        S = self.features.num_states
        moments, counted = released["moments"], released[self._counts]
        s2, length = moments.noise.variance, (num_seen - memory.num_seen).astype(float)
        returning, of_records = memory.returning, None
        if returning is not None:
            began, most = self._first_states(counted.value).sum(), self.returns * num_seen.astype(float)
            returning, length, variance = returning.add_block(length, began, S * counted.noise.variance, most)
            of_records = variance / jnp.where(s2 > 0, s2, 1.0)
        new, dM = counted.value - memory.counted, (moments.value - memory.moments)[:, :S]
        pairs = self._pairs(memory, new, dM, length, (s2, counted.noise.variance))
        gram = memory.gram + gram_of_counts(pairs, self.features.table)
        M, f = consistent_moments(moments.value[:, :S], gram, self.features), self._scale
        spectrum = Spectrum.of(gram / f, self.features, s2 / f**2, of_records)
        Q, weights = self._values(spectrum, M / f, moments.value[:, S:] / f, self._optimism(num_seen))
        policy = TabularPolicy.greedy(Q)
        seen = Seen(policy, weights, moments.value, counted.value, gram, num_seen, returning)
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
        paid = jnp.zeros(S) if self.arrival_rewards is None else self.arrival_rewards

        def stage(V: Float[Array, " S"], inputs: Any) -> tuple[Array, tuple[Array, Array | None]]:
            known, M_h, R_h, at = inputs
            r = mean_reward(at, R_h[0], bonus) if self._estimates_rewards else known
            Q = r + optimistic_mean(at, M_h, V + paid, bonus)
            return jnp.where(self._live, Q.max(axis=-1), 0.0), (Q, self._weights(at, M_h, V + paid))

        known = jnp.zeros((1, S, A)) if self.rewards is None else self.rewards
        known = jnp.broadcast_to(known, (self.horizon, S, A))
        _, (Q, weights) = jax.lax.scan(stage, jnp.zeros(S), (known, M, reward_moments, spectrum), reverse=True)
        return Q, weights


class LSVIUCB(AbstractLSVIUCB):
    """Optimistic least-squares value iteration on linear features of a finite world; every transition counts fully.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.LSVIUCB(world.features, 4, rewards=world.rewards)
    >>> privrl.run(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=100, key=0)
    Run(LSVIUCB, 1 seed of 100 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

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
        returns: how many further episodes of each person may be in the sums, where how many are is secret.

    Raises:
        ValueError: a setting is out of its range.
    """

    _counts: ClassVar[str] = "starts"

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        H = self.horizon
        moments = FeatureTransitions(self.features, H, with_rewards=self._estimates_rewards)
        return (
            Declared("moments", moments, access="running", times=num_blocks, weight=float(H)),
            Declared("starts", StartCounts(self.features.num_states), access="running", times=num_blocks),
        )

    def init(self) -> Seen:
        return self._memory((self.features.num_states,), None)

    @property
    def _scale(self) -> Float[Array, ""]:
        return jnp.ones(())

    def _first_states(self, counted: Float[Array, " S"]) -> Float[Array, " S"]:
        return counted

    def _pairs(
        self,
        memory: Seen,
        counted: Float[Array, " S"],
        dM: Float[Array, "H S d"],
        length: Float[Array, ""],
        variances: tuple[Float[Array, ""], Float[Array, ""]],
    ) -> Float[Array, "H S A"]:
        pi, S = memory.policy.probabilities, self.features.num_states
        n = state_counts(dM, counted, pi, self.features, self._live, length, *variances)
        n = jnp.where(self._live[None], n, 0.0)
        return pair_counts(n, pi, self.features.table, dM.sum(axis=1), S * variances[0])

    def _weights(self, at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"]) -> None:
        del at, M, V


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
