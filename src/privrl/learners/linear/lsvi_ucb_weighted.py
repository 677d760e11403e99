"""The practical algorithm of `LSVIUCB` with the variance weights of LSVI-UCB++ [sahu Algorithm 1, lines 24 to 26].

As there, moments are released by one continual mechanism at public times, and planning is post-processing. What
differs: with every policy a table of weights is published, w_h(s,a) = floor/clip(12 Var/R^2, floor, 1) with Var the
estimated variance of V(s') after (s, a) and R the range of V, and a transition counts with the weight of its (s, a):

    M_h = sum w phi e_{s'}^T                                                                        (release `moments`)
    n_h = states of the block's people at step h, projected on {n >= 0, sum n = length of the block}  (release `visits`)
    G_h += sum n_h(s,a) w_h(s,a) phi phi^T, n_h(s,a) from n_h, the published policy and dM_h 1, as in `LSVIUCB`

Weighted moments no longer say how many people arrived where, so states are counted separately, for a fifth of the
budget. A weighted transition has variance w^2 Var <= floor R^2/12: dividing M and G by the floor makes the regressions
of `LSVIUCB` fit as they are. Noise does not shrink with the weights, so a transition that is weighed down is drowned
sooner, and with one-hot features weights cancel altogether: measure before you use it.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, Plan
from privrl.contracts.release import Declared, Release
from privrl.learners.linear.lsvi_ucb import explore_then_exploit, mean_reward, optimistic_mean
from privrl.learners.linear.transition_moments import Spectrum, consistent_moments, gram_of_counts, pair_counts
from privrl.learners.tabular.consistency import lowered_to
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy
from privrl.statistics.regressions import StateVisits, WeightedTransitions

_VISITS = 0.25  # budget of the states against that of the moments


class Seen(eqx.Module):
    """What is remembered between plans, all of it public: the last plan and releases, and the Gram matrices so far.

    `num_seen` people are accounted for: those who came after them and acted on `policy` are in the next sums.
    """

    policy: TabularPolicy
    weights: Float[Array, "H S A"]
    moments: Float[Array, "H S d"]
    visits: Float[Array, "H S"]
    gram: Float[Array, "H d d"]
    num_seen: Int[Array, ""]


class WeightedLSVIUCB(AbstractOnlineLearner):
    """Optimistic least-squares value iteration on transition moments, weighed by how certain the next value is.

    Arguments:
        features: phi(s, a) with norm at most 1, of which some combination is constantly 1 (as in every linear MDP).
        horizon: number of steps H.
        rewards: known mean rewards `[G, S, A]` in [0, 1], G = 1 or H. Left out they are estimated, and paid for.
        arrival_rewards: known payments `[S]` in [0, 1] for entering a state, instead of `rewards`.
        terminal: public states that end an episode and pay nothing.
        bonus: size of the optimistic bonus; an array leaf, so that several can be run together.
        floor: the smallest weight; 1 is the algorithm without weights.
        growth: how fast the intervals of the schedule grow.
        exploration: share of each interval that plays the optimistic policy.
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    arrival_rewards: Float[Array, " S"] | None = None
    terminal: tuple[int, ...] = eqx.field(static=True, default=())
    bonus: Float[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, float), default=1.0)
    floor: Float[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, float), default=0.5)
    growth: float = eqx.field(static=True, default=1.3)
    exploration: float = eqx.field(static=True, default=0.1)
    one_plan_per_block: ClassVar[bool] = True

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
        ends, _ = explore_then_exploit(self.growth, self.exploration)
        return np.append(ends[ends < num_users], num_users)

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        moments = WeightedTransitions(self.features, self.horizon, self._estimates_rewards)
        visits = StateVisits(self.features.num_states, self.horizon)
        return (
            Declared("moments", moments, access="running", times=num_blocks),
            Declared("visits", visits, access="running", times=num_blocks, weight=_VISITS),
        )

    def init(self) -> Seen:
        H, S, A, d = self.horizon, self.features.num_states, self.features.num_actions, self.features.dim
        policy, weights = TabularPolicy.uniform(H, S, A), jnp.ones((H, S, A))
        return Seen(policy, weights, jnp.zeros((H, S, d)), jnp.zeros((H, S)), jnp.zeros((H, d, d)), jnp.zeros((), int))

    def acted_on(self, memory: Seen, published: Seen, others: Int[Array, ""]) -> Seen:
        changed = (published.policy, published.weights, memory.num_seen + others)
        return eqx.tree_at(lambda seen: (seen.policy, seen.weights, seen.num_seen), memory, changed)

    def plan(
        self,
        memory: Seen,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[Seen, Plan]:
        del ask
        S = self.features.num_states
        moments, visits = released["moments"], released["visits"]
        length = (num_seen - memory.num_seen).astype(float)
        n = self._states(visits.value - memory.visits, length)
        departures = (moments.value[:, :S] - memory.moments).sum(axis=1)
        pairs = self._pairs(n, memory, departures, S * moments.noise.variance)
        gram = memory.gram + gram_of_counts(pairs * memory.weights, self.features.table)  # [sahu A1:26]
        M = consistent_moments(moments.value[:, :S], gram, self.features)
        spectrum = Spectrum.of(gram / self.floor, self.features, moments.noise.variance / self.floor**2)
        Q, weights = self._values(spectrum, M / self.floor, moments.value[:, S:] / self.floor, num_seen)
        policy = TabularPolicy.greedy(Q)
        return Seen(policy, weights, moments.value[:, :S], visits.value, gram, num_seen), Plan(policy, weights)

    def _pairs(
        self, n: Float[Array, "H S"], memory: Seen, departures: Float[Array, "H d"], variance: Float[Array, ""]
    ) -> Float[Array, "H S A"]:
        """How often each action was taken, from weighted departures: w phi in the place of phi."""

        def stage(n: Array, pi: Array, w: Array, left: Array) -> Array:
            return pair_counts(n[None], pi[None], w[..., None] * self.features.table, left[None], variance)[0]

        return jax.vmap(stage)(n, memory.policy.probabilities, memory.weights, departures)

    def _states(self, counts: Float[Array, "H S"], length: Float[Array, ""]) -> Float[Array, "H S"]:
        """Counts that are not negative and add up, with whoever has reached a terminal state."""
        counts = jnp.where(self._live, counts, 0.0)
        if not self.terminal:
            return lowered_to(counts, jnp.broadcast_to(length, counts.shape[:1]))
        ended = length - counts.sum(axis=1, keepdims=True)
        everybody = jnp.concatenate([counts, ended], axis=1)
        return jnp.where(self._live, lowered_to(everybody, jnp.broadcast_to(length, counts.shape[:1]))[:, :-1], 0.0)

    def _values(
        self,
        spectrum: Spectrum,
        M: Float[Array, "H S d"],
        reward_moments: Float[Array, "H columns d"],
        num_seen: Int[Array, ""],
    ) -> tuple[Float[Array, "H S A"], Float[Array, "H S A"]]:
        """Backward induction: Q of every step, and the weights of the coming block."""
        S, A = self.features.num_states, self.features.num_actions
        paid = jnp.zeros(S) if self.arrival_rewards is None else self.arrival_rewards
        ends, explores = explore_then_exploit(self.growth, self.exploration)
        block = jnp.searchsorted(jnp.asarray(ends), num_seen, side="right")
        bonus = jnp.where(jnp.asarray(explores)[block], self.bonus, 0.0)

        def stage(V: Float[Array, " S"], inputs: Any) -> tuple[Array, tuple[Array, Array]]:
            known, M_h, R_h, at = inputs
            r = mean_reward(at, R_h[0], bonus) if self._estimates_rewards else known
            W = V + paid
            Q = r + optimistic_mean(at, M_h, W, bonus)
            return jnp.where(self._live, Q.max(axis=-1), 0.0), (Q, self._weights(at, M_h, W))

        known = jnp.zeros((1, S, A)) if self.rewards is None else self.rewards
        known = jnp.broadcast_to(known, (self.horizon, S, A))
        _, (Q, weights) = jax.lax.scan(stage, jnp.zeros(S), (known, M, reward_moments, spectrum), reverse=True)
        return Q, weights

    def _weights(self, at: Spectrum, M: Float[Array, "S d"], V: Float[Array, " S"]) -> Float[Array, "S A"]:
        """[sahu A1:24-25] in units of R^2/12, from the floor to 1."""
        R, middle = V.max() - V.min(), V.mean()
        squares, _ = at.next_mean(M, (V - middle) ** 2)
        mean, _ = at.next_mean(M, V)
        relative = 12.0 * (squares - (mean - middle) ** 2) / jnp.where(R > 0, R**2, 1.0)  # [sahu A1:24]
        return self.floor / jnp.clip(jnp.where(R > 0, relative, 1.0), self.floor, 1.0)  # [sahu A1:25]
