"""Channels: the way of one statistic from people to the learner, step by public step, inside compiled loops.

A channel defines what leaves one person (`term`), how the terms of a block of people become a release (`publish`), and
the state to start from. The channels in this module are those of a trusted curator, who receives exact terms and adds
noise. They compute in floating point, with seeded noise; `exact_channels.py` has the same interface in whole numbers.
Under local privacy (`local_channels.py`) a term is already noisy when it leaves the person. White noise comes from the
caller through `fresh(i)`, which must be new for every step and every i, so noise is drawn once and a channel never
holds a key.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from privrl.contracts.noise_distribution import AbstractNoise, NoiseKind, White
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractScores, AbstractStatistic, Adjacency
from privrl.privacy.continual.mechanisms import AbstractContinual
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.privacy.noise.maximum import MaximumNoise
from privrl.privacy.noise.sensitivities import add_noise

WhiteNoise = Callable[[int], Array]
"""Draws the i-th array of new white noise."""
_Fresh: TypeAlias = Any
"""`WhiteNoise` or, in exact arithmetic, `exact_channels.Noisy`."""
SumNoise = NoiseKind | Literal["exponential"]
Number = int | Int[Array, ""]


def noise_of(
    statistic: AbstractStatistic,
    mechanism: SumNoise,
    scale: Float[Array, ""] | float,
    terms: Float[Array, ""] | float = 1.0,
) -> AbstractNoise:
    """The noise distribution that fits a statistic: symmetric for symmetric matrices, otherwise entry by entry.

    Laplace noise may be the sum of several draws (`terms`, see `LaplaceNoise`).
    """
    if mechanism == "exponential":
        return MaximumNoise(jnp.asarray(scale), statistic.shape)
    square = len(statistic.shape) == 2 and statistic.shape[0] == statistic.shape[1]
    if statistic.symmetric and not square:
        raise ValueError(f"`symmetric` needs a square `shape`; `{type(statistic).__name__}` has {statistic.shape}.")
    if mechanism == "laplace":
        return LaplaceNoise(jnp.asarray(scale), statistic.shape, terms, symmetric=statistic.symmetric)
    if statistic.symmetric:
        return SymmetricNoise(jnp.asarray(scale), statistic.shape[0])
    return GaussianNoise(jnp.asarray(scale), statistic.shape)


def noise_of_sum(
    statistic: AbstractStatistic,
    mechanism: NoiseKind,
    scale: Float[Array, ""] | float,
    squares: Float[Array, ""] | float,
    largest: Float[Array, ""] | float,
) -> AbstractNoise:
    """The distribution of a weighted sum of draws of this scale: the sum of the squared weights, and the largest."""
    if mechanism == "laplace":
        return noise_of(statistic, mechanism, scale * largest, squares / largest**2)
    return noise_of(statistic, mechanism, scale * jnp.sqrt(squares))


def sensitivity_of(statistic: AbstractStatistic, mechanism: SumNoise, adjacency: Adjacency) -> float:
    """The sensitivity in the norm that the mechanism needs. Refuses one that is not a positive finite number."""
    norm = {"laplace": "l1", "gaussian": "l2", "exponential": "spread"}[mechanism]
    if norm == "spread" and not isinstance(statistic, AbstractScores):
        raise ValueError(
            f"`{type(statistic).__name__}` has no scores of candidates to choose among. Nothing was released. Use an "
            "`AbstractScores` for a choice."
        )
    sensitivity = getattr(statistic, norm)(adjacency)
    if not 0.0 < sensitivity < math.inf:
        raise ValueError(
            f"`{type(statistic).__name__}.{norm}({adjacency!r})` is {sensitivity}; a sensitivity must be a positive "
            "finite number. Nothing was released."
        )
    return sensitivity


class AbstractChannel(eqx.Module):
    """One statistic's way to the learner."""

    statistic: eqx.AbstractVar[AbstractStatistic]

    @property
    @abc.abstractmethod
    def calibration(self) -> tuple[float, float] | None:
        """The sensitivity and the scale of its noise, for the ledger; `None` for randomised answers."""

    @abc.abstractmethod
    def init(self) -> PyTree:
        """The memory before the first person took part."""

    @abc.abstractmethod
    def term(self, record: PyTree, query: PyTree, index: Number, key: PyTree) -> PyTree:
        """What leaves person number `index`. Terms add up."""

    @abc.abstractmethod
    def publish(self, memory: PyTree, total: PyTree, t: Number, fresh: _Fresh) -> tuple[PyTree, Release | None]:
        """Adds the sum of the terms of block `t` to the memory, and makes the release at its end, if there is one.

        `fresh` is the source of new noise: a function of i that draws white noise or, in exact arithmetic, one that
        adds noise to whole numbers.
        """

    @abc.abstractmethod
    def empty(self) -> Release | None:
        """The release before the first person took part: exact zeros."""


