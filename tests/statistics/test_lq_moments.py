"""Moments of linear systems against sums written out, and their sensitivities against sampled and hostile records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import check_sensitivity, contribution, distances, stack
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privrl.mdp.lq import LQTrajectory
from privrl.privacy.noise.distributions import SymmetricNoise
from privrl.statistics.lq_moments import LQCross, LQGram, LQMoments, from_upper, joint_weight

H, N, D = 3, 2, 2
GAMMA = 0.4
C = joint_weight(GAMMA)
JOINT = LQMoments(N, D, H, C, H * (1 + GAMMA**2 + C**2))
GRAM, CROSS = LQGram(N, D, H, GAMMA), LQCross(N, D, H, GAMMA)


def record(states, inputs, length=H):
    states, inputs = jnp.asarray(states, float), jnp.asarray(inputs, float)
    return LQTrajectory(states, inputs, jnp.zeros_like(inputs), jnp.asarray(length))


def unit(rng, shape):
    x = rng.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def steady(x, u, sign=1.0):
    """States x, sign x, sign^2 x, ... and inputs u, sign u, ...: every transition is as large as the first."""
    powers = sign ** np.arange(H + 1)
    return record(np.outer(powers, x), np.outer(powers[:-1], u))


def sampled(seed=0, count=80):
    """Records that keep the bounds: steady ones along the axes and at random, and others."""
    rng = np.random.default_rng(seed)
    made = [steady(s * x, GAMMA * u, sign) for x in np.eye(N) for u in np.eye(D) for s in (1, -1) for sign in (1, -1)]
    made += [steady(x, GAMMA * u) for x, u in zip(unit(rng, (count, N)), unit(rng, (count, D)), strict=True)]
    for _ in range(count):
        made.append(record(unit(rng, (H + 1, N)), GAMMA * rng.uniform() * unit(rng, (H, D))))
    return stack(made)


def hostile(seed=1, count=60):
    """Records that keep nothing: infinite, not numbers, huge, tiny, of impossible lengths."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        states, inputs = unit(rng, (H + 1, N)), unit(rng, (H, D))
        size = 10.0 ** rng.choice([-320, -160, 0, 3, 150, 300])
        states = states * size if i % 2 else states
        inputs = inputs * size if i % 3 else inputs
        if i % 4 == 1:
            states[rng.integers(H + 1), rng.integers(N)] = rng.choice([np.nan, np.inf, -np.inf])
        if i % 4 == 2:
            inputs[rng.integers(H), rng.integers(D)] = rng.choice([np.nan, np.inf, -np.inf])
        made.append(record(states, inputs, rng.integers(-2, H + 5)))
    return stack(made)


@pytest.mark.parametrize("statistic", [JOINT, LQMoments(N, D, H, C, 0.7), LQMoments(N, D, H, 2.0, 1.0), GRAM, CROSS])
def test_no_pair_of_records_breaks_a_sensitivity(statistic):
    def l2_only(adjacency, records):
        found = distances(statistic, records)
        assert found[adjacency, "l2"] <= statistic.l2(adjacency) * (1 + 1e-9)

    for records in (sampled(), hostile(), stack([*unstack(sampled(2, 20)), *unstack(hostile(3, 40))])):
        for adjacency in ("replace-one", "add-remove"):
            l2_only(adjacency, records)
        if statistic.symmetric:
            check_sensitivity(statistic, records)


def unstack(records):
    return [jax.tree.map(lambda x, i=i: x[i], records) for i in range(len(records.length))]


@pytest.mark.parametrize(
    "statistic", [JOINT, LQMoments(N, D, H, C, 1.0), GRAM, CROSS], ids=["joint", "clipped", "gram", "cross"]
)
def test_sampled_records_meet_the_bounds(statistic):
    found = distances(statistic, sampled())
    np.testing.assert_allclose(found["replace-one", "l2"], statistic.l2("replace-one"), rtol=1e-9)


def test_the_pair_of_sums_that_is_used_comes_within_five_percent():
    """(S1, sqrt2 c S2) without the block of x' x'^T, whose share of the bound nobody needs."""
    assert np.isclose(JOINT.l2("replace-one"), np.sqrt(2) * H * (1 + GAMMA**2 + C**2))
    matrices = np.asarray(jax.jit(jax.vmap(lambda x: JOINT.contribution(x, None)))(sampled()))
    used = np.concatenate(
        [matrices[:, : N + D].reshape(len(matrices), -1), matrices[:, N + D :, : N + D].reshape(len(matrices), -1)], 1
    )
    farthest = max(np.linalg.norm(used - row, axis=1).max() for row in used)
    assert 0.95 * JOINT.l2("replace-one") < farthest <= JOINT.l2("replace-one") * (1 + 1e-9)


def test_a_joint_release_keeps_the_noise_of_the_gram_and_cuts_that_of_the_cross_moments():
    """At mu = 1, against S1 and S2 released apart at mu = 1/sqrt2 each."""
    scale = JOINT.l2("replace-one")
    gram = np.sqrt(2) * H * (1 + GAMMA**2) * np.sqrt(2)
    cross = CROSS.l2("replace-one") * np.sqrt(2)
    joint = np.sqrt(np.asarray(SymmetricNoise(scale, 2 * N + D).variance))
    assert np.isclose(joint[0, 0], gram)
    assert np.isclose(joint[0, N + D] / C, scale / (np.sqrt(2) * C))
    assert (
        np.isclose(joint[0, N + D] / C / cross, 0.5 / np.sqrt(np.sqrt(2) - 1)) and joint[0, N + D] / C / cross < 0.777
    )


