"""Functions of several numbers, released by the weights of their features."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl.contracts.release import Declared
from privrl.privacy.functions.features import ReleasedLinearFunction, weights_from_values
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.trust.curator import AbstractPeople, Curator
from privrl.privacy.trust.privatizers import Central


def features(x: jax.Array) -> jax.Array:
    """Products of 1, x_i and x_i^2 of two numbers: nine features."""
    powers = jnp.stack([jnp.ones(2), x, x**2])
    return jnp.outer(powers[:, 0], powers[:, 1]).ravel()


POINTS = jnp.asarray(np.random.default_rng(0).random((25, 2)))
WEIGHTS = jnp.asarray(np.random.default_rng(1).integers(-8, 9, (2, 9)) / 8.0)


def answers(weights: jax.Array, points: jax.Array) -> jax.Array:
    return jnp.stack([weights @ features(x) for x in points], axis=-1)


class Nobody(AbstractPeople):
    """Weights are no sum over people, so nobody is ever looked at."""

    num_units = 0
    records_per_unit = 1

    def total(self, statistic, included):
        raise AssertionError

    units = filled = part = coins = total


def curator(source: Seeded | System, mu: float = 1.0) -> Curator:
    return Curator(Nobody(), Central(rho=mu**2 / 2).calibrate([Declared("q")]), source, "gaussian")


@pytest.mark.parametrize("source", [Seeded(jax.random.key(3)), System()], ids=["seeded", "exact"])
def test_released_weights_answer_everywhere_for_ever(source: Seeded | System, tmp_path) -> None:
    released = curator(source, mu=0.5).features("q", WEIGHTS, features, distance=0.1, bound=1.0)
    np.testing.assert_allclose(released(POINTS), answers(released.weights, POINTS), atol=1e-14)
    assert float(released.noise.scale) == pytest.approx(0.2, rel=1e-6)
    assert released(POINTS.reshape(5, 5, 2)).shape == (2, 5, 5)
    assert not np.allclose(released.weights, WEIGHTS, atol=1e-3)
    released.save(tmp_path / "q")
    again = ReleasedLinearFunction.load(tmp_path / "q", features)
    assert np.array_equal(again(POINTS), released(POINTS))
    with pytest.raises(ValueError, match="not a released function"):
        privrl.privacy.ReleasedFunction.load(tmp_path / "q")


@pytest.mark.parametrize("source", [Seeded(jax.random.key(4)), System()], ids=["seeded", "exact"])
def test_the_noise_of_the_weights_is_white(source: Seeded | System) -> None:
    """20,000 weights: variance within 4.7 standard errors."""
    noise = np.asarray(curator(source).features("q", jnp.zeros((4, 5000)), features, distance=2.0, bound=1.0).weights)
    assert abs((noise / 2.0).var() - 1.0) < 4.7 * math.sqrt(2 / noise.size)


def test_values_within_the_span_give_their_weights() -> None:
    weights, rounding = weights_from_values(answers(WEIGHTS, POINTS), POINTS, features, bound=9.0)
    weakest = np.linalg.svd(jax.vmap(features)(POINTS), compute_uv=False)[-1]
    assert rounding == pytest.approx(2 * 2.0**-40 * 9.0 * math.sqrt(50) / weakest, rel=2e-3)
    assert float(jnp.linalg.norm(weights - WEIGHTS)) < rounding
    one, _ = weights_from_values(answers(WEIGHTS, POINTS)[0], POINTS, features, bound=9.0)
    np.testing.assert_allclose(one, WEIGHTS[0], atol=1e-12)


def test_the_bound_on_rounding_holds_for_values_as_wrong_as_they_may_be() -> None:
    """The worst direction, at just below the tolerance: it is accepted, and moves the weights by less than claimed."""
    phi = np.asarray(jax.vmap(features)(POINTS))
    weakest = np.linalg.svd(phi)[0][:, 8]
    values = answers(WEIGHTS[0], POINTS) + 0.999 * 2.0**-40 * 9.0 * jnp.asarray(weakest / np.abs(weakest).max())
    weights, rounding = weights_from_values(values, POINTS, features, bound=9.0)
    moved = float(jnp.linalg.norm(weights - WEIGHTS[0]))
    assert 1e-13 < moved < rounding


def test_values_that_leave_the_span_are_refused() -> None:
    inside = answers(WEIGHTS, POINTS)
    for outside in (POINTS[:, 0] ** 3, jnp.zeros(25).at[7].set(1e-9), jnp.sin(POINTS[:, 1])):
        with pytest.raises(ValueError, match="not a combination"):
            weights_from_values(inside.at[1].add(outside), POINTS, features, bound=11.0)


def test_questions_that_cannot_be_checked_are_refused() -> None:
    inside = answers(WEIGHTS, POINTS)
    with pytest.raises(ValueError, match="more points than features"):
        weights_from_values(inside[:, :9], POINTS[:9], features, bound=9.0)
    on_a_line = jnp.stack([POINTS[:, 0], POINTS[:, 0]], axis=-1)
    with pytest.raises(ValueError, match="not told apart"):
        weights_from_values(answers(WEIGHTS, on_a_line), on_a_line, features, bound=9.0)
    for bad in (inside.at[0, 0].set(jnp.nan), inside.at[0, 0].set(10.0)):
        with pytest.raises(ValueError, match="`bound`"):
            weights_from_values(bad, POINTS, features, bound=9.0)
    with pytest.raises(ValueError, match="`bound`"):
        weights_from_values(inside, POINTS, features, bound=math.inf)


def test_what_a_finite_check_cannot_see() -> None:
    """A function that leaves the span between the points passes, and all that is released is the combination."""
    bump = lambda x: jnp.prod(jnp.sum((x[None] - POINTS) ** 2, axis=-1))  # noqa: E731  (0 at every point that is checked)
    values = jnp.stack([WEIGHTS[0] @ features(x) + 1e6 * bump(x) for x in POINTS])
    weights, _ = weights_from_values(values, POINTS, features, bound=9.0)
    np.testing.assert_allclose(weights, WEIGHTS[0], atol=1e-11)


def test_exact_weights_are_multiples_of_a_power_of_two() -> None:
    released = curator(System()).features("q", WEIGHTS, features, distance=1.0, bound=1.0)
    grain = Fraction(2) ** -32
    assert all((Fraction(float(w)) / grain).denominator == 1 for w in np.asarray(released.weights).ravel())
