"""Sensitivities, clipping and randomised response."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import privrl  # noqa: F401  (turns on float64)
from privrl.privacy._mechanisms import (
    RandomisedResponse,
    add_noise,
    clip_by_norm,
    l2_of_outer_products,
    l2_of_scaled,
    l2_of_sum,
)
from privrl.privacy._noise import GaussianNoise, SymmetricNoise
from privrl.privacy._sources import Seeded, System, uniform

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


def test_add_noise_adds_the_noise_and_names_its_law() -> None:
    noise = GaussianNoise(2.0, (3,))
    release = add_noise(np.array([1.0, 2.0, 3.0]), noise, np.array([1.0, 0.0, -1.0]))
    assert np.array_equal(release.value, [3.0, 2.0, 1.0])
    assert release.noise is noise
    white = np.arange(4.0).reshape(2, 2)
    matrix = add_noise(np.zeros((2, 2)), SymmetricNoise(2.0, 2), white).value
    assert np.array_equal(matrix, white + white.T)


def law_of_answers(response: RandomisedResponse) -> np.ndarray:
    k, p, q = response.num_symbols, float(response.keep_probability), float(response.wrong_probability)
    return q * np.ones((k, k)) + (p - q) * np.eye(k)


@settings(deadline=None, max_examples=25)
@given(k=st.sampled_from([2, 3, 17]), epsilon=st.floats(1e-3, 30.0))
def test_randomised_response_is_private_and_unbiased(k: int, epsilon: float) -> None:
    response = RandomisedResponse(k, epsilon)
    law = law_of_answers(response)
    np.testing.assert_allclose(law.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose((law.max(axis=0) / law.min(axis=0)), math.exp(epsilon), rtol=1e-9)
    debiased = np.asarray(jax.vmap(response.debias)(jnp.arange(k)))
    spread = float(response.width)
    np.testing.assert_allclose(law @ debiased, np.eye(k), atol=1e-11 * spread)
    variance = law @ debiased**2 - (law @ debiased) ** 2
    np.testing.assert_allclose(variance[0, 0], float(response.variance_true), rtol=1e-6, atol=1e-11 * spread**2)
    np.testing.assert_allclose(variance[0, 1], float(response.variance), rtol=1e-6, atol=1e-11 * spread**2)
    np.testing.assert_allclose(np.ptp(debiased[:, 0]), spread, rtol=1e-12)


def test_answers_have_their_probabilities() -> None:
    k, trials = 4, 40_000
    response = RandomisedResponse(k, 1.0)
    keys = jax.random.split(jax.random.key(0), trials)
    answers = jax.jit(jax.vmap(lambda key: response.respond(2, uniform(key, (2,)))))(keys)
    expected = law_of_answers(response)[2]
    z = (np.bincount(answers, minlength=k) - trials * expected) / np.sqrt(trials * expected * (1 - expected))
    assert np.abs(z).max() < 4.5


@pytest.mark.parametrize("source", [Seeded(jax.random.key(1)), System()])
def test_answers_on_the_host(source: Seeded | System) -> None:
    response = RandomisedResponse(3, 1.0)
    uniforms = np.asarray(source.uniform(("reports",), (5_000, 2)))
    answers = jax.vmap(response.respond, in_axes=(None, 0))(0, uniforms)
    p = float(response.keep_probability)
    assert abs(np.mean(np.asarray(answers) == 0) - p) < 4.5 * math.sqrt(p * (1 - p) / 5_000)
    assert int(response.respond(1, source.uniform(("one report",), (2,)))) in range(3)


def test_a_lie_is_possible_however_large_epsilon_is() -> None:
    response = RandomisedResponse(3, 60.0)
    assert float(response.wrong_probability) == pytest.approx(math.exp(-60.0), rel=1e-9)
    for smallest in (0.0, 2.0**-53):  # of JAX's uniforms and of the operating system's
        assert int(response.respond(0, np.array([smallest, 0.99]))) == 2
        assert int(response.respond(2, np.array([smallest, 0.0]))) == 0
    assert int(response.respond(0, np.array([2.0**-52, 0.0]))) == 0


@settings(deadline=None, max_examples=30)
@given(k=st.sampled_from([2, 3, 1000]), data=st.data())
def test_answers_are_symbols_and_lies_are_never_the_truth(k: int, data: st.DataObject) -> None:
    symbol = data.draw(st.integers(0, k - 1))
    u = data.draw(st.sampled_from([0.0, 0.5, 1 - 2.0**-53]))
    answer = int(RandomisedResponse(k, 1.0).respond(symbol, np.array([0.0, u])))
    assert 0 <= answer < k
    assert answer != symbol


def test_infinite_epsilon_is_the_identity() -> None:
    response = RandomisedResponse(5, math.inf)
    assert float(response.variance) == 0.0
    assert float(response.variance_true) == 0.0
    assert float(response.width) == 1.0
    assert np.array_equal(response.debias(3), np.eye(5)[3])
    keys = jax.random.split(jax.random.key(2), 50)
    assert np.all(jax.vmap(lambda key: response.respond(3, uniform(key, (2,))))(keys) == 3)
    assert int(response.respond(3, np.zeros(2))) == 3


def test_randomised_response_traces_epsilon() -> None:
    uniforms = jnp.broadcast_to(jnp.array([0.3, 0.9]), (3, 2))  # a lie at epsilon .5 (p = .35), not at 5 or 10
    answer = jax.jit(jax.vmap(lambda e, u: RandomisedResponse(4, e).respond(1, u)))
    assert answer(jnp.array([0.5, 5.0, 10.0]), uniforms).tolist() == [3, 1, 1]


def test_bad_randomised_response_is_refused() -> None:
    for epsilon in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="`epsilon`"):
            RandomisedResponse(3, epsilon)
    with pytest.raises(ValueError, match="`num_symbols`"):
        RandomisedResponse(1, 1.0)
