"""Sums of clipped stays: equal to a plain loop, bounded over all pairs of a tiny world and of hostile records."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import (
    all_trajectories,
    check_sensitivity,
    compiled,
    contribution,
    distances,
    hostile_trajectories,
    stack,
    total,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.mdp.types import Trajectory
from privrl.statistics.norms import Norms
from privrl.statistics.stay_sums import (
    ClippedErrors,
    ClippedNextStates,
    ClippedReturns,
    ClippedRewards,
    ClippedVisits,
)

S, A, H, TERMINAL = 5, 2, 4, (4,)
F = jnp.asarray([0.3, 0.9, 0.0, 0.5, 0.0])
PAIRS = jnp.asarray([0, 1, 3, 6, S * A])


def statistics(level=1.3, size=(S, A, H, TERMINAL), values=F, pairs=PAIRS, discount=0.75):
    C = jnp.asarray(level)
    return (
        ClippedVisits(*size, C),
        ClippedRewards(*size, C),
        ClippedErrors(*size, C, values, discount, 1.0),
        ClippedNextStates(*size, C, pairs),
        ClippedNextStates(*size, C, pairs, split_ends=True),
        ClippedReturns(*size, C, discount, 1.0),
        ClippedReturns(*size, C, discount, 2.0, ended_only=True),
    )


def name(statistic):
    flags = [flag for flag in ("split_ends", "ended_only") if getattr(statistic, flag, False)]
    return "-".join([type(statistic).__name__, *flags])


def stay(states, actions, rewards, nexts, horizon=H):
    pad = horizon - len(states)
    return Trajectory(
        jnp.array([*states, *[0] * pad]).astype(int),
        jnp.array([*actions, *[0] * pad]).astype(int),
        jnp.array([*rewards, *[0.0] * pad], float),
        jnp.array([*nexts, *[-1] * pad]).astype(int),
        jnp.array(len(states)),
    )


GOOD = [
    stay([0, 1, 0, 2], [0, 1, 0, 1], [0, 0, 0, 1.0], [1, 0, 2, 4]),  # (0, 0) twice: the first counts; ended
    stay([0, 1], [1, 1], [0.2, 0.4], [1, 4]),
    stay([3, 3, 3, 3], [0, 1, 1, 0], [0.2, 0, 0, 1.0], [3, 3, 3, 3]),  # cut by the horizon
    stay([1, 2], [0, 0], [0.0, 0.7], [2, -1]),  # stopped early without a next state: ended
    stay([0, 1, 2, 3], [0] * 4, [0.5] * 4, [1, 2, 3, -1]),  # cut, and the next state is not known: unusable
    stay([0, 4, 4], [0, 0, 0], [1.0, 0, 0], [4, 4, 4]),  # rows of a terminal state are none
    stay([], [], [], []),
]


def plain_loop(statistic, record):
    """One stay's vector, written as the sentence it is."""
    out = np.zeros(statistic.shape)
    steps = []
    length = int(record.length)
    for h in range(max(min(length, H), 0)):
        s, a, after = int(record.states[h]), int(record.actions[h]), int(record.next_states[h])
        reward = float(record.rewards[h])
        r = min(max(reward, 0.0), 1.0) if math.isfinite(reward) else 0.0
        known = 0 <= after < S
        ended = after in TERMINAL if known else h == length - 1 and length < H
        if 0 <= s < S and 0 <= a < A and s not in TERMINAL:
            steps.append((h, s, a, r, after if known else -1, ended))
    if isinstance(statistic, ClippedReturns):
        usable = not statistic.ended_only or any(step[-1] for step in steps)
        for i, (h, s, *_) in enumerate(steps):
            if usable and s not in [step[1] for step in steps[:i]]:
                G = sum(statistic.discount ** (k - h) * r for k, _, _, r, _, _ in steps[i:])
                G = min(G / statistic.largest_return, 1.0)
                out[s] = G, 1 - G
    else:
        for i, (_, s, a, r, after, ended) in enumerate(steps):
            if (s, a) in [step[1:3] for step in steps[:i]] or (after < 0 and not ended):
                continue
            match statistic:
                case ClippedVisits():
                    out[s, a] = 1
                case ClippedRewards():
                    out[s, a] = r
                case ClippedErrors():
                    out[s, a] = r + (0 if ended else statistic.discount * float(F[after])) - float(F[s])
                case ClippedNextStates():
                    if s * A + a in PAIRS.tolist():
                        row = out[PAIRS.tolist().index(s * A + a)]
                        if not ended:
                            row[after] = 1
                        elif statistic.split_ends:
                            row[S:] = r, 1 - r
                        else:
                            row[S] = 1
    return out


