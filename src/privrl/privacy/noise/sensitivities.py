"""Sensitivities of common sums, and adding noise to a value."""

import math

import jax.numpy as jnp
from jaxtyping import ArrayLike

from privrl.contracts.noise_distribution import AbstractNoise
from privrl.contracts.release import Release
from privrl.contracts.statistic import Adjacency


def add_noise(value: ArrayLike, noise: AbstractNoise, white: ArrayLike) -> Release:
    """Releases `value` with noise of the given distribution, made from white noise that has no other use.

    **Formal guarantee** (in exact arithmetic). For a value of L2 (Frobenius, for `SymmetricNoise`) sensitivity D,
    Gaussian noise of scale s is exactly mu-GDP with mu = D/s; for L1 sensitivity D, Laplace noise of scale s is
    (D/s)-DP. Both relative to the adjacency under which D was computed.
    """
    return Release(jnp.asarray(value) + noise.from_white(white), noise)


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


def _replaces(adjacency: Adjacency) -> bool:
    if adjacency not in ("replace-one", "add-remove"):
        raise ValueError(f"`adjacency` is {adjacency!r}; use 'replace-one' or 'add-remove'.")
    return adjacency == "replace-one"


def _nonnegative(name: str, value: float) -> float:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"`{name}` is {value}; it must be a finite number, at least 0.")
    return value
