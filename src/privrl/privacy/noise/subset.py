"""Subset selection: answer one query with a small random set of symbols that probably contains the true one.

With k symbols, w = e^eps and sets of d symbols, the set Z holds the true symbol with probability

    p = d w / (d w + k - d),

and d - 1 uniform others; else it is d uniform others. A given wrong symbol is in Z with probability
q = (p (d-1) + (1-p) d) / (k-1). Counts of symbols over many people are debiased by (1[j in Z] - q) / (p - q).
Randomised response is d = 1. For small eps larger sets are better: this is the best known way to count k symbols under
pure local privacy (Ye and Barg 2018; Wang et al. 2016), at d about k / (w + 1).
"""

import math
from types import ModuleType
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from privrl.contracts.noise_distribution import AbstractNoise, White
from privrl.privacy.noise.distributions import checked_probability, size_of_square

_Number = TypeVar("_Number", Array, np.ndarray, float)


class SubsetSelection(eqx.Module):
    """Answers with a set of `size` symbols.

    Arguments:
        num_symbols: k, at least 2.
        epsilon: the local privacy of one answer; `inf` is the identity, and protects no one.
        size: d, from 1 to k - 1; by default the one of floor and ceil of k / (e^eps + 1) with the smaller variance.

    **Formal guarantee.** A set Z that holds x has probability p / C(k-1, d-1) when the true symbol is x, and one that
    does not hold x has (1-p) / C(k-1, d). As C(k-1, d) / C(k-1, d-1) = (k-d) / d, the first is
    p (k-d) / ((1-p) d) = w = e^eps times the second. So for any two true symbols the probabilities of any Z have the
    ratio e^eps, 1 or e^-eps: an answer is eps-locally private with delta = 0, for every d, and not for a smaller eps.
    In `respond` the chance to leave out the truth is rounded *up* to a multiple of 2^-52, which can only lower the
    ratio, and the choice among the others is uniform up to the grain of float64; `select` in `discrete.py` is the same
    answer in exact integers.

    **Example.** `SubsetSelection(4, 1.0).respond(symbol, source.uniform(("report", 17), (5,)))`.
    """

    num_symbols: int = eqx.field(static=True)
    epsilon: Float[Array, ""]
    size: Int[Array, ""]

    def __init__(self, num_symbols: int, epsilon: ArrayLike, size: int | None = None) -> None:
        if num_symbols < 2:
            raise ValueError(f"`num_symbols` is {num_symbols}; it must be at least 2.")
        if size is not None and not 1 <= size < num_symbols:
            raise ValueError(
                f"`size` is {size}; it must lie between 1 and {num_symbols - 1}, for {num_symbols} symbols."
            )
        known = epsilon if isinstance(epsilon, jax.core.Tracer) else float(np.asarray(epsilon))
        if isinstance(known, float) and not known > 0:
            raise ValueError(f"`epsilon` is {known}; it must be positive (`inf` for no privacy).")
        self.num_symbols = num_symbols
        self.epsilon = jnp.asarray(epsilon, float)
        self.size = jnp.asarray(best_size(num_symbols, known) if size is None else size)

    @property
    def keep_probability(self) -> Float[Array, ""]:
        """p, the chance that the set holds the true symbol."""
        return self.size / (self.size + (self.num_symbols - self.size) * jnp.exp(-self.epsilon))

    @property
    def lie_probability(self) -> Float[Array, ""]:
        """1 - p, accurate also if it is small."""
        return self.keep_probability * (self.num_symbols - self.size) / self.size * jnp.exp(-self.epsilon)

    @property
    def wrong_probability(self) -> Float[Array, ""]:
        """q, the chance that the set holds a given wrong symbol."""
        k, d = self.num_symbols, self.size
        return self.keep_probability * (d - 1 + (k - d) * jnp.exp(-self.epsilon)) / (k - 1)

    @property
    def width(self) -> Float[Array, ""]:
        """1/(p - q), the length of the interval that holds a debiased entry; p - q = p (k-d)(1 - 1/w)/(k-1)."""
        k, d = self.num_symbols, self.size
        return (k - 1) / (self.keep_probability * (k - d) * -jnp.expm1(-self.epsilon))

    @property
    def variance(self) -> Float[Array, ""]:
        """Variance q(1-q)/(p-q)^2 of the debiased entry of a symbol that is not the true one."""
        return self.wrong_probability * (1.0 - self.wrong_probability) * self.width**2

    @property
    def variance_true(self) -> Float[Array, ""]:
        """Variance p(1-p)/(p-q)^2 of the debiased entry of the true symbol."""
        return self.keep_probability * self.lie_probability * self.width**2

    def respond(self, symbol: Int[ArrayLike, ""], uniforms: Float[Array | np.ndarray, " n"]) -> Bool[Array, " k"]:
        """Which symbols are in the set, from k + 1 fresh uniform numbers in [0, 1).

        The first number decides whether the set contains the truth. The others rank the wrong symbols; the truth is put
        first or last.
        """
        chance = jnp.floor(uniforms[0] * 2.0**52) * 2.0**-52  # 0 must occur, so that a lie is always possible
        truth = jnp.arange(self.num_symbols) == symbol
        score = jnp.where(truth, jnp.where(chance < self.lie_probability, 2.0, -1.0), jnp.asarray(uniforms[1:]))
        before = score[None, :] < score[:, None]
        tied = (score[None, :] == score[:, None]) & np.tri(self.num_symbols, k=-1, dtype=bool)
        return (before | tied).sum(axis=1) < self.size

    def debias(
        self, hits: Float[Array, "*shape"], reports: Float[Array | np.ndarray, "*shape"]
    ) -> Float[Array, "*shape"]:
        """An unbiased estimate of the number of true answers, if `hits` of `reports` sets contain the symbol."""
        return (hits - self.wrong_probability * reports) * self.width

    def noise(self, value: Float[Array, "*shape"], reports: Float[Array, "*shape"]) -> "ResponseNoise":
        """The distribution of the error of debiased counts.

        Entries: the number of true answers among the `reports` is estimated by `value`. Sums over the last axis:
        d symbols are in each set, so the hits of m symbols and of the k - m others add up to d and have the same
        variance. Indicators of a set of fixed size are negatively correlated, so both groups' own variances bound it:
        if the only other symbol is "none of these", by max(p(1-p), q(1-q))/(p-q)^2 per report. (This assumes that a
        report about an entry is about all entries next to it on the last axis.)
        """
        true = jnp.clip(value, 0.0, reports)
        variances = self.variance * (reports - true) + self.variance_true * true
        if not value.shape:
            return ResponseNoise(variances, self.width, reports, (), variances)
        largest = reports.max(axis=-1)
        others = self.num_symbols * largest - reports.sum(axis=-1)
        sums = jnp.minimum(variances.sum(axis=-1), others * jnp.maximum(self.variance, self.variance_true))
        return ResponseNoise(variances, self.width, reports, value.shape, sums)


