"""Paths of the Gaussian process on [0, 1] with mean 0 and covariance exp(-beta |x - y|), asked in any order.

The process is Markov: between two known points nothing else matters (`bridge`), and on a lattice it is a filter of
white noise (`lattice_path`). Three samplers of one law:

- `GaussianProcessPath`: a tree of midpoints, fixed by a key; no memory, the same answer in any order;
- `PathBuffer`: the list of answers so far, for any real points, inside compiled loops;
- `lattice_path`: all lattice points of many paths at once.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from privrl.privacy.noise import sources as _sources


def bridge(
    before: ArrayLike, after: ArrayLike, beta: ArrayLike
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    """The law of the path at a point with known neighbours at distances a = `before` (left) and b = `after` (right).

    Weights of the left and right value, and variance: sinh(beta b)/sinh(beta (a+b)), sinh(beta a)/sinh(beta (a+b)),
    (1 - e^{-2 beta a})(1 - e^{-2 beta b})/(1 - e^{-2 beta (a+b)}); with expm1, so that nothing overflows or cancels. A
    neighbour that does not exist is infinitely far away: its weight is 0, and e^{-beta a} and 1 - e^{-2 beta a} are
    left, or 0 and 1 if there is none at all.
    """
    a, b = jnp.asarray(beta) * before, jnp.asarray(beta) * after
    left, right, both = -jnp.expm1(-2.0 * a), -jnp.expm1(-2.0 * b), -jnp.expm1(-2.0 * (a + b))
    to_left = jnp.exp(-a) * right / both  # [wang-hegde A1:14] sinh of the other distance; printed with its own
    to_right = jnp.exp(-b) * left / both
    variance = left * right / both  # [wang-hegde A1:15] e^{-beta a} where e^{+beta a} is printed, which is negative
    return to_left, to_right, variance


def lattice_points(depth: int) -> Float[Array, " n"]:
    """The points k 2^-depth of [0, 1], n = 2^depth + 1 of them."""
    return jnp.arange(2**depth + 1) * 2.0**-depth


def nearest(points: Float[Array, "*batch"], depth: int) -> Int[Array, "*batch"]:
    """Numbers of the lattice points nearest to `points`; anything outside [0, 1] is an error."""
    outside = ~((points >= 0) & (points <= 1)).all()
    points = eqx.error_if(points, outside, "`points` must lie in [0, 1]; rescale them to that interval.")
    return jnp.round(points * 2.0**depth).astype(int)


@jax.jit
def innovations(values: Float[Array, "*m n"], beta: ArrayLike) -> Float[Array, "*m n"]:
    """What is new at each of n >= 2 equally spaced points: e_0 = f_0, e_i = (f_i - r f_{i-1})/sqrt(1 - r^2).

    With r = e^{-beta/(n-1)}. Of a path this is white noise; of any values, sum e_i^2 = f^T K^{-1} f.
    """
    gap = jnp.asarray(beta, values.dtype) / (values.shape[-1] - 1)
    # f_i - r f_{i-1} as a difference and a small multiple, so that nothing cancels
    news = jnp.diff(values) - jnp.expm1(-gap) * values[..., :-1]
    return jnp.concatenate([values[..., :1], news * innovation_factor(values.shape[-1], beta)], axis=-1)


def innovation_factor(n: int, beta: ArrayLike) -> Float[Array, ""]:
    """1/sqrt(1 - r^2), by which the news at one of n lattice points are larger in `innovations`."""
    return 1.0 / jnp.sqrt(-jnp.expm1(-2.0 * jnp.asarray(beta, float) / (n - 1)))


@jax.jit
def lattice_path(white: Float[Array, "*m n"], beta: ArrayLike) -> Float[Array, "*m n"]:
    """Paths at n >= 2 equally spaced points of [0, 1] from white noise: the inverse of `innovations`.

    f = C e with the Cholesky factor C of the kernel matrix, as the filter f_i = r f_{i-1} + sqrt(1 - r^2) e_i that it
    is, in log n steps over all points: with z the shift by one point, 1/(1 - r z) is the product of the factors
    1 + (r z)^(2^k), of which those that shift by less than n matter. Each power of r is computed on its own,
    because in short floats r itself has lost digits that its powers need.
    """
    n = white.shape[-1]
    gap = jnp.asarray(beta, white.dtype) / (n - 1)
    x = white.at[..., 1:].multiply(jnp.sqrt(-jnp.expm1(-2.0 * gap)))
    for k in range((n - 1).bit_length()):
        x = x.at[..., 2**k :].add(jnp.exp(-gap * 2**k) * x[..., : -(2**k)])
    return x


class GaussianProcessPath(eqx.Module):
    """One sample path of the Gaussian process with kernel exp(-beta |x - y|), for ever fixed by its key.

    Stateless: the ends are drawn first, then midpoints on the way down to the point asked for, each from a key folded
    with the midpoint's own number. So the order of the questions does not matter, a repeated question gets the same
    answer, `depth` levels cost `depth` draws per question and no memory, and a deeper lattice refines the same path.
    Questions that share midpoints use the same keys again, on purpose: it is the same noise.

    It is for simulations: whoever has the key has the noise, and the noise is floating point.
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
        _check_beta(self.beta)

    @eqx.filter_jit
    def __call__(self, points: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """The path at each point, rounded to the lattice."""
        return jnp.vectorize(self._at)(nearest(points, self.depth))

    @eqx.filter_jit
    def lattice(self) -> Float[Array, " n"]:
        """The path at all 2^depth + 1 lattice points, every key used once."""
        k = np.arange(2**self.depth + 1)
        step = np.minimum(k & -k, 2**self.depth)  # the largest power of 2 in k: k = numerator * step
        step[0] = 2**self.depth
        return self._filled(jax.vmap(self._white)(2**self.depth // step + k // step))

    def _filled(self, white: Float[Array, " n"]) -> Float[Array, " n"]:
        """The path made from white noise at the lattice points: linear, level by level."""
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


class PathBuffer(eqx.Module):
    """A path with a memory: all answers so far, sorted, and each new one drawn given its two neighbours.

    The list of wang-hegde's Algorithm 1 with room for `capacity` answers, so that it can live in compiled loops and be
    vectorised; one buffer per path. Points are any real numbers, not only those of a lattice. White noise comes from
    the caller, a new N(0, 1) number for every question (one that was asked before ignores it).

    The law does not depend on the order of the questions, the path itself does: unlike `GaussianProcessPath`, another
    order makes another path.
    """

    points: Float[Array, " capacity"]
    values: Float[Array, " capacity"]
    count: Int[Array, ""]
    beta: Float[Array, ""]

    @classmethod
    def empty(cls, capacity: int, beta: ArrayLike) -> "PathBuffer":
        """A path of which nothing is known yet."""
        if capacity < 1:
            raise ValueError(f"`capacity` is {capacity}; make room for at least one answer.")
        # free places are at infinity: sorted after all others, and infinitely far from them
        return cls(jnp.full(capacity, jnp.inf), jnp.zeros(capacity), jnp.asarray(0), jnp.asarray(beta, float))

    def __check_init__(self) -> None:
        _check_beta(self.beta)

    def ask(self, point: Float[Array, ""], white: Float[Array, ""]) -> tuple["PathBuffer", Float[Array, ""]]:
        """The path at a point, and the buffer that remembers it; an error where there is no room left."""
        capacity = self.points.shape[0]
        point = eqx.error_if(point, ~jnp.isfinite(point), "`point` must be a finite number.")
        place = jnp.searchsorted(self.points, point)  # [wang-hegde A1:13]
        on_left, on_right = jnp.maximum(place - 1, 0), jnp.minimum(place, capacity - 1)
        # A missing neighbour is infinitely far away; the paper takes it for a known 0 at the edge of [0, 1].
        before = jnp.where(place > 0, point - self.points[on_left], jnp.inf)  # [wang-hegde A1:3] none is none
        after = jnp.where(place < capacity, self.points[on_right] - point, jnp.inf)
        to_left, to_right, variance = bridge(before, after, self.beta)
        mean = to_left * self.values[on_left] + to_right * self.values[on_right]
        drawn = mean + jnp.sqrt(variance) * white  # [wang-hegde A1:16] sigma^2 d, not sigma d; sigma is 1 here
        known = after == 0.0
        value = jnp.where(known, self.values[on_right], drawn)
        value = eqx.error_if(
            value, ~known & (self.count == capacity), "`PathBuffer` is full; make it with a larger `capacity`."
        )
        points, values = self._with(place, known, self.points, point), self._with(place, known, self.values, value)
        return PathBuffer(points, values, self.count + ~known, self.beta), value  # [wang-hegde A1:17] and 26

    def _with(self, place: Array, known: Array, column: Array, entry: Array) -> Array:
        """The column with an entry put in at its place, unless it is there already."""
        k = jnp.arange(column.shape[0])
        later = jnp.where(k == place, entry, jnp.roll(column, 1))
        return jnp.where(known | (k < place), column, later)


def _check_beta(beta: Array) -> None:
    if not isinstance(beta, jax.core.Tracer) and not ((beta > 0) & (beta < jnp.inf)).all():
        raise ValueError(f"`beta` is {beta}; it must be positive and finite.")
