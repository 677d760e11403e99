"""Sensitivities, clipping, and noise that is added."""

import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy.noise.bounding import clip_by_norm
from privrl.privacy.noise.distributions import GaussianNoise, SymmetricNoise
from privrl.privacy.noise.sensitivities import (
    add_noise,
    l2_of_outer_products,
    l2_of_scaled,
    l2_of_sum,
)

anything = arrays(np.float64, 5, elements=st.floats(allow_nan=True, allow_infinity=True))
moderate = arrays(np.float64, 4, elements=st.floats(-1e3, 1e3))
clip = jax.jit(clip_by_norm)


def squared(x: np.ndarray) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in np.ravel(x)), Fraction(0))


@settings(deadline=None, max_examples=150)
@given(x=anything, bound=st.sampled_from([0.0, 1e-200, 0.3, 1.0, 7.0, 1e300]))
def test_clipping_keeps_its_bound_in_exact_arithmetic(x: np.ndarray, bound: float) -> None:
    clipped = np.asarray(clip(x, bound))
    assert np.isfinite(clipped).all()
    assert squared(clipped) <= Fraction(bound) ** 2 * (1 + Fraction(len(x), 2**53)) ** 2
    if not np.isfinite(x).all():
        assert not clipped.any()


@settings(deadline=None, max_examples=60)
@given(x=moderate, bound=st.floats(1e-3, 1e3))
def test_clipping_scales_and_does_nothing_else(x: np.ndarray, bound: float) -> None:
    norm = np.linalg.norm(x)
    factor = 1.0 if norm <= bound else bound / norm
    np.testing.assert_allclose(clip(x, bound), factor * x, rtol=1e-13, atol=1e-300)


def test_clipping_counts_entries_whose_squares_vanish() -> None:
    x = np.full(4001, 2.0**-512)
    x[0] = 2.0**-500
    clipped = np.asarray(clip(x, 2.0**-500))
    assert squared(clipped) <= Fraction(2.0**-500) ** 2 * (1 + Fraction(len(x), 2**53)) ** 2


def test_arrays_on_the_bound_come_back_unchanged() -> None:
    assert np.array_equal(clip(np.eye(5)[2], 1.0), np.eye(5)[2])
    assert np.array_equal(clip(np.array([[3.0, 0.0], [0.0, 4.0]]), 5.0), [[3.0, 0.0], [0.0, 4.0]])
    assert np.array_equal(clip(np.array([1e200, 2.0]), math.inf), [1e200, 2.0])


@settings(deadline=None, max_examples=60)
@given(x=moderate, y=moderate, c=st.floats(1e-2, 1e2), a=st.floats(0, 1), b=st.floats(0, 1))
def test_no_pair_of_people_exceeds_the_sensitivities(
    x: np.ndarray, y: np.ndarray, c: float, a: float, b: float
) -> None:
    x, y = np.asarray(clip(x, c)), np.asarray(clip(y, c))
    slack = 1 + 1e-12
    assert np.linalg.norm(x - y) <= l2_of_sum(c, "replace-one") * slack
    assert np.linalg.norm(x) <= l2_of_sum(c, "add-remove") * slack
    outer_x, outer_y = np.outer(x, x), np.outer(y, y)
    assert np.linalg.norm(outer_x - outer_y) <= l2_of_outer_products(c, "replace-one") * slack
    assert np.linalg.norm(outer_x) <= l2_of_outer_products(c, "add-remove") * slack
    low, high = -2.0, 5.0
    scaled_x, scaled_y = ((low + t * (high - low) - 1.5) * v for t, v in ((a, x), (b, y)))
    assert np.linalg.norm(scaled_x - scaled_y) <= l2_of_scaled(c, low, high, "replace-one") * slack
    assert np.linalg.norm(scaled_x) <= l2_of_scaled(c, low, high, "add-remove") * slack


def test_the_sensitivities_are_reached() -> None:
    c, (x, y) = 1.5, 1.5 * np.eye(2)
    assert l2_of_sum(c, "replace-one") == pytest.approx(np.linalg.norm(x - -x), rel=1e-15)
    assert l2_of_sum(c, "add-remove") == pytest.approx(np.linalg.norm(x), rel=1e-15)
    gap = np.linalg.norm(np.outer(x, x) - np.outer(y, y))
    assert l2_of_outer_products(c, "replace-one") == pytest.approx(gap, rel=1e-15)
    assert l2_of_outer_products(c, "add-remove") == pytest.approx(np.linalg.norm(np.outer(x, x)), rel=1e-15)
    low, high = -1.0, 7.0
    ends = [(low - 3.0) * x, (high - 3.0) * x]
    assert l2_of_scaled(c, low, high, "replace-one") == pytest.approx(np.linalg.norm(ends[1] - ends[0]), rel=1e-15)
    assert l2_of_scaled(c, low, high, "add-remove") == pytest.approx(np.linalg.norm(ends[1]), rel=1e-15)


def test_bad_sensitivity_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="`norm`"):
        l2_of_sum(-1.0, "replace-one")
    with pytest.raises(ValueError, match="`low`"):
        l2_of_scaled(1.0, 2.0, 1.0, "add-remove")
    with pytest.raises((ValueError, TypeError)):
        l2_of_sum(1.0, "swap")  # type: ignore[arg-type]


def test_add_noise_adds_the_noise_and_names_its_distribution() -> None:
    noise = GaussianNoise(2.0, (3,))
    release = add_noise(np.array([1.0, 2.0, 3.0]), noise, np.array([1.0, 0.0, -1.0]))
    assert np.array_equal(release.value, [3.0, 2.0, 1.0])
    assert release.noise is noise
    white = np.arange(4.0).reshape(2, 2)
    matrix = add_noise(np.zeros((2, 2)), SymmetricNoise(2.0, 2), white).value
    assert np.array_equal(matrix, white + white.T)
