"""How large people's vectors are: the histogram from which a clip level is read.

A clip level at the largest norm that a record could have is far above what people's norms are, and noise grows with it.
A histogram of the norms costs little: each record is in one bin.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from privrl.contracts.statistic import AbstractStatistic, Adjacency, SumHints
from privrl.mdp.types import Trajectory
from privrl.statistics.person_sums import AbstractPersonSum
from privrl.statistics.setting_checks import check_positive, check_sizes
from privrl.statistics.stay_sums import AbstractStaySum


class AbstractNorms(AbstractStatistic):
    """In which of `num_bins` bins, even in the logarithm, the norm of a record's vector lies; nothing if that is 0.

    Arguments:
        of: whose vector.
        smallest, largest: the upper edges of the first bin and of the last one, which has all that is above.
        num_bins: how many.

    **Formal guarantee** (for all records). One record fills at most one bin with a 1: two differ by at most sqrt(2) in
    L2 and 2 in L1, one has norm at most 1.
    """

    smallest: eqx.AbstractVar[float]
    largest: eqx.AbstractVar[float]
    num_bins: eqx.AbstractVar[int]
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def __check_init__(self) -> None:
        check_positive(smallest=self.smallest, largest=self.largest)
        check_sizes(num_bins=self.num_bins)
        if not self.smallest < self.largest:
            raise ValueError(f"`smallest` is {self.smallest} and `largest` is {self.largest}; the first must be below.")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.num_bins,)

    @property
    def edges(self) -> Float[np.ndarray, " bins"]:
        """The upper edges of the bins: the clip levels that there are."""
        return np.geomspace(self.smallest, self.largest, self.num_bins)

    @abc.abstractmethod
    def norm(self, record: Trajectory) -> Float[Array, ""]:
        """The norm of a record's vector, before it is scaled."""

    def contribution(self, record: Trajectory, query: object) -> Float[Array, " bins"]:
        del query
        norm = self.norm(record)
        at = (self.edges[:-1] < norm * (1.0 - 1e-12)).sum()  # a norm that is an edge is not above it
        return ((np.arange(self.num_bins) == at) & (norm > 0)).astype(float)

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True)

    def l2(self, adjacency: Adjacency) -> float:
        return math.sqrt(2.0) if adjacency == "replace-one" else 1.0

    def l1(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency == "replace-one" else 1.0


class Norms(AbstractNorms):
    """Of the vectors of stays; see `AbstractNorms`."""

    of: AbstractStaySum
    smallest: float = eqx.field(static=True)
    largest: float = eqx.field(static=True)
    num_bins: int = eqx.field(static=True, default=40)

    def norm(self, record: Trajectory) -> Float[Array, ""]:
        return self.of.norm(record)


class PersonNorms(AbstractNorms):
    """Of the vectors of people with all their stays; see `AbstractNorms`."""

    of: AbstractPersonSum
    smallest: float = eqx.field(static=True)
    largest: float = eqx.field(static=True)
    num_bins: int = eqx.field(static=True, default=40)
    per_person: ClassVar[bool] = True

    @property
    def hints(self) -> SumHints:
        return SumHints(any_width=True, working_entries=self.of.hints.working_entries)

    def norm(self, record: Trajectory) -> Float[Array, ""]:
        return self.of.norm(record)
