"""What an evaluation may call better: a lower bound above 0 counts only if nothing speaks against a release."""

import dataclasses
import json

import jax
import pytest
from two_states import H, evaluated, evaluator, table

import privrl
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Bound, Reason, describe_bound
from privrl.evaluation.estimates import Evaluation
from privrl.studies.results.certified_evaluation import ReleaseEvidence
from privrl.studies.results.finishing import Finish
from privrl.studies.results.result import Result

PASSED = Interval(0.0, -0.01, 0.01, -0.008, 0.008)
WIDE = Interval(0.0, -0.1, 0.1, -0.084, 0.084)


@pytest.fixture(scope="module")
def found() -> Evaluation:
    """An evaluation whose evidence supports a release."""
    evaluation = evaluated(table(4000), evaluator(4000), privrl.NonPrivate(), key=jax.random.key(0)).found
    gain = Interval(0.4, 0.27, 0.53, 0.289, 0.51)
    checks = {"trend": PASSED, "continuity": PASSED, "arrival": PASSED, "balance": Interval(1.0, 0.9, 1.1, 0.9, 1.1)}
    return dataclasses.replace(evaluation, **checks, gain=gain, bound=Bound(0.289, 0.05, "certified"))


def test_a_bound_above_0_does_not_count_if_a_check_was_inconclusive(found: Evaluation) -> None:
    """Before, a withheld policy was said to be better than practice, by a bound on which "the decision rests"."""
    assert found.verdict == "better" and found.line.startswith("Better than practice, by at least +0.289")
    assert "at least +0.289 with 95% confidence" in found.words and "influence" in _sensitive(found).words
    unsure = dataclasses.replace(found, trend=WIDE)
    assert unsure.reasons == (Reason.INCONCLUSIVE,) and unsure.verdict == "not shown"
    assert unsure.line == (
        "Not shown to be better than practice. A lower bound was computed (+0.289), but it does not count, because the "
        "checks of practice were inconclusive: clinicians may be using information that is not in the record."
    )
    for said in (unsure.decision.words, unsure.decide_on(unsure.policy).words, _evidence(unsure).words):
        assert "For this reason, the lower bound of the gain that was computed (+0.289) does not count." in said
        assert "rests on" not in said and "etter than practice" not in said
    assert "at least" not in unsure.words and "overturn" not in _sensitive(unsure).words
    lower = dataclasses.replace(unsure, bound=Bound(-0.1, 0.05, "certified"))
    assert "The decision rests on" in lower.decision.words and lower.line == "Not shown to be better than practice."
    assert "For these reasons," in describe_bound(found.bound, (Reason.INCONCLUSIVE, Reason.UNBALANCED))


def test_a_policy_that_is_worse_stays_worse_whatever_the_checks_show(found: Evaluation) -> None:
    loss = Interval(-0.3, -0.4, -0.2, -0.38, -0.22)
    worse = dataclasses.replace(found, trend=WIDE, gain=loss, bound=Bound(-0.38, 0.05, "certified"))
    assert worse.verdict == "worse" and worse.line.startswith("Worse than practice")


def test_no_advice_is_never_better(found: Evaluation) -> None:
    silent = dataclasses.replace(found, policy=found.policy.without_advice())
    assert silent.verdict == "not shown" and "in no situation is there advice" in silent.line


def test_a_file_that_calls_a_doubted_policy_better_is_refused(found: Evaluation) -> None:
    unsure = dataclasses.replace(found, trend=WIDE)
    content = json.loads(json.dumps(unsure.to_json(), allow_nan=False))
    assert Evaluation.from_json(content).verdict == "not shown"
    with pytest.raises(ValueError, match="verdict"):
        Evaluation.from_json(content | {"verdict": "better"})


def test_required_to_be_better_takes_the_checks_into_account(found: Evaluation) -> None:
    """Before, `--require-better` was satisfied by a policy that was withheld."""
    learnt = privrl.fit(table(200), privrl.APVI(4, 2, H), privrl.NonPrivate(), key=jax.random.key(0))
    finish = Finish.of(True, {}, {}, None)

    def kept(evaluation: Evaluation) -> Result:
        return finish(dataclasses.replace(learnt, policy=evaluation.released_policy, evaluation=evaluation))

    unsure = kept(dataclasses.replace(found, trend=WIDE))
    assert kept(found).policy is not None and unsure.policy is None
    assert unsure.decision is not None and unsure.decision.reasons == (Reason.INCONCLUSIVE, Reason.REQUIRED_BETTER)


def _sensitive(evaluation: Evaluation) -> Evaluation:
    return dataclasses.replace(evaluation, sensitivity=1.3)


def _evidence(evaluation: Evaluation) -> ReleaseEvidence:
    limits = (evaluation.policy.max_ratio, evaluation.policy.max_weight)
    return ReleaseEvidence(evaluation.reasons, evaluation.bound, *limits)
