"""Transition moments against sums over episodes, and their sensitivities against every pair of records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import (
    all_trajectories,
    check_sensitivity,
    distances,
    hostile_trajectories,
    of_rows,
    stack,
    tiny_data,
    tiny_world,
    total,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.types import Transitions
from privrl.statistics.next_states import FeatureTransitions, StartCounts, reach

H, S, A = 2, 2, 2
ORTHOGONAL = TableFeatures(jnp.asarray([[[0.8, 0.0], [0.0, 0.8]], [[0.48, 0.64], [0.1, 0.2]]]))  # sqrt(2) n is larger
OPPOSITE = TableFeatures(jnp.asarray([[[1.0, 0.0], [-1.0, 0.0]], [[0.0, 0.6], [0.6, 0.0]]]))  # D is larger
WEIGHTS = jnp.asarray([[[0.5, 0.5], [0.2, 0.1]], [[0.25, 0.5], [0.5, 0.0]]])


@pytest.fixture(scope="module")
def everybody():
    return stack(list(all_trajectories(H, S, A)))


def statistics():
    r2 = np.sqrt(2)
    yield "one-hot", FeatureTransitions(OneHotFeatures(S, A), H), r2 * r2, r2
    yield "orthogonal", FeatureTransitions(ORTHOGONAL, H), r2 * 0.8 * r2, r2 * 0.8
    yield "opposite", FeatureTransitions(OPPOSITE, H), r2 * 2.0, r2
    yield "one-hot with rewards", FeatureTransitions(OneHotFeatures(S, A), H, True), None, r2 * np.sqrt(1.25)
    yield "opposite with rewards", FeatureTransitions(OPPOSITE, H, True), r2 * np.sqrt(5.0), r2 * np.sqrt(1.25)
    yield "weighted", FeatureTransitions(OPPOSITE, H, weights=WEIGHTS), None, None
    yield "weighted with rewards", FeatureTransitions(OPPOSITE, H, True, WEIGHTS), None, None
    yield "starts", StartCounts(S), r2, 1.0


@pytest.mark.parametrize(
    ("statistic", "replaced", "added"), [pytest.param(s, r, a, id=name) for name, s, r, a in statistics()]
)
def test_sensitivities_hold_for_all_pairs_and_are_met_where_claimed(statistic, replaced, added, everybody):
    check_sensitivity(statistic, everybody)
    check_sensitivity(statistic, hostile_trajectories(H, S, A))
    found = distances(statistic, everybody)
    for adjacency, claimed in (("replace-one", replaced), ("add-remove", added)):
        if claimed is not None:
            np.testing.assert_allclose(statistic.l2(adjacency), claimed, rtol=1e-9)
            np.testing.assert_allclose(found[adjacency, "l2"], claimed, rtol=1e-9)


def test_the_bound_with_rewards_is_met_at_one_step(everybody):
    """One-hot features: 2 for the next states, plus 1 for opposite rewards of one pair or 1/2 for two pairs.

    Going to different states rules out one pair at the next step, so only the first step meets the bound.
    """
    statistic = FeatureTransitions(OneHotFeatures(S, A), H, with_rewards=True)
    np.testing.assert_allclose(statistic.l2("replace-one"), np.sqrt(3.0 * H))
    np.testing.assert_allclose(distances(statistic, everybody)["replace-one", "l2"], np.sqrt(3.0 + 2.5), rtol=1e-9)


@settings(max_examples=12)
@given(
    table=arrays(float, (S, A, 3), elements=st.floats(-0.5, 0.5)),
    with_rewards=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 9),
)
def test_no_features_break_the_bounds(table, with_rewards, weighted, seed):
    if np.abs(table).max() < 1e-3:
        return
    weights = jnp.asarray(np.random.default_rng(seed).uniform(size=(H, S, A))) if weighted else None
    statistic = FeatureTransitions(TableFeatures(jnp.asarray(table)), H, with_rewards, weights)
    check_sensitivity(statistic, hostile_trajectories(H, S, A, seed=seed))


def test_the_reach_of_features_is_found_among_all_pairs():
    x = np.random.default_rng(3).normal(size=(60, 50, 4)) * 0.2
    x[7, 3] = x[0, 0]
    flat = x.reshape(-1, 4)
    norm, distance = reach(TableFeatures(jnp.asarray(x / np.linalg.norm(flat, axis=1).max())))
    largest = np.linalg.norm(flat, axis=1).max()
    furthest = max(np.linalg.norm(flat - row, axis=1).max() for row in flat) / largest
    assert 1.0 <= norm <= 1.0 + 1e-11
    assert furthest <= distance <= furthest * (1 + 1e-11)
    assert reach(OneHotFeatures(3, 2)) == (1.0, np.sqrt(2.0))


def test_tables_equal_sums_over_episodes():
    (batch,) = tiny_data(tiny_world(), 60).batches(60)
    batch = jax.tree.map(np.array, batch)
    batch.next_states[::7] = -1  # some next states were not recorded
    batch.length[::5] = 2
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(3, 2, 5))
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    weights = rng.uniform(size=(4, 3, 2))
    expected, starts = np.zeros((4, 4, 5)), np.zeros(3)
    for k in range(60):
        starts[batch.states[k, 0]] += 1
        for h in range(batch.length[k]):
            s, a, x = batch.states[k, h], batch.actions[k, h], batch.next_states[k, h]
            if x >= 0:
                expected[h, x] += weights[h, s, a] * phi[s, a]
            expected[h, 3] += weights[h, s, a] * phi[s, a] * (batch.rewards[k, h] - 0.5)
    people = jax.tree.map(jnp.asarray, batch)
    rows = jax.tree.map(lambda x: x.reshape(-1), jax.jit(jax.vmap(Transitions.from_trajectory))(people))
    features = TableFeatures(jnp.asarray(phi))
    full = FeatureTransitions(features, 4, with_rewards=True, weights=jnp.asarray(weights))
    without = FeatureTransitions(features, 4, weights=jnp.asarray(weights))
    for statistic, sums in ((full, expected), (without, expected[:, :3]), (StartCounts(3), starts)):
        assert statistic.shape == sums.shape
        np.testing.assert_allclose(total(statistic, people, None), sums, atol=1e-12)
        np.testing.assert_allclose(of_rows(statistic, rows), sums, atol=1e-12)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, np.nan])
def test_weights_outside_the_unit_interval_are_refused(wrong):
    with pytest.raises(ValueError, match="`weights` has entries outside"):
        FeatureTransitions(OPPOSITE, H, weights=WEIGHTS.at[0, 0, 1].set(wrong))
    with pytest.raises(ValueError, match="`weights` has shape"):
        FeatureTransitions(OPPOSITE, H, weights=WEIGHTS[:1])


def test_only_one_hot_features_themselves_are_trusted_unseen():
    class Signed(OneHotFeatures):
        def of(self, states, actions):
            return jnp.where((states % 2 == 0)[..., None], 1.0, -1.0) * jnp.eye(self.dim)[jnp.zeros_like(states)]

    with pytest.raises(ValueError, match="does not give the rows"):
        FeatureTransitions(Signed(2, 1), 1)
