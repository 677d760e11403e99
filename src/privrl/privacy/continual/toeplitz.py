"""Toeplitz mechanisms: correlated noise by Toeplitz factors of the matrix of prefix sums.

Lower triangular Toeplitz matrices multiply as power series do, and the matrix A of prefix sums is that of 1/(1-x). An
encoder with the series e(x) leaves 1/((1-x) e(x)) for the decoder. Both encoders here have coefficients that are
positive up to a point, zero from there on, and never grow.
"""

import abc
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int

from privrl.contracts.noise_distribution import NoiseKind
from privrl.privacy.continual.mechanisms import AbstractContinual, Draw
from privrl.privacy.continual.participation import Participation


class AbstractToeplitz(AbstractContinual):
    """Noise_t = sum_j b_{t-j} z_j. The state is all white noise so far: `steps` arrays, so let leaves be blocks."""

    @property
    @abc.abstractmethod
    def coefficients(self) -> Float64[np.ndarray, " steps"]:
        """The coefficients of the encoder, e_0 >= e_1 >= ... >= 0."""

    @property
    def factor(self) -> float:
        return math.sqrt(float((self.coefficients**2).sum()))

    @property
    def decoding(self) -> Float64[np.ndarray, " steps"]:
        """The coefficients of the decoder, b = 1/((1-x) e(x))."""
        return _decoding(tuple(self.coefficients))

    def encoder(self) -> Float64[np.ndarray, "steps steps"]:
        age = np.arange(self.steps)[:, None] - np.arange(self.steps)
        return np.where(age >= 0, self.coefficients[age], 0.0)

    def sensitivity(self, participation: Participation) -> float:
        """Exactly the norm of the summed columns of the earliest pattern.

        Columns b < b' have inner product sum_u e_{u + b' - b} e_u over u < steps - b'. It does not grow with the gap
        b' - b, nor with b' at equal gap. In any pattern the i-th and j-th block, i < j, are (j-i) distances or more
        apart and block j is at (j-1) distances or later, so no pair meets more than it does in the earliest pattern.
        """
        e, total = self.coefficients, np.zeros(self.steps)
        for block in participation.earliest(self.steps):
            total[block:] += e[: self.steps - block]
        return float(np.linalg.norm(total))

    def init(self, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jnp.zeros((self.steps, *shape))

    def step(
        self, state: Float[Array, "..."], fresh: Draw, t: int | Int[Array, ""]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        state = state.at[t].set(fresh(0))
        age = t - jnp.arange(self.steps)
        weights = jnp.where(age >= 0, jnp.asarray(self.decoding)[age], 0.0)
        return state, jnp.tensordot(weights, state, axes=1, precision=jax.lax.Precision.HIGHEST)

    def _variances(self) -> Float64[np.ndarray, " steps"]:
        return np.cumsum(self.decoding**2)


class SquareRoot(AbstractToeplitz):
    """The square root of the prefix sums on both sides. The best one for people who take part once, and the default.

    e_0 = 1, e_j = e_{j-1} (2j-1)/(2j), those of (1-x)^{-1/2}; the decoder is the encoder.
    """

    steps: int = eqx.field(static=True)
    noise: NoiseKind = eqx.field(static=True, default="gaussian", init=False)

    @property
    def coefficients(self) -> Float64[np.ndarray, " steps"]:
        return _coefficients(self.steps)

    @property
    def decoding(self) -> Float64[np.ndarray, " steps"]:
        return _coefficients(self.steps)


class Banded(AbstractToeplitz):
    """The square root, truncated after `band` coefficients: blocks that are `band` or more apart do not meet.

    For people who return after `distance` blocks or more, `band = distance` costs sqrt(times) instead of up to `times`,
    for little more noise in each release.
    """

    steps: int = eqx.field(static=True)
    band: int = eqx.field(static=True)
    noise: NoiseKind = eqx.field(static=True, default="gaussian", init=False)

    def __check_init__(self) -> None:
        if not 1 <= self.band <= self.steps:
            raise ValueError(f"`band` is {self.band}; it must lie between 1 and `steps` = {self.steps}.")

    @property
    def coefficients(self) -> Float64[np.ndarray, " steps"]:
        return np.where(np.arange(self.steps) < self.band, _coefficients(self.steps), 0.0)


def mean_error(scheme: AbstractToeplitz, participation: Participation) -> float:
    """The root mean squared error of the releases at D = mu = 1, for this participation."""
    return scheme.sensitivity(participation) * math.sqrt(float(np.cumsum(scheme.decoding**2).mean()))


@functools.lru_cache(maxsize=64)
def best_band(steps: int, participation: Participation) -> Banded:
    """The banded square root with the smallest mean squared error for this participation, among all bands (if there are
    more than 300, among some 200 that are evenly spaced in the logarithm)."""
    tried = (
        np.unique(np.rint(np.geomspace(1, steps, min(steps, 300))).astype(int)) if steps > 300 else range(1, steps + 1)
    )
    bands = (Banded(steps, int(band)) for band in {*tried, min(max(participation.distance, 1), steps)})
    return min(bands, key=lambda scheme: mean_error(scheme, participation))


def root_for(steps: int, participation: Participation) -> AbstractToeplitz:
    """The square root, truncated if that makes less noise, which requires a distance between participations."""
    if participation.times == 1 or participation.distance == 0:
        return SquareRoot(steps)
    best = best_band(steps, participation)
    return SquareRoot(steps) if best.band == steps else best


def error_floor(steps: int, participation: Participation) -> float:
    """No factorisation has less noise: a lower bound on the root mean squared error at D = mu = 1, for steps = m d.

    Take the d patterns k, k + d, ..., k + (m-1) d, which share no block. Over random signs of the terms the mean of
    the squared shift is the sum of the squared norms of a pattern's columns, so some signs and the best pattern give at
    least ||E||_F^2 / d. With ||B||_F ||E||_F >= ||A||_* (the nuclear norm) the product of the root mean squared error
    ||B||_F / sqrt steps and the sensitivity is at least ||A||_* / sqrt(steps d).
    """
    apart = max(participation.distance, 1)
    if participation.times * apart != steps:
        raise ValueError(f"The bound requires `times` x `distance` = `steps`; got {participation} and {steps}.")
    return float(np.linalg.norm(np.tril(np.ones((steps, steps))), "nuc") / np.sqrt(steps * apart))


@functools.lru_cache(maxsize=64)
def _coefficients(steps: int) -> Float64[np.ndarray, " steps"]:
    j = np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod((2.0 * j - 1.0) / (2.0 * j))])


@functools.lru_cache(maxsize=64)
def _decoding(coefficients: tuple[float, ...]) -> Float64[np.ndarray, " steps"]:
    """1/((1-x) e(x)) by the recursion e_0 inverse_k = -sum_{j>0} e_j inverse_{k-j}, then prefix sums."""
    e = np.array(coefficients)
    inverse = np.zeros(len(e))
    inverse[0] = 1.0 / e[0]
    for k in range(1, len(e)):
        inverse[k] = -(e[1 : k + 1] @ inverse[k - 1 :: -1][:k]) / e[0]
    return np.cumsum(inverse)
