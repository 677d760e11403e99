"""Paths of a Gaussian process: three samplers of one law."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy.functions.paths import (
    GaussianProcessPath,
    PathBuffer,
    bridge,
    innovations,
    lattice_path,
    lattice_points,
)
from privrl.privacy.noise.sources import record_draws


def kernel(points: np.ndarray, beta: float) -> np.ndarray:
    return np.exp(-beta * np.abs(points[:, None] - points[None, :]))


def asked(
    points: jax.Array, white: jax.Array, beta: float | jax.Array, capacity: int | None = None
) -> tuple[PathBuffer, jax.Array]:
    """A new buffer, asked at each point in turn."""
    buffer = PathBuffer.empty(len(points) if capacity is None else capacity, beta)
    return jax.lax.scan(lambda b, question: b.ask(*question), buffer, (points, white))


DEPTH, PATHS = 8, 4_000
RNG = np.random.default_rng(0)
POINTS = np.round(np.append(RNG.permutation(RNG.random(6)), [0.0, 1.0]) * 2**DEPTH) / 2**DEPTH  # distinct, unordered


@jax.jit
def by_tree(beta: jax.Array) -> jax.Array:
    keys = jax.random.split(jax.random.key(0), PATHS)
    return jax.vmap(lambda key: GaussianProcessPath(key, beta, DEPTH)(jnp.asarray(POINTS)))(keys)


@jax.jit
def by_buffer(beta: jax.Array) -> jax.Array:
    white = jax.random.normal(jax.random.key(1), (PATHS, len(POINTS)))
    return jax.vmap(lambda w: asked(jnp.asarray(POINTS), w, beta)[1])(white)


@jax.jit
def by_lattice(beta: jax.Array) -> jax.Array:
    white = jax.random.normal(jax.random.key(2), (PATHS, 2**DEPTH + 1))
    return lattice_path(white, beta)[:, (POINTS * 2**DEPTH).astype(int)]


@pytest.mark.parametrize("sampler", [by_tree, by_buffer, by_lattice])
@pytest.mark.parametrize("beta", [0.3, 5.0])
def test_covariance_at_unordered_points(sampler: Callable[[jax.Array], jax.Array], beta: float) -> None:
    """Within 4.7 standard errors, sqrt((1 + k^2)/paths), for each of 36 entries, and the mean of each of 8 points."""
    assert len(set(POINTS)) == 8
    g, k = np.asarray(sampler(jnp.asarray(beta))), kernel(POINTS, beta)
    z = (g.T @ g / PATHS - k) / np.sqrt((1 + k**2) / PATHS)
    assert np.abs(z).max() < 4.7
    assert np.abs(g.mean(axis=0) * math.sqrt(PATHS)).max() < 4.7


@jax.jit
def roots(beta: jax.Array, points: jax.Array) -> tuple[jax.Array, ...]:
    """Unit noise, one coordinate at a time, through the linear map of each sampler."""
    tree = jax.vmap(GaussianProcessPath(jax.random.key(0), beta, 5)._filled)(jnp.eye(33))
    buffer = jax.vmap(lambda w: asked(points, w, beta)[1])(jnp.eye(len(points)))
    return tree, lattice_path(jnp.eye(33), beta), buffer


@pytest.mark.parametrize("beta", [0.01, 3.0, 200.0])
def test_each_sampler_is_a_root_of_the_kernel(beta: float) -> None:
    grid, points = np.asarray(lattice_points(5)), np.random.default_rng(3).random(16)
    for root, where in zip(roots(jnp.asarray(beta), jnp.asarray(points)), (grid, grid, points), strict=True):
        assert np.abs(np.asarray(root).T @ np.asarray(root) - kernel(where, beta)).max() < 1e-12


def test_the_filter_is_the_cholesky_factor() -> None:
    factor = np.linalg.cholesky(kernel(np.linspace(0, 1, 33), 4.0))
    np.testing.assert_allclose(lattice_path(jnp.eye(33), 4.0).T, factor, rtol=0, atol=1e-13)


@settings(deadline=None, max_examples=20)
@given(beta=st.floats(1e-3, 100.0), seed=st.integers(0, 1000))
def test_innovations_undo_the_filter(beta: float, seed: int) -> None:
    white = jnp.asarray(np.random.default_rng(seed).standard_normal((2, 3, 17)))
    np.testing.assert_allclose(innovations(lattice_path(white, beta), beta), white, rtol=0, atol=1e-10)


def test_same_question_same_answer_in_any_order_and_company() -> None:
    path = GaussianProcessPath(jax.random.key(1), 2.0, 16)
    points = jnp.asarray(np.random.default_rng(1).random(50))
    answers = np.asarray(path(points))
    assert np.array_equal(answers, path(points))
    assert np.array_equal(answers[::-1], path(points[::-1]))
    assert np.array_equal(answers[7:9].reshape(1, 2), path(points[7:9].reshape(1, 2)))
    assert len(set(answers.tolist())) == 50


def test_queries_agree_with_the_whole_lattice_and_deeper_ones() -> None:
    shallow, deep = (GaussianProcessPath(jax.random.key(2), 3.0, depth) for depth in (3, 5))
    points = jnp.linspace(0, 1, 9)
    np.testing.assert_allclose(deep(points), shallow.lattice(), rtol=0, atol=1e-14)


def test_the_lattice_uses_every_key_once() -> None:
    path = GaussianProcessPath(jax.random.key(3), 3.0, 4)
    with record_draws() as drawn:
        path.lattice()
    assert len(drawn) == len(set(drawn)) == 17


def test_a_buffer_repeats_itself_and_keeps_its_list_sorted() -> None:
    rng = np.random.default_rng(4)
    once = rng.random(9)
    questions = np.concatenate([once, once[::-1], [1.7, -2.0, 1.7]])  # the line, not only [0, 1]
    white = jnp.asarray(rng.standard_normal(len(questions)))
    buffer, answers = jax.jit(lambda p, w: asked(p, w, 2.0, 12))(jnp.asarray(questions), white)
    first = {}
    for question, answer in zip(questions.tolist(), np.asarray(answers).tolist(), strict=True):
        assert first.setdefault(question, answer) == answer
    assert int(buffer.count) == len(first) == 11
    np.testing.assert_array_equal(buffer.points[:11], sorted(first))
    np.testing.assert_array_equal(buffer.values[:11], [first[p] for p in sorted(first)])
    assert buffer.points[11] == np.inf


def test_a_full_buffer_says_so() -> None:
    points, white = jnp.asarray([0.5, 0.2, 0.9, 0.2]), jnp.ones(4)
    ask = eqx.filter_jit(lambda p, w, capacity: asked(p, w, 2.0, capacity)[1])
    assert np.isfinite(ask(points, white, 3)).all()  # what is known can be asked of a full one
    with pytest.raises(RuntimeError, match="larger `capacity`"):
        ask(points, white, 2).block_until_ready()
    with pytest.raises(RuntimeError, match="finite"):
        ask(points.at[0].set(jnp.nan), white, 3).block_until_ready()
    with pytest.raises(ValueError, match="`capacity`"):
        PathBuffer.empty(0, 1.0)


@settings(deadline=None, max_examples=40)
@given(a=st.floats(1e-6, 2.0), b=st.floats(1e-6, 2.0), beta=st.floats(1e-3, 50.0))
def test_bridge_is_conditioning_on_the_neighbours(a: float, b: float, beta: float) -> None:
    # K of the neighbours and the covariances with them, inverted by hand in extended precision
    ea, eb, both = (np.exp(-np.longdouble(beta) * np.longdouble(x)) for x in (a, b, np.longdouble(a) + b))
    determinant = -np.expm1(-2 * np.longdouble(beta) * (np.longdouble(a) + b))
    weights = ((ea - both * eb) / determinant, (eb - both * ea) / determinant)
    variance = 1 - weights[0] * ea - weights[1] * eb
    left, right, spread = bridge(a, b, beta)
    np.testing.assert_allclose([left, right], np.array(weights, float), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(spread, float(variance), rtol=1e-6, atol=1e-10)
    assert 0 < spread <= 1


def test_bridge_with_one_neighbour_none_and_at_extreme_distances() -> None:
    np.testing.assert_allclose(bridge(0.3, np.inf, 2.0), (math.exp(-0.6), 0.0, -math.expm1(-1.2)), rtol=1e-15)
    np.testing.assert_allclose(bridge(np.inf, 0.3, 2.0), (0.0, math.exp(-0.6), -math.expm1(-1.2)), rtol=1e-15)
    np.testing.assert_array_equal(bridge(np.inf, np.inf, 2.0), (0.0, 0.0, 1.0))
    np.testing.assert_allclose(bridge(1.0, 1.0, 1e5), (0.0, 0.0, 1.0))
    left, right, variance = bridge(1e-12, 3e-12, 1.0)
    np.testing.assert_allclose([left, right, variance], [0.75, 0.25, 2 * 1e-12 * 3e-12 / 4e-12], rtol=1e-9)


def test_short_floats_keep_five_digits_at_gaps_of_a_millionth() -> None:
    """In float32 e^{-1e-6} has lost two of its digits; over 2^17 steps its powers are wrong by .001. Ours are not."""
    a, b, beta = (np.float32(x) for x in (1e-6, 2e-6, 1.0))
    short, exact = bridge(a, b, beta), bridge(float(a), float(b), float(beta))
    assert all(x.dtype == jnp.float32 for x in short)
    np.testing.assert_allclose([float(x) for x in short], [float(x) for x in exact], rtol=1e-5)
    maps = lattice_path(jnp.eye(65, dtype=jnp.float32), 64e-6)
    assert maps.dtype == jnp.float32
    root = np.asarray(maps, np.float64)
    assert np.abs(root.T @ root - kernel(np.linspace(0, 1, 65), 64e-6)).max() < 1e-5
    n = 2**17 + 1
    response = np.asarray(lattice_path(jnp.zeros(n, jnp.float32).at[0].set(1.0), 1e-6 * (n - 1)), np.float64)
    assert np.abs(response - np.exp(-1e-6 * np.arange(n))).max() < 1e-5
    assert np.abs(np.float64(np.exp(np.float32(-1e-6))) ** (n - 1) - math.exp(-1e-6 * (n - 1))) > 1e-3


def test_bad_arguments_are_refused() -> None:
    key = jax.random.key(5)
    for beta in (0.0, -1.0, math.inf, math.nan):
        for make in (lambda beta: GaussianProcessPath(key, beta), lambda beta: PathBuffer.empty(3, beta)):
            with pytest.raises(ValueError, match="`beta`"):
                make(beta)
    with pytest.raises(ValueError, match="`depth`"):
        GaussianProcessPath(key, 1.0, 31)
    for point in (-0.1, 1.1, math.nan):
        with pytest.raises(RuntimeError, match=r"\[0, 1\]"):
            GaussianProcessPath(key, 1.0, 4)(jnp.asarray(point)).block_until_ready()
