"""FQI: its gradient against automatic differentiation and brute force, its steps against a plain loop."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import (
    all_trajectories,
    check_offline,
    check_sensitivity,
    contribution,
    distances,
    hostile_trajectories,
    stack,
    tiny_data,
    tiny_world,
    total,
)
from jax.extend.core import ClosedJaxpr, Jaxpr

import privrl
from privrl.learners.gradient.fqi import FQI
from privrl.mdp.features import OneHotFeatures
from privrl.mdp.types import TabularMDP, Trajectory
from privrl.statistics.gradients import BellmanGradient, EpisodeCount

S, A, H = 3, 2, 4


def random_values(seed, scale=1.0):
    return jnp.asarray(np.random.default_rng(seed).normal(0, scale, (S, A)))


def episode(states, actions, rewards, next_states):
    arrays = (jnp.asarray(x) for x in (states, actions, rewards, next_states))
    return Trajectory(*arrays, jnp.array(len(states)))


def loss(Q, target_Q, record, discount, terminal):
    """Half the squared temporal differences of one well-formed episode, in plain Python."""
    total = jnp.zeros(())
    for h in range(int(record.length)):
        s, a, after = int(record.states[h]), int(record.actions[h]), int(record.next_states[h])
        future = 0.0 if after < 0 or after in terminal else target_Q[after].max()
        total += 0.5 * (Q[s, a] - record.rewards[h] - discount * future) ** 2
    return total


@pytest.mark.parametrize("terminal", [pytest.param((), marks=pytest.mark.slow), (1,)])
def test_is_the_gradient_of_the_episode(terminal):
    """Unclipped: automatic differentiation with the targets held fixed. Clipped: the same direction."""
    data = tiny_data(tiny_world(), episodes=12)
    [batch] = data.batches(12)
    records = jax.tree.map(jnp.asarray, batch)
    records = eqx.tree_at(lambda r: r.next_states, records, records.next_states.at[:4, -1].set(-1))
    Q = random_values(0)
    each, clipped = (
        jax.jit(jax.vmap(BellmanGradient(Q, H, norm, 0.9, terminal).contribution, in_axes=(0, None)))(records, None)
        for norm in (1e6, 0.3)
    )
    for i in range(12):
        record = jax.tree.map(lambda x, i=i: x[i], records)
        expected = np.asarray(jax.grad(loss)(Q, Q, record, 0.9, terminal))
        np.testing.assert_allclose(each[i], expected, atol=1e-12)
        shrink = min(1.0, 0.3 / np.linalg.norm(expected))
        np.testing.assert_allclose(clipped[i], shrink * expected, atol=1e-12)


def test_visits_of_one_cell_add_up_before_clipping():
    """Three visits with difference -1 each: norm 3, not sqrt(3). By hand."""
    record = episode([0, 0, 0, 1], [1, 1, 1, 0], [1.0, 1.0, 1.0, 0.0], [0, 0, 1, 2])
    statistic = BellmanGradient(jnp.zeros((S, A)), H, 3.0)
    expected = np.zeros((S, A))
    expected[0, 1] = -3.0
    np.testing.assert_allclose(contribution(statistic, record, None), expected)
    halved = contribution(BellmanGradient(jnp.zeros((S, A)), H, 1.5), record, None)
    np.testing.assert_allclose(halved, expected / 2, rtol=1e-12)


@pytest.mark.parametrize("values", [jnp.zeros((2, 2)), jnp.array([[0.5, -0.3], [0.2, 2.0]]), jnp.full((2, 2), 1e300)])
def test_no_pair_of_episodes_breaks_the_sensitivities(values):
    everybody = stack(list(all_trajectories(2, 2, 2)))
    check_sensitivity(BellmanGradient(values, 2, 0.3), everybody)
    check_sensitivity(BellmanGradient(values, 2, 5.0, terminal=(1,)), hostile_trajectories(2, 2, 2))


def test_the_sensitivities_are_reached():
    """Q = 1/2 without a future: rewards 0 and 1 pull in opposite directions, alike in every cell that is visited."""
    everybody = stack(list(all_trajectories(2, 2, 2)))
    statistic = BellmanGradient(jnp.full((2, 2), 0.5), 2, 0.3, discount=0.0)
    for (adjacency, which), found in distances(statistic, everybody).items():
        assert found == pytest.approx(getattr(statistic, which)(adjacency), rel=1e-9)
    assert statistic.l2("replace-one") == 0.6 and statistic.l2("add-remove") == 0.3


def test_the_number_of_episodes():
    statistic = EpisodeCount()
    records = hostile_trajectories(H, S, A)
    check_sensitivity(statistic, records)
    assert float(total(statistic, records, None)) == int((records.length > 0).sum())


def test_a_batch_is_the_sum_of_its_episodes():
    statistic, records = BellmanGradient(random_values(1), H, 0.3), hostile_trajectories(H, S, A)
    each = jax.jit(jax.vmap(statistic.contribution, in_axes=(0, None)))(records, None)
    np.testing.assert_allclose(total(statistic, records, None), each.sum(axis=0), atol=1e-12)


def sizes(jaxpr):
    """The number of entries of every array that a traced function makes, inner functions included."""
    for equation in jaxpr.eqns:
        yield from (math.prod(out.aval.shape) for out in equation.outvars)
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)):
            if isinstance(value, Jaxpr | ClosedJaxpr):
                yield from sizes(getattr(value, "jaxpr", value))


def test_no_batch_of_whole_tables_is_ever_held():
    """700 states by 25 actions and 100 episodes of 20 steps: nothing larger than 100 x 20 x 20 or one table."""
    people, states, actions, steps = 100, 700, 25, 20
    statistic = BellmanGradient(jnp.zeros((states, actions)), steps, 0.3)
    whole = jnp.zeros((people, steps), int)
    records = Trajectory(whole, whole, jnp.zeros((people, steps)), whole, jnp.full(people, steps))
    made = list(sizes(jax.make_jaxpr(lambda r: statistic.total(r, None))(records).jaxpr))
    assert people * steps <= max(made) <= people * steps * steps


def plain_fqi(data, learner, rate, noise=None):
    """The module's loop in NumPy, episode by episode."""
    [batch] = data.batches(data.num_episodes)
    Q, last = np.zeros((S, A)), []
    for k in range(learner.steps):
        total = np.zeros((S, A))
        for s, a, r, after, length in zip(
            batch.states, batch.actions, batch.rewards, batch.next_states, batch.length, strict=True
        ):
            own = np.zeros((S, A))
            for h in range(length):
                future = 0.0 if after[h] < 0 or after[h] in learner.terminal else Q[after[h]].max()
                own[s[h], a[h]] += Q[s[h], a[h]] - r[h] - learner.discount * future
            total += own * min(1.0, learner.clip / max(np.linalg.norm(own), 1e-300))
        Q = Q - rate * total / data.num_episodes
        if k >= learner.steps * 3 // 4:
            last.append(Q)
    average = np.mean(last, axis=0)
    best = average >= average.max(axis=-1, keepdims=True) - 1e-9
    return best / best.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("terminal", [(), (2,)])
