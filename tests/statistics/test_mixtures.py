"""The message of a linear mixture MDP: against plain sums, and its joint sensitivity against every pair of records."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import distances, hostile_trajectories
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privrl.contracts.learner import Plan
from privrl.mdp.types import Trajectory
from privrl.statistics.mixtures import MixtureMoments, feature_norm

H, S, A = 4, 3, 2
RANGES = jnp.arange(H, 0, -1) / H


def every_full_trajectory():
    """All 3^5 2^4 records of full length, as one batch."""
    grid = np.array(list(itertools.product(*[range(S)] * (H + 1), *[range(A)] * H)))
    states, actions = grid[:, : H + 1], grid[:, H + 1 :]
    n = len(grid)
    return Trajectory(
        jnp.asarray(states[:, :-1]),
        jnp.asarray(actions),
        jnp.zeros((n, H)),
        jnp.asarray(states[:, 1:]),
        jnp.full(n, H),
    )


def opposed_features():
    """phi_V is V-bar times one of two unit vectors at 120 degrees: the worst case of general features."""
    units = np.array([[1.0, 0.0], [-0.5, math.sqrt(0.75)]])
    return jnp.asarray(np.broadcast_to(units[None, :, None, :] / S, (S, A, S, 2)))


def random_features(d=4, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(S, A, S, d)) / 3)


ONE_HOT = MixtureMoments(RANGES, S, A)
PRINTED = MixtureMoments(RANGES, S, A, as_printed=True)
OPPOSED = MixtureMoments(RANGES, S, A, opposed_features(), feature_norm(opposed_features()))
RANDOM = MixtureMoments(RANGES, S, A, random_features(), feature_norm(random_features()))
RANDOM_PRINTED = MixtureMoments(RANGES, S, A, random_features(), feature_norm(random_features()), True)
CLIPPED = MixtureMoments(RANGES, S, A, random_features(), 0.4)
ALL = {
    "one-hot": ONE_HOT,
    "printed": PRINTED,
    "opposed": OPPOSED,
    "random": RANDOM,
    "random printed": RANDOM_PRINTED,
    "clipped": CLIPPED,
}
QUARTIC = sum(((H - h) / H) ** 4 for h in range(1, H))


@eqx.filter_jit
def messages(statistic, records, query):
    """Everybody's message as a row; compiled once per layout, whatever the features, the norm and V are."""
    return jax.vmap(lambda x: statistic.contribution(x, query).ravel())(records)


def check_messages(statistic, records, query):
    """No pair of records breaks the claimed sensitivities."""
    x = np.unique(np.asarray(messages(statistic, records, query)), axis=0)
    assert np.isfinite(x).all()
    gap = np.sqrt(np.maximum((x**2).sum(1)[:, None] + (x**2).sum(1) - 2 * x @ x.T, 0)).max()
    assert gap <= statistic.l2("replace-one") * (1 + 1e-9)
    assert np.linalg.norm(x, axis=1).max() <= statistic.l2("add-remove") * (1 + 1e-9)
    assert max(np.abs(x - row).sum(1).max() for row in x) <= statistic.l1("replace-one") * (1 + 1e-9)
    assert np.abs(x).sum(1).max() <= statistic.l1("add-remove") * (1 + 1e-9)


@pytest.fixture(scope="module")
def everybody():
    return every_full_trajectory()


def highest():
    """The query that makes one-hot messages differ most: V_h = v_h everywhere."""
    return Plan(None, jnp.broadcast_to(RANGES[:, None], (H, S)))


@pytest.mark.parametrize(
    ("statistic", "replaced", "added"),
    [
        pytest.param(ONE_HOT, S**2 + 3 * S, S * (S + 1) / 2 + S, id="one-hot"),
        pytest.param(PRINTED, S**2 + 3 * S, S * (S + 1) / 2 + S, id="printed"),
        pytest.param(OPPOSED, 4.5, 2.0, id="general"),
    ],
)
def test_the_joint_sensitivity_is_met_with_equality(statistic, replaced, added, everybody):
    """Over all pairs of 3888 records: Delta^2 = (S^2 + 3S) sum v^4, or 4.5 sum v^4."""
    found = distances(statistic, everybody, highest())
    for adjacency, factor in (("replace-one", replaced), ("add-remove", added)):
        claimed = math.sqrt(factor * QUARTIC)
        np.testing.assert_allclose(statistic.l2(adjacency), claimed, rtol=1e-10)
        np.testing.assert_allclose(found[adjacency, "l2"], claimed, rtol=1e-10)
    if statistic is not OPPOSED:
        np.testing.assert_allclose(found["replace-one", "l1"], statistic.l1("replace-one"), rtol=1e-10)


