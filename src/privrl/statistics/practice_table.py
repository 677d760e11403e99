"""How often practice takes the advised action, state by state, where its probabilities are not public.

For each stay, the first visit of each state: a hit if the advised action was taken there, a miss otherwise. A first
visit is a stopping time, so what is done there is a fair draw of practice. A person's stays are summed, and the whole
vector is scaled down to a public norm.

**Formal guarantee** (for all records). Entries are not negative and a person's vector has norm at most C, so two of
them are at most sqrt(2) C apart in L2, and one has norm at most C. With 2S entries, L1 norms are at most C sqrt(2S),
and two vectors are at most twice that apart.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.contracts.statistic import AbstractStatistic, Adjacency
from privrl.mdp.types import Trajectory
from privrl.privacy.noise.mechanisms import clip_by_norm
from privrl.statistics.settings import check_positive, check_sizes


class PracticeTable(AbstractStatistic):
    """Hits and misses `[S, 2]` of the advised action at first visits.

    Arguments:
        num_states, num_actions: the size of the world.
        advice: the advised action of each state.
        contribution_norm: C, to which one person's vector is scaled down.
    """

    num_states: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    advice: Int[Array, " S"]
    contribution_norm: float = eqx.field(static=True, default=3.0)
    per_person = True
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_sizes(num_states=self.num_states, num_actions=self.num_actions)
        check_positive(contribution_norm=self.contribution_norm)
        if self.advice.shape != (self.num_states,):
            raise ValueError(
                f"`advice` has shape {self.advice.shape}; give one action for each of {self.num_states} states."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.num_states, 2

    def contribution(self, record: Trajectory, question: None) -> Float[Array, "S 2"]:
        del question
        summed = jax.vmap(self._of_stay)(record).sum(axis=0)
        return clip_by_norm(summed, self.contribution_norm)

    def _of_stay(self, stay: Trajectory) -> Float[Array, "S 2"]:
        s, a = jnp.asarray(stay.states), jnp.asarray(stay.actions)
        counted = stay.valid & (s >= 0) & (s < self.num_states) & (a >= 0) & (a < self.num_actions)
        earlier = jnp.tril((s[:, None] == s[None, :]) & counted[None, :], k=-1).any(axis=1)
        first = (counted & ~earlier).astype(float)
        place = jnp.where(counted, s, 0)
        missed = (a != self.advice[place]).astype(int)
        return jnp.zeros(self.shape).at[place, missed].add(first)

    def l2(self, adjacency: Adjacency) -> float:
        return self.contribution_norm * (math.sqrt(2.0) if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        return self.contribution_norm * math.sqrt(2.0 * self.num_states) * (2.0 if adjacency == "replace-one" else 1.0)