def test_the_printed_sensitivities_are_not_valid():
    """H (1 + gamma) is exceeded at every gamma, H (1 + gamma)^2 at small ones."""
    for gamma in (0.05, 0.3, 1.0, 3.0):
        rng = np.random.default_rng(0)
        x, u = unit(rng, N), gamma * unit(rng, D)
        pair = [contribution(LQCross(N, D, H, gamma), steady(x, u, sign), None) for sign in (1, -1)]
        assert np.linalg.norm(pair[0] - pair[1]) > H * (1 + gamma) * 1.1
    small = LQGram(N, D, H, 0.05)
    pair = [contribution(small, steady(x, 0.05 * u), None) for x, u in zip(np.eye(N), np.eye(D), strict=True)]
    assert np.linalg.norm(pair[0] - pair[1]) > H * 1.05**2 * 1.2


def by_hand(states, inputs, length):
    blocks = [np.zeros((N + D, N + D)), np.zeros((N + D, N)), np.zeros((N, N))]
    for h in range(length):
        z, following = np.concatenate([states[h], inputs[h]]), states[h + 1]
        for block, term in zip(blocks, ((z, z), (z, following), (following, following)), strict=True):
            block += np.outer(*term)
    return blocks


@pytest.mark.parametrize("length", range(H + 1))
def test_contributions_equal_sums_written_out(length):
    rng = np.random.default_rng(length)
    states, inputs = 0.9 * unit(rng, (H + 1, N)), 0.9 * GAMMA * unit(rng, (H, D))
    S1, S2, S3 = by_hand(states, inputs, length)
    one = record(states, inputs, length)
    whole = np.block([[S1, C * S2], [C * S2.T, C**2 * S3]])
    np.testing.assert_allclose(contribution(JOINT, one, None), whole, atol=1e-12)
    np.testing.assert_allclose(from_upper(contribution(GRAM, one, None), N + D), S1, atol=1e-12)
    np.testing.assert_allclose(contribution(CROSS, one, None), S2, atol=1e-12)
    clipped = LQMoments(N, D, H, C, 0.5)
    np.testing.assert_allclose(
        contribution(clipped, one, None), whole * min(1, 0.5 / max(np.trace(whole), 1e-9)), atol=1e-12
    )


def test_a_transition_that_is_not_a_number_is_dropped_and_the_others_stay():
    rng = np.random.default_rng(0)
    states, inputs = unit(rng, (H + 1, N)), GAMMA * unit(rng, (H, D))
    whole = contribution(JOINT, record(states, inputs, 1), None)
    inputs[1:] = np.nan
    np.testing.assert_allclose(contribution(JOINT, record(states, inputs), None), whole, atol=1e-12)
    states[0] = np.inf
    assert not np.any(np.asarray(contribution(JOINT, record(states, inputs), None)))


@settings(max_examples=60)
@given(arrays(float, (H + 1, N)), arrays(float, (H, D)), st.integers(-3, H + 3))
def test_contributions_are_positive_semidefinite_with_a_bounded_trace(states, inputs, length):
    M = np.asarray(contribution(JOINT, record(states, inputs, length), None))
    assert np.isfinite(M).all()
    assert np.linalg.eigvalsh(M).min() >= -1e-12 * JOINT.trace_bound
    assert np.trace(M) <= JOINT.trace_bound * (1 + 1e-12)


def test_a_record_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="Pad shorter episodes"):
        contribution(JOINT, record(np.zeros((H, N)), np.zeros((H - 1, D))), None)


@pytest.mark.parametrize(("weight", "trace"), [(0.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (1.0, np.inf)])
def test_bounds_that_are_no_bounds_are_refused(weight, trace):
    with pytest.raises(ValueError, match="positive finite number"):
        LQMoments(N, D, H, weight, trace)


@pytest.mark.parametrize("statistic", [JOINT, GRAM, CROSS])
def test_l1_norms_are_covered_and_nearly_met(statistic):
    """Random records of every size and sign; the same direction at every step is the worst for one person."""
    rng, sizes = np.random.default_rng(0), []
    for _ in range(300):
        direction = rng.choice([-1.0, 1.0], N) / np.sqrt(N)
        states = 10.0 ** rng.uniform(-1, 1) * (rng.normal(size=(H + 1, N)) if rng.random() < 0.5 else direction)
        inputs = 10.0 ** rng.uniform(-1, 1) * np.broadcast_to(rng.choice([-1.0, 1.0], D), (H, D))
        sizes.append(
            np.asarray(contribution(statistic, record(np.broadcast_to(states, (H + 1, N)), inputs), None)).ravel()
        )
    rows = np.array(sizes)
    apart = np.abs(rows[:, None] - rows[None]).sum(axis=-1).max()
    one = np.abs(rows).sum(axis=1).max()
    assert 0.6 * statistic.l1("add-remove") <= one <= statistic.l1("add-remove") * (1 + 1e-9)
    assert apart <= statistic.l1("replace-one") * (1 + 1e-9)
