"""Releasing a whole function on [0, 1]: a value at every point, noise from one path of a Gaussian process.

The path has mean 0 and covariance exp(-beta |x - y|). It is Markov: between two known points nothing else matters, so
it can be filled in on demand, midpoint by midpoint, on the dyadic lattice k 2^-depth.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from privrl.privacy import _sources


def rkhs_norm(values: Float[Array, " n"], beta: float | Float[Array, ""]) -> Float[Array, ""]:
    """Norm of a function in the space of the kernel exp(-beta|x-y|), from n >= 2 equally spaced values on [0, 1].

    sqrt(f^T K^{-1} f), the norm of the smallest function through these values. Its square is at most, and for growing n
    tends to, (f(0)^2 + f(1)^2)/2 + 1/(2 beta) int_0^1 (f'^2 + beta^2 f^2) (wang-hegde, Lemma 7). K^{-1} is tridiagonal
    (the path is Markov): f^T K^{-1} f = f_0^2 + sum_i (f_{i+1} - r f_i)^2/(1 - r^2) with r = e^{-beta/(n-1)}.
    """
    gap = jnp.asarray(beta) / (values.shape[0] - 1)
    fall = jnp.expm1(-gap)  # f_{i+1} - r f_i as a difference plus a small multiple, so that nothing cancels
    innovations = jnp.diff(values) - fall * values[:-1]
    return jnp.sqrt(values[0] ** 2 + (innovations**2).sum() / -jnp.expm1(-2.0 * gap))


def bridge(
    before: ArrayLike, after: ArrayLike, beta: ArrayLike
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    """The law of the path at a point with known neighbours at distances a = `before` (left) and b = `after` (right).

    Weights of the left and right value, and variance (wang-hegde Algorithm 1, lines 14-15, where the weights are
    swapped and the variance is negative): sinh(beta b)/sinh(beta (a+b)), sinh(beta a)/sinh(beta (a+b)),
    (1 - e^{-2 beta a})(1 - e^{-2 beta b})/(1 - e^{-2 beta (a+b)}); with expm1, so that nothing overflows or cancels.
    """
    a, b = jnp.asarray(beta) * before, jnp.asarray(beta) * after
    left, right, both = -jnp.expm1(-2.0 * a), -jnp.expm1(-2.0 * b), -jnp.expm1(-2.0 * (a + b))
    return jnp.exp(-a) * right / both, jnp.exp(-b) * left / both, left * right / both


class GaussianProcessPath(eqx.Module):
    """One sample path of the Gaussian process with kernel exp(-beta |x - y|), for ever fixed by its key.

    Stateless: the ends are drawn first, then midpoints on the way down to the point asked for, each from a key folded
    with the midpoint's own number. So the order of the questions does not matter, a repeated question gets the same
    answer, `depth` levels cost `depth` draws per question and no memory, and a deeper lattice refines the same path.
    Questions that share midpoints use the same keys again, on purpose: it is the same noise.
    """

    key: PRNGKeyArray
    beta: Float[Array, ""]
    depth: int = eqx.field(static=True)

    def __init__(self, key: PRNGKeyArray, beta: ArrayLike, depth: int = 20) -> None:
        self.key = key
        self.beta = jnp.asarray(beta, float)
        self.depth = depth

    def __check_init__(self) -> None:
        if not 0 <= self.depth <= 30:
            raise ValueError(f"`depth` is {self.depth}; the lattice has 2^depth cells, use 0 to 30.")
        if not isinstance(self.beta, jax.core.Tracer) and not 0 < self.beta < jnp.inf:
            raise ValueError(f"`beta` is {self.beta}; it must be positive and finite.")

    @eqx.filter_jit
    def __call__(self, points: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """The path at each point, rounded to the lattice."""
        return jnp.vectorize(self._at)(self.nearest(points))

    def nearest(self, points: Float[Array, "*batch"]) -> Int[Array, "*batch"]:
        """Numbers of the lattice points nearest to `points`; anything outside [0, 1] is an error."""
        outside = ~((points >= 0) & (points <= 1)).all()
        points = eqx.error_if(points, outside, "`points` must lie in [0, 1]; rescale them to that interval.")
        return jnp.round(points * 2.0**self.depth).astype(int)

    @eqx.filter_jit
    def lattice(self) -> Float[Array, " n"]:
        """The path at all 2^depth + 1 lattice points, every key used once."""
        k = np.arange(2**self.depth + 1)
        step = np.minimum(k & -k, 2**self.depth)  # the largest power of 2 in k: k = numerator * step
        step[0] = 2**self.depth
        white = jax.vmap(self._white)(2**self.depth // step + k // step)
        values = jnp.stack(self._ends(white[0], white[-1]))
        for level in range(1, self.depth + 1):
            stride = 2 ** (self.depth - level)
            middle = self._midpoint(level, values[:-1], values[1:], white[stride :: 2 * stride])
            values = jnp.zeros(2**level + 1).at[::2].set(values).at[1::2].set(middle)
        return values

    def _at(self, k: Int[Array, ""]) -> Float[Array, ""]:
        def halve(level: Array, interval: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            below, left, right = interval  # values at below/2^(level-1) and (below+1)/2^(level-1), which enclose k
            numerator = 2 * below + 1
            middle = self._midpoint(level, left, right, self._white((1 << level) + numerator))
            up = k >= numerator << (self.depth - level)
            return jnp.where(up, numerator, 2 * below), jnp.where(up, middle, left), jnp.where(up, right, middle)

        start = (jnp.asarray(0), *self._ends(self._white(1), self._white(2)))
        _, left, right = jax.lax.fori_loop(1, self.depth + 1, halve, start)
        return jnp.where(k == 2**self.depth, right, left)

    def _ends(self, white_0: Array, white_1: Array) -> tuple[Array, Array]:
        return white_0, jnp.exp(-self.beta) * white_0 + jnp.sqrt(-jnp.expm1(-2.0 * self.beta)) * white_1

    def _midpoint(self, level: int | Array, left: Array, right: Array, white: Array) -> Array:
        half = jnp.exp2(-jnp.asarray(level, float))
        to_left, to_right, variance = bridge(half, half, self.beta)
        return to_left * left + to_right * right + jnp.sqrt(variance) * white

    def _white(self, number: int | Array) -> Array:
        # a lattice point m/2^level in lowest terms has number 2^level + m: 1 and 2 for the ends, then odd and distinct
        return _sources.standard_normal(jax.random.fold_in(self.key, number), ())


class ReleasedFunction(eqx.Module):
    """A function that may be asked anything, any number of times: `function(x) + scale * path(x)`.

    x is rounded to the lattice for the function and for the path, so that what is answered is a fixed noisy vector, and
    the same question gets the same answer for ever. The object holds the exact function: it stays with the curator.

    **Formal guarantee.** Let f - f' have `rkhs_norm` at most D on the lattice for any two functions that may stand for
    each other (the norm of Lemma 7 on [0, 1] is larger, and will do). All answers together are then mu-GDP with
    mu = D/scale: they are a vector with covariance scale^2 K, and (f - f')^T K^{-1} (f - f') <= D^2.
    """

    function: Callable[[Array], Array]
    scale: Float[Array, ""]
    path: GaussianProcessPath

    def __init__(self, function: Callable[[Array], Array], scale: ArrayLike, path: GaussianProcessPath) -> None:
        self.function = function
        self.scale = jnp.asarray(scale, float)
        self.path = path

    def __call__(self, points: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """The noisy answers at each point of [0, 1]; `function` maps arrays of points to arrays of values."""
        rounded = self.path.nearest(points).astype(float) * 2.0**-self.path.depth
        return self.function(rounded) + self.scale * self.path(rounded)
