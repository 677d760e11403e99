"""One person's bounded contribution to a sum: what a learner may ask about people."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Adjacency = Literal["replace-one", "add-remove"]


def _few(steps: int) -> int:
    del steps
    return 0


@dataclass(frozen=True)
class SumHints:
    """Faster ways to the sum of a statistic. The default allows none of them: the sum is right, and takes longest.

    No sensitivity rests on a hint. A false hint makes a wrong sum, so every hint of every statistic is tested against
    the sum without hints.

    Arguments:
        any_width: a record may be padded to fewer steps than the horizon. It contributes the same, up to the rounding
            of sums, as long as it has all its own steps. Otherwise it is padded to the horizon. Either way the width
            depends on the record alone, and so does every bit of what it contributes.
        working_entries: the number of entries of the largest array that is made for one record of so many steps; 0
            means a few for each step. Records are summed in smaller batches if it is large.
        plain: a record's contribution is the sum over all transitions of its episode, of which nothing is dropped,
            weighed or clipped. The sum over people may then be taken from the distinct transitions of all of them.
        row_by_row: distinct transitions can be put on a lattice one by one, each times its count. That requires that a
            record has one transition that counts and that rewards, which differ from person to person, play no part;
            or that all entries are whole numbers.
        ignores_next_state: transitions that differ in the next state alone contribute the same.
    """

    any_width: bool = False
    working_entries: Callable[[int], int] = _few
    plain: bool = False
    row_by_row: bool = False
    ignores_next_state: bool = False


class AbstractStatistic(eqx.Module):
    """One person's contribution to a sum, bounded whatever their record says.

    **Formal guarantee that every statistic owes.** For all records x, x' and every question q,
    `answer(contribution(x, q'), q) - answer(contribution(x', q'), q)` has L2 norm (Frobenius norm where `symmetric`)
    at most `l2("replace-one")` and L1 norm at most `l1("replace-one")`; and `answer(contribution(x, q'), q)` alone has
    norms at most `l2("add-remove")` and `l1("add-remove")`. No assumption is made about x: records that break a
    bound are clipped or contribute zero. Where `symmetric`, `shape` is square, a contribution is one block, and what is
    released is the upper triangle of (x + x^T)/2 (see `symmetric.py`).
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    symmetric: eqx.AbstractVar[bool]
    per_person: ClassVar[bool] = False
    """A record is one episode, or else all kept episodes of one person: an episode with a leading axis of the public
    largest number, filled up with empty ones. The guarantee is then about persons, however many episodes they have."""

    @property
    def nonnegative(self) -> bool:
        """Whether the answers of any two contributions, whatever was published to either, have inner product at least
        0: entries that are never negative, positive semidefinite matrices. Two people who come several times are then
        closer together (`privacy/trust/repeated.py`)."""
        return False

    @property
    def distinct(self) -> bool:
        """Whether no record, whatever it says, has two blocks in one place that are not zero (see `parts`): its norm is
        then that of its blocks, and they need not be added up first."""
        return False

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of one contribution; differs from the released `shape` only where `answer` changes it."""
        return self.shape

    @property
    def units_shape(self) -> tuple[int, ...]:
        """The shape of one contribution in whole numbers: of a symmetric matrix only the upper triangle exists."""
        d = self.shape[0] if self.symmetric else 0
        return (d * (d + 1) // 2,) if self.symmetric else self.raw_shape

    @property
    def hints(self) -> SumHints:
        """Faster ways to the same sum; none by default."""
        return SumHints()

    @abc.abstractmethod
    def contribution(self, record: Any, question: Any) -> Array:
        """One person's term of the sum; `question` is the public pytree that was published when they took part."""

    def parts(self, record: Any, question: Any) -> tuple[Int[Array, " P"], Float[Array, "P *block"]]:
        """The same term in blocks: for each its place in the array, cut into blocks of that shape, and its entries.

        Sums over very large arrays that one person hardly touches add blocks only. Blocks of one place add up.
        """
        return jnp.zeros(1, int), self.contribution(record, question)[None]

    @abc.abstractmethod
    def l2(self, adjacency: Adjacency) -> float:
        """The L2 (Frobenius) sensitivity of the released answer."""

    @abc.abstractmethod
    def l1(self, adjacency: Adjacency) -> float:
        """The L1 sensitivity of the released answer, for Laplace noise."""

    def total(self, records: Any, question: Any) -> Array:
        """The sum of the contributions of a batch of people (a leading axis on every array of `records`)."""
        return jax.vmap(self.contribution, in_axes=(0, None))(records, question).sum(axis=0)

    def answer(self, total: Array, question: Any) -> Array:
        """A linear function of the sum, chosen by a question asked after these people left (`access="rounds"`)."""
        del question
        return total


class AbstractScores(AbstractStatistic):
    """One number for each of several candidates, of which only the number of the largest sum is released.

    **Formal guarantee that it owes besides.** For all records x, x' and d = contribution(x) - contribution(x'), the
    spread max d - min d is at most `spread("replace-one")`; that of contribution(x) is at most `spread("add-remove")`.
    """

    @abc.abstractmethod
    def spread(self, adjacency: Adjacency) -> float:
        """How far one person can move the sums of two candidates apart."""


class AbstractCategorical(AbstractStatistic):
    """A statistic that can also be asked one symbol at a time, for local privacy.

    Person number `index` (public) looks at the public question and answers with one of `num_symbols` symbols.
    """

    num_symbols: eqx.AbstractVar[int]

    @abc.abstractmethod
    def symbol(self, record: Any, question: Any, index: Array) -> Array:
        """The person's true answer, an integer in [0, num_symbols)."""

    @abc.abstractmethod
    def tally(self, frequencies: Array, question: Any, index: Array) -> Array:
        """Puts `num_symbols` estimated frequencies where they belong in an array of `shape`; linear in them."""
