"""The ways of statistics under local privacy: what leaves a person is already noisy, and the server only adds up.

Like a curator's channels they exist in two arithmetics: `AbstractLocalChannel` in floating point, inside compiled
simulations; `AbstractReports` in whole numbers, as real devices send and a server adds up. Sums of integers depend
neither on the order of reports nor on who counted them. A report out of its public range is refused: no honest device
sends one, and a single huge number would drown all others.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int64, PRNGKeyArray

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.sources import Randomness
from privrl.privacy.trust.channels import AbstractChannel, Number


class AbstractLocalChannel(AbstractChannel):
    """Noise is added before anything leaves the person; the server only adds up.

    Memory and terms are pairs: the sum of what reports say, and how many reports each of its entries sums.
    """

    running: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def report(self, record: Any, query: Any, index: Number, key: PRNGKeyArray) -> Array:
        """The one report of person number `index`."""

    @abc.abstractmethod
    def decode(self, report: Array, query: Any, index: Number) -> tuple[Array, Array]:
        """What the report adds to the sum, and which entries it speaks of."""

    @abc.abstractmethod
    def released(self, value: Array, reports: Array) -> Release:
        """The release that a sum of reports makes: an unbiased estimate of the sum of the people's terms."""

    @abc.abstractmethod
    def reports(self) -> "AbstractReports":
        """The same channel in whole numbers."""

    def init(self) -> Any:
        return jnp.zeros(self.statistic.shape), jnp.zeros(self.statistic.shape)

    def term(self, record: Any, query: Any, index: Number, key: PRNGKeyArray) -> tuple[Array, Array]:
        return self.decode(self.report(record, query, index, key), query, index)

    def publish(self, memory: Any, total: tuple[Array, Array], t: Number, fresh: Any) -> tuple[Any, Release]:
        del t, fresh
        summed = jax.tree.map(jnp.add, memory, total)
        return (summed if self.running else memory), self.released(*summed)

    def empty(self) -> Release:
        return self.released(*self.init())


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
        """How many whole numbers a report adds to the sums."""

    @property
    @abc.abstractmethod
    def largest(self) -> int:
        """No report changes a number of the sums by more than this."""

    @abc.abstractmethod
    def truth(self, record: Any, query: Any, index: int) -> Int64[np.ndarray, "..."]:
        """What person number `index` would say, bounded, without noise. It never leaves the person."""

    @abc.abstractmethod
    def randomised(self, truth: Int64[np.ndarray, "..."], randomness: Randomness) -> Int64[np.ndarray, "..."]:
        """The report, with exact noise from cryptographic words; from the key of a simulation it protects no one."""

    @abc.abstractmethod
    def checker(self) -> Callable[[np.ndarray], None]:
        """What refuses, with `ValueError`, a report that no honest device sends; quick, for many reports."""

    def check(self, report: np.ndarray) -> None:
        """Refuses one."""
        self.checker()(report)

    @abc.abstractmethod
    def steps_of_each(
        self, reports: Int64[np.ndarray, "B ..."], query: Any, indices: Int64[np.ndarray, " B"]
    ) -> Int64[np.ndarray, "B length"]:
        """What each of several checked reports to one query adds to the sums."""

    def to_steps(self, report: Int64[np.ndarray, "..."], query: Any, index: int) -> Int64[np.ndarray, " length"]:
        """The same of one report."""
        return self.steps_of_each(report[None], query, np.array([index], np.int64))[0]

    @abc.abstractmethod
    def totals(self, units: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        """The sums as a release reads them: of what reports say, and how many of them speak of each entry."""

    def init(self) -> Int64[np.ndarray, " length"]:
        return np.zeros(self.length, np.int64)

    def term(self, record: Any, query: Any, index: Any, key: Randomness) -> Int64[np.ndarray, " length"]:
        return self.to_steps(self.randomised(self.truth(record, query, index), key), query, index)

    def publish(
        self, memory: Any, total: Int64[np.ndarray, " length"], t: Any, fresh: Any
    ) -> tuple[Int64[np.ndarray, " length"], Release]:
        del t, fresh
        summed = memory + total
        return (summed if self.channel.running else memory), _released(self.channel, *self.totals(summed))

    def empty(self) -> Release:
        return self.channel.empty()


@eqx.filter_jit
def _released(channel: AbstractLocalChannel, value: Array, reports: Array) -> Release:
    return channel.released(value, reports)
