"""Packed Gram matrices and regressions: packing is an isometry, and no two people are further apart than declared."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import all_trajectories, check_sensitivity, contribution, distances, hostile_trajectories, stack
from hypothesis import given
from hypothesis import strategies as st

from privrl.contracts.learner import Plan
from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.types import Trajectory
from privrl.statistics.next_states import FeatureTransitions
from privrl.statistics.regressions import (
    Grams,
    Regressions,
    StateVisits,
    WeightedTransitions,
    pack,
    pack_outer,
    packed_size,
    unpack,
)

S, A, H, D = 3, 2, 2, 3
TABLE = np.random.default_rng(0).normal(size=(S, A, D))
FEATURES = TableFeatures(jnp.asarray(TABLE / np.linalg.norm(TABLE, axis=-1, keepdims=True)))
OPPOSITE = TableFeatures(jnp.asarray([[[1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [0.0, -1.0]]]))


def episode(*steps, length=None):
    s, a, r, after = (jnp.asarray(x) for x in zip(*steps, strict=True))
    return Trajectory(s, a, r.astype(float), after, jnp.asarray(len(steps) if length is None else length))


@jax.jit
def packed(M, N, x):
    outer = pack_outer(x), pack(jnp.outer(x, x))
    return pack(M), pack(N), *outer, unpack(pack(M), len(M))


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_packing_keeps_inner_products(d, seed):
    rng = np.random.default_rng(seed)
    M, N = (x + x.T for x in rng.normal(size=(2, d, d)))
    x = rng.normal(size=d)
    left, right, outer, same, again = packed(M, N, x)
    assert left.shape == (packed_size(d),)
    np.testing.assert_allclose(left @ right, np.trace(M @ N), atol=1e-12)
    np.testing.assert_allclose(again, M, atol=1e-14)
    np.testing.assert_allclose(outer, same, atol=1e-14)
    np.testing.assert_allclose(left @ outer, x @ M @ x, atol=1e-12)


def test_independent_noise_on_packed_numbers_is_the_symmetric_distribution():
    """Diagonal N(0, 1), the rest N(0, 1/2): |z| < 4.5 for both variances over 40,000 matrices."""
    white = np.random.default_rng(1).normal(size=(40_000, packed_size(3)))
    W = np.asarray(unpack(jnp.asarray(white), 3))
    for entry, expected in ((W[:, 0, 0], 1.0), (W[:, 0, 2], 0.5)):
        z = (entry.var() - expected) / (expected * math.sqrt(2 / len(W)))
        assert abs(z) < 4.5


def test_grams_by_hand():
    weights = jnp.asarray(np.random.default_rng(2).uniform(size=(H, S, A)))
    got = contribution(Grams(FEATURES, H), episode((0, 1, 0.5, 2), (2, 0, 1.0, 1)), Plan(None, weights))
    phi = np.asarray(FEATURES.table)
    for h, (s, a) in enumerate([(0, 1), (2, 0)]):
        expected = weights[h, s, a] * np.outer(phi[s, a], phi[s, a])
        np.testing.assert_allclose(unpack(got, D)[h], expected, atol=1e-14)


@pytest.mark.parametrize("centred", [True, False])
def test_regressions_by_hand(centred):
    statistic = Regressions(FEATURES, H, rows=2, with_reward=True, centred=centred)
    weights = jnp.asarray(np.random.default_rng(2).uniform(size=(H, S, A)))
    users = [episode((0, 1, 0.5, 2), (2, 0, 1.0, 1)), episode((1, 1, 0.0, 0), (0, 0, 0.25, 0))]
    total = sum(contribution(statistic, user, Plan(None, weights)) for user in users)
    assert total.shape == statistic.raw_shape
    v = np.array([[0.3, -1.0, 0.8], [5.0, 0.1, 0.2]])  # 5 is outside [-1, 1]
    answer = statistic.answer(total, (1, jnp.asarray(v)))
    phi = np.asarray(FEATURES.table)
    x, y = weights[1, 2, 0] * phi[2, 0], weights[1, 0, 0] * phi[0, 0]
    rewards = x * 1.0 + y * (2 * 0.25 - 1) if centred else x * 1.0 + y * 0.25
    np.testing.assert_allclose(answer, [-1.0 * x + 0.3 * y, 0.1 * x + 1.0 * y, rewards], atol=1e-14)


class Asked(Regressions):
    """Regressions with a fixed later query."""

    def answer(self, total, query):
        v = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0, 7.0, -np.inf], size=(self.rows, S)))
        return super().answer(total, (2, v))


@pytest.mark.parametrize(
    "features",
    [pytest.param(FEATURES, id="table"), pytest.param(OneHotFeatures(S, A), id="one-hot", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("weights", [*(pytest.param(w, marks=pytest.mark.slow) for w in (None, 0.37)), np.nan, 1e300])
def test_hostile_records_and_weights_stay_within(features, weights):
    query = None if weights is None else Plan(None, jnp.full((4, S, A), weights))
    records = hostile_trajectories(4, S, A)

    for statistic in (Grams(features, 4), WeightedTransitions(features, 4), WeightedTransitions(features, 4, True)):
        check_sensitivity(statistic, records, query)
    check_sensitivity(StateVisits(S, 4), records, query)
    for with_reward, centred in itertools.product([False, True], repeat=2):
        check_sensitivity(Asked(features, 4, 3, with_reward, centred), records, query)


def test_declared_sensitivities_are_reached():
    """All records of a tiny world with opposite and orthogonal features: the bounds are tight."""
    records = stack(list(all_trajectories(2, 2, 2, rewards=(0.0, 1.0), lengths=(2,))))
    grams = Grams(OPPOSITE, 2)
    found = distances(grams, records)
    np.testing.assert_allclose(found["replace-one", "l2"], grams.l2("replace-one"))
    np.testing.assert_allclose(found["add-remove", "l2"], grams.l2("add-remove"))
    regressions = Regressions(OPPOSITE, 2, rows=3, with_reward=True)
    found = distances(regressions, records)
    np.testing.assert_allclose(found["replace-one", "l2"], regressions.l2("replace-one"))
    np.testing.assert_allclose(found["add-remove", "l2"], regressions.l2("add-remove"))


def test_an_unrecorded_next_state_keeps_its_gram_and_reward_and_nothing_else():
    record = episode((0, 1, 1.0, -1), (2, 0, 1.0, 1))
    raw = contribution(Regressions(FEATURES, H, with_reward=True), record, None)
    np.testing.assert_array_equal(raw[0, :S], 0.0)
    np.testing.assert_allclose(raw[0, S], FEATURES.table[0, 1])
    np.testing.assert_allclose(unpack(contribution(Grams(FEATURES, H), record, None), D)[0].trace(), 1.0)


def test_steps_after_the_end_do_not_count():
    record = episode((0, 1, 1.0, 2), (2, 0, 1.0, 1), length=1)
    assert float(jnp.abs(contribution(Grams(FEATURES, H), record, None)[1]).max()) == 0.0
    assert float(jnp.abs(contribution(Regressions(FEATURES, H, with_reward=True), record, None)[1]).max()) == 0.0


def test_an_episode_of_another_length_is_refused():
    with pytest.raises(ValueError, match="`horizon` is 2"):
        jax.eval_shape(lambda: Grams(FEATURES, 2).contribution(episode(*[(0, 0, 0.0, 0)] * 3), None))


def test_weighted_transitions_take_their_weights_from_the_published_plan():
    record = episode((0, 1, 0.5, 2), (2, 0, 1.0, 1))
    weights = jnp.asarray(np.random.default_rng(2).uniform(size=(H, S, A)))
    statistic = WeightedTransitions(FEATURES, H, with_rewards=True)
    expected = contribution(FeatureTransitions(FEATURES, H, True, weights), record, None)
    np.testing.assert_allclose(contribution(statistic, record, Plan(None, weights)), expected)
    unweighted = contribution(FeatureTransitions(FEATURES, H, True), record, None)
    np.testing.assert_allclose(contribution(statistic, record, None), unweighted)


def test_state_visits_by_hand_and_tight():
    counted = contribution(StateVisits(S, H), episode((0, 1, 0.5, 2), (2, 0, 1.0, 1), length=1), None)
    np.testing.assert_array_equal(counted, [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    statistic = StateVisits(2, 2)
    found = distances(statistic, stack(list(all_trajectories(2, 2, 1, rewards=(0.0,)))))
    for (adjacency, norm), value in found.items():
        np.testing.assert_allclose(value, getattr(statistic, norm)(adjacency))
