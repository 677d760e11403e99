"""The search for two people who move a release too far: against brute force, and against planted mistakes."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import contribution

from privrl.audit.sensitivity import Sensitivity, climb, find_farthest, search_sensitivities
from privrl.audit.surface.neighbouring_records import join_records, make_record_pool, pick_records, widen_records
from privrl.audit.surface.queries import Query
from privrl.audit.worlds import tiny_world
from privrl.contracts.statistic import AbstractStatistic
from privrl.envs.lq_worlds import LQ2D
from privrl.mdp.types import Trajectory
from privrl.statistics.counts import TransitionCounts, VisitCounts
from privrl.statistics.lq_moments import LQMoments


class Planted(AbstractStatistic):
    """A statistic with a mistake that only rare records show."""

    mistake: str = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True, default=(3,))
    symmetric: bool = eqx.field(static=True, default=False, init=False)

    def contribution(self, record, query):
        x = (jnp.arange(3) == record.states[0]).astype(float)
        if self.mistake == "rewards are not clipped":
            return x * record.rewards[0]
        if self.mistake == "out of range counts":
            return x + (record.states[0] >= 3) * jnp.array([3.0, 0.0, 0.0])
        return x / (record.length != 0)  # an empty record divides by nothing

    def l2(self, adjacency):
        return math.sqrt(2.0) if adjacency == "replace-one" else 1.0

    def l1(self, adjacency):
        return 2.0 if adjacency == "replace-one" else 1.0


@pytest.mark.parametrize("mistake", ["rewards are not clipped", "out of range counts", "division by zero"])
def test_planted_mistakes_are_found(mistake):
    rng = np.random.default_rng(0)
    found = search_sensitivities(
        [Query("planted", Planted(mistake))], make_record_pool(tiny_world(2, 3, 2), rng), rng, norms=("l1", "l2")
    )
    assert {(s.adjacency, s.norm) for s in found} == {
        (adjacency, norm) for adjacency in ("replace-one", "add-remove") for norm in ("l1", "l2")
    }
    assert all(s.broken and s.ratio > 1.4 for s in found)
    assert all(s.to_json()["found"] == "inf" or s.to_json()["ratio"] > 1 for s in found)


@pytest.mark.parametrize("counting", ["per-stage", "pooled", "first-visit"])
@pytest.mark.parametrize("kind", [VisitCounts, TransitionCounts])
def test_counts_are_as_sensitive_as_they_say(kind, counting):
    """Every pair of a world in which every bound is reached: the ratio is 1, not more."""
    rng = np.random.default_rng(1)
    asked = [Query("counts", kind(3, 2, 3, counting))]
    for s in search_sensitivities(asked, make_record_pool(tiny_world(3, 3, 2), rng), rng, rounds=1, norms=("l1", "l2")):
        assert s.ratio == pytest.approx(1.0, abs=1e-9) and not s.broken


def test_a_climb_reaches_the_bound_from_ordinary_people():
    """Moments of a linear system: ordinary episodes are far from the bound, the climb goes to it."""
    rng = np.random.default_rng(2)
    asked = Query("moments", LQMoments(2, 1, 2, 0.7, 1.0))
    ordinary = pick_records(make_record_pool(LQ2D(horizon=2), rng), np.arange(2))
    start = np.linalg.norm(np.diff(asked.answers(ordinary), axis=0))
    assert start < 0.9 * math.sqrt(2)
    end = np.linalg.norm(np.diff(asked.answers(climb(asked.answers, ordinary, rng, 40)), axis=0))
    assert 0.9 * math.sqrt(2) < end <= math.sqrt(2) * (1 + 1e-9)


def test_a_climb_never_loses_ground():
    rng = np.random.default_rng(3)
    asked = Query("counts", VisitCounts(3, 2, 3, "pooled"))
    records = make_record_pool(tiny_world(), rng)
    i, j, apart = find_farthest(asked.answers(records))
    pair = join_records(*(pick_records(records, np.array([k])) for k in (i, j)))
    assert np.linalg.norm(np.diff(asked.answers(climb(asked.answers, pair, rng, 3)), axis=0)) == pytest.approx(apart)


def test_the_farthest_rows_are_those_of_brute_force():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 5))
    X[17] = X[3]
    i, j, apart = find_farthest(X)
    assert apart == np.linalg.norm(X[:, None] - X[None], axis=-1).max() == np.linalg.norm(X[i] - X[j])
    X[40, 2] = np.nan
    assert find_farthest(X)[0] == 40 and math.isinf(find_farthest(X)[2])


def test_answers_in_chunks_are_those_of_one_record_at_a_time():
    rng = np.random.default_rng(5)
    records = pick_records(make_record_pool(tiny_world(2, 2, 2), rng), np.arange(40))
    asked = Query("counts", TransitionCounts(2, 2, 2, "first-visit"))
    single = [jax.tree.map(jnp.asarray, widen_records(pick_records(records, i))) for i in range(40)]
    one_by_one = [np.asarray(contribution(asked.statistic, record)).ravel() for record in single]
    np.testing.assert_array_equal(asked.answers(records), np.array(one_by_one))


def test_every_record_of_a_tiny_world_is_in_the_pool():
    records = make_record_pool(tiny_world(2, 2, 1), np.random.default_rng(6))
    rows = np.stack([np.asarray(x).reshape(len(records.length), -1)[:, 0] for x in (records.states, records.length)], 1)
    assert {(s, n) for s, n in rows.tolist() if 0 <= s < 2 and 1 <= n <= 2} == {(s, n) for s in (0, 1) for n in (1, 2)}
    whole = {tuple(np.concatenate([np.ravel(leaf) for leaf in one])) for one in zip(*_leaves(records), strict=True)}
    assert len(whole) >= 2 + 4 * 2 + 8 * 4  # all lengths, states and rewards; one action


def _leaves(records: Trajectory):
    return [np.nan_to_num(np.asarray(x, float), nan=-7.0) for x in jax.tree.leaves(records)]


def test_a_ratio_that_is_not_a_number_is_broken():
    assert Sensitivity("x", "X", "replace-one", "l2", math.nan, 1.0).broken
    assert Sensitivity("x", "X", "replace-one", "l2", 1.0 + 1e-8, 1.0).broken
    assert not Sensitivity("x", "X", "replace-one", "l2", 1.0 + 1e-12, 1.0).broken
