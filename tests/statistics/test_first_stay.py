"""What an evaluation says of a person is about their first stay; its means are exact in worlds made to mislead it."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.types import Trajectory
from privrl.mdp.value_features import TableValueFeature
from privrl.statistics.corrected_gains import CorrectedGains, ReturnSlopes, read_slope
from privrl.statistics.model_gains import ModelGains, NuisanceSums, StaySums
from privrl.statistics.off_policy import CentredReturns, Changed, Gains, Influences, StayReturns, Unsupported, Weights
from privrl.statistics.practice_residuals import PracticeResiduals
from privrl.statistics.practice_table import PracticeTable

H = 3
POLICY = AssistedPolicy(jnp.array([1, 0, 1]), jnp.array([0.4, 0.0, 0.6]), 3.0, 10.0, horizon=H)
FEATURE = TableValueFeature(2, H, (), jnp.array([-1.0, 1.0, 0.4]))
SUMS = StaySums(POLICY, FEATURE)
NUMBER = jnp.asarray(0.3)
STATISTICS = (
    StayReturns(),
    CentredReturns((0.0, 2.0), NUMBER, squared=True),
    Weights(POLICY),
    Unsupported(POLICY),
    Changed(POLICY),
    Gains(POLICY, NUMBER),
    Gains(POLICY, NUMBER, squared=True),
    Influences(POLICY),
    ReturnSlopes(FEATURE, NUMBER),
    CorrectedGains(POLICY, FEATURE, NUMBER, NUMBER),
    PracticeTable(POLICY, 2),
    PracticeResiduals(POLICY, FEATURE),
    NuisanceSums(SUMS),
    ModelGains(SUMS, jnp.array([0.1, -0.2]), jnp.linspace(-1.0, 1.0, 20).reshape(2, 10)),
)


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda one: type(one).__name__)
def test_later_stays_do_not_matter(statistic):
    rng = np.random.default_rng(0)
    shape = (50, 4, H)
    drawn = Trajectory(
        rng.integers(0, 3, shape),
        rng.integers(0, 2, shape),
        rng.random(shape),
        rng.integers(-1, 3, shape),
        rng.integers(1, H + 1, shape[:2]),
    )
    several = jax.vmap(lambda person: statistic.contribution(person, None))(drawn)
    first = jax.vmap(lambda person: statistic.contribution(person, None))(jax.tree.map(lambda x: x[:, :1], drawn))
    np.testing.assert_allclose(several, first, rtol=1e-12)
    assert len(np.unique(np.asarray(first).reshape(50, -1), axis=0)) > 2


@pytest.mark.parametrize("logged", [False, True])
def test_whether_a_second_stay_follows_may_depend_on_the_treatment(logged):
    """Half of the people lose by the advice, which also prevents their second stay; in the others it does nothing but
    cause one. The mean over stays would be (w - 1) G over the number of stays, and positive."""
    policy = AssistedPolicy(jnp.array([1, 1]), jnp.array([0.5, 0.5]), 1.5, 4.0, horizon=1)
    people, chances = [], []
    for s, a in itertools.product((0, 1), (0, 1)):
        first = (0.5 if a else 0.6) if s == 0 else 0.8
        stays = 1 if (s == 0) == (a == 1) else 2
        for later in (0, 1) if stays == 2 else (0,):
            states, actions, rewards = [[s], [s]], [[a], [later]], [[first], [first]]
            people.append((states, actions, rewards, [[-1], [-1]], [1, int(stays == 2)]))
            chances.append(0.25 / stays)
    record = Trajectory(*(np.array(column) for column in zip(*people, strict=True)))
    if logged:
        record = Trajectory(*jax.tree.leaves(record), np.full(record.rewards.shape, 0.5))
    gains = Gains(policy, jnp.asarray(0.0), logged=logged)
    D = jax.vmap(lambda person: gains.contribution(person, None))(record)[:, 0] * gains.units[0]
    true = 0.5 * (policy.decisions(jnp.array([0])).alpha(1.5)[0] * 0.5) * (0.5 - 0.6)
    assert true < -0.005
    np.testing.assert_allclose(np.array(chances) @ np.asarray(D), true, atol=1e-12)


@pytest.mark.parametrize(("steps", "limits"), [(4, (1.5, 4.0)), (6, (4.0, 20.0)), (6, (5.0, 40.0))])
def test_a_corrected_gain_has_no_bias_if_practice_is_known(steps, limits):
    """People who were expected to do best are lost if they take all advice: their terms are the largest losses, beyond
    any bound of the whole correction. If D were clipped there, a loss would seem to be a gain (+.0126 for -.0056)."""
    f, support = jnp.array([1.0, -1.0, 0.0, 1.0]), jnp.array([0.5, 0.0, 0.5, 0.0])
    policy = AssistedPolicy(jnp.ones(4, int), support, *limits, horizon=steps)
    feature = TableValueFeature(2, steps, (), f)
    actions = np.array(list(itertools.product((0, 1), repeat=steps)))
    every = actions.all(axis=1).astype(float)
    G = np.concatenate([1.0 - every, 0.0 * every, every, 0.0 * every + 1.0])
    P = np.repeat([0.4, 0.2, 0.37, 0.03], len(actions)) / len(actions)
    shape = (len(G), 1, steps)
    rewards = np.zeros(shape)
    rewards[:, 0, -1] = G
    states = np.broadcast_to(np.repeat(np.arange(4), len(actions))[:, None, None], shape)
    record = Trajectory(
        states, np.tile(actions, (4, 1))[:, None], rewards, np.full(shape, -1), np.full(shape[:2], steps)
    )

    def mean(statistic):
        return P @ np.asarray(jax.vmap(lambda person: statistic.contribution(person, None))(record))

    m = jnp.asarray(mean(StayReturns())[0])
    slope = jnp.asarray(read_slope(mean(ReturnSlopes(feature, m)), 1))
    assert slope > 0.2
    plain, corrected = Gains(policy, m), CorrectedGains(policy, feature, m, slope)
    true = mean(plain)[0] * plain.units[0]
    assert true < -0.005
    np.testing.assert_allclose(mean(corrected)[0] * corrected.units[0], true, atol=1e-12)
    np.testing.assert_allclose(mean(Weights(policy))[0] * Weights(policy).units[0], 1.0)
