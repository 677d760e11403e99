"""The way of one statistic from people to the learner, step by public step; usable inside compiled loops.

A channel says what leaves one person (`term`), how the terms of a block of people become a release (`publish`), and how
to start. The exact term goes to a trusted curator who adds noise, or the term is already noisy
when it leaves the person. White noise comes from the caller through `fresh(i)`, which must be new for
every step and every i, so noise is drawn once and a channel never holds a key.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from privrl.privacy._continual import AbstractContinual
from privrl.privacy._discrete import select
from privrl.privacy._lattice import Lattice, filled_by, lattice_for, lattice_total
from privrl.privacy._mechanisms import add_noise
from privrl.privacy._noise import AbstractNoise, GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.privacy._release import AbstractCategorical, AbstractStatistic, Release
from privrl.privacy._sources import standard_normal, uniform
from privrl.privacy._stream import Stream
from privrl.privacy._subset import SubsetSelection

Fresh = Callable[[int], Array]
Mechanism = Literal["gaussian", "laplace"]


def law_of(statistic: AbstractStatistic, mechanism: Mechanism, scale: Float[Array, ""] | float) -> AbstractNoise:
    """The noise law that fits a statistic: symmetric for symmetric matrices, otherwise entry by entry."""
    if mechanism == "laplace":
        return LaplaceNoise(jnp.asarray(scale), statistic.shape)
    if statistic.symmetric:
        if len(statistic.shape) != 2 or statistic.shape[0] != statistic.shape[1]:
            raise ValueError(f"`symmetric` needs a square `shape`; `{type(statistic).__name__}` has {statistic.shape}.")
        return SymmetricNoise(jnp.asarray(scale), statistic.shape[0])
    return GaussianNoise(jnp.asarray(scale), statistic.shape)


def sensitivity_of(statistic: AbstractStatistic, mechanism: Mechanism, adjacency: Any) -> float:
    """The sensitivity in the norm that the mechanism needs; refused unless it is a positive number."""
    norm = "l1" if mechanism == "laplace" else "l2"
    sensitivity = statistic.l1(adjacency) if norm == "l1" else statistic.l2(adjacency)
    if not 0.0 < sensitivity < math.inf:
        raise ValueError(
            f"`{type(statistic).__name__}.{norm}({adjacency!r})` is {sensitivity}; a sensitivity must be a positive "
            "finite number. Nothing was released."
        )
    return sensitivity


def lattice_of(
    statistic: AbstractStatistic,
    mechanism: Mechanism,
    adjacency: Any,
    scale: Float[Array, ""] | float,
    record: Any,
    question: Any,
) -> Lattice:
    """The lattice of one release of a statistic whose floating-point noise would have `scale`.

    Records have the form of `record`.
    """
    sensitivity = sensitivity_of(statistic, mechanism, adjacency)
    return lattice_for(
        parameter=sensitivity / float(scale),
        sensitivity=sensitivity,
        norm=sensitivity_of(statistic, mechanism, "add-remove"),
        filled=filled_by(statistic, record, question),
        kind="l1" if mechanism == "laplace" else "l2",
    )


class AbstractChannel(eqx.Module):
    """One statistic's way to the learner."""

    statistic: eqx.AbstractVar[AbstractStatistic]

    @property
    @abc.abstractmethod
    def law(self) -> tuple[float, float] | None:
        """The sensitivity and the scale of the noise that it draws, for the ledger; `None` where answers are random."""

    @abc.abstractmethod
    def init(self) -> Any:
        """The memory before anybody took part."""

    @abc.abstractmethod
    def term(self, record: Any, question: Any, index: Int[Array, ""], key: PRNGKeyArray) -> Any:
        """What leaves person number `index`; terms add up."""

    @abc.abstractmethod
    def publish(self, memory: Any, total: Any, t: Int[Array, ""], fresh: Fresh) -> tuple[Any, Release | None]:
        """Takes in the summed terms of block `t` and makes the release at its end, if it makes one."""

    @abc.abstractmethod
    def empty(self) -> Release | None:
        """What is known before anybody took part: zeros, exactly."""


class AbstractCuratorChannel(AbstractChannel):
    """The exact term goes to the curator, whose noise has scale `sensitivity` / mu."""

    sensitivity: eqx.AbstractVar[Float[Array, ""]]
    scale: eqx.AbstractVar[Float[Array, ""]]

    @property
    def law(self) -> tuple[float, float]:
        return float(self.sensitivity), float(self.scale)

    def term(self, record: Any, question: Any, index: Int[Array, ""], key: PRNGKeyArray) -> Array:
        del index, key
        return self.statistic.contribution(record, question)


class RunningChannel(AbstractCuratorChannel):
    """Running sums over blocks, by continual release.

    **Formal guarantee.** A person is in one block. With base noise `scale` >= `sensitivity` / mu, where `sensitivity`
    is the statistic's times the continual mechanism's own factor, the whole sequence of releases is mu-GDP.
    """

    statistic: AbstractStatistic
    continual: AbstractContinual
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]

    def init(self) -> Any:
        return jnp.zeros(self.statistic.shape), self.continual.init(self.statistic.shape)

    def publish(self, memory: Any, total: Array, t: Int[Array, ""], fresh: Fresh) -> tuple[Any, Release]:
        running, inner = memory
        running = running + total
        inner, white = self.continual.step(inner, fresh, t)
        noise = law_of(self.statistic, "gaussian", self.scale)
        law = law_of(self.statistic, "gaussian", self.scale * jnp.sqrt(self.continual.variance(t)))
        return (running, inner), Release(running + noise.scaled(white), law)

    def empty(self) -> Release:
        return Release(jnp.zeros(self.statistic.shape), law_of(self.statistic, "gaussian", 0.0 * self.scale))


