"""What one person says about a group, and about a second outcome: adaptors over statistics of one person.

Columns that an evaluation only reports on are in `extras` (`mdp/reported_columns.py`): g, the position of the group in
a public list, or NaN; and y, a second outcome such as cost, with a public largest total Y of one episode.

    Present            1 for a person whose first stay has a step       summed by group: the people of each group
    ByGroup(inner)     e_g (x) inner, with g in the first row           one row for each group
    OfOutcome(inner)   inner of the record with y/Y in place of rewards

**Formal guarantee** (for all records, whatever they say).

- `Present` lies in [0, 1].
- `OfOutcome` is the inner statistic of another record, a function of the person's own. The inner statistic keeps its
  bounds for every record, so the sensitivities are the same.
- `ByGroup`. Write c for the inner contribution, A for the bound on |c| alone (add-remove) and R for that on |c - c'|
  (replace-one). The contribution is c in one row and 0 in all others, or 0 everywhere if g is not a position, if there
  are no extras, or if the person has no step. So its norm is at most A. Two people of the same group differ as c and
  c' do, by at most R. For people of different groups the two contributions share no entry: in L2 they differ by
  (|c|^2 + |c'|^2)^(1/2) <= 2^(1/2) A, and in L1 by |c| + |c'| <= 2 A. If one of them is in no group, they differ by at
  most A. Hence replace-one costs max(R, 2^(1/2) A) in L2 and max(R, 2 A) in L1. Both bounds are met if the inner ones
  are.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.reported_columns import GROUP, OUTCOME
from privrl.mdp.types import Trajectory
from privrl.statistics.off_policy import AbstractStayMean, of_first_stay
from privrl.statistics.setting_checks import check_positive, check_sizes

_ROOT_TWO = 2.0**0.5


class Present(AbstractStayMean):
    """1 for a person whose first stay has a step, and 0 otherwise."""

    def of_stay(self, stay: Trajectory) -> Float[Array, ""]:
        return jnp.ones(())

    def interval(self) -> tuple[float, float]:
        return 0.0, 1.0


def group_of(stay: Trajectory, groups: int) -> Float[Array, " groups"]:
    """1 at the group in the first row of a stay."""
    if stay.extras is None:
        return jnp.zeros(groups)
    return (jnp.asarray(stay.extras)[0, GROUP] == jnp.arange(groups)).astype(float)


class ByGroup(AbstractStatistic):
    """A statistic of one person, once for each group: a row for each.

    Arguments:
        inner: a statistic of one person that is not symmetric.
        groups: how many groups the public list has.
    """

    inner: AbstractStatistic
    groups: int = eqx.field(static=True)
    per_person: ClassVar[bool] = True
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_sizes(groups=self.groups)
        _check_inner(self.inner)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.groups, *self.inner.shape)

    @property
    def hints(self) -> SumHints:
        return _kept_hints(self.inner)

    def contribution(self, record: Trajectory, query: None) -> Float[Array, "groups *inner"]:
        group = of_first_stay(lambda stay: group_of(stay, self.groups), record)
        return jnp.tensordot(group, self.inner.contribution(record, query), axes=0)

    def l2(self, adjacency: Adjacency) -> float:
        alone = self.inner.l2("add-remove")
        return alone if adjacency == "add-remove" else max(self.inner.l2("replace-one"), _ROOT_TWO * alone)

    def l1(self, adjacency: Adjacency) -> float:
        alone = self.inner.l1("add-remove")
        return alone if adjacency == "add-remove" else max(self.inner.l1("replace-one"), 2.0 * alone)


class OfOutcome(AbstractStatistic):
    """A statistic of one person about a second outcome in place of rewards, as a share of its largest total.

    Arguments:
        inner: a statistic of one person that is not symmetric, of returns between 0 and 1.
        largest: Y, the public largest total of an episode.
    """

    inner: AbstractStatistic
    largest: float = eqx.field(static=True)
    per_person: ClassVar[bool] = True
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_positive(largest=self.largest)
        _check_inner(self.inner)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape

    @property
    def hints(self) -> SumHints:
        return _kept_hints(self.inner)

    def contribution(self, record: Trajectory, query: None) -> Float[Array, "*inner"]:
        rewards = jnp.zeros(record.rewards.shape)
        if record.extras is not None:
            rewards = jnp.asarray(record.extras)[..., OUTCOME] / self.largest
        paid = Trajectory(
            record.states, record.actions, rewards, record.next_states, record.length, record.propensities
        )
        return self.inner.contribution(paid, query)

    def l2(self, adjacency: Adjacency) -> float:
        return self.inner.l2(adjacency)

    def l1(self, adjacency: Adjacency) -> float:
        return self.inner.l1(adjacency)


def _check_inner(inner: AbstractStatistic) -> None:
    if not inner.per_person or inner.symmetric or inner.raw_shape != inner.shape:
        raise ValueError(f"`inner` is a `{type(inner).__name__}`; give a statistic of one person that is a plain sum.")


def _kept_hints(inner: AbstractStatistic) -> SumHints:
    """Of the inner statistic, what is still true: the width of records, and the memory that they need."""
    return SumHints(any_width=inner.hints.any_width, working_entries=inner.hints.working_entries)
