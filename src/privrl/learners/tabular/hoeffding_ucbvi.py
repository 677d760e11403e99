"""UCBVI with Hoeffding widths and a worst-case width for noise, for any privatizer of the counts.

After Private-UCB-VI of Chowdhury and Zhou (2022), which takes private counts from a curator or from local reports and
only needs a bound on their noise. The visits are raised by their noise, so that they are rarely too few:

    width = R (sqrt(1 / (2 N)) + S c / (2 N)),   N + e in place of N

`optimistic_counts.py` derives the terms. With N + e they are valid for counts that are divided by N + e, too. P is
divided by N, so its sampling error can be larger than the first term, by a factor of at most (N + e) / N < 1.5, because
counts with N <= 2 e are not used.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.tabular.optimistic_counts import AbstractOptimist, CountedModel, spread


class HoeffdingUCBVI(AbstractOptimist):
    """UCBVI with Hoeffding widths; the arguments are those of `AbstractOptimist`."""

    def plan(self, memory: None, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[None, Plan]:
        del ask, num_seen
        return memory, self.greedy_plan(released, hoeffding_width)


def hoeffding_width(model: CountedModel, V: Float[Array, " S"], variance: Float[Array, "S A"]) -> Float[Array, "S A"]:
    """The width of the module's docstring."""
    del variance
    N = model.visits + model.visit_noise
    return spread(V) * (jnp.sqrt(0.5 / N) + len(V) * model.cell_noise / (2.0 * N))
