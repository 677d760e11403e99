"""How often practice takes the advised action, cell by cell, where its probabilities are not public.

A cell is a state of a finite world, or a set of observations that are alike (`mdp/assistance.py`). A visit is a hit if
the advised action was taken there, a miss otherwise. Of a state the first visit of each stay counts: a stopping time,
so what is done there is a fair draw of practice. Of a larger cell every visit does, for a first visit is often near its
border. A person's first stay counts (`off_policy.py`), and it is scaled down by how many visits there are in each cell,
whatever was done at them: by C/max(C, ||visits||), for a public C.

**Formal guarantee** (for all records). Entries are not negative, and hits and misses of a cell add up to its visits, so
||(hits, misses)|| <= ||visits||, and a person's vector has norm at most C. Two of them are at most sqrt(2) C apart in
L2, and one has norm at most C. With 2K entries, L1 norms are at most C sqrt(2K), and two vectors are at most twice that
apart.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.assistance import AbstractAssisted, previous_actions
from privrl.mdp.types import Trajectory
from privrl.statistics.off_policy import of_first_stay
from privrl.statistics.setting_checks import check_positive, check_sizes


class PracticeTable(AbstractStatistic):
    """Hits and misses `[K, 2]` of the advised action at first visits.

    Arguments:
        policy: gives the advice, and the cells; its support plays no part.
        num_actions: A.
        contribution_norm: C, to which one person's vector is scaled down.
        every: every visit counts, not the first of each stay alone.
    """

    policy: AbstractAssisted
    num_actions: int = eqx.field(static=True)
    contribution_norm: float = eqx.field(static=True, default=3.0)
    every: bool = eqx.field(static=True, default=False)
    per_person: ClassVar[bool] = True
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_sizes(num_actions=self.num_actions)
        check_positive(contribution_norm=self.contribution_norm)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.policy.support.shape[0], 2

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=lambda steps: steps * max(steps, self.policy.entries))

    def contribution(self, record: Trajectory, query: None) -> Float[Array, "K 2"]:
        del query
        seen = of_first_stay(self._of_stay, record)
        visits = jnp.sqrt((seen.sum(axis=1) ** 2).sum())
        return seen * (self.contribution_norm / jnp.maximum(visits, self.contribution_norm))

    def _of_stay(self, stay: Trajectory) -> Float[Array, "K 2"]:
        observations, a = jnp.asarray(stay.states), jnp.asarray(stay.actions)
        previous = previous_actions(a)
        cell = self.policy.cells(observations, previous)
        counted = stay.valid & (cell >= 0) & (a >= 0) & (a < self.num_actions)
        earlier = jnp.tril((cell[:, None] == cell[None, :]) & counted[None, :], k=-1).any(axis=1)
        first = (counted & (self.every | ~earlier)).astype(float)
        missed = (a != self.policy.choose(observations, previous)).astype(int)
        return jnp.zeros(self.shape).at[jnp.where(counted, cell, 0), missed].add(first)

    def l2(self, adjacency: Adjacency) -> float:
        return self.contribution_norm * (math.sqrt(2.0) if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        return self.contribution_norm * math.sqrt(2.0 * self.shape[0]) * (2.0 if adjacency == "replace-one" else 1.0)
