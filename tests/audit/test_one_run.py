"""Canaries in one fit: without noise all are found, with noise nothing is refuted, too little noise is caught."""

import jax
import numpy as np
import pytest

import privrl
from privrl.audit import one_run
from privrl.audit.one_run import WithCanaries, _invented
from privrl.audit.worlds import make_data, tiny_world
from privrl.data.tables.part import Part
from privrl.learners.linear.vapvi import VAPVI
from privrl.learners.tabular.apvi import APVI
from privrl.mdp.features import OneHotFeatures
from privrl.privacy.noise.arithmetic import Floating
from privrl.privacy.noise.distributions import GaussianNoise
from privrl.privacy.trust.privatizers import PairingError
from privrl.statistics.counts import TransitionCounts
from privrl.studies.offline.curated_records import Records as _Records

S, A, H = 20, 4, 3
LEARNER = APVI(S, A, H)


def table(learner=LEARNER, people=300):
    return make_data(tiny_world(H, S, A), learner, people, jax.random.key(0))


def test_a_fit_without_noise_gives_every_canary_away():
    report = one_run(table(), LEARNER, privrl.NonPrivate(), canaries=60, key=jax.random.key(1))
    assert report.correct == report.guesses == 30 and report.epsilon_lower > 2
    assert not report.broken  # nothing was claimed
    assert report.to_json()["epsilon_claimed"] == "inf" and report.to_json()["trials"] == 1


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_private_fit_is_not_accused(adjacency):
    private = privrl.Central(epsilon=1.0, delta=1e-5, adjacency=adjacency)
    report = one_run(table(), LEARNER, private, canaries=60, key=jax.random.key(2), confidence=0.999)
    assert not report.broken and report.epsilon_lower < report.epsilon_claimed <= 1.0
    assert ("empty record" in report.relation) == (adjacency == "replace-one")
    assert "do not publish" in str(report)


def test_too_little_noise_is_caught(monkeypatch):
    scaled = GaussianNoise.from_white
    monkeypatch.setattr(GaussianNoise, "from_white", lambda self, white: scaled(self, white) / 50)
    private = privrl.Central(epsilon=1.0, delta=1e-5)
    report = one_run(table(), LEARNER, private, canaries=120, key=jax.random.key(3), confidence=0.999)
    assert report.broken and report.epsilon_lower > 1.5


def test_noise_of_the_operating_system():
    """Exact noise, at a budget at which the coins show through."""
    report = one_run(table(), LEARNER, privrl.Central(epsilon=1e5, delta=1e-5), canaries=40)
    assert report.correct >= 0.9 * report.guesses and not report.broken


@pytest.mark.slow
def test_canaries_of_a_group_are_found():
    """With disjoint groups, the group of a canary being secret, at a budget at which the coins show through."""
    learner = VAPVI(OneHotFeatures(S, A), H, split=True, calibration="paper")
    report = one_run(
        table(learner), learner, privrl.Central(epsilon=1e5, delta=1e-5), canaries=40, key=jax.random.key(4)
    )
    assert report.correct >= 0.8 * report.guesses and not report.broken


def test_sums_with_canaries_are_sums_of_people_and_canaries():
    people, rng = table().with_sizes(S, A), np.random.default_rng(0)
    canaries, coins = _invented(people.bounds, 30, rng), rng.random(30) < 0.5
    both = WithCanaries(people, canaries, coins)
    statistic = TransitionCounts(S, A, H, "first-visit")
    added = np.asarray(jax.jit(jax.vmap(statistic.contribution, in_axes=(0, None)))(canaries, None))[coins].sum(axis=0)
    total = np.asarray(_Records(both).total(statistic, None, Floating(0.0, 0.0)))
    np.testing.assert_allclose(
        total, np.asarray(_Records(people).total(statistic, None, Floating(0.0, 0.0))) + added, atol=1e-12
    )
    assert (both.num_units, both.num_episodes) == (330, 300 + coins.sum())
    assert 0 < coins.sum() < 30
    chosen = np.zeros(330, bool)
    chosen[300:] = True
    alone = np.asarray(_Records(Part(both, chosen)).total(statistic, None, Floating(0.0, 0.0)))
    np.testing.assert_allclose(alone, added, atol=1e-12)


def test_canaries_are_valid_people():
    bounds = table().bounds
    canaries = _invented(bounds, 200, np.random.default_rng(1))
    again = privrl.data.Episodes.from_trajectories(
        canaries, num_states=S, num_actions=A, reward_range=bounds.reward_range
    )
    assert again.num_episodes == 200
    assert set(np.unique(canaries.rewards)) == set(bounds.reward_range)


@pytest.mark.parametrize("wrong", [{"canaries": 0}, {"canaries": 5, "guesses": 6}, {"canaries": 5, "guesses": 0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match="canaries"):
        one_run(table(), LEARNER, privrl.NonPrivate(), **wrong)


def test_learners_and_tables_that_do_not_suit_are_refused():
    env = tiny_world(H, S, A)
    with pytest.raises(PairingError, match="lower_bound"):
        one_run(table(), privrl.UCBVI(env.rewards, H), privrl.NonPrivate())
    with pytest.raises(ValueError, match="`horizon`"):
        one_run(table(), APVI(S, A, H + 1), privrl.NonPrivate())
