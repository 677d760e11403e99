"""Paths of a Gaussian process on equally spaced points."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy.functions.paths import mesh_path, mesh_points, nearest, whiten


def kernel(points: np.ndarray, beta: float) -> np.ndarray:
    return np.exp(-beta * np.abs(points[:, None] - points[None, :]))


DEPTH, PATHS = 8, 4_000
RNG = np.random.default_rng(0)
POINTS = np.round(np.append(RNG.permutation(RNG.random(6)), [0.0, 1.0]) * 2**DEPTH) / 2**DEPTH  # distinct, unordered


@jax.jit
def by_mesh(beta: jax.Array) -> jax.Array:
    white = jax.random.normal(jax.random.key(2), (PATHS, 2**DEPTH + 1))
    return mesh_path(white, beta)[:, (POINTS * 2**DEPTH).astype(int)]


@pytest.mark.parametrize("beta", [0.3, 5.0])
def test_covariance_at_unordered_points(beta: float) -> None:
    """Within 4.7 standard errors, sqrt((1 + k^2)/paths), for each of 36 entries, and the mean of each of 8 points."""
    assert len(set(POINTS)) == 8
    g, k = np.asarray(by_mesh(jnp.asarray(beta))), kernel(POINTS, beta)
    z = (g.T @ g / PATHS - k) / np.sqrt((1 + k**2) / PATHS)
    assert np.abs(z).max() < 4.7
    assert np.abs(g.mean(axis=0) * math.sqrt(PATHS)).max() < 4.7


@pytest.mark.parametrize("beta", [0.01, 3.0, 200.0])
def test_the_filter_is_a_root_of_the_kernel(beta: float) -> None:
    root = np.asarray(mesh_path(jnp.eye(33), beta))
    assert np.abs(root.T @ root - kernel(np.asarray(mesh_points(5)), beta)).max() < 1e-12


def test_the_filter_is_the_cholesky_factor() -> None:
    factor = np.linalg.cholesky(kernel(np.linspace(0, 1, 33), 4.0))
    np.testing.assert_allclose(mesh_path(jnp.eye(33), 4.0).T, factor, rtol=0, atol=1e-13)


@settings(deadline=None, max_examples=20)
@given(beta=st.floats(1e-3, 100.0), seed=st.integers(0, 1000))
def test_whitening_undoes_the_filter(beta: float, seed: int) -> None:
    white = jnp.asarray(np.random.default_rng(seed).standard_normal((2, 3, 17)))
    np.testing.assert_allclose(whiten(mesh_path(white, beta), beta), white, rtol=0, atol=1e-10)


def test_short_floats_keep_five_digits_at_gaps_of_a_millionth() -> None:
    """In float32 e^{-1e-6} has lost two of its digits; over 2^17 steps its powers are wrong by .001. Ours are not."""
    maps = mesh_path(jnp.eye(65, dtype=jnp.float32), 64e-6)
    assert maps.dtype == jnp.float32
    root = np.asarray(maps, np.float64)
    assert np.abs(root.T @ root - kernel(np.linspace(0, 1, 65), 64e-6)).max() < 1e-5
    n = 2**17 + 1
    response = np.asarray(mesh_path(jnp.zeros(n, jnp.float32).at[0].set(1.0), 1e-6 * (n - 1)), np.float64)
    assert np.abs(response - np.exp(-1e-6 * np.arange(n))).max() < 1e-5
    assert np.abs(np.float64(np.exp(np.float32(-1e-6))) ** (n - 1) - math.exp(-1e-6 * (n - 1))) > 1e-3


def test_points_outside_are_refused() -> None:
    for point in (-0.1, 1.1, math.nan):
        with pytest.raises(RuntimeError, match=r"\[0, 1\]"):
            nearest(jnp.asarray(point), 4).block_until_ready()
