"""The interface of a data set at rest, as its curator needs it."""

import abc

import numpy as np
from jaxtyping import Array, Bool, Float, Float64

from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.arithmetic import AbstractArithmetic
from privrl.privacy.noise.poisson_sample import PoissonSample


class AbstractPeople(abc.ABC):
    """A data set at rest, as the curator needs it."""

    @property
    @abc.abstractmethod
    def num_units(self) -> int:
        """The number of people."""

    @property
    @abc.abstractmethod
    def records_per_unit(self) -> int:
        """The public largest number of records of one person that are summed."""

    @abc.abstractmethod
    def total(
        self, statistic: AbstractStatistic, included: PoissonSample | None, arithmetic: AbstractArithmetic
    ) -> Array | np.ndarray:
        """The sum of the statistic over all kept records, or over those that `included` draws by their number."""

    @property
    def function(self) -> Float[Array, "*m n"]:
        """The values of the secret function at its mesh points, if the secret is a function and not people's
        records.
        """
        raise ValueError("This data set holds people's records, not a secret function. Nothing was released.")

    @abc.abstractmethod
    def filled(self, statistic: AbstractStatistic) -> int:
        """The largest number of entries of the sum that two records can fill."""

    @abc.abstractmethod
    def part(self, chosen: Bool[np.ndarray, " U"]) -> "AbstractPeople":
        """Only the chosen people, with all their records. People are numbered as on every pass."""

    @abc.abstractmethod
    def unit_draws(self, key: bytes, purpose: str) -> Float64[np.ndarray, " U"]:
        """A number in [0, 1) for each person: a pseudorandom function, under the key, of the purpose and their id."""

    def groups(self, key: bytes, purpose: str, edges: Float64[np.ndarray, " G"]) -> "list[AbstractPeople]":
        """Splits all people into groups: group i has the people whose draw lies between edges i - 1 and i."""
        drawn = np.searchsorted(edges, self.unit_draws(key, purpose), side="right")
        return [self.part(drawn == i) for i in range(len(edges) + 1)]
