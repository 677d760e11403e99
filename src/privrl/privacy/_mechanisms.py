"""The small acts of privacy: bounding a contribution, knowing its sensitivity, adding noise, answering at random."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from privrl.privacy._noise import AbstractNoise
from privrl.privacy._release import Adjacency, Release

_SMALLEST = float(np.finfo(np.float64).tiny)  # subnormal numbers count as 0: processors may drop them


def add_noise(value: ArrayLike, noise: AbstractNoise, white: ArrayLike) -> Release:
    """Releases `value` with noise of the given law, made from white noise that is used for nothing else.

    **Formal guarantee** (in exact arithmetic). For a value of L2 (Frobenius, for `SymmetricNoise`) sensitivity D,
    Gaussian noise of scale s is exactly mu-GDP with mu = D/s; for L1 sensitivity D, Laplace noise of scale s is
    (D/s)-DP. Both relative to the adjacency under which D was computed.
    """
    return Release(jnp.asarray(value) + noise.scaled(white), noise)


def clip_by_norm(x: Float[Array, "*shape"], bound: float | Float[Array, ""]) -> Float[Array, "*shape"]:
    """Scales an array down to L2 (Frobenius) norm `bound`; leaves it alone if it is within, zeros it if not finite.

    **Formal guarantee.** Whatever `x` holds (infinities, NaN, overflow), the result has norm at most
    `bound (1 + n 2^-53)` for n entries: an array that is scaled stays below `bound`, because the factor is reduced by
    more than all rounding; one that is left alone has a *computed* norm within `bound`, and a sum of n squares is
    computed to that precision. Arrays on the bound (one-hot vectors, say) come back unchanged.
    """
    x = jnp.where(jnp.isfinite(x).all() & (jnp.abs(x) >= _SMALLEST), x, 0.0)
    largest = jnp.abs(x).max(initial=0.0)
    # Squares must stay well inside the range of float64. A power of 2 is exact; dividing by `largest` is not safe:
    # compilers turn it into a product with a reciprocal, which may be flushed to 0.
    unit = jnp.where(largest > 2.0**500, 2.0**-600, jnp.where(largest < 2.0**-400, 2.0**600, 1.0))
    y = x * unit
    length = jnp.sqrt((y**2).sum())
    shrink = bound / jnp.where(length > 0, length, 1.0) * (1.0 - (x.size + 8) * 2.0**-53)
    return jnp.where(length <= bound * unit, x, y * shrink)


def l2_of_sum(norm: float, adjacency: Adjacency) -> float:
    """L2 sensitivity of a sum of vectors, one per person, of norm at most `norm`.

    **Formal guarantee.** Replacing x by y moves the sum by ||x - y|| <= 2 norm, reached at y = -x; adding or removing
    x moves it by ||x|| <= norm.
    """
    return (2.0 if _replaces(adjacency) else 1.0) * _nonnegative("norm", norm)


def l2_of_outer_products(norm: float, adjacency: Adjacency) -> float:
    """Frobenius sensitivity of a sum of phi phi^T, one per person, with ||phi|| at most `norm`.

    **Formal guarantee.** ||phi phi^T - psi psi^T||_F^2 = ||phi||^4 + ||psi||^4 - 2 <phi, psi>^2 <= 2 norm^4, reached
    by orthogonal phi and psi (in one dimension nothing reaches it: the bound is then loose by sqrt 2); adding or
    removing moves the sum by ||phi||^2 <= norm^2.
    """
    return (math.sqrt(2.0) if _replaces(adjacency) else 1.0) * _nonnegative("norm", norm) ** 2


def l2_of_scaled(feature_norm: float, low: float, high: float, adjacency: Adjacency) -> float:
    """L2 sensitivity of a sum of (y - (low + high)/2) phi, with ||phi|| at most `feature_norm` and y in [low, high].

    **Formal guarantee.** The centred number is at most (high - low)/2 in size, so a term has norm at most
    feature_norm (high - low)/2 and two terms differ by at most twice that; both are reached. `low` and `high` are
    public, and y is clipped to them before it is centred.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"`low` = {low} and `high` = {high} must be finite with `low` <= `high`.")
    return l2_of_sum(_nonnegative("feature_norm", feature_norm) * (high - low) / 2.0, adjacency)


