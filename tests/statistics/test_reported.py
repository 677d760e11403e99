"""Statistics by group and about a second outcome: exact bounds by brute force, and sums of hand-made people."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import all_trajectories, contribution, distances, stack, total

from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.types import Trajectory
from privrl.statistics.counts import VisitCounts
from privrl.statistics.off_policy import CentredReturns, Gains, Influences, StayReturns, Weights
from privrl.statistics.reported import ByGroup, OfOutcome, Present

SMALL = AssistedPolicy(jnp.array([0, 1, 0]), jnp.array([0.5, 0.05, 0.2]), 2.0, 2.001, horizon=2)
PAIRS = ((4.0, 4.0), (6.0, 6.0))
ODD = (0.0, 1.0, np.nan, -1.0, 2.0, 0.5, np.inf, -np.inf)


def with_extras(people: Trajectory, extras: np.ndarray) -> Trajectory:
    columns = (people.states, people.actions, people.rewards, people.next_states, people.length, people.propensities)
    return Trajectory(*columns, jnp.asarray(extras))


@pytest.fixture(scope="module")
def everyone() -> Trajectory:
    """Every record of a small world as persons with one stay, of each group and of none; rewards are the outcome."""
    people = jax.tree.map(lambda x: np.asarray(x)[:, None], stack(list(all_trajectories(2, 3, 2))))
    copies = []
    for group in ODD[:4]:
        costs = 5.0 * np.asarray(people.rewards)
        copies.append(with_extras(people, np.stack([np.full(costs.shape, group), costs], axis=-1)))
    return jax.tree.map(lambda *arrays: jnp.asarray(np.concatenate(arrays)), *copies)


@pytest.mark.parametrize(
    "statistic",
    [
        ByGroup(Present(), 2),
        ByGroup(StayReturns(), 2),
        ByGroup(CentredReturns((0.0, 1.0), jnp.asarray(0.6)), 2),
        ByGroup(CentredReturns((0.0, 1.0), jnp.asarray(0.9)), 2),
        CentredReturns((0.0, 1.0), jnp.asarray(0.6)),
        ByGroup(Weights(SMALL), 2),
        ByGroup(Gains(SMALL, jnp.asarray(0.6)), 2),
        ByGroup(Gains(SMALL, jnp.asarray(0.95)), 2),
        ByGroup(Gains(SMALL, jnp.asarray(0.6), squared=True), 2),
        ByGroup(Gains(SMALL, jnp.asarray(0.6), limits=PAIRS), 2),
        ByGroup(Influences(SMALL), 2),
        OfOutcome(StayReturns(), 5.0),
        OfOutcome(Gains(SMALL, jnp.asarray(0.6)), 5.0),
        OfOutcome(Gains(SMALL, jnp.asarray(0.6), squared=True), 5.0),
    ],
    ids=lambda s: f"{type(s).__name__}-{type(getattr(s, 'inner', s)).__name__}",
)
def test_bounds_of_reports_are_right_over_every_record_and_nearly_met(statistic, everyone):
    found = distances(statistic, everyone)
    for (adjacency, norm), distance in found.items():
        assert distance <= getattr(statistic, norm)(adjacency) * (1 + 1e-12), (adjacency, norm)
    assert found["replace-one", "l2"] > 0.99 * statistic.l2("replace-one")
    assert found["add-remove", "l2"] > 0.99 * statistic.l2("add-remove")


def person(groups, costs=None, lengths=(2, 2), rewards=1.0) -> Trajectory:
    """Two stays of two steps; `groups` and `costs` of each row."""
    shape = (2, 2)
    zeros = np.zeros(shape, int)
    extras = np.stack([np.reshape(groups, shape), np.zeros(shape) if costs is None else np.reshape(costs, shape)], -1)
    return Trajectory(zeros, zeros, np.full(shape, rewards), zeros, np.array(lengths), None, extras)


@pytest.mark.parametrize(
    ("groups", "lengths", "row"),
    [
        ((0, 1, 1, 1), (2, 2), 0),
        ((0, 1, 1, 0), (0, 2), None),  # the first stay is empty
        ((0, 1, 1, 0), (-3, 1), None),
        ((np.nan, 1, 1, 1), (2, 2), None),  # the first row decides, and it names no group
        ((0.5, 1, 1, 1), (2, 2), None),
        ((2, 1, 1, 1), (2, 2), None),
        ((-1, 1, 1, 1), (2, 2), None),
        ((np.inf, 1, 1, 1), (2, 2), None),
        ((0, 0, 0, 0), (0, 0), None),
    ],
)
def test_a_person_is_in_the_group_of_the_first_row_of_the_first_stay(groups, lengths, row):
    found = np.asarray(contribution(ByGroup(Present(), 2), person(groups, lengths=lengths)))
    expected = np.zeros((2, 1))
    if row is not None:
        expected[row] = 1.0
    np.testing.assert_array_equal(found, expected)


def test_sums_by_group_are_those_of_the_groups():
    people = jax.tree.map(
        lambda *xs: jnp.asarray(np.stack(xs)),
        *(person([g] * 4, rewards=r) for g, r in ((0, 0.1), (1, 0.2), (1, 0.3), (np.nan, 0.4))),
    )
    np.testing.assert_allclose(total(ByGroup(StayReturns((0.0, 2.0)), 2), people), [[0.1], [0.5]])
    np.testing.assert_array_equal(total(ByGroup(Present(), 2), people), [[1.0], [2.0]])


@pytest.mark.parametrize(
    ("costs", "share"),
    [
        ((1, 1, 3, 0), 0.2),  # a first stay of 2 of 10
        ((30, 0, 0, 0), 1.0),
        ((6, 6, 0, 0), 1.0),
        ((np.nan, 2, -5, np.inf), 0.2),
    ],
)
def test_an_outcome_is_a_share_of_its_largest_total(costs, share):
    found = contribution(OfOutcome(StayReturns(), 10.0), person([0] * 4, costs, rewards=7.0))
    np.testing.assert_allclose(found, [share])


def test_records_without_these_columns_contribute_what_an_empty_column_does():
    bare = person([np.nan] * 4)
    bare = Trajectory(bare.states, bare.actions, bare.rewards, bare.next_states, bare.length)
    assert not np.asarray(contribution(ByGroup(StayReturns(), 3), bare)).any()
    assert not np.asarray(contribution(OfOutcome(StayReturns(), 3.0), bare)).any()


def test_only_plain_sums_of_one_person_have_groups():
    for kind in (lambda inner: ByGroup(inner, 2), lambda inner: OfOutcome(inner, 1.0)):
        with pytest.raises(ValueError, match="statistic of one person"):
            kind(VisitCounts(3, 2, 4))
    with pytest.raises(ValueError, match="`groups`"):
        ByGroup(Present(), 0)
    with pytest.raises(ValueError, match="`largest`"):
        OfOutcome(StayReturns(), 0.0)
