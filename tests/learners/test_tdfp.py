"""TDFP: noise as declared, the optimum of small worlds, the contract, and its parts against closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_offline, compiled, tiny_data

import privrl
from privrl.learners.tabular.advantages import (
    CellSums,
    action_effects,
    advice_strength,
    over_practice,
    plan,
    shrunken_means,
    weighted_line,
)
from privrl.learners.tabular.tdfp import TDFP
from privrl.mdp.features import OneHotFeatures
from privrl.mdp.types import TabularMDP

DEATH, SURVIVAL = 3, 4


def ward():
    """Three states; 0 and 1 are decided by how stays end, 2 only by where it leads: 0 is a better place than 1."""
    P = np.zeros((5, 2, 5))
    P[0, 0, [DEATH, SURVIVAL, 0, 2]] = 0.1, 0.5, 0.2, 0.2
    P[0, 1, [DEATH, SURVIVAL, 0, 2]] = 0.3, 0.3, 0.2, 0.2
    P[1, 0, [DEATH, SURVIVAL, 1, 2]] = 0.5, 0.1, 0.2, 0.2
    P[1, 1, [DEATH, SURVIVAL, 1, 2]] = 0.3, 0.3, 0.2, 0.2
    P[2, 0, [0, 1]] = 0.2, 0.8
    P[2, 1, [0, 1]] = 0.8, 0.2
    P[DEATH, :, DEATH] = P[SURVIVAL, :, SURVIVAL] = 1.0
    r = P[:, :, SURVIVAL].copy()
    r[[DEATH, SURVIVAL]] = 0.0
    mdp = TabularMDP(jnp.asarray(P)[None], jnp.asarray(r)[None], jnp.array([0.3, 0.3, 0.4, 0, 0]), 6)
    arrival = jnp.zeros(5).at[SURVIVAL].set(1.0)
    ends = (DEATH, SURVIVAL)
    return privrl.envs.Env(mdp, OneHotFeatures(5, 2), jnp.full((5, 2), 0.5), "ward", terminal=ends, arrival=arrival)


def ward_learner(shares=(0.4, 0.6), **settings):
    return TDFP(5, 2, 6, (DEATH, SURVIVAL), shares=shares, **settings)


def test_without_noise_the_optimal_policy_is_found():
    env = ward()
    result = privrl.fit(tiny_data(env, episodes=20_000), ward_learner(), privrl.NonPrivate(), key=jax.random.key(0))
    assert math.isclose(env.value(result.policy), env.optimal_value, rel_tol=1e-9)
    assert env.value(result.policy) > env.value(env.behaviour_policy()) + 0.1


def test_rewards_in_flight_are_learned_from():
    """No state is terminal; every state pays for one action, and the better one also leads to the richer state."""
    P = np.zeros((2, 2, 2))
    P[:, 0], P[:, 1] = [0.8, 0.2], [0.2, 0.8]
    r = np.array([[0.1, 0.3], [0.5, 0.9]])
    mdp = TabularMDP(jnp.asarray(P)[None], jnp.asarray(r)[None], jnp.array([0.5, 0.5]), 6)
    env = privrl.envs.Env(mdp, OneHotFeatures(2, 2), jnp.full((2, 2), 0.5), "paid on the way")
    learner = TDFP(2, 2, 6, (), in_flight_rewards=True, shares=(0.4, 0.6))
    result = privrl.fit(tiny_data(env, 20_000), learner, privrl.NonPrivate(), key=jax.random.key(0))
    assert math.isclose(env.value(result.policy), env.optimal_value, rel_tol=1e-9)
    with pytest.raises(ValueError, match="no reward would ever be seen"):
        TDFP(2, 2, 6, ())


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_noise_has_the_declared_variances_and_composes_exactly(adjacency):
    rho, learner = 0.7, TDFP(5, 2, 6, (DEATH, SURVIVAL))
    privatizer = privrl.Central(rho=rho, adjacency=adjacency)
    certificate = privrl.fit(tiny_data(ward()), learner, privatizer, key=jax.random.key(0)).certificate
    noise = {release["name"]: release["noise"][0] for release in certificate.releases}
    assert list(noise) == ["returns", *(f"round-{k}" for k in range(1, 7))]
    C, L0, first = 0.8, 8.0, 0.05
    half = 1.0 if adjacency == "replace-one" else 0.5  # the squared distance is C^2 in place of 2 C^2
    expected = {"returns": half * C**2 * L0 / (first * rho)}
    for k, u in enumerate((0.1, 0.1, 0.15, 0.15, 0.2, 0.3), 1):
        expected[f"round-{k}"] = half * C**2 / ((1 - first) * u * rho)
    for name, variance in expected.items():
        assert math.isclose(noise[name]["scale"] ** 2, variance, rel_tol=1e-9)
    mu2 = sum((drawn["sensitivity"] / drawn["scale"]) ** 2 for drawn in noise.values())
    assert math.isclose(mu2, 2 * rho, rel_tol=1e-9)


@pytest.mark.slow
def test_contract():
    check_offline(ward_learner(), tiny_data(ward()))


@pytest.mark.slow
def test_contract_with_laplace_noise():
    check_offline(ward_learner(), tiny_data(ward()), budget={"epsilon": 2.0}, mechanism="laplace")


@pytest.mark.parametrize("counted", [True, False])
def test_almost_nobody(counted):
    """Two stays, or none that starts in a live state: no division by nothing, and a policy all the same."""
    data = tiny_data(ward(), episodes=2)
    learner = ward_learner() if counted else TDFP(5, 2, 6, (0, 1, 2, DEATH, SURVIVAL), shares=(0.4, 0.6))
    for privatizer in (privrl.NonPrivate(), privrl.Central(epsilon=0.01, delta=1e-6)):
        policy = privrl.fit(data, learner, privatizer, key=jax.random.key(1)).policy
        assert np.isfinite(np.asarray(policy.probabilities)).all()
        np.testing.assert_allclose(policy.probabilities.sum(axis=-1), 1.0)


def test_line_is_weighted_least_squares():
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=30), rng.normal(size=30), rng.uniform(size=30)
    slope, intercept = np.polyfit(x, y, 1, w=np.sqrt(w))
    mean = (w * y).sum() / w.sum()
    explained = 1 - (w * (y - intercept - slope * x) ** 2).sum() / (w * (y - mean) ** 2).sum()
    got = weighted_line(jnp.asarray(y), jnp.asarray(x), jnp.asarray(w))
    np.testing.assert_allclose(got, [intercept, slope, explained], rtol=1e-9)
    flat = weighted_line(jnp.asarray(y), jnp.ones(30), jnp.asarray(w))
    np.testing.assert_allclose(flat, [mean, 0.0, 0.0], rtol=1e-9)


def test_shrinkage_is_the_posterior_mean():
    """With many effects the fitted variance is close to the true one, so the posterior mean is close to Bayes'."""
    rng = np.random.default_rng(1)
    f, n = rng.normal(size=200_000) * 0.1, np.full(200_000, 5.0)
    noise = np.full(200_000, 0.5)
    e = n * f + rng.normal(size=200_000) * np.sqrt(noise)
    got = shrunken_means(jnp.asarray(e), jnp.asarray(n), jnp.asarray(noise), largest=1.0)
    np.testing.assert_allclose(got, 0.01 * n * e / (0.01 * n**2 + noise), rtol=0.05)
    assert not np.any(shrunken_means(jnp.zeros(3), jnp.zeros(3), jnp.zeros(3), largest=1.0))


