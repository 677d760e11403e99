"""Paths of a Gaussian process and functions released with them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy._functional import GaussianProcessPath, ReleasedFunction, bridge, rkhs_norm
from privrl.privacy._sources import record_draws


def kernel(points: np.ndarray, beta: float) -> np.ndarray:
    return np.exp(-beta * np.abs(points[:, None] - points[None, :]))


def tent(depth: int, centre: float, height: float, half_width: float) -> jax.Array:
    x = np.linspace(0, 1, 2**depth + 1)
    return jnp.asarray(height * np.maximum(0, 1 - np.abs(x - centre) / half_width))


@pytest.mark.parametrize("beta", [0.3, 5.0])
def test_covariance_at_unordered_points(beta: float) -> None:
    """Within 4.7 standard errors, sqrt((1 + k^2)/paths), for each of 36 entries."""
    paths, rng = 6_000, np.random.default_rng(0)
    points = np.round(np.append(rng.permutation(rng.random(6)), [0.0, 1.0]) * 2**12) / 2**12
    keys = jax.random.split(jax.random.key(0), paths)
    g = jax.jit(jax.vmap(lambda key: GaussianProcessPath(key, beta, 12)(jnp.asarray(points))))(keys)
    k = kernel(points, beta)
    z = (np.asarray(g.T @ g) / paths - k) / np.sqrt((1 + k**2) / paths)
    assert np.abs(z).max() < 4.7
    assert np.abs(np.asarray(g).mean(axis=0) * math.sqrt(paths)).max() < 4.7


def test_same_question_same_answer_in_any_order_and_company() -> None:
    path = GaussianProcessPath(jax.random.key(1), 2.0, 16)
    points = jnp.asarray(np.random.default_rng(1).random(50))
    answers = np.asarray(path(points))
    assert np.array_equal(answers, path(points))
    assert np.array_equal(answers[::-1], path(points[::-1]))
    assert answers[3] == path(points[3])
    assert np.array_equal(answers.reshape(5, 10), path(points.reshape(5, 10)))
    assert len(set(answers.tolist())) == 50


def test_queries_agree_with_the_whole_lattice_and_deeper_ones() -> None:
    shallow, deep = (GaussianProcessPath(jax.random.key(2), 3.0, depth) for depth in (3, 5))
    points = jnp.linspace(0, 1, 9)
    np.testing.assert_allclose(shallow(points), shallow.lattice(), rtol=0, atol=1e-14)
    np.testing.assert_allclose(deep(points), shallow(points), rtol=0, atol=1e-14)
    np.testing.assert_allclose(deep.lattice()[::4], shallow.lattice(), rtol=0, atol=1e-14)


def test_the_lattice_uses_every_key_once() -> None:
    path = GaussianProcessPath(jax.random.key(3), 3.0, 4)
    with record_draws() as drawn:
        path.lattice()
    assert len(drawn) == len(set(drawn)) == 17


@settings(deadline=None, max_examples=60)
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


def test_bridge_survives_extreme_distances() -> None:
    np.testing.assert_allclose(bridge(1.0, 1.0, 1e5), (0.0, 0.0, 1.0))
    left, right, variance = bridge(1e-12, 3e-12, 1.0)
    np.testing.assert_allclose([left, right, variance], [0.75, 0.25, 2 * 1e-12 * 3e-12 / 4e-12], rtol=1e-9)


@settings(deadline=None, max_examples=30)
@given(beta=st.floats(0.1, 20.0), seed=st.integers(0, 1000))
def test_norm_is_that_of_the_inverse_kernel(beta: float, seed: int) -> None:
    f = np.random.default_rng(seed).standard_normal(17)
    expected = math.sqrt(f @ np.linalg.solve(kernel(np.linspace(0, 1, 17), beta), f))
    np.testing.assert_allclose(rkhs_norm(jnp.asarray(f), beta), expected, rtol=1e-9)


def test_norm_of_a_tent() -> None:
    """||f||^2 = h^2 (1/(beta w) + beta w/3), least at beta = sqrt3/w, where it is 1.075^2 h^2."""
    for height, w in ((0.1, 0.125), (2.0, 0.25)):
        norm = rkhs_norm(tent(14, 0.5, height, w), math.sqrt(3) / w)
        assert float(norm) == pytest.approx(1.075 * height, rel=1e-3)
        assert float(norm) == pytest.approx(math.sqrt(2 / math.sqrt(3)) * height, rel=1e-6)
        for other in (1.0, 3.0):
            assert rkhs_norm(tent(14, 0.5, height, w), other / w) > norm


def test_norm_grows_with_the_lattice_towards_the_integral() -> None:
    f = lambda x: x**2 - 0.3 * x + 1.0  # noqa: E731
    beta = 2.5
    norms = [float(rkhs_norm(f(jnp.linspace(0, 1, 2**depth + 1)), beta)) for depth in (1, 3, 5, 12)]
    assert norms == sorted(norms)
    x = np.linspace(0, 1, 200_001)
    integral = np.trapezoid((2 * x - 0.3) ** 2 + beta**2 * f(x) ** 2, x)
    assert norms[-1] == pytest.approx(math.sqrt((f(0.0) ** 2 + f(1.0) ** 2) / 2 + integral / (2 * beta)), rel=1e-7)


def test_released_function_rounds_both_parts_to_the_lattice() -> None:
    path = GaussianProcessPath(jax.random.key(4), 2.0, 4)
    release = ReleasedFunction(lambda x: 10.0 * x, 0.5, path)
    grid = jnp.linspace(0, 1, 17)
    np.testing.assert_allclose(release(grid), 10.0 * grid + 0.5 * path.lattice(), atol=1e-13)
    nearby = grid.at[1:-1].add(0.02)  # less than half a cell
    assert np.array_equal(release(nearby), release(grid))
    assert np.array_equal(ReleasedFunction(jnp.sin, 0.0, path)(grid), jnp.sin(grid))


def test_bad_arguments_are_refused() -> None:
    key = jax.random.key(5)
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="`beta`"):
            GaussianProcessPath(key, beta)
    with pytest.raises(ValueError, match="`depth`"):
        GaussianProcessPath(key, 1.0, 31)
    for point in (-0.1, 1.1, math.nan):
        with pytest.raises(RuntimeError, match=r"\[0, 1\]"):
            GaussianProcessPath(key, 1.0, 4)(jnp.asarray(point)).block_until_ready()
