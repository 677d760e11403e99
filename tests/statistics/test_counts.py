"""Counts: what one episode can change, by brute force over all episodes of a tiny world, and what they count.

Where the declared sensitivities are reached: everywhere as long as two episodes can fill as many cells as they may
without sharing one. First visits of H steps need 2H pairs (s, a) for that, so with fewer pairs the bound is not reached
by visits (`test_too_few_pairs`); it holds all the same.
"""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import (
    all_trajectories,
    check_sensitivity,
    contribution,
    distances,
    hostile_trajectories,
    of_rows,
    stack,
    total,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from privrl.data.episodes import Episodes
from privrl.mdp.types import Trajectory
from privrl.statistics.counts import RewardSums, TransitionCounts, VisitCounts

S, A = 2, 2
KINDS = (VisitCounts, TransitionCounts, RewardSums)
COUNTING = ("per-stage", "pooled", "first-visit")


@pytest.fixture(scope="module")
def short():
    """Every episode of at most two steps: two of them can avoid each other's cells."""
    return stack(list(all_trajectories(2, S, A)))


@pytest.fixture(scope="module")
def longer():
    """Every episode of at most three steps with rewards 0 or 1 at all of them."""
    three = [t for t in all_trajectories(3, S, A) if len({float(r) for r in t.rewards[: int(t.length)]}) < 2]
    return stack(three)


@pytest.mark.parametrize("norm", [None, 0.7, 1.2])
@pytest.mark.parametrize("counting", COUNTING)
@pytest.mark.parametrize("kind", KINDS)
def test_sensitivities_hold_and_are_reached(kind, counting, norm, short):
    statistic = kind(S, A, 2, counting, norm)
    for (adjacency, which), found in distances(statistic, short).items():
        declared = getattr(statistic, which)(adjacency)
        assert found == pytest.approx(declared, rel=1e-9), (adjacency, which)


@pytest.mark.parametrize("norm", [None, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_one_stage_is_one_cell(kind, norm, short):
    statistic = kind(S, A, 2, "per-stage", norm, 1)
    size = 1.0 if norm is None else norm
    expected = {"replace-one": (math.sqrt(2) * size, 2 * size), "add-remove": (size, size)}
    for (adjacency, which), found in distances(statistic, short).items():
        l2, l1 = expected[adjacency]
        assert found == pytest.approx(l2 if which == "l2" else l1)
        assert found == pytest.approx(getattr(statistic, which)(adjacency))


@pytest.mark.parametrize("norm", [None, 1.1, pytest.param(2.5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("counting", COUNTING)
@pytest.mark.parametrize("kind", KINDS)
def test_sensitivities_hold_with_repeated_pairs(kind, counting, norm, longer):
    statistic = kind(S, A, 3, counting, norm)
    check_sensitivity(statistic, longer)
    check_sensitivity(statistic, hostile_trajectories(3, S, A))


def test_too_few_pairs(longer):
    """Three first visits among four pairs: two episodes must share, and 4 cells differ at most, not 6."""
    statistic = VisitCounts(S, A, 3, "first-visit")
    assert distances(statistic, longer)["replace-one", "l2"] == pytest.approx(2.0)
    assert statistic.l2("replace-one") == pytest.approx(math.sqrt(6))


@pytest.mark.parametrize("with_end", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("counting", COUNTING)
def test_sensitivities_of_chosen_pairs_and_ends(counting, with_end, longer):
    for pairs in (None, jnp.array([0, 3, 4]), jnp.array([1, 4, 4])):  # 4 is padding
        check_sensitivity(TransitionCounts(S, A, 3, counting, pairs=pairs, with_end=with_end), longer)


def table(states, actions, rewards, next_states, lengths):
    arrays = (np.asarray(x) for x in (states, actions, rewards, next_states, lengths))
    return Episodes.from_trajectories(Trajectory(*arrays), num_states=S, num_actions=A)


@st.composite
def tables(draw, episodes=5, horizon=4):
    """Five episodes of one to four steps, with next states that are sometimes not recorded."""

    def grid(low, high):
        return draw(hnp.arrays(np.int64, (episodes, horizon), elements=st.integers(low, high)))

    lengths = draw(hnp.arrays(np.int64, episodes, elements=st.integers(1, horizon)))
    return grid(0, S - 1), grid(0, A - 1), grid(0, 8) / 8.0, grid(-1, S - 1), lengths


@eqx.filter_jit
def one_by_one(statistic, records):
    return jax.vmap(lambda record: statistic.contribution(record, None))(records).sum(axis=0)


def distinct_rows(arrays):
    """The compressed table, filled up with rows of count 0 so that every example has one shape."""
    rows = table(*arrays).transitions()
    return jax.tree.map(lambda x: jnp.asarray(np.concatenate([x, np.zeros(20 - len(x), x.dtype)])), rows)


def by_hand(kind, arrays, counting, norm=None, with_end=False):
    """The table, episode by episode and step by step, in plain Python."""
    next_axis = (S + with_end,) if kind is TransitionCounts else ()
    summed = np.zeros((4, S, A, *next_axis))
    for s, a, r, after, length in zip(*arrays, strict=True):
        own, seen = np.zeros_like(summed), set()
        for h in range(length):
            end = () if kind is not TransitionCounts else (after[h] if after[h] >= 0 else S,)
            if end == (S,) and not with_end:
                continue
            if counting == "first-visit" and (s[h], a[h]) in seen:
                continue
            seen.add((s[h], a[h]))
            own[(h if counting == "per-stage" else 0, s[h], a[h], *end)] += r[h] if kind is RewardSums else 1.0
        if norm is not None:
            # visits decide the scale, also of rewards; pooled next states are merged, which can only shrink more
            alone = [np.asarray(x)[None] for x in (s, a, r, after, length)]
            pairs = own if kind is not RewardSums else by_hand(VisitCounts, alone, counting)
            merged = pairs.sum(axis=-1) if kind is TransitionCounts and counting == "pooled" else pairs
            own *= min(1.0, norm / max(np.linalg.norm(merged), 1e-300))
        summed += own
    return summed if counting == "per-stage" else summed[0]


@settings(max_examples=30)
@given(tables())
def test_compressed_rows_are_the_sum_of_contributions(arrays):
    rows = distinct_rows(arrays)
    records = Trajectory(*(jnp.asarray(x) for x in arrays))
    for kind, counting in itertools.product(KINDS, ("per-stage", "pooled")):
        statistic = kind(S, A, 4, counting)
        assert statistic.hints.plain
        each = one_by_one(statistic, records)
        np.testing.assert_allclose(of_rows(statistic, rows), each, atol=1e-12)
        np.testing.assert_allclose(each, by_hand(kind, arrays, counting), atol=1e-12)


@settings(max_examples=30)
@given(tables())
def test_batches_are_the_sum_of_contributions(arrays):
    """Cut to a norm; those that are not are compared above, as compressed rows."""
    records = Trajectory(*(jnp.asarray(x) for x in arrays))
    for kind, counting in itertools.product(KINDS, COUNTING):
        norm = 1.2
        statistic = kind(S, A, 4, counting, norm)
        each = one_by_one(statistic, records)
        np.testing.assert_allclose(total(statistic, records), each, atol=1e-12)
        np.testing.assert_allclose(each, by_hand(kind, arrays, counting, norm), atol=1e-12)


@settings(max_examples=20)
@given(tables(), st.sampled_from(COUNTING))
def test_chosen_pairs_are_rows_of_the_whole_table(arrays, counting):
    records = Trajectory(*(jnp.asarray(x) for x in arrays))
    whole = np.asarray(total(TransitionCounts(S, A, 4, counting, with_end=True), records))
    np.testing.assert_allclose(whole, by_hand(TransitionCounts, arrays, counting, with_end=True))
    pairs = jnp.array([1, 2, 4, 4])  # the last two are padding
    chosen = total(TransitionCounts(S, A, 4, counting, pairs=pairs, with_end=True), records)
    flat = whole.reshape(*whole.shape[:-3], S * A, S + 1)
    np.testing.assert_allclose(chosen[..., :2, :], flat[..., [1, 2], :])
    assert not np.asarray(chosen[..., 2:, :]).any()


@pytest.mark.parametrize("norm", [None, 0.8])
@pytest.mark.parametrize("counting", COUNTING)
@pytest.mark.parametrize("kind", KINDS)
def test_malformed_records_contribute_nothing(kind, counting, norm):
    """Out of the world: a state, an action or (for transitions) a next state; rewards that are no numbers count 0."""
    statistic = kind(S, A, 2, counting, norm)
    good, two = jnp.array([0, 1]), jnp.array(2)
    bad = [
        Trajectory(jnp.array([-1, S]), good, jnp.ones(2), good, two),
        Trajectory(good, jnp.array([-1, A]), jnp.ones(2), good, two),
        Trajectory(good, good, jnp.ones(2), good, jnp.array(-3)),
    ]
    if kind is TransitionCounts:
        bad.append(Trajectory(good, good, jnp.ones(2), jnp.array([S, -1]), two))
        ended = TransitionCounts(S, A, 2, counting, norm, with_end=True)
        nowhere = Trajectory(good, good, jnp.ones(2), jnp.array([S, -2]), two)
        assert not np.asarray(contribution(ended, nowhere, None)).any()
    if kind is RewardSums:
        bad.append(Trajectory(good, good, jnp.array([jnp.nan, -jnp.inf]), good, two))
    for record in bad:
        assert not np.asarray(contribution(statistic, record, None)).any()
    half_good = Trajectory(jnp.array([0, S]), good, jnp.ones(2), good, two)
    assert np.asarray(contribution(statistic, half_good, None)).sum() == pytest.approx(1.0 if norm is None else norm)


def test_bad_arguments_are_explained():
    with pytest.raises(ValueError, match="per-stage"):
        VisitCounts(S, A, 2, "pooled", None, 1)
    with pytest.raises(ValueError, match="contribution_norm"):
        VisitCounts(S, A, 2, "pooled", 0.0)
