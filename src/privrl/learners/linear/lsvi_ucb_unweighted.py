"""LSVI-UCB (Jin et al. 2020), after every episode, and what its published private versions in batches share with it.

With V_H = 0, and what `regression_rounds` releases for weights of 1:

    Lambda_h = lambda I + sum phi phi^T                                  (release `gram`; lambda + 2 shift under noise)
    for h = H-1, ..., 0:
        what = Lambda_h^-1 sum phi V_{h+1}(s')                                                  (release `regressions`)
        Q_h  = clip(r + phi^T what + beta ||phi||, 0, H - h)                         ||phi|| in the norm of Lambda_h^-1
        V_h  = max_a Q_h;  pi greedy, ties shared
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import Plan
from privrl.contracts.release import Release
from privrl.learners.linear.regression_rounds import AbstractRegressionRounds, number, written
from privrl.mdp.features import AbstractFeatures
from privrl.mdp.types import TabularPolicy
from privrl.privacy.continual.mechanisms import every


class Planned(eqx.Module):
    """What is remembered between plans, all of it public: the values in force, and the determinants behind them."""

    optimistic: Float[Array, "H S A"]
    log_determinants: Float[Array, " H"]
    switches: Int[Array, ""]


class AbstractUnweightedLSVIUCB(AbstractRegressionRounds):
    """Optimistic least-squares value iteration in which every transition counts fully.

    Arguments:
        features: phi(s, a) with norm at most 1.
        horizon: number of steps H.
        rewards: known mean rewards `[G, S, A]` in [0, 1], G = 1 or H. Left out they are estimated, and paid for.
        bonus: beta.
        ridge: lambda.
        noise_ridge: how many times the bound on the noise of a Gram matrix is added to `ridge`.
        failure: probability with which a noise bound may fail (utility only, never privacy).
    """

    features: AbstractFeatures
    horizon: int = eqx.field(static=True)
    rewards: Float[Array, "G S A"] | None = None
    bonus: Float[Array, ""] = eqx.field(converter=number, default=0.03)
    ridge: Float[Array, ""] = eqx.field(converter=number, default=0.2)
    noise_ridge: Float[Array, ""] = eqx.field(converter=number, default=2.0)
    failure: float = eqx.field(static=True, default=0.05)
    centred: ClassVar[bool] = False
    rows: ClassVar[int] = 1

    def init(self) -> Planned:
        return Planned(self.largest_values(), jnp.zeros(self.horizon), jnp.zeros((), int))

    def plan(
        self,
        memory: Planned,
        released: Mapping[str, Release],
        ask: Callable[[str, int, Any], Release],
        num_seen: Int[Array, ""],
    ) -> tuple[Planned, Plan]:
        H = self.horizon
        at = self.factorised(ask("gram", 0, None) if self.fresh_grams else released["gram"], 1.0)
        last = jnp.where(memory.switches == 0, self.features.dim * jnp.log(at.ridge), memory.log_determinants)
        switch = self.switches(at.log_determinants, last) & (num_seen > 0)
        Q, V = memory.optimistic, jnp.zeros(self.features.num_states)
        for h in reversed(range(H)):
            means = at.means(h, ask("regressions", h, (h, V[None] / H)))
            new = self.reward(h, means[-1]) + H * means[0] + self.bonus * at.norms[h]
            new = jnp.where(switch, jnp.maximum(jnp.minimum(new, float(H - h)), 0.0), Q[h])
            V, Q = new.max(axis=-1), written(Q, new, h)
        kept = Planned(Q, jnp.where(switch, at.log_determinants, last), memory.switches + switch.astype(int))
        return kept, Plan(TabularPolicy.greedy(Q))

    def switches(self, log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
        """Whether the values are replaced at this plan, given the determinants at the last time they were."""
        del log_determinants, last
        return jnp.ones((), bool)


class PerEpisodeLSVIUCB(AbstractUnweightedLSVIUCB):
    """LSVI-UCB (Jin et al. 2020): a plan after every episode, from a new release of everything."""

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        return every(num_users, 1)
