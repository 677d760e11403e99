"""The lower-bound instance: how many users make it a world, and that its features are what the learner assumes."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.envs.tabular.hard_mixture import HardMixture, hard_mixture
from privrl.statistics.mixtures import feature_norm


@settings(max_examples=12)
@given(dim=st.sampled_from([2, 5]), horizon=st.sampled_from([2, 12]), epsilon=st.floats(0.05, 3.0))
def test_the_corrected_condition_always_gives_a_world(dim, horizon, epsilon):
    """T = K H >= 4 d^2 H^2/(min{4, e^2eps} (e^eps - 1)^2), and then every step has at least half of its chance 1/H."""
    hardness = min(2.0, math.exp(epsilon)) * math.expm1(epsilon)
    users = math.ceil(4 * dim**2 * horizon / hardness**2)
    gap = math.sqrt(1 / horizon) / (hardness * math.sqrt(users))
    assert (dim - 1) * gap <= 1 / (2 * horizon) + 1e-12
    P = np.asarray(HardMixture(dim, horizon, epsilon, users).mdp.transition)
    assert P.min() >= 0
    goal = P[np.arange(horizon), np.arange(horizon), :, horizon + 1]
    assert goal.min() >= 1 / (2 * horizon) - 1e-12


@pytest.mark.parametrize(("dim", "horizon", "epsilon"), [(4, 40, 1.0), (3, 30, 0.5), (6, 20, 2.0)])
def test_at_the_printed_condition_probabilities_are_negative_and_it_is_refused(dim, horizon, epsilon):
    """T >= 4 d^2 H/(..) allows users = 4 d^2/(..), where 1/H - (d-1) D < 0."""
    hardness = min(2.0, math.exp(epsilon)) * math.expm1(epsilon)
    users = math.ceil(4 * dim**2 / hardness**2)
    gap = math.sqrt(1 / horizon) / (hardness * math.sqrt(users))
    assert 1 / horizon - (dim - 1) * gap < 0
    with pytest.raises(ValueError, match="Use more `episodes`"):
        HardMixture(dim, horizon, epsilon, users)


def test_its_features_meet_the_norm_condition_exactly():
    """||phi_V|| <= max V for V >= 0: the paper's (3.1) with L = 1; and <phi, theta> is the kernel."""
    mdp, base, weights = hard_mixture(4, 6, 0.02, seed=1)
    np.testing.assert_allclose(float(feature_norm(base)), 1.0, rtol=1e-12)
    kernel = jnp.einsum("saxd,gd->gsax", base, weights)
    np.testing.assert_allclose(kernel, mdp.transition, atol=1e-12)
