"""Continual mechanisms: release running sums at public times, with noise that grows slowly.

The sum of the first t+1 leaves is released as `prefix_t + scale * noise_t`, t = 0, ..., steps-1. A leaf is one person,
or better one block of people between two public times; a person is in one leaf only. The classes here make the
noise_t: linear combinations of standard white noise, one fresh array per step, drawn once.

**Formal guarantee.** Write the releases as A x + scale B z with A the prefix sums, B what `step` does to the white
noise z. If one leaf moves by at most D in L2 norm, the whole sequence is exactly mu-GDP for the largest
mu = ||B^+ A e_j|| D/scale over leaves j (adaptive leaves included, as B is lower triangular with a positive diagonal).
`factor` is at least that norm: `scale = factor * D / mu` gives mu-GDP. This is for normal noise (`noise` is
"gaussian").

With Laplace noise all norms are L1 norms. Every z_t is drawn once and is Laplace noise on row t of E x, E = B^-1 A,
which is a function of leaves 0, ..., t. Given the releases so far, row t costs |(E (x - x'))_t|_1/scale; the rows add
up to at most max_j |E e_j|_1 D/scale, for adaptive leaves, too. So `scale = factor * D / epsilon` gives
epsilon-differential privacy with delta = 0. A row that no leaf of the person is in costs nothing.
"""

import abc
import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int, Int64

from privrl.contracts.noise_distribution import NoiseKind
from privrl.contracts.release import MAX_RELEASES
from privrl.privacy.continual.participation import Participation, largest, largest_sum

Draw = Callable[[int], Array]


