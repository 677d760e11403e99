"""The ways of statistics under local privacy: what leaves a person is already noisy, and the server only adds up."""

import abc
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractCategorical, AbstractStatistic
from privrl.privacy.noise.sources import standard_normal, uniform
from privrl.privacy.noise.subset import SubsetSelection
from privrl.privacy.trust.channels import AbstractChannel, WhiteNoise, law_of
from privrl.privacy.trust.reports import AbstractReports, SymbolReports, VectorReports, clipped_symbol


class AbstractLocalChannel(AbstractChannel):
    """Noise is added before anything leaves the person; the server only adds up.

    Memory and terms are pairs: the sum of what reports say, and how many reports each of its entries sums.
    """

    running: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def white(self) -> tuple[Literal["normal", "uniform"], tuple[int, ...]]:
        """The kind and shape of the randomness that one report takes."""

    @abc.abstractmethod
    def report(self, record: Any, question: Any, index: Int[Array, ""], white: Array) -> Array:
        """The one report of person number `index`, in floating point: for simulations."""

    @abc.abstractmethod
    def reports(self) -> AbstractReports:
        """Reports as they are sent by real devices and added up by a server, in whole numbers."""

    @abc.abstractmethod
    def decode(self, report: Array, question: Any, index: Int[Array, ""]) -> tuple[Array, Array]:
        """What the report adds to the sum, and which entries it speaks of."""

    @abc.abstractmethod
    def released(self, value: Array, reports: Array) -> Release:
        """The release that a sum of reports makes: an unbiased estimate of the sum of the people's terms."""

    def init(self) -> Any:
        return jnp.zeros(self.statistic.shape), jnp.zeros(self.statistic.shape)

    def term(self, record: Any, question: Any, index: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, Array]:
        kind, shape = self.white
        white = standard_normal(key, shape) if kind == "normal" else uniform(key, shape)
        return self.decode(self.report(record, question, index, white), question, index)

    def publish(
        self, memory: Any, total: tuple[Array, Array], t: Int[Array, ""], fresh: WhiteNoise
    ) -> tuple[Any, Release]:
        del t, fresh
        summed = jax.tree.map(jnp.add, memory, total)
        return (summed if self.running else memory), self.released(*summed)

    def empty(self) -> Release:
        return self.released(*self.init())


class SymbolChannel(AbstractLocalChannel):
    """Each person answers the public question with a random set of symbols that probably holds the true one.

    What is summed are hits, 1 for each symbol in a set: whole numbers, so sums do not depend on their order. They are
    debiased when they are released.

    **Formal guarantee.** What leaves the person is the true symbol after subset selection: epsilon-locally private,
    whatever their record. A symbol out of range would give itself away, so it is brought back into range first.
    Everything after (`decode`, sums) is post-processing.
    """

    statistic: AbstractCategorical
    response: SubsetSelection
    running: bool = eqx.field(static=True)

    @property
    def law(self) -> None:
        return None

    @property
    def white(self) -> tuple[Literal["normal", "uniform"], tuple[int, ...]]:
        return "uniform", (self.statistic.num_symbols + 1,)

    def report(self, record: Any, question: Any, index: Int[Array, ""], white: Array) -> Bool[Array, " k"]:
        return self.response.respond(clipped_symbol(self.statistic, record, question, index), white)

    def reports(self) -> SymbolReports:
        return SymbolReports(self.statistic, self.response)

    def decode(self, report: Bool[Array, " k"], question: Any, index: Int[Array, ""]) -> tuple[Array, Array]:
        hits = self.statistic.tally(report.astype(float), question, index)
        return hits, self.statistic.tally(jnp.ones(self.statistic.num_symbols), question, index)

    def released(self, value: Array, reports: Array) -> Release:
        estimate = self.response.debias(value, reports)
        return Release(estimate, self.response.noise(estimate, reports))


class VectorChannel(AbstractLocalChannel):
    """Each person sends their whole term with Gaussian noise of their own.

    **Formal guarantee.** Two records give terms at most the replace-one sensitivity apart, so with `scale` >=
    sensitivity / mu each message is mu-GDP, hence locally private, on its own.
    """

    statistic: AbstractStatistic
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]
    running: bool = eqx.field(static=True)

    @property
    def law(self) -> tuple[float, float]:
        return float(self.sensitivity), float(self.scale)

    @property
    def white(self) -> tuple[Literal["normal", "uniform"], tuple[int, ...]]:
        return "normal", self.statistic.shape

    def report(self, record: Any, question: Any, index: Int[Array, ""], white: Array) -> Array:
        del index
        law = law_of(self.statistic, "gaussian", self.scale)
        return self.statistic.contribution(record, question) + law.scaled(white)

    def reports(self) -> VectorReports:
        return VectorReports(self.statistic, float(self.sensitivity), float(self.scale))

    def decode(self, report: Array, question: Any, index: Int[Array, ""]) -> tuple[Array, Array]:
        del question, index
        return report, jnp.ones(self.statistic.shape)

    def released(self, value: Array, reports: Array) -> Release:
        return Release(value, law_of(self.statistic, "gaussian", self.scale * jnp.sqrt(reports.max())))
