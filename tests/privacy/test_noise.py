"""Bounds of noise distributions against simulation. Counts of failures are tested at |z| < 4.5 (error level 7e-6
each).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privrl  # noqa: F401  (turns on float64)
from privrl.contracts.noise_distribution import AbstractNoise
from privrl.privacy.noise.distributions import GaussianNoise, LaplaceNoise, SymmetricNoise
from privrl.privacy.noise.subset import ResponseNoise

Z_LIMIT = 4.5
SCALES = np.array([[0.1, 1.0, 3.0], [0.5, 0.5, 2.0], [0.0, 1.0, 1.0]])
DISTRIBUTIONS = [
    GaussianNoise(1.7, (3, 3)),
    GaussianNoise(SCALES, (3, 3)),
    SymmetricNoise(1.7, 3),
    LaplaceNoise(1.7, (3, 3)),
    LaplaceNoise(SCALES, (3, 3)),
    ResponseNoise(SCALES, 2.0, 30.0, (3, 3)),
]


def draws(noise: AbstractNoise, trials: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (trials, *noise.shape)
    white = rng.standard_normal(shape) if noise.white == "normal" else rng.laplace(size=shape)
    return np.asarray(jax.jit(jax.vmap(noise.from_white))(white))


def excess(values: np.ndarray, bound: float, failure: float) -> float:
    """z-score of the number of values above the bound, against `failure`."""
    n = len(values)
    return (np.sum(values > bound) - n * failure) / math.sqrt(n * failure * (1 - failure))


@pytest.mark.parametrize("failure", [0.3, 0.02])
@pytest.mark.parametrize("noise", DISTRIBUTIONS[:5])
def test_bounds_hold_with_their_probability(noise: AbstractNoise, failure: float) -> None:
    w = draws(noise, 20_000)
    assert excess(np.linalg.norm(w, axis=(1, 2)), float(noise.norm_bound(failure)), failure) < Z_LIMIT
    assert excess(np.linalg.norm(w, 2, axis=(1, 2)), float(noise.spectral_bound(failure)), failure) < Z_LIMIT
    assert excess(np.abs(w).max(axis=(1, 2)), float(noise.max_bound(failure)), failure) < Z_LIMIT


@pytest.mark.parametrize("failure", [0.3, 0.02])
def test_exact_quantiles_are_exact(failure: float) -> None:
    for noise in (GaussianNoise(0.6, (7,)), SymmetricNoise(0.6, 3)):
        norms = np.sqrt((draws(noise, 20_000) ** 2).reshape(20_000, -1).sum(axis=1))
        assert abs(excess(norms, float(noise.norm_bound(failure)), failure)) < Z_LIMIT
    for noise in (GaussianNoise(0.6, (7,)), LaplaceNoise(0.6, (7,))):
        largest = np.abs(draws(noise, 20_000)).max(axis=1)
        assert abs(excess(largest, float(noise.max_bound(failure)), failure)) < Z_LIMIT


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 8, 15, 30])
def test_symmetric_spectral_bound_is_valid_and_close(dim: int) -> None:
    failure, trials = 0.05, 3_000
    noise = SymmetricNoise(2.0, dim)
    norms = np.abs(np.linalg.eigvalsh(draws(noise, trials, seed=dim))).max(axis=1)
    bound = float(noise.spectral_bound(failure))
    assert excess(norms, bound, failure) < Z_LIMIT
    assert bound <= (1.4 if dim >= 5 else 1.3) * np.quantile(norms, 1 - failure)


@pytest.mark.parametrize("dim", [1, 5, 30])
def test_gaussian_spectral_bound_is_valid_and_close(dim: int) -> None:
    failure, trials = 0.05, 1_500
    noise = GaussianNoise(0.5, (dim, dim))
    norms = np.linalg.norm(draws(noise, trials, seed=dim), 2, axis=(1, 2))
    bound = float(noise.spectral_bound(failure))
    assert excess(norms, bound, failure) < Z_LIMIT
    assert bound <= 1.4 * np.quantile(norms, 1 - failure)


def test_laplace_norm_bound_grows_like_the_norm() -> None:
    noise = LaplaceNoise(1.0, (10_000,))
    typical = math.sqrt(2 * 10_000)
    assert typical < float(noise.norm_bound(0.01)) < 1.2 * typical


def test_debiased_bound_covers_randomised_answers() -> None:
    failure, trials, reports, p, q = 0.1, 20_000, 60, 0.5, 0.25
    rng = np.random.default_rng(3)
    ones = rng.binomial(reports, q, (trials, 4)) + 0.0  # nobody holds these symbols: every hit is noise
    error = (ones - reports * q) / (p - q)
    noise = ResponseNoise(reports * q * (1 - q) / (p - q) ** 2, 1 / (p - q), reports, (4,))
    assert abs(error.std() / float(noise.std) - 1) < 4.5 / math.sqrt(2 * trials)
    assert excess(np.abs(error).max(axis=1), float(noise.max_bound(failure)), failure) < Z_LIMIT
    assert excess(np.linalg.norm(error, axis=1), float(noise.norm_bound(failure)), failure) < Z_LIMIT
    # the variance is only an estimate, so the bound must not shrink with it
    unsure = ResponseNoise(1e-9, 1 / (p - q), reports, (4,))
    assert float(unsure.max_bound(failure)) == float(noise.max_bound(failure))


@pytest.mark.parametrize("noise", DISTRIBUTIONS[:5])
def test_std_is_the_standard_deviation(noise: AbstractNoise) -> None:
    trials = 20_000
    w = draws(noise, trials)
    kurtosis = 3.0 if noise.white == "normal" else 6.0
    error = np.abs((w**2).mean(axis=0) - np.broadcast_to(noise.variance, noise.shape))
    assert (error <= 4.5 * np.asarray(noise.variance) * math.sqrt((kurtosis - 1) / trials)).all()
    np.testing.assert_allclose(noise.std**2, noise.variance, rtol=1e-14)


def test_symmetric_noise_is_isotropic_in_frobenius_norm() -> None:
    w = draws(SymmetricNoise(1.3, 4), 20_000, seed=5)
    assert np.array_equal(w, w.transpose(0, 2, 1))
    direction = np.random.default_rng(1).standard_normal((4, 4))
    direction = (direction + direction.T) / np.linalg.norm(direction + direction.T)
    projected = (w * direction).sum(axis=(1, 2))
    assert abs((projected**2).mean() / 1.3**2 - 1) < 4.5 * math.sqrt(2 / 20_000)


@pytest.mark.parametrize(
    "noise",
    [
        GaussianNoise(0.0, (4, 4)),
        GaussianNoise(np.zeros((4, 1)), (4, 4)),
        SymmetricNoise(0.0, 4),
        LaplaceNoise(0.0, (4, 4)),
        ResponseNoise(np.zeros((4, 4)), 1.0, 50.0, (4, 4)),
    ],
)
def test_no_noise_has_bounds_of_exactly_zero(noise: AbstractNoise) -> None:
    for bound in (noise.norm_bound, noise.spectral_bound, noise.max_bound):
        assert float(bound(1e-9)) == 0.0
    assert not np.any(noise.std)
    assert not np.any(noise.variance)
    if noise.white:
        assert not np.any(noise.from_white(np.ones((4, 4))))


@settings(deadline=None, max_examples=10)
@given(factor=st.floats(1e-6, 1e6), failure=st.floats(1e-12, 0.999))
def test_bounds_are_proportional_to_the_scale(factor: float, failure: float) -> None:
    for distribution in (GaussianNoise, LaplaceNoise):
        for name in ("norm_bound", "spectral_bound", "max_bound"):
            one = getattr(distribution(SCALES, (3, 3)), name)(failure)
            assert one > 0
            np.testing.assert_allclose(
                getattr(distribution(factor * SCALES, (3, 3)), name)(failure), factor * one, rtol=1e-12
            )
    np.testing.assert_allclose(
        SymmetricNoise(factor, 3).spectral_bound(failure),
        factor * SymmetricNoise(1.0, 3).spectral_bound(failure),
        rtol=1e-12,
    )


def test_several_scales_are_never_worse_than_the_largest() -> None:
    scales = np.full(500, 0.01)
    scales[0] = 1.0
    several = float(GaussianNoise(scales, (500,)).norm_bound(0.01))
    assert several < 0.2 * float(GaussianNoise(1.0, (500,)).norm_bound(0.01))
    assert several >= 2.57  # the one large entry alone


@pytest.mark.parametrize("noise", DISTRIBUTIONS)
def test_bounds_compile(noise: AbstractNoise) -> None:
    @jax.jit
    def compiled(distribution: AbstractNoise) -> jax.Array:
        return jnp.stack([distribution.norm_bound(0.1), distribution.spectral_bound(0.1), distribution.max_bound(0.1)])

    np.testing.assert_allclose(
        compiled(noise), [noise.norm_bound(0.1), noise.spectral_bound(0.1), noise.max_bound(0.1)], rtol=1e-14
    )


def test_bounds_vectorise_over_scales() -> None:
    bounds = jax.jit(jax.vmap(lambda s: SymmetricNoise(s, 3).spectral_bound(0.1)))(jnp.arange(3.0))
    np.testing.assert_allclose(bounds, np.arange(3.0) * float(bounds[1]), rtol=1e-14)


def test_bad_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="square matrices"):
        GaussianNoise(1.0, (2, 3)).spectral_bound(0.1)
    for failure in (0.0, 1.0, -0.1, math.nan):
        for distribution in DISTRIBUTIONS:
            with pytest.raises(ValueError, match="`failure`"):
                distribution.max_bound(failure)
    with pytest.raises(ValueError, match="shape"):
        GaussianNoise(1.0, (2,)).from_white(np.zeros(3))
    with pytest.raises(TypeError, match="reports"):
        DISTRIBUTIONS[5].from_white(np.zeros((3, 3)))