@pytest.mark.parametrize("statistic", ALL.values(), ids=ALL)
def test_no_pair_of_records_breaks_it_whatever_was_published(statistic, everybody):
    rng = np.random.default_rng(1)
    some = rng.permutation(3888)[:240]
    records = jax.tree.map(lambda x, y: jnp.concatenate([x[some], y]), everybody, hostile_trajectories(H, S, A))
    for query in (
        highest(),
        Plan(None, jnp.asarray(rng.uniform(size=(H, S)) * np.asarray(RANGES)[:, None])),
        Plan(None, jnp.asarray(rng.choice([0.0, 1.0], size=(H, S)) * np.asarray(RANGES)[:, None])),
        Plan(None, jnp.asarray(rng.choice([-9.0, 0.5, 1e300, np.nan, np.inf], size=(H, S)))),
    ):
        check_messages(statistic, records, query)


@settings(max_examples=40)
@given(
    base=arrays(float, (2, 2, 2, 2), elements=st.floats(-2, 2)),
    V=arrays(float, (2, 2), elements=st.floats(0, 1)),
    norm=st.floats(0.01, 3.0),
)
def test_general_features_of_any_norm(base, V, norm):
    """Two steps, one message: all pairs of 8 transitions, phi_V clipped to any public norm."""
    statistic = MixtureMoments(jnp.array([2.0, 1.0]), 2, 2, jnp.asarray(base), norm)
    grid = np.array(list(itertools.product(range(2), repeat=3)))
    zeros = np.zeros((8, 1), int)
    records = Trajectory(
        jnp.asarray(np.concatenate([grid[:, :1], zeros], 1)),
        jnp.asarray(np.concatenate([grid[:, 1:2], zeros], 1)),
        jnp.zeros((8, 2)),
        jnp.asarray(np.concatenate([grid[:, 2:], zeros], 1)),
        jnp.full(8, 2),
    )
    check_messages(statistic, records, Plan(None, jnp.asarray(V)))


@pytest.mark.parametrize("statistic", [ONE_HOT, PRINTED, RANDOM, RANDOM_PRINTED])
def test_it_is_the_gram_matrix_and_the_targets(statistic):
    """One record by loops over steps; the last step and steps outside the world add nothing."""
    rng = np.random.default_rng(3)
    V = rng.uniform(size=(H, S)) * np.asarray(RANGES)[:, None]
    record = Trajectory(
        jnp.array([1, 0, 2, 1]), jnp.array([0, 1, 7, 1]), jnp.zeros(H), jnp.array([0, 2, 1, 0]), jnp.array(H)
    )
    query = Plan(None, jnp.asarray(V))
    Lambda, u = eqx.filter_jit(lambda x: statistic.matrices(statistic.contribution(x, query)))(record)
    B, m = statistic.blocks
    base = np.eye(S * A * S).reshape(S, A, S, -1) if statistic.base is None else np.asarray(statistic.base)
    for h in range(H - 1):
        s, a, after = int(record.states[h]), int(record.actions[h]), int(record.next_states[h])
        phi = np.zeros(base.shape[-1]) if a >= A else sum(base[s, a, x] * V[h + 1, x] for x in range(S))
        gram, target = np.outer(phi, phi), phi * V[h + 1, after]
        if B > 1:
            rest = gram.copy()
            for b in range(B):
                rest[b * m : (b + 1) * m, b * m : (b + 1) * m] = 0
                np.testing.assert_allclose(Lambda[h, b], gram[b * m : (b + 1) * m, b * m : (b + 1) * m], atol=1e-14)
            assert not rest.any()
        else:
            np.testing.assert_allclose(Lambda[h, 0], gram, atol=1e-14)
        np.testing.assert_allclose(u[h].ravel(), target, atol=1e-14)
    assert np.abs(np.asarray(Lambda[:2])).max() > 0.01 and not np.asarray(Lambda[2]).any()


def test_the_norm_of_features_is_an_upper_bound_and_exact_where_entries_have_one_sign():
    base = np.asarray(random_features())
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=S)))
    true = np.linalg.norm(np.einsum("saxd,cx->csad", base, corners), axis=-1).max()
    assert true <= float(feature_norm(jnp.asarray(base))) <= 2 * true
    np.testing.assert_allclose(
        float(feature_norm(jnp.asarray(np.abs(base)))), np.linalg.norm(np.abs(base).sum(2), axis=-1).max(), rtol=1e-12
    )
    np.testing.assert_allclose(float(feature_norm(jnp.eye(18).reshape(S, A, S, 18))), math.sqrt(S), rtol=1e-12)
