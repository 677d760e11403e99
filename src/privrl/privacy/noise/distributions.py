"""Noise distributions: the size of the noise in a release and bounds on it, never the draw itself.

A learner writes its regularisers and bonuses with these bounds. They are proportional to the scale of the noise and
exactly 0 without noise, so the same line is the private and the non-private algorithm. Scales are arrays that
may be traced; shapes and failure probabilities are static, so quantiles are computed on the host, once per trace.
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.contracts.noise_distribution import AbstractNoise, White


class GaussianNoise(AbstractNoise):
    """Independent N(0, scale^2) entries; `scale` is a number or broadcasts to `shape`.

    Arrays of scales: write W = s * Z with max |s| = m. Then |W_i| <= m |Z_i|, so norm and largest entry are bounded by
    those of m Z; and E||W|| <= m E||Z|| in spectral norm (contraction principle: the entries are symmetric).
    """

    scale: Float[Array, "..."]
    shape: tuple[int, ...] = eqx.field(static=True)
    white: ClassVar[White] = "normal"

    def __init__(self, scale: ArrayLike, shape: tuple[int, ...]) -> None:
        self.scale = jnp.asarray(scale, float)
        self.shape = shape

    @property
    def variance(self) -> Float[Array, "..."]:
        return self.scale**2

    @property
    def std(self) -> Float[Array, "..."]:
        return jnp.abs(self.scale)

    def norm_bound(self, failure: float) -> Float[Array, ""]:
        """The chi quantile, exact for one common scale.

        For several scales also Laurent and Massart's ||W||^2 <= sum s^2 + 2 sqrt(t sum s^4) + 2 t max s^2 with
        t = ln(1/failure); each is a bound on the quantile, so the smaller one is too.
        """
        largest = self.std.max()
        common = largest * _chi_quantile(math.prod(self.shape), failure)
        if self.scale.size == 1:
            return common
        t = -math.log(failure)
        relative = jnp.broadcast_to(self.std / jnp.where(largest > 0, largest, 1.0), self.shape) ** 2
        several = jnp.sqrt(relative.sum() + 2.0 * jnp.sqrt(t * (relative**2).sum()) + 2.0 * t)
        return jnp.minimum(common, largest * several)

    def spectral_bound(self, failure: float) -> Float[Array, ""]:
        """m (2 sqrt(d) + t) with t the normal quantile of 1 - failure, or the norm bound if that is smaller.

        E||Z|| <= 2 sqrt(d) (Gaussian comparison, Davidson and Szarek). The norm is convex and m-Lipschitz, so by
        Ehrhard's inequality it is h(xi), xi ~ N(0,1), h convex and m-Lipschitz: its median h(0) is at most its mean
        (Jensen) and P(h(xi) > mean + m t) <= P(xi > t).
        """
        d = size_of_square(self.shape)
        comparison = self.std.max() * (2.0 * math.sqrt(d) + max(_normal_quantile(failure), 0.0))
        return jnp.minimum(self.norm_bound(failure), comparison)

    def max_bound(self, failure: float) -> Float[Array, ""]:
        """Exact for one common scale: all n independent entries stay below x with probability P(|Z| <= x)^n."""
        return self.std.max() * _normal_quantile(_each(failure, math.prod(self.shape)) / 2.0)

    def from_white(self, white: ArrayLike) -> Float[Array, "..."]:
        return jnp.broadcast_to(self.scale, self.shape) * _of_shape(white, self.shape)


class SymmetricNoise(AbstractNoise):
    """Symmetric Gaussian matrices with density proportional to exp(-||W||_F^2 / (2 scale^2)).

    The diagonal is N(0, scale^2), the rest N(0, scale^2/2): a Gaussian orthogonal ensemble, isotropic in the
    Frobenius norm, so a Frobenius sensitivity D gives mu = D/scale. `(Z + Z^T)/sqrt 2` with Z_ij ~ N(0, s2) is the
    case scale^2 = 2 s2.
    """

    scale: Float[Array, ""]
    dim: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    white: ClassVar[White] = "normal"

    def __init__(self, scale: ArrayLike, dim: int) -> None:
        self.scale = jnp.asarray(scale, float)
        self.dim = dim
        self.shape = (dim, dim)

    @property
    def variance(self) -> Float[Array, "d d"]:
        return self.scale**2 * (0.5 + 0.5 * np.eye(self.dim))

    def norm_bound(self, failure: float) -> Float[Array, ""]:
        """Exact: ||W||_F^2 / scale^2 is chi-squared with d(d+1)/2 degrees of freedom."""
        return jnp.abs(self.scale) * _chi_quantile(self._free, failure)

    def spectral_bound(self, failure: float) -> Float[Array, ""]:
        """scale (sqrt(2 d) + t), t the normal quantile of 1 - failure/2, or the norm bound if that is smaller.

        X_u = u^T W u has E(X_u - X_v)^2 = 2 scale^2 (1 - <u,v>^2) <= 2 scale^2 ||u - v||^2, the increments of
        sqrt2 scale <g, u>; so E lambda_max <= sqrt2 scale E||g|| <= scale sqrt(2 d) (Sudakov-Fernique). lambda_max
        is convex and scale-Lipschitz, hence P(lambda_max > mean + scale t) <= P(xi > t) as in `GaussianNoise`;
        lambda_max and -lambda_min share the failure.
        """
        comparison = math.sqrt(2.0 * self.dim) + _normal_quantile(failure / 2.0)
        return jnp.minimum(self.norm_bound(failure), jnp.abs(self.scale) * comparison)

    def max_bound(self, failure: float) -> Float[Array, ""]:
        """As if all d(d+1)/2 independent entries had the scale of the diagonal, the largest one."""
        return jnp.abs(self.scale) * _normal_quantile(_each(failure, self._free) / 2.0)

    def from_white(self, white: ArrayLike) -> Float[Array, "d d"]:
        z = _of_shape(white, self.shape)
        return self.scale * (z + z.T) / 2.0

    @property
    def _free(self) -> int:
        return self.dim * (self.dim + 1) // 2


class LaplaceNoise(AbstractNoise):
    """Independent Laplace entries with density exp(-|x|/scale)/(2 scale), or sums of several of them.

    Arguments:
        scale: the scale of one draw, the largest one in a sum; broadcasts to `shape`.
        shape: the shape of the array.
        terms: the sum of the squared scales of the draws that an entry adds up, over the squared largest one. For n
            equal draws it is n. It is a number and may be traced.
        symmetric: whether the entries below the diagonal of a square matrix repeat those above it.

    With an array of scales the bounds are those of the largest one: |W_i| <= max scale * |Laplace(1)|.

    A sum of draws with scales c_i <= c has the moment generating function prod 1/(1 - (t c_i)^2), at most
    (1 - (t c)^2)^-terms because -ln(1 - x)/x does not fall with x. So Chernoff's bound for `terms` equal draws holds.
    """

    scale: Float[Array, "..."]
    shape: tuple[int, ...] = eqx.field(static=True)
    terms: Float[Array, ""]
    symmetric: bool = eqx.field(static=True)
    white: ClassVar[White] = "laplace"

    def __init__(
        self, scale: ArrayLike, shape: tuple[int, ...], terms: ArrayLike = 1.0, *, symmetric: bool = False
    ) -> None:
        self.scale = jnp.asarray(scale, float)
        self.shape = shape
        self.terms = jnp.asarray(terms, float)
        self.symmetric = symmetric

    @property
    def variance(self) -> Float[Array, "..."]:
        return 2.0 * self.terms * self.scale**2

    @property
    def std(self) -> Float[Array, "..."]:
        return jnp.sqrt(2.0 * self.terms) * jnp.abs(self.scale)

    def norm_bound(self, failure: float) -> Float[Array, ""]:
        """The smallest of three bounds on the quantile, for n entries of scale 1 that add up k draws (`terms`).

        (1) For k = 1: ||W||_2 <= ||W||_1, a Gamma(n) variable. (2) ||W||_2 <= sqrt(n) max. (3) Outside an event of
        probability failure/2 all |W_i| <= m; the squares cut at m^2 have mean <= 2k and second moment
        <= 12 k^2 + 12 k, so by Bernstein their sum exceeds 2kn + sqrt(24 n (k^2 + k) t) + m^2 t/3, t = ln(2/failure),
        with probability at most failure/2. A symmetric matrix has at most sqrt 2 times the norm of its triangle.
        """
        n, k = self._free, self.terms
        t = math.log(2.0 / checked_probability(failure))
        cut = self._quantile(_each(failure / 2.0, n))
        bernstein = jnp.sqrt(2.0 * k * n + jnp.sqrt(24.0 * n * (k**2 + k) * t) + cut**2 * t / 3.0)
        smallest = jnp.minimum(bernstein, math.sqrt(n) * self._quantile(_each(failure, n)))
        smallest = jnp.where(k <= 1.0, jnp.minimum(smallest, _gamma_quantile(n, failure)), smallest)
        return jnp.abs(self.scale).max() * smallest * (math.sqrt(2.0) if self.symmetric else 1.0)

    def spectral_bound(self, failure: float) -> Float[Array, ""]:
        """The norm bound, or for single draws the largest absolute row and column sum if that is smaller.

        ||W|| <= sqrt(||W||_1 ||W||_inf); each of the 2d sums is a Gamma(d) variable and gets failure/(2d).
        """
        d = size_of_square(self.shape)
        sums = jnp.abs(self.scale).max() * _gamma_quantile(d, checked_probability(failure) / (2.0 * d))
        norm = self.norm_bound(failure)
        return jnp.where(self.terms <= 1.0, jnp.minimum(norm, sums), norm)

    def max_bound(self, failure: float) -> Float[Array, ""]:
        """Exact for single draws of one common scale: P(|W_i| > x) = exp(-x/scale), n independent entries."""
        return jnp.abs(self.scale).max() * self._quantile(_each(failure, self._free))

    def from_white(self, white: ArrayLike) -> Float[Array, "..."]:
        """One draw for each entry; for a symmetric matrix those on and above the diagonal."""
        drawn = _of_shape(white, self.shape)
        if self.symmetric:
            drawn = jnp.triu(drawn) + jnp.triu(drawn, 1).T
        return jnp.broadcast_to(self.scale, self.shape) * drawn

    @property
    def _free(self) -> int:
        d = size_of_square(self.shape) if self.symmetric else 0
        return d * (d + 1) // 2 if self.symmetric else math.prod(self.shape)

    def _quantile(self, failure: float) -> Float[Array, ""]:
        """An x that |W_i|, at scale 1, exceeds with probability at most `failure`; exact for single draws.

        For sums of k draws Chernoff's bound is 2 exp(-I(x)) with I(x) = u x + k ln(1 - u^2) and
        u = (sqrt(k^2 + x^2) - k)/x. It is below `failure` at 2 sqrt(k t) + t, t = ln(2/failure) (sub-gamma tails), and
        bisection lowers that.
        """
        k, t = jnp.maximum(self.terms, 1.0), math.log(2.0 / checked_probability(failure))

        def halve(_: int | Int[Array, ""], ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            x = (low + high) / 2.0
            u = x / (jnp.sqrt(k**2 + x**2) + k)
            enough = u * x + k * jnp.log1p(-(u**2)) >= t
            return jnp.where(enough, low, x), jnp.where(enough, x, high)

        ends = (jnp.zeros(()), 2.0 * jnp.sqrt(k * t) + t)
        return jnp.where(self.terms <= 1.0, -math.log(failure), jax.lax.fori_loop(0, 40, halve, ends)[1])


def checked_probability(failure: float) -> float:
    """Refuses a number that is not a probability strictly between 0 and 1."""
    if not 0.0 < failure < 1.0:
        raise ValueError(f"`failure` is {failure}; it must lie strictly between 0 and 1.")
    return failure


def _each(failure: float, cells: int) -> float:
    """The failure p of one of `cells` independent events that together fail with `failure`: 1 - (1 - failure)^(1/n)."""
    return -math.expm1(math.log1p(-checked_probability(failure)) / cells)


def _normal_quantile(upper: float) -> float:
    """The x with P(N(0,1) > x) = upper."""
    from scipy.special import ndtri

    return -float(ndtri(checked_probability(upper)))


def _gamma_quantile(order: float, upper: float) -> float:
    """The x with P(Gamma(order) > x) = upper."""
    from scipy.special import gammainccinv

    return float(gammainccinv(order, checked_probability(upper)))


def _chi_quantile(freedom: int, upper: float) -> float:
    """The x with P(||Z||_2 > x) = upper for `freedom` standard normals."""
    return math.sqrt(2.0 * _gamma_quantile(freedom / 2.0, upper))


def size_of_square(shape: tuple[int, ...]) -> int:
    """Returns the size of a square matrix; refuses other shapes."""
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"`spectral_bound` is for square matrices; the noise has `shape` {shape}. Use `norm_bound`.")
    return shape[0]


def _of_shape(white: ArrayLike, shape: tuple[int, ...]) -> Array:
    white = jnp.asarray(white)
    if white.shape != shape:
        raise ValueError(f"`white` has shape {white.shape}; draw it with `shape` {shape}.")
    return white