class AbstractCuratorChannel(AbstractChannel):
    """The curator receives exact terms and adds noise of scale `sensitivity` / mu."""

    sensitivity: eqx.AbstractVar[Float[Array, ""]]
    scale: eqx.AbstractVar[Float[Array, ""]]
    mechanism: eqx.AbstractVar[NoiseKind]

    @property
    def white(self) -> White:
        """The kind of white noise that the channel needs."""
        return "laplace" if self.mechanism == "laplace" else "normal"

    @property
    def calibration(self) -> tuple[float, float]:
        return float(self.sensitivity), float(self.scale)

    def term(self, record: PyTree, query: PyTree, index: Number, key: PyTree) -> Array:
        del index, key
        return self.statistic.contribution(record, query)


class RunningChannel(AbstractCuratorChannel):
    """Running sums over blocks, by continual release.

    **Formal guarantee.** With base noise `scale` >= `sensitivity` / mu the whole sequence of releases is mu-GDP; with
    Laplace noise of `scale` >= `sensitivity` / epsilon it is epsilon-differentially private, in L1 norms. The
    `sensitivity` is the statistic's times the continual mechanism's own factor for people who are in one block, and
    that of `repeated.py` for people who are in several.
    """

    statistic: AbstractStatistic
    continual: AbstractContinual
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]

    @property
    def mechanism(self) -> NoiseKind:
        return self.continual.noise

    def init(self) -> PyTree:
        return jnp.zeros(self.statistic.shape), self.continual.init(self.statistic.shape)

    def publish(self, memory: PyTree, total: Array, t: Number, fresh: WhiteNoise) -> tuple[PyTree, Release]:
        running, inner = memory
        running = self.continual.carry(running, t) + total
        inner, white = self.continual.step(inner, fresh, t)
        noise = noise_of(self.statistic, self.mechanism, self.scale)
        distribution = noise_of_sum(
            self.statistic, self.mechanism, self.scale, self.continual.variance(t), self.continual.largest_weight(t)
        )
        return (running, inner), Release(running + noise.from_white(white), distribution)

    def empty(self) -> Release:
        return Release(jnp.zeros(self.statistic.shape), noise_of(self.statistic, self.mechanism, 0.0 * self.scale))


class BlockChannel(AbstractCuratorChannel):
    """Sums over disjoint blocks (parallel composition): each person is in one release, or in the declared number."""

    statistic: AbstractStatistic
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]
    mechanism: NoiseKind = eqx.field(static=True)

    def init(self) -> PyTree:
        return ()

    def publish(self, memory: PyTree, total: Array, t: Number, fresh: WhiteNoise) -> tuple[PyTree, Release]:
        del t
        distribution = noise_of(self.statistic, self.mechanism, self.scale)
        return memory, add_noise(total, distribution, fresh(0))

    def empty(self) -> Release:
        return Release(jnp.zeros(self.statistic.shape), noise_of(self.statistic, self.mechanism, 0.0 * self.scale))


class RoundsChannel(AbstractCuratorChannel):
    """A curator keeps raw sums and answers new queries about all people so far, with fresh noise each time."""

    statistic: AbstractStatistic
    sensitivity: Float[Array, ""]
    scale: Float[Array, ""]
    mechanism: NoiseKind = eqx.field(static=True)

    def init(self) -> PyTree:
        return jnp.zeros(self.statistic.raw_shape)

    def publish(self, memory: PyTree, total: Array, t: Number, fresh: WhiteNoise) -> tuple[PyTree, None]:
        del t, fresh
        return memory + total, None

    def empty(self) -> None:
        return None

    def ask(self, memory: PyTree, query: PyTree, fresh: WhiteNoise) -> Release:
        """Makes one release: the answer to `query` about all people so far."""
        distribution = noise_of(self.statistic, self.mechanism, self.scale)
        return add_noise(self.statistic.answer(memory, query), distribution, fresh(0))