def test_equals_a_plain_loop(terminal):
    data = tiny_data(tiny_world(), episodes=40)
    learner = FQI(S, A, H, terminal=terminal, steps=8, learning_rate=0.7)
    expected = plain_fqi(data, learner, 0.7)
    for whole in (learner, FQI(S, A, H, terminal=terminal, steps=8, learning_rate=0.7, num_episodes=40)):
        policy = privrl.fit(data, whole, privrl.NonPrivate()).policy
        np.testing.assert_allclose(policy.probabilities, np.broadcast_to(expected, (H, S, A)))
    assert [d.name for d in whole.declare()] == ["gradient"]


def test_the_default_rate_follows_the_size_of_the_world():
    data = tiny_data(tiny_world(), episodes=30)
    expected = plain_fqi(data, FQI(S, A, H, steps=4), S * A / (9 * H))
    policy = privrl.fit(data, FQI(S, A, H, steps=4), privrl.NonPrivate()).policy
    np.testing.assert_allclose(policy.probabilities[0], expected)


@pytest.mark.slow
def test_learns_to_wait():
    """Leaving pays .4 at once; staying pays nothing until the last of three rooms pays 1, then the stay is over."""
    P = jnp.zeros((1, 4, 2, 4)).at[0, jnp.arange(3), 0, 3].set(1.0).at[0, jnp.arange(3), 1, jnp.arange(1, 4)].set(1.0)
    P = P.at[0, 3, :, 3].set(1.0)
    r = jnp.zeros((1, 4, 2)).at[0, :3, 0].set(0.4).at[0, 2, 1].set(1.0)
    mdp = TabularMDP(P, r, jnp.array([1.0, 0.0, 0.0, 0.0]), 3)
    env = privrl.envs.Env(mdp, OneHotFeatures(4, 2), jnp.full((4, 2), 0.5), "rooms", terminal=(3,))
    sampled = env.sample(env.behaviour_policy(), 3000, jax.random.key(0))
    data = privrl.data.Episodes.from_trajectories(sampled, num_states=4, num_actions=2)
    learner = FQI(4, 2, 3, terminal=(3,), steps=40, learning_rate=3.0, clip=1.0)
    for privatizer in (privrl.NonPrivate(), privrl.Central(epsilon=4.0, delta=1e-6)):
        policy = privrl.fit(data, learner, privatizer, key=jax.random.key(1)).policy
        assert [policy.action(s, step=s) for s in range(3)] == [1, 1, 1]
    hasty = privrl.fit(data, FQI(4, 2, 3, terminal=(3,), discount=0.0, learning_rate=3.0), privrl.NonPrivate()).policy
    assert [hasty.action(s, step=s) for s in range(3)] == [0, 0, 1]


