"""OBI: optimistic backward induction on one vector of counts for each person.

After LDP-OBI of Garcelon, Perchet, Pike-Burke and Pirotta (2021). Each person gives their transition counts as one
vector, to which they add noise themselves under local privacy. Plans are made by backward induction with widths for
sampling and for one standard deviation of the noise (`optimistic_counts.py` derives both):

    width = R (sqrt(1 / (2 N)) + sqrt(S) c / N)

with N the sum of the transition counts. If the world is stationary, a person counts the first visit of each (s, a): a
vector of at most min(H, SA) ones has norm sqrt(min(H, SA)), where counts of all visits have up to H.
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
