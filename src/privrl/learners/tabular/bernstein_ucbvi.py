"""UCBVI with Bernstein widths on counts that are made consistent.

After DP-UCBVI of Qiao and Wang (2023): noisy visits and transitions are post-processed so that transitions are
non-negative and add up to the visits, and the widths follow the variance of V, so that the cost of privacy is a term of
lower order:

    width = sqrt(Var_P(V) / N) + R / N + R S c / (2 N)

The first term is a standard deviation of sampling, the second what a handful of samples has not shown yet, and the
third noise with the worst signs (`optimistic_counts.py`). Consistency adds at most as much noise again: if |n* - n|
is at most t in every entry and the sum of n* is within e of N, then n* is feasible, so the nearest feasible counts are
within t of n and within 2t of n*.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.tabular.optimistic_counts import AbstractOptimist, CountedModel, spread


class BernsteinUCBVI(AbstractOptimist):
    """UCBVI with Bernstein widths on consistent counts; the arguments are those of `AbstractOptimist`."""

    releases_visits: ClassVar[bool] = True

    def plan(self, memory: None, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[None, Plan]:
        del ask, num_seen
        return memory, self.greedy_plan(released, _width)


def _width(model: CountedModel, V: Float[Array, " S"], variance: Float[Array, "S A"]) -> Float[Array, "S A"]:
    noise = len(V) * model.cell_noise / 2.0
    return jnp.sqrt(variance / model.visits) + spread(V) * (1.0 + noise) / model.visits
