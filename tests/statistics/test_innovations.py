"""Surprises: what they estimate, and that no record whatsoever exceeds the sensitivity."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_sensitivity, contribution, distances
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.contracts.learner import Plan
from privrl.envs.lq_worlds import LQ4D
from privrl.mdp.lq import LinearPolicy, LQTrajectory
from privrl.statistics.innovations import FirstStates, Innovations, Surprise

N, D, H = 3, 2, 4


def asked(clip=1.0, parameters=None):
    parameters = jnp.zeros((N + D, N)) if parameters is None else parameters
    return Plan(None, Surprise(parameters, jnp.array(clip), jnp.array(2.0 * clip)))


def hostile(seed=0, count=80):
    """Random, huge, infinite, missing, opposite and wrongly long records."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, H + 1, N)) * 10.0 ** rng.integers(-3, 4, (count, 1, 1))
    u = rng.normal(size=(count, H, D))
    v = rng.normal(size=(count, H, D)) * 10.0 ** rng.integers(-3, 4, (count, 1, 1))
    length = np.full(count, H)
    bad = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-320])
    x[1::5] = rng.choice(bad, x[1::5].shape)
    v[2::5] = rng.choice(bad, v[2::5].shape)
    u[2::10] = rng.choice(bad, u[2::10].shape)
    length[3::5] = rng.integers(-3, H + 5, length[3::5].shape)
    x[4::10, 1:], x[9::10, 1:] = x[4::10, :1], -x[4::10, :1]  # opposite surprises along the same direction
    x[9::10, 0] = x[4::10, 0]
    v[4::10] = v[9::10] = 5.0
    return LQTrajectory(*map(jnp.asarray, (x, u, v, length)))


def alike(clip):
    """Pairs whose surprises are opposite and far above the clip level: the worst that can happen."""
    x, v = jnp.zeros((2, H + 1, N)), jnp.zeros((2, H, D))
    x = x.at[:, 0, 0].set(1.0).at[0, 1, 1].set(9 * clip).at[1, 1, 1].set(-9 * clip)
    return LQTrajectory(x, jnp.zeros((2, H, D)), v.at[:, 0, 0].set(7.0), jnp.array([H, H]))


@pytest.mark.parametrize("statistic", [Innovations(N, D), FirstStates(N, jnp.array(0.8))])
def test_no_record_exceeds_the_sensitivity(statistic):
    parameters = jnp.asarray(np.random.default_rng(1).normal(size=(N + D, N)))
    for query in (asked(0.01), asked(3.0, parameters)):
        records = hostile()
        check_sensitivity(statistic, records, query)
        terms = jax.jit(jax.vmap(lambda record, q=query: statistic.contribution(record, q)))(records)
        assert jnp.isfinite(terms).all()


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_random_record_exceeds_the_sensitivity(seed):
    check_sensitivity(Innovations(N, D), hostile(seed), asked(0.5))


def test_sensitivities_are_reached():
    """Opposite surprises are 2 sqrt 2 apart; first states at a right angle sqrt 2; nothing smaller would do."""
    found = distances(Innovations(N, D), alike(0.1), asked(0.1))
    assert 0.95 * Innovations(N, D).l2("replace-one") <= found["replace-one", "l2"]
    assert 0.95 * Innovations(N, D).l2("add-remove") <= found["add-remove", "l2"]
    np.testing.assert_allclose(Innovations(N, D).l2("replace-one"), 2 * math.sqrt(2))
    first = FirstStates(N, jnp.array(0.8))
    x = jnp.zeros((2, H + 1, N)).at[0, 0, 0].set(5.0).at[1, 0, 1].set(5.0)
    zeros = jnp.zeros((2, H, D))
    found = distances(first, LQTrajectory(x, zeros, zeros, jnp.array([H, H])), None)
    assert 0.95 * first.l2("replace-one") <= found["replace-one", "l2"]


def test_norms_add_up_for_laplace_noise():
    """The L1 bound is reached by parts whose entries are all alike."""
    one = jnp.ones(N) / math.sqrt(N)
    x = jnp.stack([jnp.zeros((H + 1, N)).at[0].set(one).at[1].set(sign * 50.0) for sign in (1.0, -1.0)])
    v = jnp.zeros((2, H, D)).at[:, 0].set(1.0)
    found = distances(Innovations(N, D), LQTrajectory(x, jnp.zeros((2, H, D)), v, jnp.array([H, H])), asked(0.1))
    np.testing.assert_allclose(found["replace-one", "l1"], Innovations(N, D).l1("replace-one"), rtol=1e-9)


def test_surprises_by_hand():
    """x = (1, 2, 0), A-hat = .5, B-hat = 1, u = v = (.1, -.3): surprises 2 - .5 - .1 = 1.4 and 0 - 1 + .3 = -.7."""
    record = LQTrajectory(
        jnp.array([[1.0], [2.0], [0.0]]), jnp.array([[0.1], [-0.3]]), jnp.array([[0.1], [-0.3]]), jnp.array(2)
    )
    query = Plan(None, Surprise(jnp.array([[0.5], [1.0]]), jnp.array(10.0), jnp.array(2.0)))
    term = contribution(Innovations(1, 1), record, query)
    np.testing.assert_allclose(term[:, 0], [1.4 / 10, (0.14 + 0.21) / 2], rtol=1e-12)


def test_padding_never_counts():
    records = hostile()
    record = jax.tree.map(lambda leaf: leaf[0], records)
    cut = LQTrajectory(record.states, record.inputs, record.exploration, jnp.array(2))
    noisy = LQTrajectory(
        record.states.at[3:].set(jnp.nan),
        record.inputs.at[2:].set(jnp.inf),
        record.exploration.at[2:].set(9.0),
        jnp.array(2),
    )
    statistic = Innovations(N, D)
    np.testing.assert_array_equal(contribution(statistic, cut, asked()), contribution(statistic, noisy, asked()))
    assert (jnp.abs(contribution(statistic, cut, asked())) > 0).any()
    nobody = LQTrajectory(record.states, record.inputs, record.exploration, jnp.array(0))
    assert (contribution(statistic, nobody, asked()) == 0).all()


def test_surprises_have_the_means_that_the_learner_relies_on():
    """E s_v = (H r^2/d) (B - B-hat)^T and E s_x = [X1, X1 K_1^T] (Theta - Theta-hat), entry by entry, |z| < 4.5."""
    world = LQ4D()
    n, d = world.task.state_dim, world.task.input_dim
    gains = 0.2 * jax.random.normal(jax.random.key(0), (world.horizon, d, n))
    policy = LinearPolicy(gains, 0.2)
    belief = 0.1 * jax.random.normal(jax.random.key(1), (n + d, n))
    query = Plan(policy, Surprise(belief, jnp.array(100.0), jnp.array(100.0)))
    statistic, people = Innovations(n, d), 10_000

    def term(key):
        return 100.0 * statistic.contribution(world.rollout(policy, key), query)

    terms = np.asarray(jax.jit(jax.vmap(term))(jax.random.split(jax.random.key(2), people)))
    error = world.parameters - belief
    X1 = world.task.first_moment
    first = jnp.concatenate([X1, X1 @ gains[0].T], axis=1) @ error
    explored = world.horizon * 0.2**2 / d * error[n:]
    z = (terms.mean(axis=0) - np.concatenate([first, explored])) / (terms.std(axis=0) / np.sqrt(people))
    assert np.abs(z).max() < 4.5
