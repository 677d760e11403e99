"""A local report as it travels: whole numbers in a public range, drawn exactly, checked before they are counted.

A server adds up what reports say in 64-bit integers, so that sums depend neither on the order of reports nor on who
counted them. A report out of range is refused: no honest device sends one, and a single huge number would drown all
others.
"""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int64

from privrl.contracts.statistic import AbstractCategorical, AbstractStatistic
from privrl.privacy.noise.discrete import select
from privrl.privacy.noise.lattice import Lattice, lattice_for, lattice_total
from privrl.privacy.noise.subset import SubsetSelection
from privrl.privacy.noise.symmetric import packed
from privrl.privacy.noise.words import Words
from privrl.privacy.trust.channels import law_of, sensitivity_of

_SCALES = 40  # Gaussian noise stays within so many scales but for a probability of exp(-800)


class AbstractReports(abc.ABC):
    """The reports of one statistic, outside compiled code."""

    shape: tuple[int, ...]
    """The shape of a report as it is sent."""
    length: int
    """How many whole numbers a report adds to the sums."""
    largest: int
    """No report changes a number of the sums by more than this."""
    law: tuple[float, float] | None
    """The sensitivity and the scale of the noise in `randomised`, `None` for answers by randomised response."""

    @abc.abstractmethod
    def truth(self, record: Any, question: Any, index: int) -> Int64[np.ndarray, "..."]:
        """What person number `index` would say, bounded, without noise. It never leaves the person."""

    @abc.abstractmethod
    def randomised(self, truth: Int64[np.ndarray, "..."], words: Words) -> Int64[np.ndarray, "..."]:
        """The report of a real person, with exact noise from cryptographic words."""

    @abc.abstractmethod
    def of_simulation(self, report: Array) -> Int64[np.ndarray, "..."]:
        """A report that a channel made in floating point, as it is sent."""

    @abc.abstractmethod
    def check(self, report: np.ndarray) -> None:
        """Refuses, with `ValueError`, what no honest device sends."""

    @abc.abstractmethod
    def units(self, report: Int64[np.ndarray, "..."], question: Any, index: int) -> Int64[np.ndarray, " length"]:
        """What a checked report adds to the sums."""

    @abc.abstractmethod
    def totals(self, units: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        """The sums as a channel publishes them: of what reports say, and how many of them speak of each entry."""


class SymbolReports(AbstractReports):
    """Sets of symbols, sorted. Added up are hits, and how often each entry was queried."""

    def __init__(self, statistic: AbstractCategorical, response: SubsetSelection) -> None:
        self._statistic = statistic
        self._symbols, self._size, self._epsilon = statistic.num_symbols, int(response.size), float(response.epsilon)
        self.shape = (self._size,)
        self.length = 2 * math.prod(statistic.shape)
        self.largest = self._symbols
        self.law = None

    def truth(self, record: Any, question: Any, index: int) -> Int64[np.ndarray, ""]:
        return np.asarray(_compiled_symbol(self._statistic, record, question, jnp.asarray(index)), np.int64)

    def randomised(self, truth: Int64[np.ndarray, ""], words: Words) -> Int64[np.ndarray, " size"]:
        return select(words, int(truth), self._symbols, self._size, self._epsilon)

    def of_simulation(self, report: Bool[Array, " k"]) -> Int64[np.ndarray, " size"]:
        return np.flatnonzero(np.asarray(report)).astype(np.int64)

    def check(self, report: np.ndarray) -> None:
        if (
            report.shape != self.shape
            or report.dtype != np.int64
            or not ((report >= 0) & (report < self._symbols)).all()
            or not (report[1:] > report[:-1]).all()
        ):
            raise ValueError(f"A report is {self._size} symbols, different integers in [0, {self._symbols}), sorted.")

    def units(self, report: Int64[np.ndarray, " size"], question: Any, index: int) -> Int64[np.ndarray, " length"]:
        held = np.zeros(self._symbols)
        held[report] = 1.0
        return np.asarray(_tallied(self._statistic, held, question, np.asarray(index)))

    def totals(self, units: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        hits, asked = units.astype(np.float64).reshape(2, *self._statistic.shape)
        return jnp.asarray(hits), jnp.asarray(asked)


class VectorReports(AbstractReports):
    """Whole terms with Gaussian noise, in units of a public lattice; of a symmetric matrix the upper triangle.

    **Formal guarantee.** The lattice is that of `lattice_for` for records that fill every entry, so a report costs at
    most the parameter sensitivity / scale (mu of Gaussian noise). It is brought into the range before it is sent,
    which is post-processing.
    """

    def __init__(self, statistic: AbstractStatistic, sensitivity: float, scale: float) -> None:
        self._statistic = statistic
        norm, filled = sensitivity_of(statistic, "gaussian", "add-remove"), math.prod(statistic.raw_shape)
        parameter = math.inf if scale == 0 else sensitivity / scale
        # Without noise (infinite epsilon) any fine lattice will do; that of parameter 1 is used, and no noise drawn.
        finite = 1.0 if parameter == math.inf else parameter
        lattice = lattice_for(parameter=finite, sensitivity=sensitivity, norm=norm, filled=filled, kind="l2")
        self._lattice = Lattice(lattice.granularity, norm, lattice.sensitivity, 0, "l2") if scale == 0 else lattice
        self._law = law_of(statistic, "gaussian", self._lattice.scale)
        self.shape = statistic.units_shape
        self.length = math.prod(self.shape) + 1
        self.largest = math.isqrt(lattice.limit) + _SCALES * self._lattice.noise
        self.law = self._lattice.sensitivity, self._lattice.scale

    def truth(self, record: Any, question: Any, index: int) -> Int64[np.ndarray, "..."]:
        del index
        one = jax.tree.map(lambda x: jnp.asarray(x)[None], record)
        return lattice_total(self._statistic, one, question, jnp.ones(1, bool), self._lattice)

    def randomised(self, truth: Int64[np.ndarray, "..."], words: Words) -> Int64[np.ndarray, "..."]:
        noisy = self._lattice.noisy(self._law, truth, words) if self._lattice.noise else truth
        return np.clip(noisy, -self.largest, self.largest)

    def of_simulation(self, report: Array) -> Int64[np.ndarray, "..."]:
        entries = packed(report) if self._statistic.symmetric else report
        units = np.rint(np.asarray(entries) / self._lattice.granularity)
        return np.clip(units, -float(self.largest), float(self.largest)).astype(np.int64)

    def check(self, report: np.ndarray) -> None:
        if report.shape != self.shape or report.dtype != np.int64 or not self._within(report):
            raise ValueError(
                f"A report is an array of shape {self.shape} of integers from {-self.largest} to {self.largest}."
            )

    def _within(self, report: Int64[np.ndarray, "..."]) -> bool:
        return bool(((report >= -self.largest) & (report <= self.largest)).all())

    def units(self, report: Int64[np.ndarray, "..."], question: Any, index: int) -> Int64[np.ndarray, " length"]:
        del question, index
        return np.append(report.reshape(-1), 1)

    def totals(self, units: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        value = self._lattice.value(self._law, units[:-1].reshape(self.shape))
        return value, jnp.full(self._statistic.shape, float(units[-1]))


def clipped_symbol(statistic: AbstractCategorical, record: Any, question: Any, index: Int[Array, ""]) -> Int[Array, ""]:
    """A person's true symbol; one out of range would give itself away, so it is brought back into range."""
    return jnp.clip(statistic.symbol(record, question, index), 0, statistic.num_symbols - 1)


_compiled_symbol = eqx.filter_jit(clipped_symbol)


@eqx.filter_jit
def _tallied(
    statistic: AbstractCategorical, held: Float[np.ndarray, " k"], question: Any, index: Int[np.ndarray, ""]
) -> Int64[Array, " length"]:
    number = jnp.asarray(index)
    hits, asked = (statistic.tally(x, question, number) for x in (jnp.asarray(held), jnp.ones(statistic.num_symbols)))
    return jnp.concatenate([hits.reshape(-1), asked.reshape(-1)]).astype(jnp.int64)
