"""Channels under local privacy: a report is noisy when it leaves the person, and the server only sums reports.

They exist in two arithmetics, like a curator's channels: `AbstractLocalChannel` in floating point, inside compiled
simulations; `AbstractReports` in whole numbers, which real devices send and a server sums. Sums of integers depend
neither on the order of reports nor on the process that added them. A report outside of its public range is refused: no
honest device sends one, and a single huge number would outweigh all others.
"""

import abc
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int64, PRNGKeyArray, PyTree

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.lattice import Lattice
from privrl.privacy.noise.sources import Randomness
from privrl.privacy.trust.channels import AbstractChannel, Number


class AbstractLocalChannel(AbstractChannel):
    """Noise is added before anything leaves the person; the server only sums.

    Memory and terms are pairs: the sum of the reports, and the number of reports about each of its entries.
    """

    running: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def report(self, record: PyTree, query: PyTree, index: Number, key: PRNGKeyArray) -> Array:
        """The one report of person number `index`."""

    @abc.abstractmethod
    def decode(self, report: Array, query: PyTree, index: Number) -> tuple[Array, Array]:
        """What the report adds to the sum, and which entries it is about."""

    @abc.abstractmethod
    def to_release(self, value: Array, reports: Array) -> Release:
        """Turns a sum of reports into a release: an unbiased estimate of the sum of the people's terms."""

    @abc.abstractmethod
    def reports(self) -> "AbstractReports":
        """The same channel in whole numbers."""

    def init(self) -> PyTree:
        return jnp.zeros(self.statistic.shape), jnp.zeros(self.statistic.shape)

    def term(self, record: PyTree, query: PyTree, index: Number, key: PRNGKeyArray) -> tuple[Array, Array]:
        return self.decode(self.report(record, query, index, key), query, index)

    def publish(self, memory: PyTree, total: tuple[Array, Array], t: Number, fresh: PyTree) -> tuple[PyTree, Release]:
        del t, fresh
        so_far = jax.tree.map(jnp.add, memory, total)
        return (so_far if self.running else memory), self.to_release(*so_far)

    def empty(self) -> Release:
        return self.to_release(*self.init())


class AbstractReports(AbstractChannel):
    """The reports of one statistic in whole numbers, outside compiled code; `channel` is the same in floating point."""

    channel: eqx.AbstractVar[AbstractLocalChannel]

    @property
    def statistic(self) -> AbstractStatistic:
        return self.channel.statistic

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of a report as it is sent."""

    @property
    @abc.abstractmethod
    def length(self) -> int:
        """The number of whole numbers that a report adds to the sums."""

    @property
    @abc.abstractmethod
    def largest(self) -> int:
        """The largest amount by which one report changes a number of the sums."""

    @abc.abstractmethod
    def truth(self, record: PyTree, query: PyTree, index: int) -> Int64[np.ndarray, "..."]:
        """The bounded answer of person number `index`, without noise. It never leaves the person."""

    @abc.abstractmethod
    def randomise(self, truth: Int64[np.ndarray, "..."], randomness: Randomness) -> Int64[np.ndarray, "..."]:
        """Makes the report, with exact noise from cryptographic words. Noise from the key of a simulation protects no
        one.
        """

    @abc.abstractmethod
    def checker(self) -> Callable[[np.ndarray], None]:
        """Returns a fast function that raises `ValueError` for a report that no honest device sends."""

    def check(self, report: np.ndarray) -> None:
        """Raises `ValueError` for a report that no honest device sends."""
        self.checker()(report)

    @abc.abstractmethod
    def steps_of_each(
        self, reports: Int64[np.ndarray, "B ..."], query: PyTree, indices: Int64[np.ndarray, " B"]
    ) -> Int64[np.ndarray, "B length"]:
        """What each of several checked reports on one query adds to the sums."""

    def to_steps(self, report: Int64[np.ndarray, "..."], query: PyTree, index: int) -> Int64[np.ndarray, " length"]:
        """What one checked report adds to the sums."""
        return self.steps_of_each(report[None], query, np.array([index], np.int64))[0]

    @abc.abstractmethod
    def totals(self, steps: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        """The sum of the reports, and the number of reports about each entry, as `to_release` needs them."""

    def init(self) -> Int64[np.ndarray, " length"]:
        return np.zeros(self.length, np.int64)

    def term(self, record: PyTree, query: PyTree, index: PyTree, key: Randomness) -> Int64[np.ndarray, " length"]:
        return self.to_steps(self.randomise(self.truth(record, query, index), key), query, index)

    def publish(
        self, memory: PyTree, total: Int64[np.ndarray, " length"], t: PyTree, fresh: PyTree
    ) -> tuple[Int64[np.ndarray, " length"], Release]:
        del t, fresh
        so_far = memory + total
        return (so_far if self.channel.running else memory), _to_release(self.channel, *self.totals(so_far))

    def empty(self) -> Release:
        return self.channel.empty()


class AbstractWholeTerms(AbstractReports):
    """Reports of whole terms, in steps of a public lattice. Sums add up the reports, and count them."""

    lattice: eqx.AbstractVar[Lattice]

    @property
    def length(self) -> int:
        return math.prod(self.shape) + 1

    def truth(self, record: PyTree, query: PyTree, index: int) -> Int64[np.ndarray, "..."]:
        del index
        return self.lattice.round_record(self.statistic, record, query)

    def steps_of_each(
        self, reports: Int64[np.ndarray, "B ..."], query: PyTree, indices: Int64[np.ndarray, " B"]
    ) -> Int64[np.ndarray, "B length"]:
        del query
        return np.concatenate([reports.reshape(len(reports), -1), np.ones_like(indices)[:, None]], axis=1)


@eqx.filter_jit
def _to_release(channel: AbstractLocalChannel, value: Array, reports: Array) -> Release:
    return channel.to_release(value, reports)
