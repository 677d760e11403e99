"""LSVI-UCB (Jin et al. 2020), after every episode, and what its published private versions in batches share with it.

With V_H = 0, and what `regression_rounds` releases for weights of 1:

    Lambda_h = lambda I + sum phi phi^T                                  (release `gram`; lambda + 2 shift under noise)
    for h = H-1, ..., 0:
        what = Lambda_h^-1 sum phi V_{h+1}(s')                                                  (release `regressions`)
        Q_h  = clip(r + phi^T what + beta ||phi||, 0, H - h)                         ||phi|| in the norm of Lambda_h^-1
        V_h  = max_a Q_h;  pi greedy, ties shared
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.linear.regression_rounds import AbstractRegressionRounds, InForce, written
from privrl.mdp.types import TabularPolicy


class AbstractUnweightedLSVIUCB(AbstractRegressionRounds):
    """Optimistic least-squares value iteration in which every transition counts fully."""

    centred: ClassVar[bool] = False
    rows: ClassVar[int] = 1

    def init(self) -> InForce:
        return InForce(self.largest_values(), None, jnp.zeros(self.horizon), jnp.zeros((), int))

    def plan(
        self, memory: InForce, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]
    ) -> tuple[InForce, Plan]:
        H = self.horizon
        at = self.factorised(ask("gram", 0, None) if self.fresh_grams else released["gram"], 1.0)
        switch, *kept = self.switched(memory, at, num_seen)

        def step(carry: tuple[Array, Array], h: int | Int[Array, ""]) -> tuple[Array, Array]:
            Q, V = carry
            means = at.means(h, ask("regressions", h, (h, V[None] / H)))
            new = self.reward(h, means[-1]) + H * means[0] + self.bonus * at.norms[h]
            new = jnp.where(switch, jnp.clip(new, 0.0, H - h), Q[h])
            return written(Q, new, h), new.max(axis=-1)

        Q, _ = ask.scan(step, (memory.optimistic, jnp.zeros(self.features.num_states)), H)
        return InForce(Q, None, *kept), Plan(TabularPolicy.greedy(Q))


class PerEpisodeLSVIUCB(AbstractUnweightedLSVIUCB):
    """LSVI-UCB (Jin et al. 2020): a plan after every episode, from a new release of everything."""
