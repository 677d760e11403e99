"""The assisted policy: what it advises, what it is worth, and one stay of it."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world

from privrl.mdp.assistance import LEAVE
from privrl.mdp.assisted import AssistedPolicy, simulate_gain, stationary_advice
from privrl.mdp.planning import policy_value
from privrl.mdp.types import TabularMDP, TabularPolicy


@pytest.fixture(scope="module")
def env():
    return tiny_world(5)


def advised(env, max_ratio=1.5, max_weight=4.0):
    advice = jnp.arange(env.num_states) % env.num_actions
    return AssistedPolicy.from_practice(advice, env.behaviour, max_ratio, max_weight)


def test_without_limits_it_is_the_supported_advice_with_its_exact_value(env):
    policy = advised(env, math.inf, math.inf)
    followed = jnp.where(policy.supported[:, None], jax.nn.one_hot(policy.advice, env.num_actions), env.behaviour)
    exact = policy_value(env.mdp, TabularPolicy(jnp.broadcast_to(followed, (env.horizon, *followed.shape))))
    found = simulate_gain(env.mdp, env.behaviour, policy, 20_000, key=jax.random.key(0))
    assert found.practice == pytest.approx(float(env.value(env.behaviour_policy())), abs=1e-12)
    assert abs(found.value - float(exact)) < 4 * found.se < 0.05


def test_its_value_is_that_of_its_own_stays(env):
    """Played decision by decision through `stay`, in a world with a kernel per step, as somebody would deploy it."""
    rng = np.random.default_rng(3)
    S, A, H = 3, 2, 3
    P, r = rng.dirichlet(np.ones(S), (H, S, A)), rng.random((H, S, A)) / H
    initial, b = rng.dirichlet(np.ones(S)), rng.dirichlet([2.0, 3.0], S)
    mdp = TabularMDP(jnp.asarray(P), jnp.asarray(r), jnp.asarray(initial), H)
    policy = AssistedPolicy.from_practice(r[0].argmax(axis=-1), jnp.asarray(b), 2.0, 1.5)
    returns = []
    for i in range(800):
        stay, s, total = (
            policy.start_episode(key=jax.random.fold_in(jax.random.key(1), i)),
            rng.choice(S, p=initial),
            0.0,
        )
        for h in range(H):
            a = stay.advise(int(s)).action
            a = int(rng.choice(A, p=b[s])) if a is None else a
            stay.record(a)
            total += r[h, s, a]
            s = rng.choice(S, p=P[h, s, a])
        assert 0.0 <= stay.weight <= policy.bound
        returns.append(total)
    found = simulate_gain(mdp, jnp.asarray(b), policy, 20_000, key=jax.random.key(2))
    error = np.std(returns) / math.sqrt(len(returns))
    assert abs(np.mean(returns) - found.value) < 4 * math.hypot(error, found.se)
    assert found.gain > 3 * found.se


def test_a_dial_of_one_is_practice(env):
    policy = advised(env, 1.0)
    assert float(policy.alpha.max()) == 0.0
    assert (policy(np.arange(env.num_states)) == LEAVE).all()
    assert simulate_gain(env.mdp, env.behaviour, policy, 100, key=jax.random.key(0)).gain == 0.0


def test_advice_or_the_clinician():
    policy = AssistedPolicy(jnp.array([2, 0, 1]), jnp.array([0.5, 0.049, 1.0]), 1.5, 4.0)
    np.testing.assert_array_equal(policy(np.array([[0, 1], [2, 2]])), [[2, LEAVE], [1, 1]])
    np.testing.assert_allclose(policy.alpha, [0.5, 0.0, 1.0])
    with pytest.raises(ValueError, match="whole numbers"):
        policy(np.array([3]))
    with pytest.raises(ValueError, match="whole numbers"):
        policy(np.array([0.5]))


def test_a_stay_is_left_alone_once_its_weight_has_reached_the_budget():
    policy = AssistedPolicy(jnp.array([0]), jnp.array([0.1]), math.inf, 4.0)
    stay = policy.start_episode()
    stay.advise(0)
    stay.record(0)  # alpha is 1/3, so that the weight of this decision is 2/3 + 1/3/.1 = 4
    assert stay.weight == pytest.approx(4.0) and stay.weight <= 4.0
    for action in (0, 1):
        assert stay.advise(0).action is None
        stay.record(action)
    assert stay.weight == pytest.approx(4.0)
    with pytest.raises(ValueError, match="advise"):
        stay.record(0)
    with pytest.raises(ValueError, match="state of the world"):
        stay.advise(1)


def test_advice_of_a_policy_is_its_most_common_action():
    p = np.zeros((12, 2, 3))
    p[:6, 0, 1] = p[6:, 0, 2] = p[:, 1, 0] = 1.0
    np.testing.assert_array_equal(stationary_advice(p), [1, 0])
    np.testing.assert_array_equal(stationary_advice(p, steps=12), [1, 0])
