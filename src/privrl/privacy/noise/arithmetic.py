"""The two arithmetics of a release with one interface: floating point for simulations, whole numbers for people.

A release is a sum of contributions (`sum_records`) with noise (`add_noise`), read as numbers (`release`). The caller
does not need to know the arithmetic: the arithmetic itself chooses how to sum, among the forms in which the records are
available (`AbstractSummands`). `Floating` is here; `Lattice` is in `lattice.py`.
"""

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.maximum import MaximumNoise
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import Randomness, white_noise

Sum = TypeVar("Sum", Array, np.ndarray)
"""How an arithmetic represents sums."""


class RecordBatch(NamedTuple):
    """Records with a leading axis, and which of them take part. The others are empty records that fill the batch up."""

    records: PyTree
    taking_part: Bool[Array, " B"]


class RepeatedBlocks(NamedTuple):
    """Blocks of one record each (see `AbstractStatistic.parts`), with the number of records that contribute each."""

    slots: Int[Array, " N"]
    blocks: Float[Array, "N *block"]
    counts: Int[Array, " N"]


class AbstractSummands(abc.ABC):
    """The records of one sum, in the forms in which an arithmetic can add them up. All forms have the same sum.

    Batches are always available. The other forms are shortcuts, and `None` if the statistic's hints do not allow them,
    or if only some of the records take part.
    """

    @property
    @abc.abstractmethod
    def contribution_shape(self) -> tuple[int, ...]:
        """The shape of one record's contribution."""

    @property
    @abc.abstractmethod
    def record_entries(self) -> int:
        """The largest number of entries that one record has in its blocks."""

    @abc.abstractmethod
    def empty_contributes(self) -> bool:
        """Whether an empty record contributes something; computed from public sizes, without any record."""

    @abc.abstractmethod
    def batches(self) -> Iterator[RecordBatch]:
        """All records, in batches of bounded size."""

    @abc.abstractmethod
    def rounded_sum(self) -> Float[Array, "..."] | None:
        """The sum in floating point from compressed records, whose order, and so whose rounding, is another."""

    @abc.abstractmethod
    def repeated_blocks(self) -> "tuple[int, Iterator[RepeatedBlocks]] | None":
        """Records of one block each, of which many may be equal, with the number of entries that decides their last
        bits (see `clip_by_norm`)."""


class AbstractArithmetic(abc.ABC, Generic[Sum]):
    """How one release is computed: what its sums consist of, and where its noise comes from."""

    exact: ClassVar[bool]
    """Whether sums are whole numbers, which are the same in any order."""

    sensitivity: float
    """How far one person can move the sum, the arithmetic's own rounding included."""

    @property
    @abc.abstractmethod
    def scale(self) -> float:
        """The scale of the noise."""

    @abc.abstractmethod
    def zeros(self, statistic: AbstractStatistic) -> Sum:
        """The sum over no records."""

    @abc.abstractmethod
    def total(
        self, statistic: AbstractStatistic, records: PyTree, query: PyTree, taking_part: Bool[Array, " B"]
    ) -> Sum:
        """The sum of the contributions of the records of a batch that take part; the others are empty records."""

    def add_batch(
        self,
        total: Sum,
        statistic: AbstractStatistic,
        records: PyTree,
        query: PyTree,
        taking_part: Bool[Array, " B"],
        entries: int,
    ) -> Sum:
        """Adds a batch to a sum. The sum that was passed must not be used again. `entries` is the largest number of
        entries that one record has in its blocks."""
        del entries
        return total + self.total(statistic, records, query, taking_part)

    def check(self, statistic: AbstractStatistic, summands: AbstractSummands) -> None:
        """Refuses a statistic that cannot be summed, before any record is read."""
        check_shape(statistic, summands.contribution_shape)

    @abc.abstractmethod
    def sum_records(self, statistic: AbstractStatistic, summands: AbstractSummands, onto: Sum | None = None) -> Sum:
        """The sum over all records, in the form that suits this arithmetic best.

        Arguments:
            onto: the sum over other records, to which this one is added. It must not be used again.
        """

    def sum_batches(self, statistic: AbstractStatistic, summands: AbstractSummands, onto: Sum | None = None) -> Sum:
        """The same sum, batch by batch."""
        total, records = self.zeros(statistic) if onto is None else onto, 0
        entries = summands.record_entries if self.exact else 0  # only whole numbers depend on it
        for batch, taking_part in summands.batches():  # if one of them raises, the sum so far is never used
            total = self.add_batch(total, statistic, batch, None, taking_part, entries)
            records += len(taking_part)
        self.check_room(records)
        return total

    @abc.abstractmethod
    def represent(self, name: str, value: Float[Array, "..."], bound: float) -> Sum:
        """Represents a vector that is not a sum, with entries within `bound`. `name` is for errors."""

    @abc.abstractmethod
    def check_room(self, records: int) -> None:
        """Refuses sums over `records` records if they could not be represented."""

    @abc.abstractmethod
    def add_noise(self, distribution: AbstractNoise, total: Sum, randomness: Randomness) -> Sum:
        """Adds new noise of the distribution, whose scale is `scale`, to a sum."""

    @abc.abstractmethod
    def release(self, distribution: AbstractNoise, noisy: Sum) -> Release:
        """The release that a learner sees, from a noisy sum or one that needs no noise."""


