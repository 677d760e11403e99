"""`evaluate`: policies from anywhere, a certificate of its own that holds, refusals in words, and results that are
saved with an evaluation or without a policy."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import privrl
from privrl.contracts.untrusted import read_json
from privrl.envs.base import make_finite_env
from privrl.evaluation.confidence import Interval
from privrl.evaluation.estimates import Evaluation
from privrl.mdp.assisted import AssistedPolicy, simulate_gain
from privrl.mdp.types import TabularMDP, TabularPolicy
from privrl.privacy.accounting.composition import epsilon_of
from privrl.privacy.accounting.events import Event
from privrl.studies.offline.policies import policy_arrays, strength_of
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.certification import certify_result
from privrl.studies.results.certified_evaluation import CertifiedEvaluation
from privrl.studies.results.result import Result
from privrl.studies.simulation.sampled_tables import sampled

H, PEOPLE, KEY = 3, 4000, jax.random.key(3)
BUDGET = privrl.Central(epsilon=2.0, delta=1e-6)
PRACTICE = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])


def world() -> privrl.envs.Env:
    """Two states and an end; action 1 is better, and practice tosses a coin."""
    P = np.zeros((3, 2, 3))
    P[:2, 0], P[:2, 1] = [0.4, 0.4, 0.2], [0.2, 0.2, 0.6]
    P[2, :, 2] = 1.0
    arrival = np.eye(3)[2]
    r = P @ arrival
    r[2] = 0.0
    mdp = TabularMDP(jnp.asarray(P)[None], jnp.asarray(r)[None], jnp.array([0.5, 0.5, 0.0]), H)
    return make_finite_env("better", mdp, behaviour=jnp.asarray(PRACTICE), terminal=(2,), arrival=jnp.asarray(arrival))


ENV = world()
GOOD = np.array([1, 1, 0])


@pytest.fixture(scope="module")
def held() -> privrl.data.Episodes:
    return sampled(ENV, PEOPLE, jax.random.key(1))


@pytest.fixture(scope="module")
def evaluation(held: privrl.data.Episodes) -> CertifiedEvaluation:
    return privrl.evaluate(held, GOOD, BUDGET, practice=PRACTICE, key=KEY, unit="patient")


def test_a_better_policy_is_found_better_within_its_interval(evaluation: CertifiedEvaluation) -> None:
    truth = simulate_gain(ENV.mdp, ENV.behaviour, evaluation.policy, 20_000, key=jax.random.key(0))
    assert evaluation.gain is not None and evaluation.gain.lower > 0.0
    assert evaluation.verdict == "not shown" and "does not count" in evaluation.line  # too few people for the checks
    assert evaluation.gain.low < truth.gain < evaluation.gain.high
    assert evaluation.practice.low < float(ENV.value(ENV.behaviour_policy())) < evaluation.practice.high
    assert evaluation.model_gain is None and "not modelled" in evaluation.refused[-1]


def test_the_certificate_is_its_own_and_bound_to_the_policy(evaluation: CertifiedEvaluation) -> None:
    certificate = evaluation.certificate
    assert certificate.learner == "Evaluator" and certificate.unit == "patient"
    assert 2.0 * (1 - 1e-3) <= certificate.epsilon <= 2.0 and certificate.delta == 1e-6
    assert {release["name"] for release in certificate.releases} >= {"practice", "gain", "gain-square", "balance"}
    assert any("costs add up" in note for note in certificate.notes)
    assert privrl.certify(certificate, {"actions": GOOD}, allow_non_private=True).ok
    assert not privrl.certify(certificate, {"actions": GOOD[::-1]}, allow_non_private=True).ok


def test_the_same_policy_in_every_form_is_evaluated_alike(
    held: privrl.data.Episodes, evaluation: CertifiedEvaluation, tmp_path: Path
) -> None:
    p = np.eye(2)[GOOD]
    everywhere = np.broadcast_to(p, (H, 3, 2))
    np.savez(tmp_path / "actions.npz", anything=GOOD)
    np.savez(tmp_path / "probabilities.npz", p)
    tabular = TabularPolicy(jnp.asarray(everywhere))
    forms = (tmp_path / "actions.npz", p, str(tmp_path / "probabilities.npz"), everywhere, tabular)
    found = [privrl.evaluate(held, form, BUDGET, practice=PRACTICE, key=KEY) for form in forms]
    assert all(one.gain == evaluation.gain for one in found)
    hashes = [one.certificate.result_sha256 for one in found]
    assert hashes[0] == evaluation.certificate.result_sha256 and hashes[1] == hashes[2]
    assert hashes[3] == hashes[4] == policy_sha256(tabular)


def test_a_result_is_evaluated_by_its_advice_on_the_people_who_were_held_out(tmp_path: Path) -> None:
    people = sampled(ENV, PEOPLE, jax.random.key(5))
    learn, rest = privrl.data.split(people, 0.4, secret=bytes(32))
    assert learn.num_units + rest.num_units == PEOPLE
    result = privrl.fit(learn, privrl.APVI(3, 2, H), BUDGET, key=KEY)
    evaluation = privrl.evaluate(rest, result, BUDGET, key=KEY)
    assert evaluation.gain is None and evaluation.verdict == "not shown"
    assert evaluation.people == rest.num_units
    assert evaluation.certificate.result_sha256 == result.certificate.result_sha256
    assert privrl.certify(evaluation.certificate, result.policy, allow_non_private=True).ok
    dataclasses.replace(result, evaluation=evaluation).save(tmp_path / "both")
    loaded = Result.load(tmp_path / "both")
    assert isinstance(loaded.evaluation, CertifiedEvaluation)
    assert loaded.evaluation.certificate == evaluation.certificate
    assert dataclasses.replace(loaded.certificate, files={}) == result.certificate


@pytest.mark.slow  # `test_cli_evaluate.py` does the same on the command line
def test_noise_is_exact_without_a_key_and_a_store_reads_what_was_released(
    held: privrl.data.Episodes, tmp_path: Path
) -> None:
    found = []
    for _ in range(2):
        with privrl.ReleaseStore(tmp_path / "store.db") as store:
            found.append(privrl.evaluate(held, GOOD, BUDGET, practice=PRACTICE, store=store))
    assert found[0].gain == found[1].gain
    assert privrl.certify(found[0].certificate, {"actions": GOOD}).ok


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (np.full((3, 2), 0.4), "add up to 1"),
        (np.zeros(3), "whole-numbered actions"),
        (np.zeros((1, 2, 3, 4)), "shape"),
        (np.array([0, 1, 2]), "advice"),
    ],
)
def test_a_policy_that_is_none_is_refused(held: privrl.data.Episodes, policy: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        privrl.evaluate(held, policy, BUDGET, practice=PRACTICE, key=KEY)


def test_a_secret_number_of_people_is_refused_before_anything_is_released(held: privrl.data.Episodes) -> None:
    secret = privrl.Central(epsilon=1.0, delta=1e-6, adjacency="add-remove")
    with pytest.raises(ValueError, match="replace-one"):
        privrl.evaluate(held, GOOD, secret, key=KEY)
    with pytest.raises(ValueError, match="replace-one"):
        privrl.fit(held, privrl.APVI(3, 2, H), secret, evaluate=0.3, key=KEY)


# ----------------------------------------------------------------------------------------- results without a policy


@pytest.fixture(scope="module")
def assessed(held: privrl.data.Episodes) -> Result:
    compared = {"evaluate": 0.5, "practice": PRACTICE}
    return privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, **compared, key=KEY, unit="patient")


def test_what_is_withheld_leaves_a_certificate_and_no_trace_of_the_policy(assessed: Result, tmp_path: Path) -> None:
    withheld = assessed.withheld("it was not shown to be better than practice")
    withheld.save(tmp_path / "none")
    assert {path.name for path in (tmp_path / "none").iterdir()} == {
        "certificate.json",
        "report.json",
        "evaluation.json",
    }
    assert json.loads((tmp_path / "none" / "report.json").read_text())["policy"] is None
    assert json.loads((tmp_path / "none" / "evaluation.json").read_text())["policy"]["advice"] == []
    loaded = Result.load(tmp_path / "none")
    assert loaded.policy is None and loaded.advice is None and loaded.evaluation is not None
    assert loaded.evaluation.line == assessed.evaluation.line  # type: ignore[union-attr]
    assert any("budget is spent, and there is no policy" in note for note in loaded.certificate.notes)
    assert privrl.certify(loaded.certificate, None, allow_non_private=True).ok
    assert not privrl.certify(loaded.certificate, assessed.policy, allow_non_private=True).ok


def test_the_strength_of_advice_is_that_of_the_policy_or_of_its_report(assessed: Result, tmp_path: Path) -> None:
    """A policy from elsewhere has none; what is damaged is refused and not taken for none."""
    strength = [0.2, 1.0, 0.0]

    def found(policy: Any) -> Any:
        g = strength_of(policy, policy_arrays(policy), 3)
        return None if g is None else g.tolist()

    reported = assessed.reporting({**assessed.report, "strength": strength})
    learnt = dataclasses.replace(reported, policy=assessed.advice, advice=None, evaluation=None)
    learnt.save(tmp_path / "learnt")
    assert found(learnt) == found(Result.load(tmp_path / "learnt")) == strength
    assert found(learnt.policy) is found(GOOD) is None
    assert assessed.table().column_names == ["state", "advice", "support", "strength"]
    policy = AssistedPolicy(jnp.asarray(GOOD), jnp.full(3, 0.5), strength=jnp.asarray(strength), horizon=100)
    np.savez(tmp_path / "assisted.npz", **policy.arrays())
    assert found(policy) == found(tmp_path / "assisted.npz") == strength
    for wrong in (["a", "b", "c"], [0.2, 1.0, -0.1], [0.2, 1.0, np.nan]):
        np.savez(tmp_path / "assisted.npz", **{**policy.arrays(), "strength": np.asarray(wrong)})
        with pytest.raises(ValueError, match=r"`strength` must hold numbers in \[0, 1\]"):
            found(tmp_path / "assisted.npz")
    with pytest.raises(ValueError, match="The report beside the policy is damaged"):
        found(learnt.reporting({"strength": [0.5]}))
    assert "strength" not in reported.withheld("it was not shown to be better").report


def test_a_policy_that_is_missing_without_a_word_is_an_error(assessed: Result, tmp_path: Path) -> None:
    assessed.save(tmp_path / "saved")
    (tmp_path / "saved" / "policy.npz").unlink()
    with pytest.raises(ValueError, match="`policy.npz` is missing"):
        Result.load(tmp_path / "saved")


def test_an_assessed_result_comes_back_as_it_was(assessed: Result, tmp_path: Path) -> None:
    assessed.save(tmp_path / "saved")
    loaded = Result.load(tmp_path / "saved")
    assert isinstance(loaded.policy, AssistedPolicy) and isinstance(loaded.advice, TabularPolicy)
    assert loaded.evaluation == assessed.evaluation
    assert privrl.certify(loaded.certificate, loaded.policy, allow_non_private=True).ok


def read(content: Any) -> Evaluation:
    return Evaluation.from_json(read_json(json.dumps(content), "The evaluation"))


def test_a_damaged_evaluation_is_refused(evaluation: CertifiedEvaluation) -> None:
    content = evaluation.to_json()
    assert read(content).to_json() == content
    for damaged in ([], {}, content | {"practice": None}, content | {"policy": {}}, content | {"people": "many"}):
        with pytest.raises(ValueError, match="The evaluation is malformed"):
            read(damaged)
    for strength in ([1.0], [1.0, 1.0, 2.0], [1.0, 1.0, "a"], [1.0, 1.0, -1.0]):
        with pytest.raises(ValueError, match="The evaluation is malformed"):
            read(content | {"policy": content["policy"] | {"strength": strength}})
    with pytest.raises(ValueError, match="changed or damaged: `verdict`"):
        read(content | {"verdict": "worse"})
    assert math.isfinite(evaluation.practice.value) and isinstance(evaluation.gain, Interval)


# ---------------------------------------------------------------------------------- two certificates beside each other


@pytest.fixture(scope="module")
def both(held: privrl.data.Episodes) -> Result:
    """A policy, and an evaluation of it with a certificate of its own."""
    result = privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, key=KEY, unit="patient")
    evaluation = privrl.evaluate(held, result, BUDGET, practice=PRACTICE, key=KEY, unit="patient")
    return dataclasses.replace(result, evaluation=evaluation)


@pytest.mark.parametrize("other", [{"adjacency": "add-remove"}, {"unit": "stay"}, {"relation": "function"}])
def test_certificates_of_other_neighbours_do_not_compose(both: Result, other: dict[str, str]) -> None:
    """Before, a mu under add-remove was added to one under replace-one, and the sum could be half of the truth."""
    evaluation = both.evaluation
    assert isinstance(evaluation, CertifiedEvaluation) and not evaluation.apart_from(both.certificate)
    apart = dataclasses.replace(both, certificate=dataclasses.replace(both.certificate, **other))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"do not compose: `{next(iter(other))}` is "):
        evaluation.together_with(apart.certificate)
    for result, ok in ((both, True), (apart, False)):
        checks = {check.name: check for check in certify_result(result, max_epsilon=100.0).checks}
        assert checks["evaluation: together"].ok is ok
    assert not {check.name: check.ok for check in certify_result(both, max_epsilon=2.5).checks}["evaluation: together"]


def test_the_epsilon_together_is_that_of_the_adjacency_and_of_the_worst_pair_of_groups(both: Result) -> None:
    def certificate(*events: Event) -> privrl.Certificate:
        return dataclasses.replace(both.certificate, adjacency="add-remove", delta=1e-6, events=events)

    assert both.evaluation is not None
    none = CertifiedEvaluation.of(both.evaluation, certificate(Event("b", "gaussian", 0.0)))
    sampled_policy = certificate(Event("a", "gaussian", 1.0, 100, None, 0.01))
    truth = epsilon_of(sampled_policy.events, 1e-6, adjacency="add-remove")
    assert none.together_with(sampled_policy)[0] == pytest.approx(truth, rel=1e-6)
    assert truth != pytest.approx(epsilon_of(sampled_policy.events, 1e-6), rel=1e-3)
    grouped = CertifiedEvaluation.of(both.evaluation, certificate(Event("b", "gaussian", 0.4, 1, "two")))
    policy = certificate(Event("a", "gaussian", 0.3, 1, "one"))
    assert grouped.together_with(policy)[0] == pytest.approx(epsilon_of((Event("", "gaussian", 0.5),), 1e-6))


def test_an_evaluation_of_another_policy_is_refused(
    both: Result, evaluation: CertifiedEvaluation, tmp_path: Path
) -> None:
    """Before, `report` showed its verdict, and cited its epsilon, beside a policy that it is not about."""
    swapped = dataclasses.replace(both, evaluation=evaluation)
    checks = {check.name: check.ok for check in certify_result(swapped, allow_non_private=True).checks}
    assert checks["policy"] and not checks["evaluation: policy"]
    swapped.save(tmp_path / "swapped")
    with pytest.raises(ValueError, match="about another policy"):
        Result.load(tmp_path / "swapped")


def test_what_follows_from_the_numbers_cannot_be_changed_in_the_file(evaluation: CertifiedEvaluation) -> None:
    content = evaluation.to_json()
    silent = dataclasses.replace(evaluation, trend=None).to_json()
    assert silent["reasons"]
    for changed in (silent | {"reasons": []}, silent | {"reasons": ["not compared"]}, content | {"words": "release"}):
        with pytest.raises(ValueError, match="changed or damaged"):
            read(changed)
    with pytest.raises(ValueError, match="malformed"):
        read(silent | {"reasons": ["other"]})
    with pytest.raises(ValueError, match="`reasons` is missing"):
        read({name: value for name, value in content.items() if name != "reasons"})
    twice = f'{json.dumps(content)[:-1]}, "people": {evaluation.people}}}'
    with pytest.raises(ValueError, match="malformed"):
        read_json(twice, "The evaluation")


def test_a_result_is_withheld_together_with_an_evaluation_that_has_its_own_certificate(
    both: Result, tmp_path: Path
) -> None:
    """Before, the note of the evaluation was looked for in the policy's certificate, and `withheld` failed."""
    evaluation = both.evaluation
    assert isinstance(evaluation, CertifiedEvaluation)
    both.withheld("nobody asked for it").save(tmp_path / "none")
    loaded = Result.load(tmp_path / "none")
    assert loaded.policy is None and isinstance(loaded.evaluation, CertifiedEvaluation)
    assert loaded.evaluation.line == evaluation.line and certify_result(loaded, allow_non_private=True).ok
    assert loaded.evaluation.together_with(loaded.certificate) == evaluation.together_with(both.certificate)
    settings = loaded.evaluation.certificate.study["learner"]["settings"]
    assert settings["advice"] == {"dtype": "int64", "shape": [3]}
    assert evaluation.certificate.study["learner"]["settings"]["advice"]["array"]  # which named the advice
    signed = dataclasses.replace(evaluation.certificate, signature="by somebody")
    with pytest.raises(ValueError, match="signed already"):
        dataclasses.replace(both, evaluation=dataclasses.replace(evaluation, certificate=signed)).withheld("why")
