"""Q-learning on whole episodes: gradients against automatic differentiation, steps against plain ones, sampled sums."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_offline, check_sensitivity, hostile_trajectories, tiny_data, tiny_world

import privrl
from privrl.contracts.release import Release
from privrl.learners.gradient.approximators import LinearQ, NetworkQ, TabularQ
from privrl.learners.gradient.q_learning import QLearning
from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.privacy.noise.arithmetic import Floating
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.noise.poisson_sample import PoissonSample
from privrl.recipes.all_recipes import get
from privrl.statistics.gradients import BellmanGradient, EpisodeCount, ParameterGradient
from privrl.studies.offline.curated_records import Records

S, A, H = 3, 2, 4


def random_features(d=5, seed=0):
    table = np.random.default_rng(seed).normal(size=(S, A, d))
    return TableFeatures(jnp.asarray(table / np.linalg.norm(table, axis=-1, keepdims=True)))


def approximators():
    return [TabularQ(S, A), LinearQ(random_features().table), NetworkQ(jnp.array([0.0, 0.4, 1.0]), A, 3)]


def records(count=8):
    [batch] = tiny_data(tiny_world(), episodes=count).batches(count)
    batch = jax.tree.map(jnp.asarray, batch)
    return eqx.tree_at(lambda r: r.next_states, batch, batch.next_states.at[:3, -1].set(-1))


def loss(theta, Q, targets, record, discount, terminal):
    """Half the squared temporal differences of one well-formed episode, in plain Python."""
    values, total = Q.values(theta), jnp.zeros(())
    for h in range(int(record.length)):
        s, a, after = int(record.states[h]), int(record.actions[h]), int(record.next_states[h])
        future = 0.0 if after < 0 or after in terminal else targets[after].max()
        total += 0.5 * (values[s, a] - record.rewards[h] - discount * future) ** 2
    return total


@eqx.filter_jit
def contributions(statistic, batch):
    return jax.vmap(statistic.contribution, in_axes=(0, None))(batch, None)


@pytest.mark.parametrize("Q", approximators(), ids=lambda Q: type(Q).__name__)
def test_is_the_gradient_of_the_episode(Q):
    """Unclipped: automatic differentiation, targets held fixed. Clipped: the same direction."""
    rng = np.random.default_rng(1)
    theta = Q.first() + jnp.asarray(rng.normal(size=Q.first().shape))
    targets = Q.values(theta)
    batch = records()
    settings = {"horizon": H, "discount": 0.9, "terminal": (1,)}
    each, clipped = (contributions(Q.gradient(theta, norm=norm, **settings), batch) for norm in (1e6, 0.3))
    for i in range(8):
        record = jax.tree.map(lambda x, i=i: x[i], batch)
        expected = np.asarray(jax.grad(loss)(theta, Q, targets, record, 0.9, (1,)))
        np.testing.assert_allclose(each[i], expected, atol=1e-11)
        shrink = min(1.0, 0.3 / np.linalg.norm(expected))
        np.testing.assert_allclose(clipped[i], shrink * expected, atol=1e-11)


def test_one_coordinate_per_pair_is_a_table():
    values = jnp.asarray(np.random.default_rng(2).normal(size=(S, A)))
    hostile = hostile_trajectories(H, S, A)
    table = contributions(BellmanGradient(values, H, 0.3), hostile)
    linear = contributions(ParameterGradient(values, H, 0.3, slopes=OneHotFeatures(S, A).table), hostile)
    np.testing.assert_allclose(table.reshape(len(table), -1), linear, atol=1e-12)
    assert isinstance(QLearning(OneHotFeatures(S, A), H)._approximator(), TabularQ)


@pytest.mark.parametrize("scale", [1.0, 1e200])
def test_no_pair_of_episodes_breaks_the_sensitivities(scale):
    values = scale * jnp.asarray(np.random.default_rng(3).normal(size=(S, A)))
    for norm in (0.3, 5.0):
        statistic = ParameterGradient(values, H, norm, slopes=random_features().table)
        check_sensitivity(statistic, hostile_trajectories(H, S, A))
        assert (statistic.l2("replace-one"), statistic.l2("add-remove")) == (2 * norm, norm)


@pytest.mark.slow
def test_the_contract_on_samples_with_features():
    env = tiny_world()
    learner = QLearning(random_features(), H, num_episodes=200, batch=80, steps=3)
    assert learner.sampling == 0.4
    check_offline(learner, tiny_data(env))


def answered(learner, gradients):
    """The policy and the queries of a learner whose gradient releases are given."""
    asked = []

    def ask(name, statistic=None):
        assert name == "gradient"
        asked.append(statistic)
        value = jnp.asarray(gradients[len(asked) - 1])
        return Release(value, GaussianNoise(jnp.zeros(()), value.shape))

    ask.skip = lambda name, to: None
    return learner.fit(ask).policy, asked


@pytest.mark.parametrize(("momentum", "adaptive"), [(0.0, False), (0.8, False), (0.9, True)])
def test_steps_equal_plain_ones(momentum, adaptive):
    """Plain, momentum and Adam steps on given gradients."""
    features = random_features()
    gradients = np.random.default_rng(4).normal(size=(8, 5))
    settings = {"momentum": momentum, "adaptive": adaptive, "learning_rate": 0.2}
    learner = QLearning(features, H, num_episodes=1000, batch=20, steps=8, **settings)
    policy, asked = answered(learner, gradients)
    theta, mean, square = np.zeros(5), np.zeros(5), np.zeros(5)
    table, iterates = np.asarray(features.table), [np.zeros(5)]
    for k, g in enumerate(gradients / 20):
        mean = momentum * mean + (1 - momentum) * g
        square = 0.99 * square + 0.01 * g**2
        step = mean / (1 - momentum ** (k + 1))
        if adaptive:
            step = step / (np.sqrt(square / (1 - 0.99 ** (k + 1))) + 1e-8)
        theta = theta - 0.2 * step
        iterates.append(theta)
    for k, statistic in enumerate(asked):
        np.testing.assert_allclose(statistic.values, table @ iterates[k], atol=1e-12)
    best = (table @ np.mean(iterates[-2:], axis=0)).argmax(axis=-1)
    np.testing.assert_array_equal(policy.probabilities.argmax(axis=-1), np.broadcast_to(best, (H, S)))


def test_drawn_episodes_are_summed_and_no_others():
    """Several blocks, several batches of drawn episodes: the sum over exactly those whose coin says so."""
    env = tiny_world()
    whole = tiny_data(env, episodes=2600)
    sample = PoissonSample(bytes(range(32)), 0.9)
    coins = sample.draws(0, 2600)
    statistic = ParameterGradient(jnp.ones((S, A)), H, 0.3, slopes=random_features().table)

    class Pieces(type(whole)):  # the same episodes in blocks of 700
        def blocks(self):
            [block] = whole.blocks()
            for first in range(0, 2600, 700):
                yield block.slice(first, min(first + 700, 2600))

    pieces = Pieces(**{field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)})
    exactly = Floating(1.0, math.inf)
    found = Records(pieces).total(statistic, sample, exactly)
    [batch] = whole.batches(2600)
    each = contributions(statistic, jax.tree.map(jnp.asarray, batch))
    expected = np.asarray(each)[coins].sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    counted = Records(pieces).total(EpisodeCount(), sample, exactly)
    assert float(counted) == coins.sum() < 2600
    later = Records(pieces, first=1300).total(EpisodeCount(), sample, exactly)  # a shard after others
    assert float(later) == sample.draws(1300, 2600).sum()


def test_no_step_compiles_again(monkeypatch):
    traced = []
    original = ParameterGradient.contribution

    def contribution(self, record, query):
        traced.append(1)
        return original(self, record, query)

    monkeypatch.setattr(ParameterGradient, "contribution", contribution)
    learner = QLearning(random_features(), H, num_episodes=100, batch=30, steps=7, clip=0.71)
    privrl.fit(tiny_data(tiny_world(), 100), learner, privrl.NonPrivate(), key=jax.random.key(0))
    assert len(traced) <= 2  # once for an empty record, once for a batch


def walkers(episodes, seed, **arguments):
    env = privrl.envs.IntervalWalk(**arguments)
    sampled = env.sample(env.behaviour_policy(), episodes, jax.random.key(seed))
    return env, privrl.data.Episodes.from_trajectories(sampled, num_states=env.num_states, num_actions=2)


def test_learns_to_walk_to_the_middle():
    """Without noise, and with exact noise from the operating system, which never repeats."""
    env, data = walkers(4000, 6, depth=4, horizon=12)
    learner = QLearning(env.features, 12, num_episodes=4000, batch=400, steps=25)
    for privatizer in (privrl.NonPrivate(), privrl.Central(epsilon=5.0, delta=1e-5)):
        policy = privrl.fit(data, learner, privatizer).policy
        assert float(env.value(policy)) > 0.95 * float(env.optimal_value)


@pytest.mark.slow
def test_a_network_learns_too():
    env, data = walkers(4000, 8, depth=4)
    learner = QLearning(env.features, 50, num_episodes=4000, approximator="network", batch=250, steps=80)
    policy = privrl.fit(data, learner, privrl.NonPrivate(), key=jax.random.key(9)).policy
    assert float(env.value(policy)) > 0.9 * float(env.optimal_value)


def test_the_certificate_speaks_of_one_trajectory_and_of_sampling():
    env = tiny_world()
    learner = QLearning(env.features, H, num_episodes=200, batch=50, steps=4)
    result = privrl.fit(
        tiny_data(env), learner, privrl.Central(epsilon=2.0, delta=1e-5), key=jax.random.key(1), unit="walker"
    )
    [event] = result.certificate.events
    assert (event.name, event.times, event.sampling) == ("gradient", 4, 0.25)
    assert result.certificate.unit == "walker" and "privacy loss distribution" in result.certificate.accountant
    [noise] = result.certificate.releases[0]["noise"]
    assert noise["sensitivity"] == 2 * learner.clip  # twice the norm: who is not drawn contributes nothing


def test_everybody_takes_part_where_their_number_is_not_public():
    learner = get("dp-sgd-q").build(tiny_world())
    assert get("dp-sgd-q").build(tiny_world(), 5000).sampling == 0.1
    assert learner.sampling == 1.0 and [d.name for d in learner.declare()] == ["episodes", "gradient"]
    assert QLearning(random_features(), H, num_episodes=100, batch=500).sampling == 1.0


def test_bad_arguments_are_explained():
    for name, value in (
        ("discount", 1.5),
        ("clip", 0.0),
        ("learning_rate", math.inf),
        ("momentum", 1.0),
        ("steps", 0),
        ("batch", 0),
        ("num_episodes", 0),
        ("terminal", (3,)),
        ("coordinate", jnp.zeros(4)),
    ):
        with pytest.raises(ValueError, match=f"`{name}`"):
            QLearning(random_features(), H, **{name: value})


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [None, 1.0, 2.0, 5.0, 10.0])
def test_targets_on_the_interval_walk(epsilon):
    """One setting for all budgets: 50,000 people, 500 of them expected in a step."""
    recipe = get("q-learning" if epsilon is None else "dp-sgd-q")
    env, data = walkers(50_000, 20)
    learner = recipe.build(env, 50_000)
    assert learner.sampling * 50_000 == 500
    budget = {} if epsilon is None else {"epsilon": epsilon, "delta": 1e-5}
    values = [
        float(env.value(privrl.fit(data, learner, recipe.privatizer(**budget), key=jax.random.key(seed)).policy))
        for seed in range(30, 35)
    ]
    assert np.mean(values) >= 0.98 * float(env.optimal_value)
