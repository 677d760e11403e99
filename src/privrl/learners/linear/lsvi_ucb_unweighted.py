"""LSVI-UCB (Jin et al. 2020): after every episode, and its published private versions in batches.

The papers of the two private versions are not at hand: they are our reading of how [sahu] and others describe them.

With V_H = 0, and what `regression_rounds` releases for weights of 1:

    Lambda_h = lambda I + sum phi phi^T                                  (release `gram`; lambda + 2 shift under noise)
    for h = H-1, ..., 0:
        what = Lambda_h^-1 sum phi V_{h+1}(s')                                                  (release `regressions`)
        Q_h  = clip(r + phi^T what + beta ||phi||, 0, H - h)                         ||phi|| in the norm of Lambda_h^-1
        V_h  = max_a Q_h;  pi greedy, ties shared
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.linear.regression_rounds import AbstractRegressionRounds, InForce, doubled, written
from privrl.mdp.types import TabularPolicy
from privrl.privacy.continual.mechanisms import every


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


class LuyoLSVIUCB(AbstractUnweightedLSVIUCB):
    """Private LSVI-UCB (Jin et al. 2020) in static batches, Luyo et al. 2021, as [sahu] and others describe it.

    Blocks of (K epsilon)^(2/5) d^(3/5) H^(1/5) users; after each, Gram matrices from a binary tree whose leaves are
    the blocks, and regressions over all people with fresh Gaussian noise for vectors of norm H. Half of
    the budget each.

    Arguments:
        epsilon: for which the size of the blocks is chosen (utility only, never privacy).
        block: how many users a block has, in place of the formula.
    """

    epsilon: float = eqx.field(static=True, default=1.0)
    block: int | None = eqx.field(static=True, default=None)
    fresh_grams: ClassVar[bool] = False

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        if self.block is not None:
            return every(num_users, self.block)
        batch = self.epsilon**0.4 * self.features.dim**0.6 * self.horizon**0.2
        return every(num_users, max(1, round(batch * num_users**0.4)))


class NgoLSVIUCB(AbstractUnweightedLSVIUCB):
    """Private LSVI-UCB (Jin et al. 2020) in adaptive batches, Ngo et al. 2022, as [sahu] and others describe it.

    New values when a determinant has doubled, at most `most_switches` times, over which the noise of the regressions is
    shared out; Gram matrices from a binary tree. That cap is kept by reading determinants at that number of public,
    evenly spaced times. Half of the budget each.

    Arguments:
        most_switches: by default d ceil(log2(1 + 2^20/d)), which is how often the determinant of one d x d matrix can
            double over a million users.
    """

    most_switches: int | None = eqx.field(static=True, default=None)
    fresh_grams: ClassVar[bool] = False

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        d = self.features.dim
        most = d * math.ceil(math.log2(1 + 2**20 / d)) if self.most_switches is None else self.most_switches
        return every(num_users, -(-num_users // most))

    def switches(self, log_determinants: Float[Array, " H"], last: Float[Array, " H"]) -> Bool[Array, ""]:
        return doubled(log_determinants, last)