def best_size(num_symbols: int, epsilon: float | Array) -> int | Array:
    """The size d next to k/(e^eps + 1), at least 1, for which q(1-q)/(p-q)^2 is smaller; the smaller d in a tie.

    For a Python number the result is computed on the host, so that all machines agree on the size of their sets.
    """
    xp: ModuleType = np if isinstance(epsilon, float) else jnp
    less = xp.exp(-epsilon)  # 1/w
    ideal = num_symbols * less / (1.0 + less)
    low, high = xp.maximum(xp.floor(ideal), 1.0), xp.maximum(xp.ceil(ideal), 1.0)
    better = _variance(num_symbols, high, less) < _variance(num_symbols, low, less) * (1 - 1e-12)
    size = xp.where(better, high, low).astype(int)
    return int(size) if isinstance(epsilon, float) else size


def _variance(k: int, d: _Number, less: _Number) -> _Number:
    """q(1-q)/(p-q)^2, up to a factor that is the same for every d."""
    p = d / (d + (k - d) * less)
    q = p * (d - 1 + (k - d) * less) / (k - 1)
    return q * (1 - q) * ((k - 1) / (p * (k - d))) ** 2


class ResponseNoise(AbstractNoise):
    """The error of debiased counts of answers, as in local privacy.

    Arguments:
        variances: variance of each entry of the sum, as far as it is known (it depends on how many answers were of
            which kind), broadcastable to `shape`. No bound below rests on it, except that 0 means exact.
        width: each report's entry lies in an interval of this length.
        reports: the number of reports that each entry sums, broadcastable to `shape`.
        shape: shape of the sum.
        sums: variance of sums over the last axis, if it is less than that of independent entries.
    """

    variances: Float[Array, "..."]
    width: Float[Array, ""]
    reports: Float[Array, "..."]
    shape: tuple[int, ...] = eqx.field(static=True)
    sums: Float[Array, "..."] | None
    white: ClassVar[White] = None

    def __init__(
        self,
        variances: ArrayLike,
        width: ArrayLike,
        reports: ArrayLike,
        shape: tuple[int, ...],
        sums: Float[Array, "..."] | None = None,
    ) -> None:
        self.variances = jnp.asarray(variances, float)
        self.width = jnp.asarray(width, float)
        self.reports = jnp.asarray(reports, float)
        self.shape, self.sums = shape, sums

    @property
    def variance(self) -> Float[Array, "..."]:
        return self.variances

    def norm_bound(self, failure: float) -> Float[Array, ""]:
        """||W||_2 <= sqrt(cells) max |W_i|."""
        return math.sqrt(math.prod(self.shape)) * self.max_bound(failure)

    def spectral_bound(self, failure: float) -> Float[Array, ""]:
        """The spectral norm is at most the Frobenius norm."""
        size_of_square(self.shape)
        return self.norm_bound(failure)

    def max_bound(self, failure: float) -> Float[Array, ""]:
        """Hoeffding's bound width sqrt(reports t/2) in each cell, t = ln(2 cells/failure), a union over the cells.

        An entry of variance 0 is 0 with certainty.
        """
        t = math.log(2.0 * math.prod(self.shape) / checked_probability(failure))
        hoeffding = self.width * jnp.sqrt(self.reports * t / 2.0)
        return jnp.where(self.variances > 0, hoeffding, 0.0).max()

    def from_white(self, white: ArrayLike) -> Float[Array, "..."]:
        """Raises: each person who reports has drawn this noise."""
        raise TypeError("`ResponseNoise` cannot be made from white noise; it is part of the reports.")


def variance_of_sums(noise: AbstractNoise) -> Float[Array, "..."]:
    """The variance of the noise in sums over the last axis, where the entries of one report are not independent."""
    if isinstance(noise, ResponseNoise) and noise.sums is not None:
        return noise.sums
    return jnp.broadcast_to(noise.variance, noise.shape).sum(axis=-1)
