"""PUCB: optimistic planning on visit and transition counts, with a width for the noise of both.

After Vietri, Balle, Krishnamurthy and Wu (2020), who release the counts with binary trees of Laplace noise under joint
privacy. A width has a term for sampling, with the visits lowered by their noise, and a term for noise with the worst
signs (`optimistic_counts.py` derives both):

    width = R (sqrt(1 / (2 max(N - e, 1))) + (e + S c) / (2 N))

If N* <= N + e, then sqrt(N*) / N <= 1 / sqrt(N - e), because (N + e)(N - e) <= N^2.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.tabular.optimistic_counts import AbstractOptimist, CountedModel, spread


class PUCB(AbstractOptimist):
    """Optimistic planning on released visits and transitions; the arguments are those of `AbstractOptimist`."""

    releases_visits: ClassVar[bool] = True

    def plan(self, memory: None, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[None, Plan]:
        del ask, num_seen
        return memory, self.greedy_plan(released, _width)


def _width(model: CountedModel, V: Float[Array, " S"], variance: Float[Array, "S A"]) -> Float[Array, "S A"]:
    del variance
    sampled = jnp.sqrt(0.5 / jnp.maximum(model.visits - model.visit_noise, 1.0))
    return spread(V) * (sampled + (model.visit_noise + len(V) * model.cell_noise) / (2.0 * model.visits))