def test_action_effects_ignore_states_and_find_actions():
    rng = np.random.default_rng(2)
    n = rng.uniform(50, 100, size=(40, 5))
    effect, state = rng.normal(size=5) * 0.05, rng.normal(size=(40, 1))
    effect -= effect.mean()
    noise = np.full((40, 5), 1e-12)
    got, _ = compiled(action_effects, n * (effect[None, :] + state), n, noise)
    shrunk = np.asarray(got) @ effect / (effect @ effect)  # all weights are alike here, so all effects are shrunk alike
    np.testing.assert_allclose(got, shrunk * effect, atol=1e-9)
    assert 0.9 < shrunk < 1.0
    other, _ = compiled(action_effects, n * (effect[None, :] + 7 * state), n, noise)
    np.testing.assert_allclose(got, other, atol=1e-10)
    assert not np.any(np.asarray(compiled(action_effects, n * state, n, noise + 1.0)[0]) > 1e-9)


def test_plan_plays_the_most_taken_action_where_nothing_is_trusted():
    S, A, zero = 2, 3, jnp.zeros(())
    N = jnp.array([[1.0, 3.0, 2.0], [50.0, 60.0, 0.0]])
    T1 = jnp.array([[0.0, 0.0, 0.0], [20.0, 3.0, 0.0]])
    T0 = jnp.array([[0.0, 0.0, 0.0], [3.0, 20.0, 0.0]])
    sums = CellSums(
        N, T1, T0, jnp.zeros((S, A)), jnp.zeros((S, A)), jnp.asarray(100.0), jnp.asarray(0.1), zero, zero, zero
    )
    planned = plan(sums, jnp.array([-0.1, 0.1]), jnp.ones(S), jnp.ones(S, bool), 3, 0.75, 2.0)
    np.testing.assert_array_equal(planned.policy.probabilities.argmax(axis=-1), [[1, 0]] * 3)
    assert 0 < planned.noise_share < 1
    assert np.all((planned.values >= 0) & (planned.values <= 1))
    noiseless = CellSums(N, T1, T0, jnp.zeros((S, A)), jnp.zeros((S, A)), zero, zero, zero, zero, zero)
    assert plan(noiseless, jnp.array([-0.1, 0.1]), jnp.ones(S), jnp.ones(S, bool), 3, 0.75, 2.0).noise_share == 0


