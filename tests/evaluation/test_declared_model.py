"""A study states that the recorded state is complete: a model of the whole advice may then decide on a release."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_states import ADVICE, ENV, PEOPLE, WHOLE, evaluated, evaluator, table

import privrl
from privrl.evaluation.decision import Reason
from privrl.evaluation.estimates import Evaluation
from privrl.evaluation.evaluated import Evaluated
from privrl.evaluation.limits import PAIRS
from privrl.evaluation.shares import MODEL, releases
from privrl.evaluation.widths import people_needed, plan_widths
from privrl.mdp.assisted import AssistedPolicy
from privrl.mdp.exported_policy import EpisodeState, ExportedPolicy
from privrl.reports.evaluation_section import render_evaluation

STATED = "what happens next depends on the recorded state and the action alone"


@pytest.fixture(scope="module")
def data():
    return table()


@pytest.fixture(scope="module")
def declared(data):
    return evaluated(data, evaluator(markov=True), privrl.NonPrivate(), key=jax.random.key(0))


def test_the_whole_advice_is_released_by_its_model(declared):
    found = declared.found
    assert (found.policy.max_ratio, found.policy.max_weight) == (math.inf, math.inf)
    assert found.bound.basis == "model" and found.bound.lower == found.model_gain.lower
    assert 0.0 < found.bound.lower < WHOLE and found.bound.lower > max(one.gain.lower for one in found.pairs)
    assert found.gain is None and not found.reasons and found.decision.outcome == "released"
    assert "without a limit" in found.decision.words and "states, no guarantee" in found.decision.words
    assert STATED in found.words and "not certified" in found.line
    assert STATED.removeprefix("what happens next ") in declared.certificate.bounds["what happens next"]
    again = Evaluation.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert again == found and again.markov


def test_every_decision_with_support_is_changed(declared):
    changed = 1.0 - np.asarray(ENV.behaviour)[[0, 1], ADVICE[:2]]
    assert changed.min() < declared.found.changed.value < changed.max()


def test_without_the_statement_a_model_never_decides(data):
    found = evaluated(data, evaluator(), privrl.NonPrivate(), key=jax.random.key(0)).found
    assert found.model_gain.lower > found.gain.lower and found.bound.basis == "certified"
    unlimited = evaluator(max_ratio=math.inf, max_weight=math.inf)
    found = evaluated(data, unlimited, privrl.NonPrivate(), key=jax.random.key(0)).found
    assert found.model_gain.lower > 0.0 and found.bound is None and found.reasons == (Reason.NO_ESTIMATE,)
    assert found.released_policy.is_silent


def test_all_candidates_share_the_error_rate(data, declared):
    alone = evaluated(data, evaluator(), privrl.NonPrivate(), key=jax.random.key(0)).found
    for one, other in zip(declared.found.pairs, alone.pairs, strict=True):
        assert one.gain.value == pytest.approx(other.gain.value) and one.gain.lower < other.gain.lower
    assert declared.found.model_gain.lower < alone.model_gain.lower


def test_the_smaller_limits_are_chosen_if_they_promise_more(data, monkeypatch):
    monkeypatch.setattr("privrl.evaluation.model_gain.RELATIVE", 0.95)  # a model that is not trusted
    found = evaluated(data, evaluator(markov=True), privrl.NonPrivate(), key=jax.random.key(0)).found
    assert (found.policy.max_ratio, found.policy.max_weight) in PAIRS
    assert found.bound.basis == "certified" and found.gain is not None


def test_a_check_that_contradicts_it_stops_the_model(data):
    """Practice in this table prefers the advice in one state at even steps, which no state records."""
    stays = ENV.sample(ENV.behaviour_policy(), PEOPLE, jax.random.key(5))
    even = np.where((np.asarray(stays.states) == 0) & (np.arange(stays.actions.shape[1]) % 2 == 0), 1, stays.actions)
    sampled = privrl.mdp.types.Trajectory(stays.states, even, stays.rewards, stays.next_states, stays.length)
    habits = privrl.data.Episodes.from_trajectories(sampled, num_states=4, num_actions=2)
    settings = {"practice": None, "assumption": "recorded", "markov": True}
    found = evaluated(habits, evaluator(**settings), privrl.NonPrivate(), key=jax.random.key(0)).found
    assert Reason.CONTRADICTED in found.reasons and found.model_gain is None and found.released_policy.is_silent


def test_statements_that_cannot_serve_are_refused(data):
    with pytest.raises(ValueError, match=r"no values of numbered states.*dp-tap"):
        evaluator(feature=None, markov=True)
    for limits in ({"max_ratio": 2.0}, {"max_weight": 5.0}):
        with pytest.raises(ValueError, match="Leave out one or the other"):
            evaluator(markov=True, **limits)
    with pytest.raises(ValueError, match="no values of numbered states"):
        Evaluated(privrl.APVI(4, 2, 6), markov=True)
    with pytest.raises(ValueError, match="no values of numbered states"):
        privrl.evaluate(data, ADVICE, epsilon=1, delta=1e-6, assume_markov=True)
    with pytest.raises(ValueError, match="`assume_markov`.*`evaluate` is missing"):
        privrl.fit(data, "dp-tap", epsilon=1, delta=1e-6, assume_markov=True)


def test_the_model_has_twice_its_share_and_counts_among_the_people_needed():
    settings = {"public": False, "bounded": True, "modelled": True}
    plain, stated = ({one.name: one.weight for one in releases(**settings, markov=markov)} for markov in (False, True))
    assert plain.keys() == stated.keys()
    assert {name for name in plain if plain[name] != stated[name]} == set(MODEL)
    assert all(stated[name] == 2.0 * plain[name] for name in MODEL)
    budget = privrl.Central(epsilon=1.0, delta=1e-6)
    declared = releases(**settings, markov=True, assumption="recorded")
    needed = people_needed(declared, budget, public=False, checked=False, markov=True)
    strength = budget.calibrate(declared)
    mu = math.hypot(*(strength.parameter(name) for name in MODEL))
    assert needed.least == math.ceil(1000.0 / mu) < 9_000
    planned = {"public": False, "assumption": "recorded"}
    widths = plan_widths(needed.least, budget, **planned, markov=True)
    assert widths.model_gain is not None and widths.needed == needed
    assert plan_widths(needed.least, budget, **planned).model_gain is None


def test_without_a_limit_advice_goes_on_however_large_the_weight_is():
    """500 steps with a factor of 20: their product is beyond all floating-point numbers."""
    policy = AssistedPolicy(jnp.array([1, 0]), jnp.array([0.05, 0.5]), math.inf, math.inf, horizon=501)
    reader, state = ExportedPolicy(policy.to_json()), EpisodeState()
    for _ in range(500):
        advice = reader.decide(0, state, 0.5)
        assert (advice.action, advice.probability) == (1, 1.0)
        state = reader.record(state, advice, 1)
    assert state.weight == 1e300
    assert reader.record(state, reader.decide(0, state, 0.5), 0).weight == 0.0
    states, others = jnp.zeros(500, int), jnp.zeros(500, int)
    assert np.asarray(policy.changed_decisions(states, others, jnp.ones(500, bool))) == pytest.approx(1.0)


def test_the_page_repeats_the_statement_and_shows_the_model_among_the_limits(declared):
    page = " ".join(str(render_evaluation(declared.found, "patient")).split())
    assert STATED.removeprefix("what happens next ") in page and "the policy may do harm" in page
    assert "no limits (model)" in page
    at = page.index("no limits (model)")
    assert "chosen" in page[page.rindex("<tr", 0, at) : at]