@dataclass(frozen=True)
class Floating(AbstractArithmetic[Array]):
    """Floating-point sums with seeded noise, for simulations; and without noise if no privacy is claimed.

    Which floats are possible results depends on the sum, so this noise protects no one at any scale.
    """

    exact: ClassVar[bool] = False
    sensitivity: float
    parameter: float

    @property
    def scale(self) -> float:
        return self.sensitivity / self.parameter

    def zeros(self, statistic: AbstractStatistic) -> Float[Array, "..."]:
        return jnp.zeros(statistic.raw_shape)

    def total(
        self, statistic: AbstractStatistic, records: PyTree, query: PyTree, taking_part: Bool[Array, " B"]
    ) -> Float[Array, "..."]:
        del taking_part  # the others are empty records, which contribute zero
        total = _sum_batch(statistic, records, query)
        check_shape(statistic, total.shape)
        return total

    def check(self, statistic: AbstractStatistic, summands: AbstractSummands) -> None:
        # The shape is compared after the sum: to know it before, the contribution would be traced twice more.
        if summands.empty_contributes():
            raise ValueError(empty_contributes(statistic))

    def sum_records(
        self, statistic: AbstractStatistic, summands: AbstractSummands, onto: Float[Array, "..."] | None = None
    ) -> Float[Array, "..."]:
        total = summands.rounded_sum()
        if total is None:
            return self.sum_batches(statistic, summands, onto)
        check_shape(statistic, total.shape)
        return total if onto is None else onto + total

    def represent(self, name: str, value: Float[Array, "..."], bound: float) -> Float[Array, "..."]:
        del name, bound
        return value

    def check_room(self, records: int) -> None:
        del records  # floats round, and never leave their range in sums of bounded terms

    def add_noise(
        self, distribution: AbstractNoise, total: Float[Array, "..."], randomness: Randomness
    ) -> Float[Array, "..."]:
        assert not isinstance(randomness, Words)  # exact randomness is for exact arithmetic
        return total + distribution.from_white(white_noise(distribution.white, randomness, distribution.shape))

    def release(self, distribution: AbstractNoise, noisy: Float[Array, "..."]) -> Release:
        return Release(
            jnp.argmax(noisy)[None] if isinstance(distribution, MaximumNoise) else jnp.asarray(noisy), distribution
        )


@eqx.filter_jit
def _sum_batch(statistic: AbstractStatistic, records: PyTree, query: PyTree) -> Float[Array, "..."]:
    return statistic.total(records, query)


def empty_contributes(statistic: AbstractStatistic) -> str:
    """The error about a statistic that cannot be summed in batches, which are filled up with empty records."""
    return (
        f"`{type(statistic).__name__}` contributes something for an empty record (`length` 0), which must contribute "
        "zero. Nothing was released."
    )


def check_shape(statistic: AbstractStatistic, shape: tuple[int, ...]) -> None:
    """Refuses a statistic whose contributions do not have the shape for which it states a sensitivity."""
    if shape != statistic.raw_shape:
        raise ValueError(
            f"`{type(statistic).__name__}` contributes arrays of shape {shape}, but states its "
            f"sensitivity for {statistic.raw_shape}. Nothing was released."
        )
