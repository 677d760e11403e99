"""Returns to go and differences: against a plain loop, and attacked for their sensitivity."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import all_trajectories, check_sensitivity, contribution, distances, hostile_trajectories, stack, total

from privrl.mdp.types import Trajectory
from privrl.statistics.differences import Differences, ReturnsToGo

S, A, H, TERMINAL = 6, 3, 5, (4, 5)
F = jnp.asarray(np.random.default_rng(3).normal(size=S))


def differences(
    norm=0.8, wn=0.3, wT=0.7, wM=0.25, wR=None, bound=1.0, feature=F, scale=0.7, size=(S, A, H), ends=TERMINAL
):
    return Differences(*size, ends, norm, wn, wT, wM, feature, jnp.asarray(scale), wR, bound)


def stay(states, actions, rewards, nexts, horizon=H):
    pad = horizon - len(states)
    return Trajectory(
        jnp.array([*states, *[0] * pad]).astype(int),
        jnp.array([*actions, *[0] * pad]).astype(int),
        jnp.array([*rewards, *[0.0] * pad], float),
        jnp.array([*nexts, *[-1] * pad]).astype(int),
        jnp.array(len(states)),
    )


def plain_loop(statistic, record):
    """One stay's vector, written as the sentence it is."""
    out = np.zeros(statistic.shape)
    seen = set()
    length = min(int(record.length), H)
    for h in range(length):
        s, a, after = int(record.states[h]), int(record.actions[h]), int(record.next_states[h])
        reward = float(record.rewards[h])
        r = min(max(reward, 0.0), 1.0) if math.isfinite(reward) else 0.0
        if not (0 <= s < S and 0 <= a < A) or s in TERMINAL or (s, a) in seen:
            continue
        seen.add((s, a))
        known = 0 <= after < S
        ended = after in TERMINAL if known else h == int(record.length) - 1 and int(record.length) < H
        if not known and not ended:
            continue
        block = [statistic.visit_weight, 0.0, 0.0, 0.0, 0.0]
        if ended:
            share = r / statistic.return_bound
            block[1:3] = statistic.ending_weight * share, statistic.ending_weight * (1 - share)
        else:
            move = (float(statistic.feature[after]) - float(statistic.feature[s])) / float(statistic.scale)
            block[3] = statistic.difference_weight * min(max(move, -1.0), 1.0)
            block[4] = (statistic.reward_weight or 0.0) * r
        out[s, a] = block[: statistic.shape[2]]
    return out * min(1.0, statistic.contribution_norm / max(np.linalg.norm(out), 1e-300))


def records():
    good = [
        stay([0, 1, 0, 2], [0, 1, 0, 2], [0, 0, 0, 1.0], [1, 0, 2, 5]),
        stay([0, 1], [2, 2], [0.0, 0.4], [1, 4]),
        stay([3, 3, 3, 3, 3], [0, 1, 2, 0, 1], [0.2, 0, 0, 0, 1.0], [3, 3, 3, 3, 3]),
        stay([1, 2], [0, 0], [0.0, 0.7], [2, -1]),  # stops early, next state not recorded: it has ended
        stay([0, 1, 2, 3, 0], [0] * 5, [0.5] * 5, [1, 2, 3, 0, -1]),  # the horizon: it may go on, nobody knows where
        stay([0, 5, 5], [0, 0, 0], [1.0, 0, 0], [5, 5, 5]),  # rows inside a terminal state say nothing
        stay([], [], [], []),
    ]
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), stack(good), hostile_trajectories(H, S, A, count=80))


@pytest.mark.parametrize("wR", [None, 0.2])
@pytest.mark.parametrize("norm", [0.5, 100.0])
def test_differences_equal_a_plain_loop(wR, norm):
    statistic, stays = differences(norm=norm, wR=wR, bound=1.0 if wR is None else 2.5), records()
    host = jax.tree.map(np.asarray, stays)
    expected = np.stack(
        [plain_loop(statistic, jax.tree.map(lambda x, i=i: x[i], host)) for i in range(len(host.length))]
    )
    each = jax.jit(jax.vmap(lambda record: statistic.contribution(record, None)))(stays)
    np.testing.assert_allclose(each, expected, atol=1e-14)
    np.testing.assert_allclose(total(statistic, stays, None), expected.sum(axis=0), atol=1e-12)


def test_returns_to_go_by_hand():
    loose = ReturnsToGo(S, H, contribution_norm=100.0)
    got = contribution(loose, stay([0, 1, 0, 2], [0, 1, 1, 2], [0.25, 0, 0, 0.5], [1, 0, 2, 5]), None)
    expected = np.zeros((S, 2))
    expected[0], expected[1], expected[2] = (0.75, 0.25), (0.5, 0.5), (0.5, 0.5)  # from the first visits
    np.testing.assert_allclose(got, expected, atol=1e-15)
    halved = ReturnsToGo(S, H, contribution_norm=100.0, return_bound=2.0)
    got = contribution(halved, stay([0, 1], [0, 0], [1.0, 0.5], [1, 5]), None)
    np.testing.assert_allclose(got[:2], [[0.75, 0.25], [0.25, 0.75]], atol=1e-15)
    tight = ReturnsToGo(S, H, contribution_norm=0.5)
    assert math.isclose(np.linalg.norm(contribution(tight, stay([0], [0], [1.0], [5]), None)), 0.5)


