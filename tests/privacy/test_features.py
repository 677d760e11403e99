"""Functions of several numbers, released by the weights of their features."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl.contracts.release import Declared
from privrl.privacy.functions.linear_functions import ReleasedLinearFunction
from privrl.privacy.noise.sources import Seeded, System
from privrl.privacy.trust.curator import Curator
from privrl.privacy.trust.people import AbstractPeople
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
    """Weights are no sum over people, so no person is ever looked at."""

    num_units = 0
    records_per_unit = 1

    def total(self, statistic, included, arithmetic):
        raise AssertionError

    filled = part = unit_draws = total


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


def test_exact_weights_are_multiples_of_a_power_of_two() -> None:
    released = curator(System()).features("q", WEIGHTS, features, distance=1.0, bound=1.0)
    grain = Fraction(2) ** -32
    assert all((Fraction(float(w)) / grain).denominator == 1 for w in np.asarray(released.weights).ravel())