class AbstractContinual(eqx.Module):
    """Noise for `steps` released prefix sums. `noise` is the kind of white noise, and decides the norm of `factor`."""

    steps: eqx.AbstractVar[int]
    noise: eqx.AbstractVar[NoiseKind]

    def __check_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"`steps` is {self.steps}; it must be at least 1.")

    @property
    @abc.abstractmethod
    def factor(self) -> float:
        """Noise scale per unit of leaf sensitivity over mu (or epsilon): the largest column norm of the encoder."""

    @abc.abstractmethod
    def encoder(self) -> Float64[np.ndarray, "rows steps"]:
        """E >= 0, one column for each leaf, with A = B E for all noise that is drawn, released or not."""

    def sums(self) -> Float64[np.ndarray, "steps steps"]:
        """A: the weight of every leaf in every release; 1 for all leaves so far."""
        return np.tril(np.ones((self.steps, self.steps)))

    def carry(self, running: Float[Array, "..."], t: int | Int[Array, ""]) -> Float[Array, "..."]:
        """The part of the running sum that is kept when leaf t arrives: all of it, unless the mechanism forgets."""
        del t
        return running

    def sensitivity(self, participation: Participation) -> float:
        """An upper bound on how far a person in several leaves moves E x, for terms of norm 1 (`participation.py`)."""
        if self.noise == "laplace":
            return largest_sum(self.columns(), participation)
        encoder = self.encoder()
        return largest(encoder.T @ encoder, participation)

    def columns(self) -> Float64[np.ndarray, " steps"]:
        """The L1 norm of every column of the encoder."""
        return np.abs(self.encoder()).sum(axis=0)

    @abc.abstractmethod
    def init(self, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """The state before the first step, for sums of `shape`."""

    @abc.abstractmethod
    def step(
        self, state: Float[Array, "..."], fresh: Draw, t: int | Int[Array, ""]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The next state and noise_t; `fresh(i)` draws the i-th new standard array of this step, normal or Laplace."""

    @abc.abstractmethod
    def _variances(self) -> Float64[np.ndarray, " steps"]: ...

    def variance(self, t: int | Int[Array, ""]) -> Float[Array, ""]:
        """Variance of every entry of noise_t, in units of the variance of the white noise."""
        return jnp.asarray(self._variances())[t]

    def _largest_weights(self) -> Float64[np.ndarray, " steps"]:
        return np.ones(self.steps)

    def largest_weight(self, t: int | Int[Array, ""]) -> Float[Array, ""]:
        """The largest weight of one draw in noise_t. Only mechanisms for Laplace noise need it."""
        return jnp.asarray(self._largest_weights())[t]

    def matrix(self) -> Float64[np.ndarray, "steps steps"]:
        """B: what the white noise of step j adds to release t; lower triangular, with a positive diagonal."""
        return np.asarray(_matrix(self))


class Fresh(AbstractContinual):
    """Independent noise on every release; the first leaf is in all of them, so the factor is sqrt(steps).

    With Laplace noise it is `steps`.
    """

    steps: int = eqx.field(static=True)
    noise: NoiseKind = eqx.field(static=True, default="gaussian")

    @property
    def factor(self) -> float:
        return float(self.steps) if self.noise == "laplace" else math.sqrt(self.steps)

    def encoder(self) -> Float64[np.ndarray, "rows steps"]:
        return np.tril(np.ones((self.steps, self.steps)))

    def init(self, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jnp.zeros((0, *shape))

    def step(
        self, state: Float[Array, "..."], fresh: Draw, t: int | Int[Array, ""]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        del t
        return state, fresh(0)

    def _variances(self) -> Float64[np.ndarray, " steps"]:
        return np.ones(self.steps)


class AbstractTree(AbstractContinual):
    """Noise on the sums over dyadic intervals, in as many levels as `steps` has binary digits."""

    @property
    def factor(self) -> float:
        levels = self.steps.bit_length()
        return float(levels) if self.noise == "laplace" else math.sqrt(levels)

    def encoder(self) -> Float64[np.ndarray, "rows steps"]:
        leaves = np.arange(self.steps)
        levels = [(level, self.steps >> level) for level in range(self.steps.bit_length())]
        return np.concatenate([leaves >> level == np.arange(whole)[:, None] for level, whole in levels]).astype(float)

    def init(self, shape: tuple[int, ...]) -> Float[Array, "..."]:
        return jnp.zeros((self.steps.bit_length(), *shape))


class BinaryTree(AbstractTree):
    """Noise on the sums over dyadic intervals; a prefix adds the intervals of its length's binary digits.

    Interval number m of level l holds leaves m 2^l, ..., (m+1) 2^l - 1. A prefix of n <= steps leaves uses level l only
    if 2^l <= n, so floor(log2 steps) + 1 levels suffice, and leaf 0 meets one noisy interval in each of them. For K
    people of whom the last answer has seen K-1, steps = K-1 and that is ceil(log2 K); publishing the final sum too
    is steps = K, one level more when K is a power of 2.
    """

    steps: int = eqx.field(static=True)
    noise: NoiseKind = eqx.field(static=True, default="gaussian")

    def columns(self) -> Float64[np.ndarray, " steps"]:
        """The number of intervals of each leaf that are drawn: one for each release, the largest that ends with it."""
        ends = np.arange(1, self.steps + 1)
        return count_covers(ends - (ends & -ends))

    def step(
        self, state: Float[Array, "..."], fresh: Draw, t: int | Int[Array, ""]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        levels = self.steps.bit_length()
        return _close_interval(state, fresh(0), t, np.zeros((levels, levels)), np.ones(levels))

    def _variances(self) -> Float64[np.ndarray, " steps"]:
        return _digits(self.steps).sum(axis=1).astype(float)


class Honaker(AbstractTree):
    """The binary tree, with every interval's sum also estimated from its two halves (Honaker's refinement from below).

    Own noise of variance 1 and halves of variance v_{l-1} each combine to v_l = 1/(1 + 1/(2 v_{l-1})), v_0 = 1, with
    weight v_l on the own noise. When leaf n = t+1 closes intervals of levels 0..i at once, only the estimate of level i
    is ever released: it holds the halves kept from earlier steps, weighted by the products of (1 - v_m), and fresh
    noise whose variance s_i^2 = v_i^2 + (1 - v_i)^2 s_{i-1}^2 is known. One normal draw of that scale has the same
    distribution.

    `factor` is that of all noisy intervals. The releases reveal less, so the guarantee has slack. One normal draw
    replaces several, so the noise is Gaussian.
    """

    steps: int = eqx.field(static=True)
    noise: NoiseKind = eqx.field(static=True, default="gaussian", init=False)

    def step(
        self, state: Float[Array, "..."], fresh: Draw, t: int | Int[Array, ""]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        _, kept, own = _refinement(self.steps.bit_length())
        return _close_interval(state, fresh(0), t, kept, own)

    def _variances(self) -> Float64[np.ndarray, " steps"]:
        return _digits(self.steps) @ _refinement(self.steps.bit_length())[0]


def count_covers(starts: Int64[np.ndarray, " steps"]) -> Float64[np.ndarray, " steps"]:
    """The number of intervals that hold each leaf, if interval t consists of leaves `starts[t]`, ..., t."""
    begun = np.bincount(starts, minlength=len(starts)).cumsum()
    return (begun - np.arange(len(starts))).astype(float)  # intervals that ended with an earlier leaf do not hold it


def check_blocks(number: int, total: int) -> None:
    """Refuses a schedule of too many blocks, before it is derived."""
    if number > MAX_RELEASES:
        raise ValueError(
            f"A schedule for {total:,} people has more than {MAX_RELEASES:,} blocks, the largest number that privrl "
            "derives. Use larger blocks, or fewer people."
        )


def geometric_schedule(total: int, ratio: float, first: int = 1) -> Int64[np.ndarray, " blocks"]:
    """Public times at which blocks end: `first`, then each at most `ratio` times the last (or one more), then `total`.

    There are about log(total)/log(ratio) blocks, and as many leaves. This costs no privacy, because the times do not
    depend on data.

    >>> geometric_schedule(100, 2.0).tolist()
    [1, 2, 4, 8, 16, 32, 64, 100]
    """
    if not ratio > 1.0:
        raise ValueError(f"`ratio` is {ratio}; it must be above 1. Use `every` for equal blocks.")
    if not 1 <= first <= total:
        raise ValueError(f"`first` is {first} and `total` is {total}; use 1 <= `first` <= `total`.")
    ends = [first]
    while ends[-1] < total:
        ends.append(min(total, max(ends[-1] + 1, math.floor(ratio * ends[-1]))))
        check_blocks(len(ends), total)
    return np.array(ends, np.int64)


def every(total: int, size: int) -> Int64[np.ndarray, " blocks"]:
    """Public times at which blocks of `size` end; the last block may be shorter.

    >>> every(10, 4).tolist()
    [4, 8, 10]
    """
    if total < 1 or size < 1:
        raise ValueError(f"`total` is {total} and `size` is {size}; both must be at least 1.")
    check_blocks(-(-total // size), total)
    return np.minimum(np.arange(size, total + size, size, dtype=np.int64), total)


@eqx.filter_jit
def _matrix(continual: AbstractContinual) -> Float[Array, "steps steps"]:
    unit = jnp.eye(continual.steps)

    def step(state: Array, t: Array) -> tuple[Array, Array]:
        return continual.step(state, lambda _: unit[t], t)

    return jax.lax.scan(step, continual.init((continual.steps,)), jnp.arange(continual.steps))[1]


def _close_interval(
    state: Array, white: Array, t: int | Array, kept: np.ndarray, own: np.ndarray
) -> tuple[Array, Array]:
    """Closes the interval that ends with leaf t, at the level of the lowest binary digit 1 of n = t+1."""
    digits = ((t + 1) >> jnp.arange(len(own))) & 1
    level = jnp.argmax(digits)
    closed = jnp.tensordot(jnp.asarray(kept)[level], state, axes=1, precision=jax.lax.Precision.HIGHEST)
    state = state.at[level].set(closed + jnp.asarray(own)[level] * white)
    return state, jnp.tensordot(digits.astype(state.dtype), state, axes=1, precision=jax.lax.Precision.HIGHEST)


def _digits(steps: int) -> np.ndarray:
    """Binary digits of 1, ..., steps: `[steps, levels]`, lowest first."""
    return (np.arange(1, steps + 1)[:, None] >> np.arange(steps.bit_length())) & 1


@functools.lru_cache(maxsize=64)
def _refinement(levels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Honaker's v_l; the weights `[i, l]` of the halves kept at levels l < i; the scale of the fresh noise at i."""
    v, own = np.ones(levels), np.ones(levels)
    kept = np.zeros((levels, levels))
    for i in range(1, levels):
        v[i] = 1.0 / (1.0 + 0.5 / v[i - 1])
        own[i] = math.hypot(v[i], (1.0 - v[i]) * own[i - 1])
        kept[i, i - 1] = 1.0
        kept[i] = (1.0 - v[i]) * (kept[i] + kept[i - 1])
    return v, kept, own
