"""The assisted policy: what it advises, what it is worth, and one stay of it."""

import dataclasses
import io
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world

from privrl.envs.patients.actors import AssistedActor
from privrl.mdp.assistance import LEAVE
from privrl.mdp.assisted import AssistedPolicy, simulate_gain, stationary_advice
from privrl.mdp.exported_policy import EpisodeState, ExportedPolicy
from privrl.mdp.planning import policy_value
from privrl.mdp.types import TabularMDP, TabularPolicy
from privrl.studies.results.saved_policies import policy_bytes, read_policy


@pytest.fixture(scope="module")
def env():
    return tiny_world(5)


def advised(env, max_ratio=1.5, max_weight=4.0):
    advice = jnp.arange(env.num_states) % env.num_actions
    return AssistedPolicy.from_practice(advice, env.behaviour, max_ratio, max_weight, horizon=100)


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
    policy = AssistedPolicy.from_practice(r[0].argmax(axis=-1), jnp.asarray(b), 2.0, 1.5, horizon=100)
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


def test_nothing_is_advised_past_the_horizon_in_a_longer_world(env):
    """By the performance difference lemma, the gain is the advantage of the advice over the steps before."""
    assert env.horizon > 2
    rest = TabularPolicy(jnp.broadcast_to(env.behaviour, (env.horizon, *env.behaviour.shape))).probabilities
    policy = dataclasses.replace(advised(env, math.inf, math.inf), horizon=2)
    followed = jnp.where(policy.supported[:, None], jax.nn.one_hot(policy.advice, env.num_actions), env.behaviour)
    exact = policy_value(env.mdp, TabularPolicy(rest.at[:2].set(followed)))
    found = simulate_gain(env.mdp, env.behaviour, policy, 20_000, key=jax.random.key(0))
    assert abs(found.value - float(exact)) < 4 * found.se < 0.05
    actor = AssistedActor(policy, lambda step, state, seen, uniforms: jnp.asarray(7), lambda row: row[0].astype(int))
    row, drawn = jnp.asarray([float(jnp.argmax(policy.alpha))]), jnp.zeros(2)
    acted = [actor.act(actor.begin(), jnp.asarray(step), None, row, drawn) for step in range(4)]
    assert all(int(action) != 7 for action, _ in acted[:2])
    assert [(int(action), float(w)) for action, w in acted[2:]] == [(7, 1.0)] * 2


def test_a_dial_of_one_is_practice(env):
    policy = advised(env, 1.0)
    assert float(policy.alpha.max()) == 0.0
    assert (policy(np.arange(env.num_states)) == LEAVE).all()
    assert simulate_gain(env.mdp, env.behaviour, policy, 100, key=jax.random.key(0)).gain == 0.0


def test_advice_or_the_clinician():
    policy = AssistedPolicy(jnp.array([2, 0, 1]), jnp.array([0.5, 0.049, 1.0]), 1.5, 4.0, horizon=100)
    np.testing.assert_array_equal(policy(np.array([[0, 1], [2, 2]])), [[LEAVE, LEAVE], [1, 1]])  # not drawn
    np.testing.assert_allclose(policy.alpha, [0.5, 0.0, 1.0])
    with pytest.raises(ValueError, match="whole numbers"):
        policy(np.array([3]))
    with pytest.raises(ValueError, match="whole numbers"):
        policy(np.array([0.5]))


def test_a_stay_is_left_alone_once_its_weight_has_reached_the_budget():
    policy = AssistedPolicy(jnp.array([0]), jnp.array([0.1]), math.inf, 4.0, horizon=100)
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


@pytest.mark.parametrize(("max_ratio", "max_weight"), [(1.0, 1.01), (1.5, 4.0), (math.inf, 4.0), (19.0, math.inf)])
def test_weights_stay_in_their_range_for_every_strength_and_support(max_ratio, max_weight):
    """Whatever the stated numbers are, which a file may hold; the readers of `policy.json` agree where they are
    valid."""
    strength = np.array([0.0, 1e-300, 1e-17, 0.3, 1.0, -1.0, 2.0, math.inf, -math.inf, math.nan])
    support = np.array([0.0, 0.05, 0.3, 1.0 - 1e-16, 1.0, 1.5, math.nan])
    g, b = (jnp.asarray(x.ravel()) for x in np.meshgrid(strength, support))
    policy = AssistedPolicy(jnp.zeros(len(g), int), b, max_ratio, max_weight, strength=g, horizon=100)
    valid = np.asarray((g >= 0.0) & (g <= 1.0) & (b >= 0.0) & (b <= 1.0))
    kept = AssistedPolicy(
        *(jnp.asarray(x)[valid] for x in (policy.advice, b)), max_ratio, max_weight, strength=g[valid], horizon=100
    )
    reader, states = ExportedPolicy(kept.to_json()), jnp.arange(len(g))
    for w in (0.0, 1e-300, 0.5, min(max_weight, 1e9)):
        at, k = policy.decisions(states), policy.ratio_at(w)
        rho = np.stack([at.rho(jnp.full(len(g), action), k) for action in (0, 1)])
        assert (rho >= 0.0).all() and (w * rho <= max_weight * (1 + 1e-12)).all()
        found = [reader.decide(s, EpisodeState(0, w)) for s in range(int(valid.sum()))]
        mine = [(one.probability, one.if_taken, one.otherwise) for one in found]
        np.testing.assert_allclose(mine, np.stack([at.alpha(k), *rho]).T[valid], rtol=1e-9)


@pytest.mark.parametrize(
    "strength", [[0.5], [0.5, math.nan], [0.5, -0.1], [0.5, 1.1], [0.5, math.inf], ["a", "b"], 0.5]
)
def test_a_strength_that_is_not_one_is_refused_when_it_is_loaded(strength):
    policy = AssistedPolicy(jnp.array([0, 1]), jnp.array([0.3, 0.4]), strength=jnp.array([0.2, 0.0]), horizon=100)
    file = io.BytesIO()
    np.savez_compressed(file, **{**policy.arrays(), "strength": np.asarray(strength)})
    with pytest.raises(ValueError, match="The policy is not a saved policy, or is damaged"):
        read_policy(file.getvalue(), "The policy")
    with pytest.raises((TypeError, ValueError)):  # a reader of evaluations makes one sentence of both
        AssistedPolicy.from_json({**policy.to_json(), "strength": strength})
    with pytest.raises(ValueError, match="or it is damaged"):
        ExportedPolicy({**policy.to_json(), "strength": strength})
    assert isinstance(read_policy(policy_bytes(policy), "The policy"), AssistedPolicy)


def test_advice_of_a_policy_is_its_most_common_action():
    p = np.zeros((12, 2, 3))
    p[:6, 0, 1] = p[6:, 0, 2] = p[:, 1, 0] = 1.0
    np.testing.assert_array_equal(stationary_advice(p), [1, 0])
    np.testing.assert_array_equal(stationary_advice(p, steps=12), [1, 0])
