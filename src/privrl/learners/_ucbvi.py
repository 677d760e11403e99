"""UCBVI: optimistic value iteration on counts (Azar, Osband and Munos 2017), from exact, streamed or local counts.

At the end of each public block, with n the released transition counts and v the variance of their noise:

    N(s,a)  = sum_s' n(s,a,s')
    P       = projection of n / N onto the simplex, row by row
    Q_h     = r_h + P V + min(c sqrt(sum_s' v (V - PV)^2 / N^2 + Var_P(V)/N) + c R / N, max V - PV)
    Q_h     = r_h + max V                          where N is within 3 standard deviations of its noise (or below 1)
    V_h     = max_a Q_h,  pi_h greedy, ties shared

R is the range of V. The first term under the root is what noise can do to PV (0 without noise), the second what
sampling can do. This is the count-based learner that works under local privacy, where least-squares ones do not.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from privrl.learners._base import AbstractOnlineLearner, Plan
from privrl.learners._consistency import lowered_to
from privrl.mdp import TabularPolicy
from privrl.privacy import Declared, Release, geometric_schedule
from privrl.privacy._subset import variance_of_sums
from privrl.statistics import TransitionCounts
from privrl.statistics._counts import Asking


class UCBVI(AbstractOnlineLearner):
    """Optimistic value iteration on counts of a finite world with known rewards.

    Arguments:
        rewards: known mean rewards `[G, S, A]`, in [0, 1]; G = 1 or H.
        horizon: number of steps H.
        stationary: pool the counts of all steps (the kernel is the same at every step).
        bonus: c, the size of the optimistic bonus.
        growth, first_block: the public schedule: the first block of users, and how fast the blocks grow.
    """

    rewards: Float[Array, "G S A"]
    horizon: int = eqx.field(static=True)
    stationary: bool = eqx.field(static=True, default=True)
    bonus: Float[Array, ""] = eqx.field(converter=lambda c: jnp.asarray(c, float), default=1.0)
    growth: float = eqx.field(static=True, default=1.25)
    first_block: int = eqx.field(static=True, default=20)
    asking: Asking = eqx.field(static=True, default="first-visit")

    def bounds(self) -> dict[str, Any]:
        return {"horizon": self.horizon, "counting": self._counts().counting, "rewards": "known"}

    def _counts(self) -> TransitionCounts:
        _, S, A = self.rewards.shape
        return TransitionCounts(S, A, self.horizon, "pooled" if self.stationary else "per-stage", asking=self.asking)

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        return geometric_schedule(num_users, self.growth, min(self.first_block, num_users))

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        return (Declared("transitions", self._counts(), access="running", times=num_blocks),)

    def init(self) -> None:
        return None

    def plan(
        self,
        memory: None,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[None, Plan]:
        del ask, num_seen
        H = self.horizon
        _, S, A = self.rewards.shape
        counts = released["transitions"]
        stages = 1 if self.stationary else H
        n = counts.value.reshape(stages, S, A, S)
        v = jnp.broadcast_to(counts.noise.variance, counts.value.shape).reshape(stages, S, A, S)
        N = n.sum(axis=-1)
        spread_of_N = jnp.sqrt(variance_of_sums(counts.noise)).reshape(stages, S, A)
        known = jnp.maximum(3 * spread_of_N, 0.5) < N
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
