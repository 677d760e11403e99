"""Moments against sums written out over episodes, and their sensitivities against every pair of records."""

import equinox as eqx
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

from privrl.mdp.features import OneHotFeatures, TableFeatures
from privrl.mdp.types import Transitions
from privrl.statistics.moments import Gram, Targets

H, S, A = 2, 2, 2
# Features of norm 1 that are equal, opposite and orthogonal to each other: every bound can be met.
SHARP = TableFeatures(jnp.asarray([[[1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [0.6, 0.8]]]))
WEIGHTS = jnp.asarray([[0.5, 0.5], [0.5, 0.25]])
V = jnp.asarray([0.3, 1.7])
LOW, HIGH = jnp.asarray(0.3), jnp.asarray(1.7)


@pytest.fixture(scope="module")
def everybody():
    return stack(list(all_trajectories(H, S, A)))


def statistics():
    squares = (V - 1.0) ** 2
    yield "gram", Gram(SHARP, 1), np.sqrt(2)
    yield "gram, one-hot", Gram(OneHotFeatures(S, A), 0), np.sqrt(2)
    yield "weighted gram", Gram(SHARP, 1, weights=WEIGHTS), np.sqrt(2) / 2
    yield "targets, span", Targets(SHARP, 1, V, LOW, HIGH), 2.4
    yield "values, span", Targets(SHARP, 1, V, LOW, HIGH, with_reward=False), 1.4
    yield "weighted targets, span", Targets(SHARP, 0, V, LOW, HIGH, weights=WEIGHTS), 1.2
    yield "squares, span", Targets(SHARP, 0, jnp.asarray([0.0, 0.49]), jnp.asarray(0.0), jnp.asarray(0.49), False), 0.49
    yield "targets, range", Targets(SHARP, 1, V, jnp.asarray(0.0), HIGH, centred=False), 5.4
    yield "values, range", Targets(SHARP, 1, V, jnp.asarray(0.0), HIGH, with_reward=False, centred=False), 3.4
    yield "weighted targets, range", Targets(SHARP, 1, V, jnp.asarray(0.0), HIGH, weights=WEIGHTS, centred=False), 2.7
    negative = Targets(SHARP, 1, -V, -HIGH, jnp.asarray(0.0), with_reward=False, centred=False)
    yield "negative values", negative, 3.4
    yield "values that leave their range", Targets(SHARP, 1, 10 * (V - 1.0), LOW, HIGH, with_reward=False), 1.4
    # bounds that hold and are not met: values that stay inside their public range, a weight bound above the weights
    yield "loose squares", Targets(SHARP, 0, squares, jnp.asarray(0.0), jnp.asarray(1.0), with_reward=False), None
    yield "loose weights", Gram(SHARP, 1, weights=WEIGHTS, weight_bound=1.0), None


@pytest.mark.parametrize(("statistic", "tight"), [pytest.param(s, t, id=name) for name, s, t in statistics()])
def test_sensitivities_hold_for_all_pairs_and_are_met_where_claimed(statistic, tight, everybody):
    check_sensitivity(statistic, everybody)
    check_sensitivity(statistic, hostile_trajectories(H, S, A))
    if tight is not None:
        found = distances(statistic, everybody)
        np.testing.assert_allclose(statistic.l2("replace-one"), tight, rtol=1e-12)
        np.testing.assert_allclose(found["replace-one", "l2"], tight, rtol=1e-9)
        np.testing.assert_allclose(found["add-remove", "l2"], statistic.l2("add-remove"), rtol=1e-9)


def test_a_bound_cuts_the_weights_that_exceed_it(everybody):
    cut = Gram(SHARP, 1, weights=4 * WEIGHTS, weight_bound=0.5)
    check_sensitivity(cut, everybody)
    np.testing.assert_allclose(cut.l2("replace-one"), np.sqrt(2) / 2)


def by_hand(trajectories, stage, phi, term, weights):
    """The sum over episodes, one at a time."""
    total = 0.0
    for k in range(len(trajectories.length)):
        if stage < trajectories.length[k]:
            s, a = int(trajectories.states[k, stage]), int(trajectories.actions[k, stage])
            total = total + weights[s, a] * term(
                phi[s, a], float(trajectories.rewards[k, stage]), int(trajectories.next_states[k, stage])
            )
    return total


def test_rows_and_compressed_rows_equal_sums_over_episodes():
    env = tiny_world()
    data = tiny_data(env, 80)
    (batch,) = data.batches(80)
    batch = jax.tree.map(np.asarray, batch)
    batch.next_states[::7] = -1  # some next states were not recorded
    phi = np.random.default_rng(0).normal(size=(3, 2, 4))
    phi /= np.linalg.norm(phi, axis=-1, keepdims=True)
    features = TableFeatures(jnp.asarray(phi))
    weights = np.random.default_rng(1).uniform(0.1, 1.0, (3, 2))
    values, low, high = np.array([0.2, 1.5, 0.9]), 0.2, 1.5
    following = np.append(values, low)  # number -1: not recorded

    gram = Gram(features, 2, weights=jnp.asarray(weights))
    targets = Targets(
        features, 2, jnp.asarray(values), jnp.asarray(low), jnp.asarray(high), weights=jnp.asarray(weights)
    )
    squares = Targets(
        features,
        2,
        jnp.asarray((values - 1) ** 2),
        jnp.asarray(0.0),
        jnp.asarray(0.64),
        with_reward=False,
        centred=False,
        unrecorded=jnp.asarray(0.64),
    )
    expected = (
        (gram, by_hand(batch, 2, phi, lambda f, r, x: np.outer(f, f), weights)),
        (targets, by_hand(batch, 2, phi, lambda f, r, x: f * (r + following[x] - (low + high + 1) / 2), weights)),
        (squares, by_hand(batch, 2, phi, lambda f, r, x: f * (following[x] - 1) ** 2, np.ones((3, 2)))),
    )
    flat = jax.tree.map(
        lambda x: jnp.asarray(x).reshape(-1),
        jax.jit(jax.vmap(Transitions.from_trajectory))(jax.tree.map(jnp.asarray, batch)),
    )
    for statistic, by_episode in expected:
        np.testing.assert_allclose(total(statistic, jax.tree.map(jnp.asarray, batch), None), by_episode, atol=1e-10)
        np.testing.assert_allclose(of_rows(statistic, compressed(flat)), by_episode, atol=1e-10)
        slots, blocks = terms(statistic, compressed(flat))  # these go to the lattice, where there is no matrix product
        added = np.zeros((1, *blocks.shape[1:]))
        np.add.at(added, np.asarray(slots), np.asarray(blocks))
        np.testing.assert_allclose(added.reshape(statistic.shape), by_episode, atol=1e-10)


@eqx.filter_jit
def terms(statistic, rows):
    return statistic.terms(rows)


def compressed(rows):
    """Distinct rows with their counts and sums of rewards, as a table has them."""
    seen: dict = {}
    for step, s, a, x, count, reward in zip(*(np.asarray(leaf) for leaf in jax.tree.leaves(rows)), strict=True):
        old = seen.get((step, s, a, x), (0.0, 0.0))
        seen[step, s, a, x] = (old[0] + count, old[1] + reward)
    keys, sums = np.array(list(seen)), np.array(list(seen.values()))
    return Transitions(*(jnp.asarray(keys[:, i]) for i in range(4)), *(jnp.asarray(sums[:, i]) for i in range(2)))


@pytest.mark.parametrize("wrong", [-0.1, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(wrong):
    with pytest.raises(ValueError, match="`weights`"):
        Gram(SHARP, 0, weights=WEIGHTS.at[0, 1].set(wrong))
    with pytest.raises(ValueError, match="`weights`"):
        Targets(SHARP, 0, V, LOW, HIGH, weights=WEIGHTS.at[0, 1].set(wrong))


def test_a_gram_has_no_laplace_noise():
    with pytest.raises(ValueError, match="gaussian"):
        Gram(SHARP, 0).l1("replace-one")
