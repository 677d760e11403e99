"""Gains and costs of known linear systems, against scipy, plain loops and small cases by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_are

from privrl.mdp.riccati import clip_norm, linear_cost, optimal_cost, riccati


def random_system(seed, n=3, d=2):
    rng = np.random.default_rng(seed)
    A, B = 0.5 * rng.normal(size=(n, n)), rng.normal(size=(n, d))
    Q, R = np.eye(n) + 0.1 * np.ones((n, n)), 0.7 * np.eye(d)
    X1, W = rng.normal(size=(n, n)), rng.normal(size=(n, n))
    return A, B, Q, R, X1 @ X1.T, 0.1 * W @ W.T


def plain_cost(A, B, Q, R, gains, X, W, V):
    """Backwards instead of forwards: x^T P x + constant, from the last step to the first."""
    P, constant = np.zeros_like(Q), 0.0
    for K in reversed(gains):
        closed = A + B @ K
        constant += np.trace(P @ W) + np.trace((R + B.T @ P @ B) @ V)
        P = Q + K.T @ R @ K + closed.T @ P @ closed
    return np.trace(P @ X) + constant


@pytest.mark.parametrize("seed", range(3))
def test_long_horizons_solve_the_algebraic_equation(seed):
    A, B, Q, R, _, _ = random_system(seed)
    P = solve_discrete_are(A, B, Q, R)
    gains, costs = riccati(jnp.array(A), jnp.array(B), jnp.array(Q), jnp.array(R), 200)
    np.testing.assert_allclose(costs[0], P, rtol=1e-9)
    np.testing.assert_allclose(gains[0], -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A), rtol=1e-8)
    assert (costs[-1] == 0).all()
    assert (gains[-1] == 0).all()  # the state after the last step is free


@pytest.mark.parametrize("seed", range(3))
def test_cost_of_linear_gains_is_that_of_the_backward_recursion(seed):
    A, B, Q, R, X1, W = random_system(seed)
    rng = np.random.default_rng(seed + 10)
    gains, V = rng.normal(size=(4, 2, 3)), 0.3 * np.eye(2)
    found = linear_cost(*map(jnp.array, (A, B, Q, R, gains, X1, W, V)))
    np.testing.assert_allclose(found, plain_cost(A, B, Q, R, gains, X1, W, V), rtol=1e-12)


def test_two_steps_by_hand():
    """x2 = (.5 + k) x1 + v + w: cost x1^2 (1 + 2 k^2) + 2 V + E x2^2 + 2 V, with k = -1/4, V = .1, W = .2, X1 = 1."""
    number = lambda x: jnp.array([[x]])  # noqa: E731
    gains = jnp.array([-0.25, 0.0]).reshape(2, 1, 1)
    system = map(number, (0.5, 1.0, 1.0, 2.0))
    cost = linear_cost(*system, gains, number(1.0), number(0.2), number(0.1))
    np.testing.assert_allclose(cost, (1 + 2 / 16) + 0.2 + (1 / 16 + 0.1 + 0.2) + 0.2, rtol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_riccati_gains_are_a_minimum(seed):
    A, B, Q, R, X1, W = map(jnp.array, random_system(seed))
    gains, _ = riccati(A, B, Q, R, 4)
    best = optimal_cost(A, B, Q, R, X1, W, 4)

    def cost(gains):
        return linear_cost(A, B, Q, R, gains, X1, W, jnp.zeros((2, 2)))

    np.testing.assert_allclose(cost(gains), best, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(cost)(gains), 0, atol=1e-10)
    others = gains[None] + 0.1 * jax.random.normal(jax.random.key(seed), (50, *gains.shape))
    assert (jax.jit(jax.vmap(cost))(others) > best).all()


def test_the_printed_gain_is_not_the_best():
    """Equation (3) as printed has P_h where P_{h+1} belongs."""
    A, B, Q, R, X1, W = map(jnp.array, random_system(0))
    _, P = riccati(A, B, Q, R, 4)
    printed = jnp.stack([-jnp.linalg.solve(R + B.T @ P[h] @ B, B.T @ P[h] @ A) for h in range(4)])
    assert linear_cost(A, B, Q, R, printed, X1, W, jnp.zeros((2, 2))) > optimal_cost(A, B, Q, R, X1, W, 4) + 0.01


def test_bounded_parameters_do_not_bound_gains():
    """A = .8, B = .5, R = .1 satisfies the paper's Assumption 1 with gamma = .3, but its best gain has size 1.2."""
    gains, _ = riccati(jnp.array([[0.8]]), jnp.array([[0.5]]), jnp.array([[1.0]]), jnp.array([[0.1]]), 5)
    np.testing.assert_allclose(jnp.abs(gains).max(), 1.2, atol=0.05)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), bound=st.floats(0.01, 3.0))
def test_within_norm_is_the_nearest_point(seed, bound):
    rng = np.random.default_rng(seed)
    gains = rng.normal(size=(2, 3))
    nearest = np.asarray(clip_norm(jnp.array(gains), bound))
    assert np.linalg.norm(nearest, 2) <= bound * (1 + 1e-12)
    if np.linalg.norm(gains, 2) <= bound:
        np.testing.assert_allclose(nearest, gains, atol=1e-12)
    # A projection onto a convex set: the way out makes no acute angle with the way to any other admissible point.
    others = rng.normal(size=(20, 2, 3))
    others *= bound / np.linalg.norm(others, ord=2, axis=(1, 2))[:, None, None]
    assert (((gains - nearest) * (others - nearest)).sum(axis=(1, 2)) <= 1e-9).all()


def test_within_norm_works_step_by_step():
    gains = jnp.array([[[0.2, 0.0]], [[0.0, 5.0]]])
    np.testing.assert_allclose(clip_norm(gains, 0.5), [[[0.2, 0.0]], [[0.0, 0.5]]], atol=1e-15)