def test_a_stay_that_was_cut_is_not_lost():
    """Five steps of five without an end: no ending, no loss; the last step moves the feature, or says nothing."""
    states, rest = [0, 1, 2, 3, 0], ([1, 0, 0, 0, 2], [0.0] * 5)
    cut, unknown = (stay(states, *rest, [1, 2, 3, 0, last]) for last in (1, -1))
    ended = stay(states, *rest, [1, 2, 3, 0, TERMINAL[0]])
    statistic = differences(norm=100.0, wT=0.7)
    moved, left_out, lost = (np.asarray(contribution(statistic, x, None)) for x in (cut, unknown, ended))
    np.testing.assert_array_equal(moved[..., 1:3], 0.0)
    np.testing.assert_array_equal(left_out[..., 1:3], 0.0)
    np.testing.assert_allclose(moved[0, 2], [0.3, 0.0, 0.0, 0.25 * np.clip((F[1] - F[0]) / 0.7, -1, 1)])
    np.testing.assert_array_equal(left_out[0, 2], 0.0)
    np.testing.assert_allclose(lost[0, 2], [0.3, 0.0, 0.7, 0.0])
    returns = ReturnsToGo(S, H, 100.0, terminal=TERMINAL, ended_only=True)
    for record in (cut, unknown):
        assert not np.any(contribution(returns, record, None))
    np.testing.assert_array_equal(contribution(returns, ended, None)[:4], [[0.0, 1.0]] * 4)


@pytest.mark.parametrize("wR", [None, 0.4])
def test_no_pair_in_a_tiny_world_breaks_the_bound_and_some_meet_it(wR):
    """Every pair of records of 4 states (one terminal), 1 action, up to 2 steps, rewards 0, .5 and 1."""
    feature = jnp.array([0.0, 1.0, -1.0, 0.0])
    statistic = differences(0.4, wM=0.3, wR=wR, feature=feature, scale=1.0, size=(4, 1, 2), ends=(3,))
    every = stack(list(all_trajectories(2, 4, 1, rewards=(0.0, 0.5, 1.0))))
    check_sensitivity(statistic, every)
    found = distances(statistic, every)
    assert math.isclose(found["replace-one", "l2"], math.sqrt(2) * 0.4, rel_tol=1e-9)
    assert math.isclose(found["add-remove", "l2"], 0.4, rel_tol=1e-9)
    returns = ReturnsToGo(4, 2, 0.9)
    check_sensitivity(returns, every)
    assert math.isclose(distances(returns, every)["replace-one", "l2"], math.sqrt(2) * 0.9, rel_tol=1e-9)


def test_opposite_stays_over_the_same_cells_meet_the_bound():
    """The worst case inside one cell: moves in opposite directions, with wM = wn, are orthogonal and no worse."""
    size = 20
    feature = jnp.zeros(size).at[10:15].set(9.0).at[15:].set(-9.0)
    statistic = differences(0.8, wn=0.3, wM=0.3, feature=feature, size=(size, 2, 8), ends=(19,), wR=0.1)
    cells = [(list(range(8)), [h % 2 for h in range(8)])]
    up, down = ([stay(s, a, [0.0] * 8, [after] * 8, 8) for s, a in cells] for after in (12, 16))
    x, y = (np.asarray(contribution(statistic, record, None)) for record in (up[0], down[0]))
    assert abs(np.vdot(x, y)) < 1e-15
    assert math.isclose(np.linalg.norm(x - y), statistic.l2("replace-one"), rel_tol=1e-12)


def test_adversarial_stays_in_a_larger_world():
    """Stays built to disagree: the same cells with every mix of up, down, ended well, ended badly and unknown."""
    size, steps = 12, 6
    feature = jnp.asarray(np.random.default_rng(0).normal(size=size)).at[10].set(50.0).at[9].set(-50.0)
    statistic = differences(0.5, wn=0.3, wM=0.3, wR=0.3, feature=feature, size=(size, 3, steps), ends=(11,))
    made = []
    for outcome in itertools.product([(10, 0.0), (9, 1.0), (11, 0.0), (11, 1.0), (-1, 0.5)], repeat=3):
        nexts, rewards = zip(*outcome, strict=True)
        made.append(stay([0, 1, 2], [0, 1, 2], rewards, nexts, steps))
        made.append(stay([0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 0, 0], [*rewards, 0, 0, 0], [*nexts, 9, 10, 9], steps))
    check_sensitivity(statistic, stack(made))
    check_sensitivity(statistic, hostile_trajectories(steps, size, 3, count=200))
    check_sensitivity(ReturnsToGo(size, steps, 1.1), hostile_trajectories(steps, size, 3, count=200))


def test_what_would_break_the_proof_is_refused():
    with pytest.raises(ValueError, match="`difference_weight` <= `visit_weight`"):
        differences(wn=0.2, wM=0.21)
    with pytest.raises(ValueError, match="`return_bound` is 0.5"):
        differences(bound=0.5)
    with pytest.raises(ValueError, match="`contribution_norm` is 0.0"):
        ReturnsToGo(S, H, 0.0)
