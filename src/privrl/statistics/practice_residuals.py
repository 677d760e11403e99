"""Whether practice follows the recorded state alone: what it does beyond that, against what came before.

a* is the advised action, b*(s) the probability with which practice takes it, f in [-1, 1] a public feature of states.
(Where b* is the mean over a cell of observations, what practice does within the cell counts as "beyond the state".)
At a decision whose state, and whose state before, have supported advice,

    e_t = 1{a_t = a*(s_t)} - b*(s_t)                    what practice does beyond the recorded state
    x_t = e_t ((f(s_t) - f(s_{t-1}))/2, e_{t-1})        against the trend of the state, and against the decision before
    X   = sum of x_t, entry by entry, until its absolute value reaches 1;  and a third entry, e_0, on arrival

If treatment depends on the recorded state alone and b* is right, E[e_t | everything before, s_t] = 0, so the sums are
martingales, stopping keeps their mean at 0, and **E X = 0 in every world**, whatever f is. If clinicians follow a
trend, a measurement inside a bin, or anything else that lasts longer than one decision, it is not. The third entry asks
whether people who arrive are treated as people in the same recorded state are later on: if how sick they are is not
recorded, those who are still there are other people than those who arrive, and b*, a mean over all of them, is wrong
for the first decision. (Not where b* is estimated: its errors where people arrive are as large.) An influence that
leaves no trace in earlier records, and none over time, stays unseen.

**Formal guarantee** (for all records). |e| <= 1 and |f| <= 1, so an entry of x_t is at most 1, one is added only while
the sum is below 1, and the first two entries of X lie in [-2, 2], the third in [-1, 1]; a person's are those of their
first stay, 0 without any. Replace-one costs 6 in L2 and 10 in L1 (4 sqrt(2) and 8 without the third entry), add-remove
half of that.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.assistance import AbstractAssisted, previous_actions
from privrl.mdp.types import Trajectory
from privrl.mdp.value_features import AbstractValueFeature
from privrl.statistics.off_policy import of_first_stay

LARGEST = (2.0, 2.0, 1.0)
"""Of a person's entries, none is larger in absolute value."""


class PracticeResiduals(AbstractStatistic):
    """The entries X of a person: trend, continuity, arrival.

    Arguments:
        policy: advice and support.
        feature: f.
        arrival: whether there is the third entry.
    """

    policy: AbstractAssisted
    feature: AbstractValueFeature
    arrival: bool = eqx.field(static=True, default=True)
    symmetric: bool = eqx.field(static=True, default=False, init=False)
    per_person: ClassVar[bool] = True

    @property
    def _largest(self) -> tuple[float, ...]:
        return LARGEST if self.arrival else LARGEST[:2]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._largest),)

    @property
    def hints(self) -> SumHints:
        each = self.policy.entries + self.feature.entries
        return SumHints(any_width=True, working_entries=lambda steps: steps * each)

    def _of_stay(self, stay: Trajectory) -> Float[Array, " entries"]:
        states, actions = jnp.asarray(stay.states), jnp.asarray(stay.actions)
        at = self.policy.decisions(states, previous_actions(actions))
        known = stay.valid & at.supported
        e = jnp.where(known, (actions == at.advice) - jnp.clip(at.support, 0.0, 1.0), 0.0)
        f = self.feature.of(states)
        both = known[1:] & known[:-1]
        x = jnp.stack([e[1:] * (f[1:] - f[:-1]) / 2.0, e[1:] * e[:-1]], axis=-1) * both[:, None]
        add = lambda X, one: (jnp.where(jnp.abs(X) < 1.0, X + one, X), None)  # noqa: E731
        X, largest = jax.lax.scan(add, jnp.zeros(2), x)[0], jnp.asarray(self._largest)
        return jnp.clip(jnp.concatenate([X, e[:1]]) if self.arrival else X, -largest, largest)

    def contribution(self, record: Trajectory, query: None) -> Float[Array, " entries"]:
        del query
        return of_first_stay(self._of_stay, record)

    def l2(self, adjacency: Adjacency) -> float:
        return math.hypot(*self._largest) * (2.0 if adjacency == "replace-one" else 1.0)

    def l1(self, adjacency: Adjacency) -> float:
        return sum(self._largest) * (2.0 if adjacency == "replace-one" else 1.0)
