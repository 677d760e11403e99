"""Pure local privacy for vectors: each person sends a random direction that probably points the way of their own term.

The device draws a uniform direction u, which does not depend on the record, and sends u or -u. Let the term x have norm
at most C. First x is rounded to a vector v = +-C x/|x| of norm C whose mean is x: the sign is + with probability
(1 + |x|/C)/2. Then the sign s of <u, v> is sent by randomised response: s with probability e^eps/(e^eps + 1), otherwise
-s. The report is R s u with the radius

    R = C coth(eps/2) sqrt(pi) Gamma((d + 1)/2) / Gamma(d/2).

For u uniform on the sphere, E[u sign<u, v>] = v/C Gamma(d/2)/(sqrt(pi) Gamma((d + 1)/2)), so a report has mean x, and
every entry has variance at most R^2/d, which hardly depends on d. This is the mechanism of Duchi, Jordan and Wainwright
(2018) for the L2 ball. Laplace noise of scale l1/eps has variance 2 (l1/eps)^2 in every entry. `best_report` compares
the two: directions are better for small epsilon or dense terms, Laplace noise for large epsilon.
"""

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int64, PRNGKeyArray, PyTree

from privrl.contracts.noise_distribution import AbstractNoise, White
from privrl.contracts.release import Release
from privrl.contracts.statistic import AbstractStatistic
from privrl.privacy.noise.discrete import lie_threshold
from privrl.privacy.noise.distributions import checked_probability, size_of_square
from privrl.privacy.noise.lattice import Lattice, choose_lattice
from privrl.privacy.noise.random_words import Words
from privrl.privacy.noise.sources import Randomness, exact_uniform, standard_normal, uniform
from privrl.privacy.trust.channels import Number, sensitivity_of
from privrl.privacy.trust.local_channels import AbstractLocalChannel, AbstractWholeTerms

_STEPS = 2.0**32  # steps of the grid in one radius


def best_report(statistic: AbstractStatistic, epsilon: float) -> Literal["laplace", "directions"]:
    """The mechanism with the smaller variance in every entry of a report. Symmetric matrices get Laplace noise."""
    laplace = 2.0 * (sensitivity_of(statistic, "laplace", "replace-one") / epsilon) ** 2
    entries = math.prod(statistic.shape)
    if statistic.symmetric or laplace <= radius_of(statistic, epsilon) ** 2 / entries:
        return "laplace"
    return "directions"


def radius_of(statistic: AbstractStatistic, epsilon: float) -> float:
    """The norm R of a report."""
    d, norm = math.prod(statistic.shape), sensitivity_of(statistic, "gaussian", "add-remove")
    return norm / math.tanh(epsilon / 2.0) * math.exp(_log_kappa(d))


def _log_kappa(d: int) -> float:
    return 0.5 * math.log(math.pi) + math.lgamma((d + 1) / 2.0) - math.lgamma(d / 2.0)


class DirectionNoise(AbstractNoise):
    """The error of a sum of `reports` directions of norm `radius`.

    A report has independent mean-zero error of norm at most 2R, entries within 2R, and variance at most R^2/d.
    """

    radius: Float[Array, ""]
    reports: Float[Array, ""]
    shape: tuple[int, ...] = eqx.field(static=True)
    white: ClassVar[White] = None

    @property
    def variance(self) -> Float[Array, ""]:
        return self.reports * self.radius**2 / math.prod(self.shape)

    def norm_bound(self, failure: float) -> Float[Array, ""]:
        """Pinelis: ||sum|| > r with probability at most 2 exp(-r^2 / (2 n (2R)^2)); or sqrt(entries) times `max_bound`,
        if that is smaller."""
        pinelis = 2.0 * self.radius * jnp.sqrt(2.0 * self.reports * math.log(2.0 / checked_probability(failure)))
        return jnp.minimum(pinelis, math.sqrt(math.prod(self.shape)) * self.max_bound(failure))

    def spectral_bound(self, failure: float) -> Float[Array, ""]:
        """The spectral norm is at most the Frobenius norm."""
        size_of_square(self.shape)
        return self.norm_bound(failure)

    def max_bound(self, failure: float) -> Float[Array, ""]:
        """Bernstein in each entry with t = ln(2 entries/failure): sqrt(2 variance t) + 2 R t/3."""
        t = math.log(2.0 * math.prod(self.shape) / checked_probability(failure))
        bound = jnp.sqrt(2.0 * self.variance * t) + 2.0 * self.radius * t / 3.0
        return jnp.where(self.reports > 0, bound, 0.0)

    def from_white(self, white: ArrayLike) -> Float[Array, "..."]:
        """Raises: each person who reports has drawn this noise."""
        raise TypeError("`DirectionNoise` cannot be made from white noise; it is part of the reports.")


