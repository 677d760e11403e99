"""Attacks on the protocol: they find what is planted, leave the shipped code alone, and every recipe goes through."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import contribution, tiny_data, tiny_world

from privrl.audit.audit_report import AuditReport
from privrl.audit.findings import Finding
from privrl.audit.known_bad.cases import CASES
from privrl.audit.protocol import episode_ends as _stays
from privrl.audit.protocol import relations as _relations
from privrl.audit.protocol import sequences as _sequences
from privrl.audit.protocol.crashes import (
    Attempt,
    MortalStore,
    choose_crash_points,
    count_in_two_groups,
    spend_after_crash,
    vary_settings,
)
from privrl.audit.protocol.protocol_attacks import protocol_attacks
from privrl.audit.surface.recorded_fit import record_fit
from privrl.audit.surface.recorded_people import GroupRecorder
from privrl.contracts.release import Release
from privrl.privacy.noise.distributions import SymmetricNoise
from privrl.privacy.store.release_store import ReleaseStore
from privrl.privacy.trust.privatizers import Central
from privrl.recipes.all_recipes import get, recipes
from privrl.studies.live.agent import Agent
from privrl.studies.offline.curated_records import Records

PRIVATE = [recipe for recipe in recipes.values() if recipe.trust != "none"]
RNG = np.random.default_rng(0)
NAMES = {"exact-relations", "order-of-releases", "crashes", "length-of-stay", "coming-back"}


def noise(n, m, seed=1):
    return np.random.default_rng(seed).normal(size=(n, m)) * 2.0**33


def test_independent_noise_has_no_relations():
    for m in (1, 7, 64, 300):
        assert _relations.find_relations(np.rint(noise(192, m)).astype(np.int64), np.full(m, 2.0**33), "x", RNG) == []


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (lambda x: np.concatenate([x, x[:, :1] + 700], axis=1), "share one draw"),
        (lambda x: np.concatenate([x, 5.0 - x[:, :1]], axis=1), "share one draw"),
        (lambda x: np.concatenate([x, np.full((len(x), 1), 3.0)], axis=1), "same in every draw"),
        (lambda x: np.concatenate([x, x[:, :3].sum(1, keepdims=True) / 3**0.5], axis=1), "combination"),
        (lambda x: x - x.mean(axis=1, keepdims=True), "combination"),
    ],
)
def test_planted_relations_are_found(plant, words):
    drawn = plant(noise(192, 6))
    found = _relations.find_relations(np.rint(drawn), np.full(drawn.shape[1], 2.0**33), "x", RNG)
    assert len(found) == 1 and words in found[0]


def test_a_matrix_that_is_not_symmetric_is_found():
    noise = SymmetricNoise(1.0, 2)
    assert _relations.find_asymmetry(Release(jnp.eye(2), noise), "x") == []
    (line,) = _relations.find_asymmetry(Release(jnp.asarray([[1.0, 3.0], [2.0, 1.0]]), noise), "x")
    assert "[0, 1] - [1, 0] is 1" in line


def test_uneven_contributions_are_released_as_one_number():
    """Through the shipped curator: above and below the diagonal all people are rounded to different whole numbers."""
    env = tiny_world(3)
    learner = get("dp-pevi").build(env)
    data = tiny_data(env, 50)
    fit = record_fit(data, learner, Central(epsilon=1.0, delta=1e-5), jax.random.key(0))
    gram = next(step for step in fit.queries if step.name == "gram")
    uneven = _relations.Lopsided(gram.statistic, 2.0**-16)
    matrix = np.asarray(contribution(uneven, jax.tree.map(lambda x: x[0], tiny_records(env))))
    assert (matrix != matrix.T).any() and (np.trunc(matrix * 2.0**33) != np.trunc(matrix.T * 2.0**33)).any()
    finding = _relations.attack_fit(fit, Records(data), RNG)
    assert not finding.broken and finding.tried >= 21 + 6


def tiny_records(env, count=4):
    return env.sample(env.behaviour_policy(), count, jax.random.key(2))


def test_a_person_who_stays_moves_nobody():
    """And the attack sees an agent that shows others the plan of the moment instead of their own."""
    env = tiny_world(2, num_states=2)
    learner, private, key = get("dp-lsvi-ucb").build(env), Central(epsilon=1.0, delta=1e-5), jax.random.key(3)
    people = next(k for k in range(2, 50) if len(learner.blocks(k)) >= 2)
    ends = tuple(int(end) for end in learner.blocks(people))
    records = tiny_records(env, people)

    def live(store, clock):
        return Agent(learner, private, num_users=people, store=store, patience=_stays.PATIENCE, clock=clock, key=key)

    finding, moved = _stays.attack_episode_ends(live, records, ends)
    assert not finding.broken and finding.tried > 20 and moved

    class Impatient(Agent):
        """Releases a block as soon as a person ends after its last arrival."""

        def end_episode(self, ticket, trajectory):
            super().end_episode(ticket, trajectory)
            if self.num_arrived >= ends[0]:
                self._arrivals._patience = 0.0

    def impatient(store, clock):
        settings = {"num_users": people, "store": store, "patience": _stays.PATIENCE, "clock": clock, "key": key}
        return Impatient(learner, private, **settings)

    assert _stays.attack_episode_ends(impatient, records, ends)[0].broken


def test_sequences_are_compared_to_the_last_bit():
    log = [("release", "a", (1.0,), b"x"), ("skip", "b", (), b"c")]
    assert _sequences.compare_sequences(log, list(log), "replaced") == []
    assert "1 releases" in _sequences.compare_sequences(log, log[:1], "removed")[0]
    other = [("release", "a", (1.0 + 2**-52,), b"x"), log[1]]
    assert "another distribution" in _sequences.compare_sequences(log, other, "replaced")[0]


def test_what_a_learner_is_given_has_no_people_in_it():
    """Through the interface a learner sees releases and their distributions: it cannot decide by anything else."""

    class Looks(type(get("dp-apvi").build(tiny_world(3)))):
        def fit(self, ask):
            public = [name for name in dir(ask) if not name.startswith("_")]
            assert {"skip", "vector", "function", "features"} <= set(public) <= PUBLIC, public
            return super().fit(ask)

    env = tiny_world(3)
    learner = get("dp-apvi").build(env)
    looking = Looks(**{field.name: getattr(learner, field.name) for field in dataclasses.fields(learner)})
    assert _sequences.record_sequence(tiny_data(env, 50), looking, Central(epsilon=1.0, delta=1e-5))


PUBLIC = {"skip", "vector", "function", "features", "noise_source", "people", "secret", "steps"}


def test_crash_points_are_every_kind_of_point():
    passed = ["study:begun", *["reserve:begun", "drawn", "persist:begun"] * 5]
    points = choose_crash_points(passed, np.random.default_rng(0))
    assert {point for point, _ in points} == set(passed) and all(1 <= n <= 5 for _, n in points)


def test_a_mortal_store_dies_where_it_should(tmp_path):
    with MortalStore(tmp_path / "s.db") as store:
        store.open_study({}, {"pool": 1.0})
        assert "study:committed" in store.passed
    with pytest.raises(RuntimeError, match="fact:written"), MortalStore(tmp_path / "s.db", "fact:written") as store:
        store.fact("x", bytes)
    with ReleaseStore(tmp_path / "s.db") as store:
        assert store.fact("x", lambda: b"y") == b"y"


def test_costs_are_recomputed_from_distributions():
    """Undisturbed, what is in the store is the certificate, up to the rounding of the lattice."""
    env = tiny_world(3)
    data = tiny_data(env, 40)
    learner = get("dp-vapvi").build(env)
    fit = record_fit(data, learner, Central(epsilon=1.0, delta=1e-5), jax.random.key(0))
    once = Attempt(fit, GroupRecorder(Records(data), [str(i) for i in range(40)], []))
    used = spend_after_crash(once, once, "no such point", 1, "burn")
    assert set(used) == {"gaussian"} and 1 - 1e-6 < used["gaussian"] <= 1 + 1e-9


def test_people_in_two_groups_are_counted():
    assert count_in_two_groups([[{"a", "b"}, {"c"}], [{"a"}, {"b", "c"}]]) == 1
    assert count_in_two_groups([[{"a", "b"}, {"c"}], [{"a", "b", "d"}, {"c"}]]) == 0


def test_changed_settings_are_really_changed():
    learner = get("dp-pevi").build(tiny_world(3))
    assert vary_settings(learner) and all(other != learner for _, other in vary_settings(learner))


def test_a_finding_breaks_a_report():
    report = AuditReport("x", 1.0, 1.0, 0.5, 1e-5, 10, 0.95, "Gaussian DP")
    quiet, loud = Finding("crashes", 3), Finding("crashes", 3, ("killed, then more was spent",))
    for finding, broken in ((quiet, False), (loud, True)):
        one = AuditReport(**{**report.__dict__, "attacks": (finding,)})
        content = json.loads(json.dumps(one.to_json(), allow_nan=False))
        assert one.broken is broken is content["broken"] and content["attacks"][0]["attack"] == "crashes"
        assert ("more was spent" in str(one)) is broken


@pytest.mark.parametrize(
    "recipe",
    [r if r.name == "dp-pevi" else pytest.param(r, marks=pytest.mark.slow) for r in PRIVATE],
    ids=lambda r: r.name,
)
def test_no_recipe_is_broken(recipe):
    found = protocol_attacks(recipe, key=jax.random.key(4))
    assert [str(finding) for finding in found if finding.broken] == []
    assert "order-of-releases" in (names := {finding.attack for finding in found}) or recipe.family == "functional"
    assert names <= NAMES and all(bool(finding.tried) != bool(finding.not_run) for finding in found)


def test_recipes_without_privacy_have_no_protocol_to_attack():
    assert protocol_attacks("apvi", key=jax.random.key(0)) == ()


def test_an_attack_that_is_not_run_says_why():
    found = {finding.attack: finding for finding in protocol_attacks("ldp-ucbvi", key=jax.random.key(0), epsilon=1.0)}
    assert not found["crashes"].tried and "not run, because an agent needs" in str(found["crashes"])
    assert set(found) == NAMES


def test_every_attack_has_a_known_bad_twin():
    twins = {
        "exact-relations": {"mirrored-noise"},
        "length-of-stay": {"blocks-by-order-of-ending"},
        "coming-back": {"returns-take-numbers"},
        "crashes": {"noise-of-another-share", "groups-by-row-position"},
        "order-of-releases": {"blocks-by-head-count", "releases-skipped-by-exact-data"},
    }
    assert set(twins) == NAMES
    assert set().union(*twins.values()) <= {case.name for case in CASES}