class BlockChannel(AbstractCuratorChannel):
    """Sums over disjoint blocks: parallel composition, each person is in one release."""

    statistic: AbstractStatistic
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]
    mechanism: Mechanism = eqx.field(static=True)

    def init(self) -> Any:
        return ()

    def publish(self, memory: Any, total: Array, t: Int[Array, ""], fresh: Fresh) -> tuple[Any, Release]:
        del t
        law = law_of(self.statistic, self.mechanism, self.scale)
        return memory, add_noise(total, law, fresh(0))

    def empty(self) -> Release:
        return Release(jnp.zeros(self.statistic.shape), law_of(self.statistic, self.mechanism, 0.0 * self.scale))


class RoundsChannel(AbstractCuratorChannel):
    """A curator who keeps raw sums and answers new questions about everybody so far, with fresh noise each time."""

    statistic: AbstractStatistic
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]
    mechanism: Mechanism = eqx.field(static=True)

    def init(self) -> Any:
        return jnp.zeros(self.statistic.raw_shape)

    def publish(self, memory: Any, total: Array, t: Int[Array, ""], fresh: Fresh) -> tuple[Any, None]:
        del t, fresh
        return memory + total, None

    def empty(self) -> None:
        return None

    def ask(self, memory: Any, question: Any, fresh: Fresh) -> Release:
        """One release: the answer to `question` over everybody so far."""
        law = law_of(self.statistic, self.mechanism, self.scale)
        return add_noise(self.statistic.answer(memory, question), law, fresh(0))


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
    def report_exactly(self, record: Any, question: Any, index: Int[Array, ""], stream: Stream) -> np.ndarray:
        """The same report, as it is sent, with exact noise from a cryptographic stream: for real people."""

    @property
    @abc.abstractmethod
    def sent_shape(self) -> tuple[int, ...]:
        """The shape of a report as it is sent."""

    def sent(self, report: Array) -> np.ndarray:
        """A simulated report as it is sent."""
        return np.asarray(report)

    @abc.abstractmethod
    def checked(self, report: np.ndarray) -> Array | np.ndarray:
        """The report in what arrived from outside, refused with `ValueError` unless a person could have sent it."""

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

    def publish(self, memory: Any, total: tuple[Array, Array], t: Int[Array, ""], fresh: Fresh) -> tuple[Any, Release]:
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
        return self.response.respond(_symbol(self.statistic, record, question, index), white)

    def report_exactly(self, record: Any, question: Any, index: Int[Array, ""], stream: Stream) -> np.ndarray:
        symbol = int(_compiled_symbol(self.statistic, record, question, index))
        size, epsilon = int(self.response.size), float(self.response.epsilon)
        return select(stream, symbol, self.statistic.num_symbols, size, epsilon)

    @property
    def sent_shape(self) -> tuple[int, ...]:
        return (int(self.response.size),)

    def sent(self, report: Array) -> np.ndarray:
        return np.flatnonzero(np.asarray(report)).astype(np.int64)

    def checked(self, report: np.ndarray) -> Bool[np.ndarray, " k"]:
        k = self.statistic.num_symbols
        if (
            report.shape != self.sent_shape
            or report.dtype.kind != "i"
            or not ((report >= 0) & (report < k)).all()
            or not (np.diff(report) > 0).all()
        ):
            raise ValueError(f"A report is {self.sent_shape[0]} symbols, different integers in [0, {k}), sorted.")
        held = np.zeros(k, bool)
        held[report] = True
        return held

    def decode(self, report: Bool[Array, " k"], question: Any, index: Int[Array, ""]) -> tuple[Array, Array]:
        hits = self.statistic.tally(report.astype(float), question, index)
        return hits, self.statistic.tally(jnp.ones(self.statistic.num_symbols), question, index)

    def released(self, value: Array, reports: Array) -> Release:
        estimate = self.response.debias(value, reports)
        return Release(estimate, self.response.noise(estimate, reports))


def _symbol(statistic: AbstractCategorical, record: Any, question: Any, index: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.clip(statistic.symbol(record, question, index), 0, statistic.num_symbols - 1)


_compiled_symbol = eqx.filter_jit(_symbol)


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

    def report_exactly(self, record: Any, question: Any, index: Int[Array, ""], stream: Stream) -> np.ndarray:
        if self.scale == 0:
            return np.asarray(self.statistic.contribution(record, question))
        lattice = lattice_of(self.statistic, "gaussian", "replace-one", self.scale, record, question)
        law = law_of(self.statistic, "gaussian", lattice.scale)
        one = jax.tree.map(lambda x: jnp.asarray(x)[None], record)
        units = lattice_total(self.statistic, one, question, jnp.ones(1, bool), lattice)
        return np.asarray(lattice.release(law, lattice.noisy(law, units, stream)).value)

    @property
    def sent_shape(self) -> tuple[int, ...]:
        return self.statistic.shape

    def decode(self, report: Array, question: Any, index: Int[Array, ""]) -> tuple[Array, Array]:
        del question, index
        return report, jnp.ones(self.statistic.shape)

    def checked(self, report: np.ndarray) -> Array:
        if report.shape != self.statistic.shape or report.dtype.kind != "f" or not np.isfinite(report).all():
            raise ValueError(f"A report is a finite array of shape {self.statistic.shape}.")
        return jnp.asarray(report)

    def released(self, value: Array, reports: Array) -> Release:
        return Release(value, law_of(self.statistic, "gaussian", self.scale * jnp.sqrt(reports.max())))
