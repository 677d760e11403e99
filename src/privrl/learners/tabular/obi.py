"""OBI: optimistic backward induction on counts that people have perturbed themselves.

After LDP-OBI of Garcelon, Perchet, Pike-Burke and Pirotta (2021). Each person sends their transition counts as one
noisy vector, and the server plans by backward induction with widths for sampling and for the noise of all reports:

    width = R (sqrt(1 / (2 N)) + sqrt(S) c / N)

where R is the range of V and c the noise of a sum of reports. If the world is stationary, a person counts the first
visit of each (s, a), which keeps the norm of a report small.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.contracts.learner import OnlineAsk, Plan, Releases
from privrl.learners.tabular.optimistic_counts import AbstractOptimist, CountedModel, spread
from privrl.statistics.counts import Counting


class OBI(AbstractOptimist):
    """Optimistic backward induction on vectors of counts; the arguments are those of `AbstractOptimist`."""

    stationary_counting: ClassVar[Counting] = "first-visit"

    def plan(self, memory: None, released: Releases, ask: OnlineAsk, num_seen: Int[Array, ""]) -> tuple[None, Plan]:
        del ask, num_seen
        return memory, self.greedy_plan(released, _width)


def _width(model: CountedModel, V: Float[Array, " S"], variance: Float[Array, "S A"]) -> Float[Array, "S A"]:
    del variance
    noise = jnp.sqrt(float(len(V))) * model.cell_noise
    return spread(V) * (jnp.sqrt(0.5 / model.visits) + noise / model.visits)