def test_settings_are_checked():
    with pytest.raises(ValueError, match="whole numbers in"):
        TDFP(5, 2, 6, (5,))
    with pytest.raises(ValueError, match="`first_share` is 1.0"):
        ward_learner(first_share=1.0)
    with pytest.raises(ValueError, match="each with a positive share"):
        ward_learner(shares=())


@pytest.mark.slow
def test_icu_sepsis():
    """rho = 1: 70% of the gap from the doctors to the optimum at n = 1e5; the most frequent action beaten at 1e4."""
    env = privrl.envs.ICUSepsis()
    learner = TDFP(env.num_states, env.num_actions, env.horizon, env.terminal)

    def value(episodes, seed):
        data = tiny_data(env, episodes, seed)
        return float(env.value(privrl.fit(data, learner, privrl.Central(rho=1.0), key=jax.random.key(seed)).policy))

    doctors = env.value(env.behaviour_policy())
    assert value(100_000, 9000) > doctors + 0.7 * (env.optimal_value - doctors)
    few = [value(10_000, seed) for seed in range(9001, 9006)]
    assert np.mean(few) - 2 * np.std(few, ddof=1) / math.sqrt(5) > env.value(env.mode_policy())


def test_strength_is_in_proportion_to_advantages_over_practice():
    """Practice takes both actions equally often; the better one is worth .4 more in state 0, .1 in state 1."""
    n = jnp.array([[50.0, 50.0], [50.0, 50.0], [100.0, 0.0]])
    mean = jnp.array([[0.0, 0.4], [0.1, 0.0], [0.7, 0.0]])
    best = jax.nn.one_hot(jnp.array([1, 0, 1]), 2)
    ahead = over_practice(best, mean, n)
    np.testing.assert_allclose(ahead, [0.2, 0.05, 0.0])  # practice already has half of it; nothing is known of (2, 1)
    w = jnp.array([1.0, 1.0, 2.0])
    unit = 2.0 * math.sqrt((0.2**2 + 0.05**2) / 4.0)
    np.testing.assert_allclose(advice_strength(ahead, w), [0.2 / unit, 0.05 / unit, 0.0])
    np.testing.assert_array_equal(advice_strength(-ahead, w), 0.0)
    np.testing.assert_array_equal(advice_strength(jnp.zeros(3), w), 1.0)