@pytest.mark.slow
def test_the_contract_on_samples():
    env = tiny_world()
    check_offline(FQI(S, A, H, steps=3, sampling=0.4), tiny_data(env))


@pytest.mark.slow
def test_the_contract_with_laplace_noise():
    env = tiny_world()
    check_offline(FQI(S, A, H, steps=3), tiny_data(env), budget={"epsilon": 2.0}, mechanism="laplace")


def test_a_sampled_step_is_scaled_to_the_expected_sample():
    """Averaged over many samples, one step of everybody's half is one step of everybody (|z| < 4.5 per entry)."""
    data = tiny_data(tiny_world(), episodes=60)
    gradients = []

    class Keeping(FQI):
        def fit(self, ask):
            asked = {}

            class Watched(type(ask)):
                def __init__(self):
                    self.__dict__ = ask.__dict__

                def __call__(self, name, statistic=None):
                    asked[name] = ask(name, statistic)
                    return asked[name]

            policy = FQI.fit(self, Watched())
            gradients.append(np.asarray(asked["gradient"].value) / self.sampling)
            return policy

    half = Keeping(S, A, H, steps=1, sampling=0.5, num_episodes=60)
    for seed in range(60):
        privrl.fit(data, half, privrl.Central(epsilon=math.inf), key=jax.random.key(seed))
    privrl.fit(data, Keeping(S, A, H, steps=1), privrl.NonPrivate())
    samples, whole = np.stack(gradients[:-1]), gradients[-1]
    z = (samples.mean(0) - whole) / (samples.std(0, ddof=1) / math.sqrt(len(samples)))
    assert np.abs(z).max() < 4.5
    assert samples.std(0).min() > 0


def test_bad_arguments_are_explained():
    for arguments, word in (({"discount": 1.5}, "discount"), ({"clip": 0.0}, "clip"), ({"terminal": (3,)}, "terminal")):
        with pytest.raises(ValueError, match=f"`{word}`"):
            FQI(S, A, H, **arguments)
