"""The four linear quadratic worlds have the numbers that were promised."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from privrl.envs.lq_worlds import LQ2D, LQ4D, Glucose, LQScalar
from privrl.mdp.lq import LinearPolicy

WORLDS = [LQScalar, LQ2D, LQ4D, Glucose]
FACTS = {  # name: (n, d, H, Cw, r1, gamma, J_zero / J*)
    "lq-scalar": (1, 1, 5, 0.05, 1.0, 0.3, 1.2107),
    "lq-2d": (2, 1, 5, 0.05, 1.0, 0.5, 1.1068),
    "lq-4d": (4, 2, 5, 0.05, 1.0, 0.4, 1.0732),
    "glucose": (2, 1, 8, 0.08, 0.5, 0.6, 1.77),
}


def costs(world):
    """Doing nothing and the best policy, by plain loops."""
    A, B = np.asarray(world.A), np.asarray(world.B)
    Q, R = np.asarray(world.task.state_cost), np.asarray(world.task.input_cost)
    n = len(A)
    X, W = float(world.task.first_radius) ** 2 / n * np.eye(n), float(world.task.noise_radius) ** 2 / (n + 2)
    zero, best, P = 0.0, 0.0, np.zeros_like(Q)
    for _ in range(world.horizon):
        best += W * np.trace(P)
        P = Q + A.T @ P @ A - A.T @ P @ B @ np.linalg.inv(R + B.T @ P @ B) @ B.T @ P @ A
        zero += np.trace(Q @ X)
        X = A @ X @ A.T + W * np.eye(n)
    return zero, best + np.trace(P) * float(world.task.first_radius) ** 2 / n


@pytest.mark.parametrize("build", WORLDS)
def test_worlds_are_as_promised(build):
    world = build()
    n, d, H, Cw, r1, gamma, ratio = FACTS[world.name]
    task = world.task
    assert (task.state_dim, task.input_dim, world.horizon) == (n, d, H)
    assert (float(task.noise_radius), float(task.first_radius), float(task.gain_bound)) == (Cw, r1, gamma)
    zero, best = costs(world)
    np.testing.assert_allclose([world.value(world.zero_policy()), world.optimal_value], [-zero, -best], rtol=1e-12)
    np.testing.assert_allclose(world.regret(world.zero_policy()), zero - best, rtol=1e-10)
    np.testing.assert_allclose(zero / best, ratio, atol=5e-4)
    np.testing.assert_allclose(world.regret(world.optimal_policy()), 0, atol=1e-12)
    largest = np.linalg.norm(np.asarray(world.optimal_policy().gains), ord=2, axis=(1, 2)).max()
    assert (largest <= gamma) == (world.name != "glucose")  # there the bound binds: no admissible policy is optimal


def test_scalar_world_by_hand():
    """H = 1: the only cost is x_1^2 = 1, whatever is done; with exploration R r^2 more."""
    world = LQScalar(horizon=1)
    np.testing.assert_allclose(world.value(world.zero_policy()), -1.0, rtol=1e-15)
    np.testing.assert_allclose(world.regret(LinearPolicy(jnp.zeros((1, 1, 1)), 0.1)), 2.3 * 0.01, rtol=1e-12)


def test_glucose_moves_as_in_its_model():
    """Insulin on board is measured in units of 1/1.5."""
    system = Glucose()
    g, v, u = 0.3, 0.2, -0.1
    following = system.A @ jnp.array([g, 1.5 * v]) + system.B @ jnp.array([u])
    np.testing.assert_allclose(following, [0.8 * g - 0.419 * v - 0.022 * u, 1.5 * (0.85 * v + 0.4 * u)], rtol=1e-12)


def test_bad_worlds_are_refused():
    with pytest.raises(ValueError, match="`horizon` is 0"):
        LQScalar(horizon=0)
    world = LQ2D()
    small = dataclasses.replace(world.task, parameter_radius=0.5)
    with pytest.raises(ValueError, match="`parameter_radius` 0.5"):
        dataclasses.replace(world, task=small, name="small")
    flat = dataclasses.replace(world.task, input_cost=jnp.zeros((1, 1)))
    with pytest.raises(ValueError, match="`input_cost`"):
        dataclasses.replace(world, task=flat, name="flat")
