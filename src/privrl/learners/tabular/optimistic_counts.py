"""What optimistic learners on released transition counts share: declarations, the estimated model, and planning.

With n the released transition counts, N(s,a) their sums and P = n/N projected onto the simplex, row by row:

    Q_h = r_h + min(P V_{h+1} + width, max V_{h+1})
    Q_h = r_h + max V_{h+1}            where N is within 2 standard deviations of its noise (or below 1)

The learners differ in `width`, which covers sampling and noise, in how they count, and in how they use Q.

**Widths.** Let n* and N* be the exact counts, z = n - n* and y = N - N* the noise, P* the kernel, and V a function with
range R and middle m. Rows of P add up to 1, so constants cancel, and, before the projection,

    P V - P* V = (n* - N* P*) V / N  +  (z (V - m) - y (P* V - m)) / N

The first term is sampling: a sum of N* differences, each with mean 0 given the past and within a range of R. It exceeds
R sqrt(N* L / 2) / N with probability at most exp(-L) (Hoeffding), and has variance N* Var / N^2. The second term is
noise. With standard deviations c of an entry of z and e of y it is about R (S c + e) / (2 N) if all errors have the
worst signs. If N is the sum of n, then y is the sum of z, the term is z (V - P* V) / N, and its standard deviation is
at most R sqrt(S) c / N.

The papers have logarithms of the number of episodes in place of L, and bounds on the noise that hold for all episodes
together. With some ten thousand people such widths exceed the values, so the learners here take L = 1, one standard
deviation of the noise, and `bonus` to scale the sum. No certificate depends on them.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from privrl.contracts.learner import AbstractOnlineLearner, Plan, Releases
from privrl.contracts.release import Declared, Release
from privrl.learners.tabular.consistency import consistent_counts, lowered_to
from privrl.mdp.types import TabularPolicy, number
from privrl.privacy.continual.mechanisms import geometric_schedule
from privrl.privacy.noise.subset import variance_of_sums
from privrl.statistics.counts import Counting, TransitionCounts, VisitCounts


class CountedModel(eqx.Module):
    """A model of a finite world from released counts, for one stage or for all G of them.

    Attributes:
        visits: N, at least 1.
        kernel: P.
        known: which N can be told from its noise.
        cell_noise: the standard deviation of the noise of one transition count.
        visit_noise: that of N.
    """

    visits: Float[Array, "*G S A"]
    kernel: Float[Array, "*G S A S"]
    known: Bool[Array, "*G S A"]
    cell_noise: Float[Array, "*G S A"]
    visit_noise: Float[Array, "*G S A"]

    @classmethod
    def from_releases(
        cls, transitions: Release, shape: tuple[int, int, int], visits: Release | None = None
    ) -> "CountedModel":
        """From transition counts and, if they were released, visit counts, with which the former are made
        consistent.
        """
        G, S, A = shape
        n = transitions.value.reshape(G, S, A, S)
        variance = jnp.broadcast_to(transitions.noise.variance, transitions.value.shape).reshape(G, S, A, S)
        if visits is None:
            N, noise = n.sum(axis=-1), jnp.sqrt(variance_of_sums(transitions.noise)).reshape(G, S, A)
            total = N
        else:
            N = visits.value.reshape(G, S, A)
            noise = jnp.sqrt(jnp.broadcast_to(visits.noise.variance, visits.value.shape)).reshape(G, S, A)
            n = consistent_counts(n, N, noise)
            total = n.sum(axis=-1)
        known = jnp.maximum(2.0 * noise, 0.5) < N
        P = lowered_to(n / jnp.where(known, jnp.maximum(total, 0.5), 1.0)[..., None], jnp.ones_like(N))
        return cls(jnp.where(known, N, 1.0), P, known, jnp.sqrt(variance.max(axis=-1)), noise)

    def stage(self, h: Int[Array, ""]) -> "CountedModel":
        """The model at step h."""
        g = jnp.minimum(h, self.visits.shape[0] - 1)
        return jax.tree.map(lambda leaf: leaf[g], self)


Width = Callable[[CountedModel, Float[Array, " S"], Float[Array, "S A"]], Float[Array, "S A"]]
"""The width of P V for the model of one stage, V, and the variance of V under P."""


class AbstractOptimist(AbstractOnlineLearner):
    """An optimistic learner on transition counts of a finite world with known rewards.

    Arguments:
        rewards: known mean rewards `[G, S, A]`, in [0, 1]; G = 1 or H.
        horizon: number of steps H.
        stationary: pool the counts of all steps (the kernel is the same at every step).
        bonus: the size of the optimistic width.
        growth, first_block: the public schedule: how fast the number of users grows from plan to plan, and the size of
            the first block.
    """

    rewards: Float[Array, "G S A"]
    horizon: int = eqx.field(static=True)
    stationary: bool = eqx.field(static=True, default=True)
    bonus: Float[Array, ""] = eqx.field(converter=number, default=1.0)
    growth: float = eqx.field(static=True, default=1.05)
    first_block: int = eqx.field(static=True, default=20)
    reads_newest_sums: ClassVar[bool] = True
    releases_visits: ClassVar[bool] = False  # besides transitions
    stationary_counting: ClassVar[Counting] = "pooled"

    @property
    def counting(self) -> Counting:
        """How visits are counted: per stage, unless the kernel is the same at every step."""
        return self.stationary_counting if self.stationary else "per-stage"

    def bounds(self) -> dict[str, object]:
        return {"horizon": self.horizon, "counting": self.counting, "rewards": "known"}

    def schedule(self, num_users: int) -> Int[np.ndarray, " B"]:
        return geometric_schedule(num_users, self.growth, min(self.first_block, num_users))

    def declare(self, num_blocks: int) -> tuple[Declared, ...]:
        _, S, A = self.rewards.shape
        counted = (S, A, self.horizon, self.counting)
        transitions = Declared("transitions", TransitionCounts(*counted), access="running", times=num_blocks)
        if not self.releases_visits:
            return (transitions,)
        return Declared("visits", VisitCounts(*counted), access="running", times=num_blocks), transitions

    def model(self, released: Releases) -> CountedModel:
        """The model of the latest releases."""
        _, S, A = self.rewards.shape
        visits = released["visits"] if self.releases_visits else None
        stages = 1 if self.stationary else self.horizon
        return CountedModel.from_releases(released["transitions"], (stages, S, A), visits)

    def optimistic_values(
        self, model: CountedModel, width: Width, policy: Float[Array, "H S A"] | None = None
    ) -> Float[Array, "H S A"]:
        """Q of the greedy policy or, if it is given, of a policy."""
        S = self.rewards.shape[1]

        def step(V: Float[Array, " S"], h: Int[Array, ""]) -> tuple[Array, Array]:
            here = model.stage(h)
            PV = here.kernel @ V
            variance = (here.kernel * (V[None, None, :] - PV[..., None]) ** 2).sum(axis=-1)
            upper = jnp.minimum(PV + self.bonus * width(here, V, variance), V.max())
            Q = self.rewards[jnp.minimum(h, self.rewards.shape[0] - 1)] + jnp.where(here.known, upper, V.max())
            return (Q.max(axis=-1) if policy is None else (policy[h] * Q).sum(axis=-1)), Q

        return jax.lax.scan(step, jnp.zeros(S), jnp.arange(self.horizon), reverse=True)[1]

    def greedy_plan(self, released: Releases, width: Width) -> Plan:
        """The greedy policy of the optimistic values."""
        return Plan(TabularPolicy.greedy(self.optimistic_values(self.model(released), width)))


def spread(V: Float[Array, " S"]) -> Float[Array, ""]:
    """The range of V."""
    return V.max() - V.min()