class DirectionChannel(AbstractLocalChannel):
    """Each person sends a random direction, which probably has a positive inner product with their own term.

    **Formal guarantee.** The line through u is independent of the record. Given u, the report is one of two vectors,
    and randomised response chooses between them: their probabilities under any two records have a ratio of at most
    e^epsilon. This holds for every distribution of u, every rounding and every record, so a report is epsilon-locally
    private with delta = 0.
    """

    statistic: AbstractStatistic
    epsilon: Float[Array, ""]
    radius: Float[Array, ""]
    running: bool = eqx.field(static=True)

    @property
    def calibration(self) -> None:
        return None

    @property
    def norm(self) -> Float[Array, ""]:
        """C, the largest norm of a term, from the radius: the statistic cannot compute it inside compiled code."""
        return self.radius * jnp.tanh(self.epsilon / 2.0) / math.exp(_log_kappa(math.prod(self.statistic.shape)))

    def report(self, record: PyTree, query: PyTree, index: Number, key: PRNGKeyArray) -> Array:
        del index
        of_line, of_signs = jax.random.split(key)
        x = self.statistic.contribution(record, query)
        u = standard_normal(of_line, self.statistic.shape)
        u = u / jnp.sqrt((u**2).sum())
        sign, truth = uniform(of_signs, (2,))
        share = jnp.sqrt((x**2).sum()) / self.norm
        side = jnp.where(jnp.vdot(u, x) >= 0, 1.0, -1.0) * jnp.where(2.0 * sign < 1.0 + share, 1.0, -1.0)
        lies = jnp.floor(truth * 2.0**52) * 2.0**-52 < jax.nn.sigmoid(-self.epsilon)
        return self.radius * jnp.where(lies, -side, side) * u

    def decode(self, report: Array, query: PyTree, index: Number) -> tuple[Array, Array]:
        del query, index
        return report, jnp.ones(self.statistic.shape)

    def to_release(self, value: Array, reports: Array) -> Release:
        return Release(value, DirectionNoise(self.radius, reports.max(), self.statistic.shape))

    def reports(self) -> "DirectionReports":
        norm = sensitivity_of(self.statistic, "gaussian", "add-remove")
        filled = math.prod(self.statistic.shape)
        lattice = choose_lattice(parameter=1.0, sensitivity=norm, norm=norm, filled=filled, kind="l2")
        return DirectionReports(self, lattice, float(self.epsilon), float(self.radius))


class DirectionReports(AbstractWholeTerms):
    """Directions in whole steps of a public grid, with 2^32 steps to the radius.

    **Formal guarantee.** As for `DirectionChannel`. The probability of a lie is that of randomised response over two
    symbols, rounded up to a multiple of 2^-128 (`lie_threshold`), and both reports are drawn from the same words.
    """

    channel: DirectionChannel
    lattice: Lattice
    epsilon: float = eqx.field(static=True)
    radius: float = eqx.field(static=True)

    @property
    def calibration(self) -> None:
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.statistic.shape

    @property
    def largest(self) -> int:
        return int(_STEPS)

    def randomise(self, truth: Int64[np.ndarray, "..."], randomness: Randomness) -> Int64[np.ndarray, "..."]:
        if not isinstance(randomness, Words):
            of_line, of_signs = jax.random.split(randomness)
            line = np.asarray(standard_normal(of_line, self.shape))
            sign, chance = (float(x) for x in uniform(of_signs, (2,)))
            lies = chance < 1.0 / (1.0 + math.exp(self.epsilon))
        else:
            line = _normals(exact_uniform(randomness, self.shape))
            sign = float(exact_uniform(randomness, ())[()])
            chance = int.from_bytes(randomness.take(2).tobytes(), "little")
            lies = chance < lie_threshold(2, self.epsilon)
        units = np.rint(line / np.linalg.norm(line) * _STEPS).astype(np.int64)
        own = truth.astype(np.float64) * self.lattice.granularity
        share = float(np.linalg.norm(own)) / self.lattice.norm
        side = (1 if float(np.vdot(units, own)) >= 0.0 else -1) * (1 if 2.0 * sign < 1.0 + share else -1)
        return units * (-side if lies else side)

    def checker(self) -> Callable[[np.ndarray], None]:
        shape, longest = self.shape, _STEPS + math.prod(self.shape)

        def check(report: np.ndarray) -> None:
            fits = report.shape == shape and report.dtype == np.int64 and (np.abs(report) <= longest).all()
            if not (fits and float(np.linalg.norm(report.astype(np.float64))) <= longest):
                raise ValueError(f"Expected a report of shape {shape} with integers, of norm {int(longest)} at most.")

        return check

    def totals(self, steps: Int64[np.ndarray, " length"]) -> tuple[Array, Array]:
        value = steps[:-1].reshape(self.shape).astype(np.float64) * (self.radius / _STEPS)
        return jnp.asarray(value), jnp.full(self.shape, float(steps[-1]))


def _normals(uniforms: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    from scipy.special import ndtri

    return np.asarray(ndtri(uniforms))