class RandomisedResponse(eqx.Module):
    """Answers with the true symbol with probability p, otherwise with one of the others, all alike.

    p = e^eps/(e^eps + k - 1), and each wrong symbol has probability q = 1/(e^eps + k - 1), for k symbols.

    **Formal guarantee.** p/q = e^eps, so one answer is eps-locally DP with delta = 0, for any two true symbols. The
    chance to lie is rounded *up* to a multiple of 2^-52, which can only lower the ratio; the choice among the others
    is uniform up to k 2^-52. An infinite `epsilon` is the identity, and protects nobody.

    **Example.** `RandomisedResponse(4, 1.0).respond(symbol, source.uniform(("report", 17), (2,)))`.
    """

    num_symbols: int = eqx.field(static=True)
    epsilon: Float[Array, ""]

    def __init__(self, num_symbols: int, epsilon: ArrayLike) -> None:
        self.num_symbols = num_symbols
        self.epsilon = jnp.asarray(epsilon, float)

    def __check_init__(self) -> None:
        if self.num_symbols < 2:
            raise ValueError(f"`num_symbols` is {self.num_symbols}; an answer needs at least 2 symbols to choose from.")
        if not isinstance(self.epsilon, jax.core.Tracer) and not self.epsilon > 0:
            raise ValueError(f"`epsilon` is {self.epsilon}; it must be positive (`inf` for no privacy).")

    @property
    def keep_probability(self) -> Float[Array, ""]:
        """p, the chance of a true answer."""
        return 1.0 / (1.0 + (self.num_symbols - 1) * jnp.exp(-self.epsilon))

    @property
    def wrong_probability(self) -> Float[Array, ""]:
        """q, the chance of each wrong symbol; accurate however small."""
        return jnp.exp(-self.epsilon) * self.keep_probability

    @property
    def width(self) -> Float[Array, ""]:
        """1/(p - q), the length of the interval that holds a debiased entry."""
        return 1.0 / (self.keep_probability * -jnp.expm1(-self.epsilon))

    @property
    def variance(self) -> Float[Array, ""]:
        """Variance q(1-q)/(p-q)^2 of the debiased entry of a symbol that is not the true one."""
        return self.wrong_probability * (1.0 - self.wrong_probability) * self.width**2

    @property
    def variance_true(self) -> Float[Array, ""]:
        """Variance p(1-p)/(p-q)^2 of the debiased entry of the true symbol."""
        return self.keep_probability * (self.num_symbols - 1) * self.wrong_probability * self.width**2

    def respond(self, symbol: Int[ArrayLike, ""], uniforms: Float[Array | np.ndarray, "2"]) -> Int[Array, ""]:
        """The answer of a person whose true symbol is `symbol`, from two fresh uniform numbers in [0, 1)."""
        chance = jnp.floor(uniforms[0] * 2.0**52) * 2.0**-52  # so that 0 occurs: however rare, a lie is possible
        lie = chance < (self.num_symbols - 1) * self.wrong_probability
        other = jnp.floor(uniforms[1] * (self.num_symbols - 1)).astype(int)
        return jnp.where(lie, jnp.where(other >= symbol, other + 1, other), symbol)

    def debias(self, answer: Int[ArrayLike, ""]) -> Float[Array, " k"]:
        """(1[j = answer] - q)/(p - q) for every symbol j: its mean is the indicator of the true symbol."""
        return (jax.nn.one_hot(answer, self.num_symbols, dtype=float) - self.wrong_probability) * self.width


def _replaces(adjacency: Adjacency) -> bool:
    if adjacency not in ("replace-one", "add-remove"):
        raise ValueError(f"`adjacency` is {adjacency!r}; use 'replace-one' or 'add-remove'.")
    return adjacency == "replace-one"


def _nonnegative(name: str, value: float) -> float:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"`{name}` is {value}; it must be a finite number, at least 0.")
    return value
