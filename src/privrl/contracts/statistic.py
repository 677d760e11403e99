"""Statistics: one person's bounded contribution to a sum, which is what a learner may query."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

Adjacency = Literal["replace-one", "add-remove"]


def _few(steps: int) -> int:
    del steps
    return 0


@dataclass(frozen=True)
class SumHints:
    """Faster ways to compute the sum of a statistic. By default none is used: the sum is right, and takes longest.

    No sensitivity rests on a hint. A false hint leads to a wrong sum, so the tests compare every hint of every
    statistic with the sum without hints.

    Arguments:
        any_width: a record may be padded to fewer steps than the horizon. It contributes the same, up to the rounding
            of sums, as long as it has all its own steps. Otherwise it is padded to the horizon. Either way the width
            depends on the record alone, and so does every bit of its contribution.
        working_entries: a function from the number of steps of a record to the number of entries of the largest array
            that its contribution needs; 0 means a few entries for each step. Records are summed in smaller batches if
            it is large.
        plain: a record's contribution is the sum over all transitions of its episode, of which nothing is dropped,
            weighed or clipped. The sum over people may then be computed from the distinct transitions of all of them.
        row_by_row: distinct transitions can be put on a lattice one by one, each times its count. That requires that
            only one transition of a record counts and that rewards, which differ from person to person, play no part;
            or that all entries are whole numbers.
        ignores_next_state: transitions that differ in the next state alone contribute the same.
    """

    any_width: bool = False
    working_entries: Callable[[int], int] = _few
    plain: bool = False
    row_by_row: bool = False
    ignores_next_state: bool = False


class AbstractStatistic(eqx.Module):
    """One person's contribution to a sum, which is bounded for every record.

    **Formal guarantee that every statistic owes.** For all records x, x' and every query q,
    `answer(contribution(x, q'), q) - answer(contribution(x', q'), q)` has L2 norm (Frobenius norm if `symmetric`)
    at most `l2("replace-one")` and L1 norm at most `l1("replace-one")`; and `answer(contribution(x, q'), q)` alone has
    norms at most `l2("add-remove")` and `l1("add-remove")`. No assumption is made about x: records that break a
    bound are clipped or contribute zero. If `symmetric`, then `shape` is square, a contribution is one block, and the
    upper triangle of (x + x^T)/2 is released (see `symmetric.py`).
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    symmetric: eqx.AbstractVar[bool]
    per_person: ClassVar[bool] = False
    """Whether a record is all kept episodes of one person, and not one episode. Its arrays then have a leading axis of
    the public largest number of episodes, filled up with empty ones, and the guarantee is about persons, however many
    episodes they have."""

    @property
    def nonnegative(self) -> bool:
        """Whether the answers of any two contributions, whatever was published to either, have inner product at least
        0, as with entries that are never negative or positive semidefinite matrices. The sums of two people who come
        several times are then closer together (`privacy/trust/repeated.py`)."""
        return False

    @property
    def least_inner_product(self) -> float:
        """A lower bound on the inner product of the answers of any two contributions, whatever was published to either:
        0 if they are `nonnegative`, and never more, because an empty record contributes zero. By default -C^2, with C
        the norm of one; a larger one lowers the noise for people who return."""
        return 0.0 if self.nonnegative else -(self.l2("add-remove") ** 2)

    @property
    def distinct(self) -> bool:
        """Whether no record has two nonzero blocks in one place (see `parts`). Its norm is then the norm of its blocks,
        which need not be added up first."""
        return False

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of one contribution. It differs from the released `shape` only if `answer` changes it."""
        return self.shape

    @property
    def steps_shape(self) -> tuple[int, ...]:
        """The shape of one contribution in whole numbers: of a symmetric matrix only the upper triangle exists."""
        d = self.shape[0] if self.symmetric else 0
        return (d * (d + 1) // 2,) if self.symmetric else self.raw_shape

    @property
    def hints(self) -> SumHints:
        """Faster ways to compute the same sum; none by default."""
        return SumHints()

    @abc.abstractmethod
    def contribution(self, record: PyTree, query: PyTree) -> Array:
        """One person's term of the sum; `query` is the public pytree that was published when they took part."""

    def parts(self, record: PyTree, query: PyTree) -> tuple[Int[Array, " P"], Float[Array, "P *block"]]:
        """The same term in blocks: the place of each in the array, cut into blocks of that shape, and its entries.

        If one person touches few entries of a very large array, sums add up these blocks only. Blocks in one place
        add up.
        """
        return jnp.zeros(1, int), self.contribution(record, query)[None]

    @abc.abstractmethod
    def l2(self, adjacency: Adjacency) -> float:
        """The L2 (Frobenius) sensitivity of the released answer."""

    @abc.abstractmethod
    def l1(self, adjacency: Adjacency) -> float:
        """The L1 sensitivity of the released answer, for Laplace noise."""

    def total(self, records: PyTree, query: PyTree) -> Array:
        """The sum of the contributions of a batch of people (a leading axis on every array of `records`)."""
        return jax.vmap(self.contribution, in_axes=(0, None))(records, query).sum(axis=0)

    def answer(self, total: Array, query: PyTree) -> Array:
        """A linear function of the sum, chosen by a query made after these people left (`access="rounds"`)."""
        del query
        return total


class AbstractScores(AbstractStatistic):
    """A score of each of several candidates. Only the number of the candidate with the largest sum is released.

    **Formal guarantee that it owes in addition.** For all records x, x' and d = contribution(x) - contribution(x'), the
    spread max d - min d is at most `spread("replace-one")`; that of contribution(x) is at most `spread("add-remove")`.
    """

    @abc.abstractmethod
    def spread(self, adjacency: Adjacency) -> float:
        """How far one person can move the sums of two candidates apart."""


class AbstractCategorical(AbstractStatistic):
    """A statistic that can also be queried one symbol at a time, for local privacy.

    Person number `index` (public) reads the public query and answers with one of `num_symbols` symbols.
    """

    num_symbols: eqx.AbstractVar[int]

    @abc.abstractmethod
    def symbol(self, record: PyTree, query: PyTree, index: Array) -> Array:
        """The person's true answer, an integer in [0, num_symbols)."""

    @abc.abstractmethod
    def tally(self, frequencies: Array, query: PyTree, index: Array) -> Array:
        """Puts `num_symbols` estimated frequencies where they belong in an array of `shape`; linear in them."""
