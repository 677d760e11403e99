"""What a learner may ask about people, and all that it ever sees of them.

A **statistic** is one person's bounded contribution to a sum. A **declaration** says, before the first person is
touched, how often that sum will be released. A **release** is the noisy sum with the law of its noise.
"""

import abc
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from privrl.privacy._noise import AbstractNoise
from privrl.privacy._symmetric import packed_size

Adjacency = Literal["replace-one", "add-remove"]
Access = Literal["rounds", "running", "blocks"]


class AbstractStatistic(eqx.Module):
    """One person's contribution to a sum, bounded whatever their record says.

    **Formal guarantee that every statistic owes.** For all records x, x' and every question q,
    `answer(contribution(x, q'), q) - answer(contribution(x', q'), q)` has L2 norm (Frobenius norm where `symmetric`)
    at most `l2("replace-one")` and L1 norm at most `l1("replace-one")`; and `answer(contribution(x, q'), q)` alone has
    norms at most `l2("add-remove")` and `l1("add-remove")`. No assumption is made about x: records that break a
    bound are clipped or contribute zero. Where `symmetric`, `shape` is square, a contribution is one block, and what is
    released is the upper triangle of (x + x^T)/2 (see `_symmetric.py`).
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    symmetric: eqx.AbstractVar[bool]

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """The shape of one contribution; differs from the released `shape` only where `answer` changes it."""
        return self.shape

    @property
    def units_shape(self) -> tuple[int, ...]:
        """The shape of one contribution in whole numbers: of a symmetric matrix only the upper triangle exists."""
        return (packed_size(self.shape[0]),) if self.symmetric else self.raw_shape

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


@dataclass(frozen=True)
class Declared:
    """A learner's request, made before the first person is touched.

    Arguments:
        name: what the release is called in the ledger and the certificate.
        statistic: the statistic; `None` where an earlier release decides it (then it comes with the question).
        access: `"rounds"`: each release answers a new question about everybody so far (so the curator must keep raw
            data and pay each time); `"running"`: running sums of terms that are fixed when a person leaves;
            `"blocks"`: sums over disjoint blocks of people, each person in one block.
        times: the largest number of releases under this name.
        weight: share of the budget, relative to the other declarations (all `times` releases together).
        group: declarations of different groups touch disjoint people, split without looking at their data.
        sampling: each release sees each person with this probability, independently (Poisson sampling).
    """

    name: str
    statistic: AbstractStatistic | None = None
    access: Access = "rounds"
    times: int = 1
    weight: float = 1.0
    group: str | None = None
    sampling: float = 1.0

    @property
    def touches(self) -> int:
        """How many releases one person's record goes into (a continual mechanism counts as one)."""
        return self.times if self.access == "rounds" else 1

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"`times` of release `{self.name}` is {self.times}; declare at least one release.")
        if not self.weight > 0:
            raise ValueError(f"`weight` of release `{self.name}` is {self.weight}; a share must be positive.")
        if not 0 < self.sampling <= 1:
            raise ValueError(f"`sampling` of release `{self.name}` is {self.sampling}; it must lie in (0, 1].")
        if self.access != "rounds" and self.statistic is None:
            raise ValueError(f"Release `{self.name}` is streamed, so its `statistic` must be declared with it.")


class Release(eqx.Module):
    """A noisy value and the law of the noise in it: all that a learner ever sees of people."""

    value: Array
    noise: AbstractNoise