@pytest.mark.parametrize("statistic", statistics(), ids=name)
def test_stays_equal_a_plain_loop(statistic):
    stays = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), stack(GOOD), hostile_trajectories(H, S, A, count=60))
    host = jax.tree.map(np.asarray, stays)
    exact = np.stack([plain_loop(statistic, jax.tree.map(lambda x, i=i: x[i], host)) for i in range(len(host.length))])
    norms = np.linalg.norm(exact.reshape(len(exact), -1), axis=1)
    np.testing.assert_allclose(compiled(jax.vmap(statistic.norm), stays), norms, atol=1e-13)
    scaled = exact * np.minimum(1, 1.3 / np.maximum(norms, 1e-300)).reshape(-1, *[1] * (exact.ndim - 1))
    np.testing.assert_allclose(total(statistic, stays), scaled.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("statistic", statistics(0.6, (3, 1, 2, (2,)), F[:3], jnp.asarray([0, 1])), ids=name)
def test_every_pair_of_a_tiny_world_keeps_the_bound_and_some_meet_it(statistic):
    """States 0 and 1 and a terminal one, 1 action, up to 2 steps, rewards 0, .5 and 1."""
    every = stack(list(all_trajectories(2, 3, 1, rewards=(0.0, 0.5, 1.0))))
    check_sensitivity(statistic, every)
    found, loose = distances(statistic, every)["replace-one", "l2"], isinstance(statistic, ClippedErrors)
    assert math.isclose(found, statistic.l2("replace-one"), rel_tol=0.2 if loose else 1e-9)


def test_errors_of_opposite_sign_meet_their_bound():
    """Two stays over the same cells, one gaining and one losing as much everywhere: 2 C apart, not sqrt(2) C."""
    values = jnp.asarray([0.5, 0.5, 0.5, 1.0, 0.0])
    errors = ClippedErrors(S, A, H, (4,), jnp.asarray(0.1), values, 1.0, 1.0)
    up, down = (stay([0, 1, 2], [0, 0, 0], [0.0] * 3, [after] * 3) for after in (3, 4))
    x, y = (np.asarray(contribution(errors, record, None)) for record in (up, down))
    assert math.isclose(np.linalg.norm(x - y), errors.l2("replace-one"), rel_tol=1e-12)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_two_stays_keep_every_bound(data):
    """Random stays of any length, levels over ten orders of magnitude, values in and out of range."""
    number = st.floats(-0.5, 1.5)
    level = data.draw(st.floats(1e-5, 1e5))
    values = jnp.asarray(data.draw(st.lists(number, min_size=S, max_size=S)))

    def record():
        steps = data.draw(st.integers(0, H))
        draw = [data.draw(st.lists(x, min_size=steps, max_size=steps)) for x in _STEP]
        return stay(*draw)

    pair = stack([record(), record()])
    for statistic in statistics(level, values=values):
        x, y = (np.asarray(v) for v in _contributions(statistic, pair))
        assert max(np.linalg.norm(x), np.linalg.norm(y)) <= statistic.l2("add-remove") * (1 + 1e-12)
        assert np.linalg.norm(x - y) <= statistic.l2("replace-one") * (1 + 1e-12)


_STEP = (st.integers(-1, S), st.integers(-1, A), st.floats(allow_nan=True), st.integers(-1, S))
_contributions = jax.jit(lambda statistic, pair: jax.vmap(lambda x: statistic.contribution(x, None))(pair))


def test_a_stay_cut_by_the_horizon_has_not_ended():
    """Its last step is an ordinary transition; only a stay that stops earlier without a next state has ended."""
    visits, _, errors, _, split, _, returns = statistics(100.0)
    cut, ended = (stay([0, 1, 0, 1], [0, 1, 1, 0], [0] * 4, [1, 0, 1, after]) for after in (2, 4))
    assert contribution(visits, cut, None)[1, 0] == contribution(visits, ended, None)[1, 0] == 1
    assert math.isclose(contribution(errors, cut, None)[1, 0], 0.75 * float(F[2]) - float(F[1]))
    assert math.isclose(contribution(errors, ended, None)[1, 0], -float(F[1]))
    assert contribution(split, cut, None)[:, S:].sum() == 0
    assert not np.any(contribution(returns, cut, None)) and np.any(contribution(returns, ended, None))


def test_norms_are_binned_by_their_upper_edge():
    visits = ClippedVisits(S, A, H, TERMINAL, jnp.asarray(1.0))
    norms = Norms(visits, 1.0, 4.0, num_bins=3)  # edges 1, 2, 4
    np.testing.assert_allclose(norms.edges, [1, 2, 4])
    records = stack([GOOD[-1], stay([0], [0], [0.0], [1]), GOOD[1], stay([0, 1, 2, 3], [0] * 4, [0] * 4, [1, 2, 3, 0])])
    each = jax.jit(jax.vmap(lambda x: norms.contribution(x, None)))(records)  # norms 0, 1, sqrt 2 and 2
    np.testing.assert_array_equal(each, [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]])
    check_sensitivity(norms, hostile_trajectories(H, S, A, count=200))
    found = distances(norms, records)
    assert math.isclose(found["replace-one", "l2"], math.sqrt(2)) and found["add-remove", "l1"] == 1


def test_what_has_no_proof_is_refused():
    with pytest.raises(ValueError, match="`level` has entries outside"):
        ClippedVisits(S, A, H, TERMINAL, jnp.asarray(0.0))
    with pytest.raises(ValueError, match="`discount` has entries outside"):
        ClippedErrors(S, A, H, TERMINAL, jnp.asarray(1.0), F, 1.5, 1.0)
    with pytest.raises(ValueError, match="`pairs` has shape"):
        ClippedNextStates(S, A, H, TERMINAL, jnp.asarray(1.0), jnp.zeros((0,), int))
    with pytest.raises(ValueError, match="the first must be below"):
        Norms(statistics()[0], 2.0, 1.0)
    with pytest.raises(ValueError, match="released with Gaussian noise"):
        statistics()[0].l1("replace-one")
