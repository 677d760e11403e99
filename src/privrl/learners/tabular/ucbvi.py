"""UCBVI: optimistic value iteration on counts (Azar, Osband and Munos 2017), from exact, streamed or local counts.

At the end of each public block, with n the released transition counts and v the variance of their noise:

    N(s,a)  = sum_s' n(s,a,s')
    P       = projection of n / N onto the simplex, row by row
    Q_h     = r_h + P V + min(c sqrt(sum_s' v (V - PV)^2 / N^2 + Var_P(V)/N) + c R / N, max V - PV)
    Q_h     = r_h + max V                          where N is within 2 standard deviations of its noise (or below 1)
    V_h     = max_a Q_h,  pi_h greedy, ties shared

R is the range of V. The first term under the root is what noise can do to PV (0 without noise), the second what
sampling can do; R / N covers what a handful of samples has not shown yet, and without it the algorithm does not learn
from exact counts. This is the count-based learner that works under local privacy, where least-squares ones do not:
each person is asked one small query (`asking`) with the whole epsilon.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, OnlineAsk, Plan, Releases
from privrl.contracts.release import Declared
from privrl.learners.tabular.consistency import lowered_to
from privrl.mdp.types import TabularPolicy, number
from privrl.privacy.continual.mechanisms import geometric_schedule
from privrl.privacy.noise.subset import variance_of_sums
from privrl.privacy.trust.shuffled import Batched
from privrl.statistics.counts import Asking, TransitionCounts


class UCBVI(AbstractOnlineLearner):
    """Optimistic value iteration on counts of a finite world with known rewards.

    >>> world = privrl.envs.make("riverswim", states=3, horizon=4)
    >>> learner = privrl.UCBVI(world.rewards, 4)
    >>> privrl.run(world, learner, privrl.Central(epsilon=1, delta=1e-6), episodes=100, key=0)
    Run(UCBVI, 1 seed of 100 episodes, joint privacy, epsilon 1, delta 1e-06, simulated noise)

    Arguments:
        rewards: known mean rewards `[G, S, A]`, in [0, 1]; G = 1 or H.
        horizon: number of steps H.
        stationary: pool the counts of all steps (the kernel is the same at every step).
        bonus: c, the size of the optimistic bonus.
        growth, first_block: the public schedule: how fast the number of users grows from plan to plan, and the size of
            the first block, which is also the least size of the others (unless there are fewer users in all).
        asking: what one user is asked under local privacy, see `TransitionCounts`. Left out, the first visit of a
            target where the world is stationary, and the pair of a stage where it is not: there a target is one
            state at one step, and the pair tells as much about all states at hardly more noise.
    """

    rewards: Float[Array, "G S A"]
    horizon: int = eqx.field(static=True)
    stationary: bool = eqx.field(static=True, default=True)
    bonus: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    growth: float = eqx.field(static=True, default=1.05)
    first_block: int = eqx.field(static=True, default=20)
    asking: Asking | None = eqx.field(static=True, default=None)
    reads_newest_sums: ClassVar[bool] = True

    def bounds(self) -> dict[str, object]:
        counts = self._counts()
        return {
            "horizon": self.horizon,
            "counting": counts.counting,
            "asking, without a trusted server": counts.asking,
            "rewards": "known",
        }

    def _counts(self) -> TransitionCounts:
        _, S, A = self.rewards.shape
        asking = self.asking or ("first-visit" if self.stationary else "stage-pair")
        return TransitionCounts(S, A, self.horizon, "pooled" if self.stationary else "per-stage", asking=asking)

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        first = min(self.first_block, num_users)
        ends, kept = geometric_schedule(num_users, self.growth, first), [0]
        for end in ends:
            if end - kept[-1] >= first and num_users - end >= first:
                kept.append(int(end))
        return np.array([*kept[1:], num_users])

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        # A single block may be smaller than `first_block`, if all users are.
        smallest = self.first_block if num_blocks > 1 else 1
        return (Batched("transitions", self._counts(), access="running", times=num_blocks, smallest=smallest),)

    def plan(self, memory: None, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[None, Plan]:
        del ask, num_seen
        H = self.horizon
        _, S, A = self.rewards.shape
        counts = released["transitions"]
        stages = 1 if self.stationary else H
        n = counts.value.reshape(stages, S, A, S)
        v = jnp.broadcast_to(counts.noise.variance, counts.value.shape).reshape(stages, S, A, S)
        N = n.sum(axis=-1)
        known = jnp.maximum(2 * jnp.sqrt(variance_of_sums(counts.noise)).reshape(stages, S, A), 0.5) < N
        N = jnp.where(known, N, 1.0)
        P = lowered_to(n / N[..., None], jnp.ones_like(N))

        def stage(V: Float[Array, " S"], h: Int[Array, ""]) -> tuple[Array, Array]:
            g = jnp.minimum(h, stages - 1)
            PV = P[g] @ V
            deviation = (V[None, None, :] - PV[..., None]) ** 2
            spread = (v[g] * deviation).sum(axis=-1) / N[g] ** 2 + (P[g] * deviation).sum(axis=-1) / N[g]
            width = self.bonus * (jnp.sqrt(spread) + (V.max() - V.min()) / N[g])
            PV = jnp.where(known[g], jnp.minimum(PV + width, V.max()), V.max())
            Q = self.rewards[jnp.minimum(h, self.rewards.shape[0] - 1)] + PV
            return Q.max(axis=-1), Q

        _, Q = jax.lax.scan(stage, jnp.zeros(S), jnp.arange(H), reverse=True)
        return None, Plan(TabularPolicy.greedy(Q))
