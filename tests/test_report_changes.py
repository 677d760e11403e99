"""What a page says about the changes by a policy: of the policy that was compared, which need not be the saved one."""

import dataclasses

import pytest
from test_evaluate import BUDGET, KEY, PRACTICE, H, held  # noqa: F401
from test_report import stands_alone
from test_report_evaluation import NAMES, released, result  # noqa: F401

import privrl
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Reason
from privrl.reports.result_page import render_result
from privrl.studies.results.result import Result


@pytest.fixture
def another(result: Result) -> Result:  # noqa: F811
    """The whole advice, next to an evaluation of the assisted policy that would have been released."""
    return dataclasses.replace(released(result), policy=result.advice)


def test_an_evaluation_of_another_policy_is_not_a_verdict_on_the_saved_one(another: Result) -> None:
    """Before, a blue box "Better than practice" stood below "Released without evidence"."""
    assert another.decision is not None and another.decision.reasons == (Reason.ANOTHER_POLICY,)
    html = render_result(another, "policy", names=NAMES)
    page = stands_alone(html).text
    assert page.index("Released without evidence") < page.index("The saved policy is not the one that was compared")
    assert "Better than practice" not in page
    assert "What the compared policy would change" in page and "What the policy changes" not in page
    assert "Everything below is about the compared one." in page and "The saved policy changes another share" in page
    assert "For which patients would the compared policy decide differently?" in page
    assert "What other factors would change" not in page  # a chart of the compared policy
    assert "Save the policy that is compared:" in page and "evaluation.released_policy" in page
    assert "An evaluation of the saved policy" not in page


def test_words_about_missing_data_agree_with_what_was_saved(result: Result) -> None:  # noqa: F811
    """Before, pages of withheld policies said that the clinician decides in a part of all decisions."""
    assert result.evaluation is not None
    missing = dataclasses.replace(result.evaluation, unsupported=Interval(0.76, 0.7, 0.8, 0.71, 0.79))
    withheld = dataclasses.replace(result, evaluation=missing)
    page = stands_alone(render_result(withheld, "policy")).text
    assert "Because the policy is withheld, the clinician makes all decisions." in page
    assert "the clinician decides" not in page and "the clinician decides" not in missing.words
    good = released(withheld)
    assert good.evaluation is not None and "too little data to advise; the clinician decides" in good.evaluation.words
    assert "too little data to advise; the clinician decides" in stands_alone(render_result(good, "policy")).text


def test_a_missing_estimate_is_one_of_the_gain() -> None:
    """Before, "no estimate of what the advice would change" stood next to "Changes 8% of decisions"."""
    assert Reason.NO_ESTIMATE.sentence == "There is no estimate of the gain."


def test_a_policy_that_was_never_compared_names_the_comparison(held: privrl.data.Episodes) -> None:  # noqa: F811
    plain = privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, key=KEY)
    assert plain.decision is not None
    first, second, third = plain.decision.words.split(". ")
    assert first == "Released without evidence, at your request"
    assert second == "The policy was not compared with current practice"
    assert third == "To compare it, set people aside: `privrl fit --evaluate .3`."
    assert stands_alone(render_result(plain, "policy")).text.count("privrl fit --evaluate .3") == 1
