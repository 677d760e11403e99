"""Episodes of linear systems: the laws of their parts, and costs against simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from privrl.envs.lq_worlds import LQEnv
from privrl.mdp.lq import LinearPolicy, LQTask

PEOPLE = 8_000


def system(n, d, H=3):
    rng = np.random.default_rng(10 * n + d)
    task = LQTask(jnp.eye(n), 0.5 * jnp.eye(d), H, 0.5, 9.0, noise_radius=0.3, first_radius=2.0)
    return LQEnv(jnp.array(0.4 * rng.normal(size=(n, n))), jnp.array(rng.normal(size=(n, d))), task, "some")


def crowd(world, policy, seed=0, people=PEOPLE):
    keys = jax.random.split(jax.random.key(seed), people)
    return jax.jit(jax.vmap(lambda key: world.rollout(policy, key)))(keys)


def some_policy(world, radius=0.7):
    task = world.task
    gains = 0.3 * jax.random.normal(jax.random.key(1), (task.horizon, task.input_dim, task.state_dim))
    return LinearPolicy(gains, radius)


@pytest.mark.parametrize(
    ("n", "d"), [(2, 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((1, 1), (3, 2)))]
)
def test_episodes_have_the_laws_they_should(n, d):
    """First states and exploration on spheres, noise uniform in a ball, each centred and white (|z| < 4.5)."""
    world = system(n, d)
    policy = some_policy(world)
    people = crowd(world, policy)
    x, u, v = people.states, people.inputs, people.exploration
    np.testing.assert_allclose(u, jnp.einsum("hij,bhj->bhi", policy.gains, x[:, :-1]) + v, atol=1e-12)
    np.testing.assert_allclose(jnp.linalg.norm(x[:, 0], axis=-1), 2.0)
    np.testing.assert_allclose(jnp.linalg.norm(v, axis=-1), 0.7)
    w = x[:, 1:] - x[:, :-1] @ world.A.T - u @ world.B.T
    size = np.asarray(jnp.linalg.norm(w, axis=-1))
    assert size.max() <= 0.3 * (1 + 1e-12)
    assert kstest((size[:, 0] / 0.3) ** n, "uniform").pvalue > 1e-5
    assert (people.length == 3).all()

    parts = np.concatenate([x[:, 0] / 2.0, w.reshape(PEOPLE, -1) / 0.3, v.reshape(PEOPLE, -1) / 0.7], axis=1)
    variances = np.concatenate([np.full(n, 1 / n), np.full(3 * n, 1 / (n + 2)), np.full(3 * d, 1 / d)])
    moments = parts[:, :, None] * parts[:, None, :]
    errors = np.abs(moments.mean(axis=0) - np.diag(variances))
    assert (errors <= 4.5 * moments.std(axis=0) / np.sqrt(PEOPLE) + 1e-9).all()
    assert (np.abs(parts.mean(axis=0)) <= 4.5 * np.sqrt(variances / PEOPLE)).all()


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 2)])
def test_exact_cost_is_the_mean_of_simulated_ones(n, d):
    """|z| < 4.5."""
    world = system(n, d)
    for policy in (some_policy(world), world.optimal_policy()):
        people = crowd(world, policy, seed=3)
        paid = (people.states[:, :-1] ** 2).sum(axis=(1, 2)) + 0.5 * (people.inputs**2).sum(axis=(1, 2))
        z = (paid.mean() + world.value(policy)) / (paid.std() / np.sqrt(PEOPLE))
        assert abs(z) < 4.5


def test_optimal_policy_has_the_optimal_cost():
    world = system(3, 2)
    np.testing.assert_allclose(-world.value(world.optimal_policy()), -world.optimal_value, rtol=1e-12)
    assert -world.value(LinearPolicy(world.optimal_policy().gains, 0.1)) > -world.optimal_value
    assert -world.value(LinearPolicy.zero(3, 3, 2)) > -world.optimal_value


def test_parameters_predict_the_next_state():
    world = system(2, 1)
    assert world.parameters.shape == (3, 2)
    z = jnp.array([0.1, -0.2, 0.3])
    np.testing.assert_allclose(world.parameters.T @ z, world.A @ z[:2] + world.B @ z[2:], rtol=1e-14)


def test_same_key_same_episode():
    world = system(2, 1)
    policy = some_policy(world)
    one, again, other = (world.rollout(policy, jax.random.key(seed)) for seed in (4, 4, 5))
    np.testing.assert_array_equal(one.states, again.states)
    assert not np.allclose(one.states, other.states)
