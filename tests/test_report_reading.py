"""Pages read well: nothing that is not there is named, boxes are for what readers must know, numbers have one form."""

import dataclasses
import re
from pathlib import Path

import pytest
from test_cli import call
from test_evaluate import BUDGET, KEY, H, held  # noqa: F401
from test_report import stands_alone
from test_report_evaluation import NAMES, released, result  # noqa: F401

import privrl
from privrl.cli.next_pilot import suggest_pilot
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Reason
from privrl.reports.evaluation_section import render_evaluation
from privrl.reports.rendering import format_percent
from privrl.reports.result_page import render_result
from privrl.studies.results.result import Result

FAILED = Interval(0.5, 0.4, 0.6, 0.42, 0.58)


def test_a_page_without_a_policy_does_not_offer_one(result: Result) -> None:  # noqa: F811
    """Before, it named `--show-withheld`, which showed nothing, and said that the folder contains the policy."""
    for shown in (False, True):
        page = stands_alone(render_result(result.withheld("no"), "policy", show_withheld=shown)).text
        assert (
            "This folder contains no policy, so there is no advice to show." in page and "--show-withheld" not in page
        )
        assert "The folder contains a certificate and no policy" in page and "result.policy" not in page
        assert "holds withheld advice" not in page and "The policy works without" not in page
    kept = stands_alone(render_result(result, "policy")).text
    assert "--show-withheld" in kept and "The folder contains the policy and its certificate" in kept


def test_a_check_that_contradicts_what_was_stated_is_named_first(result: Result) -> None:  # noqa: F811
    """Before, the first lines said that a check of practice failed, and not that the study had stated otherwise."""
    assert result.evaluation is not None
    stated = dataclasses.replace(result.evaluation, assumption="recorded", trend=FAILED)
    assert stated.reasons[0] is Reason.CONTRADICTED
    words = stated.decision.words.partition(". ")[2]
    assert words.startswith("A check of practice contradicts the assumption that the study team stated")
    plain = dataclasses.replace(stated, assumption="checked")
    assert plain.reasons[0] is Reason.FOLLOWS_MORE


def test_practice_does_not_agree_above_a_failed_check(result: Result) -> None:  # noqa: F811
    evaluation = released(result).evaluation
    assert evaluation is not None
    balanced = dataclasses.replace(evaluation, balance=Interval(1.0, 0.95, 1.05, 0.96, 1.04))
    assert "agree with these patients" in str(render_evaluation(balanced, "patient"))
    failed = str(render_evaluation(dataclasses.replace(balanced, trend=FAILED), "patient"))
    assert "agree with these patients" not in failed and "but another check\ndoes" in failed


def test_technical_notes_stand_with_the_certificate_and_not_in_boxes(result: Result) -> None:  # noqa: F811
    note = "the split key is 0123456789abcdef0123456789abcdef"
    certificate = dataclasses.replace(result.certificate, notes=(note,))
    page = render_result(dataclasses.replace(result, certificate=certificate), "policy")
    boxes = " ".join(re.findall(r'<p class="(?:warn|key|bad)">.*?</p>', page, re.DOTALL))
    assert "split key" not in boxes and "The noise came from a seed" in boxes
    assert page.index("<h2>The certificate</h2>") < page.index("The split key is")


def test_a_page_lists_the_rules_next_to_the_advice(held: privrl.data.Episodes) -> None:  # noqa: F811
    kept = privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, rules=[{"if": "state in 1", "then": "action is 1"}], key=KEY)
    page = stands_alone(render_result(kept, "policy", names=NAMES)).text
    advice = page[page.index("What was learned") : page.index("What the policy reveals")]
    assert "The policy keeps these rules:" in advice and "Rule on actions:" in advice


@pytest.mark.parametrize(
    ("share", "words"), [(0.05, "5%"), (0.072, "7.2%"), (0.76, "76%"), (0.0, "0%"), (0.0001, "<0.1%"), (0.0996, "10%")]
)
def test_percentages_have_one_form(share: float, words: str) -> None:
    assert format_percent(share) == words


def test_pages_have_no_second_form_of_percentages(result: Result) -> None:  # noqa: F811
    page = stands_alone(render_result(released(result), "policy", names=NAMES)).text
    assert not re.search(r"\d[ \N{NO-BREAK SPACE}]%", page) and re.search(r"\d%", page)


def test_no_pilot_is_suggested_for_a_policy_that_is_worse(result: Result) -> None:  # noqa: F811
    """Before, "Next step: a pilot" followed "Worse than practice"."""
    assert result.evaluation is not None
    worse = dataclasses.replace(result.evaluation, gain=Interval(-0.2, -0.3, -0.1, -0.28, -0.12))
    found = suggest_pilot(worse, (0.0, 1.0), "policy")
    assert worse.verdict == "worse" and "Next step" not in found.sentence and "found worse" in found.sentence
    assert found.to_json() == {"people": None, "gain": None, "sentence": found.sentence}


def test_a_budget_lists_studies_as_users_know_them(tmp_path: Path) -> None:
    """Before, it listed "fit with Evaluated", and no epsilon of a study."""
    env = privrl.envs.make("riverswim", states=3, horizon=4)
    file, data = tmp_path / "people.budget", tmp_path / "people.parquet"
    privrl.data.write_parquet(data, env.sample(env.behaviour_policy(), 200, KEY))
    init = ("budget", "init", file, "--epsilon", "3", "--delta", "1e-6", "--unit", "unit_id", "--other-epsilon", ".5")
    first, again = call(*init), call(*init)
    assert first.code == again.code == 0 and "existed" not in first.out
    assert again.out.startswith("The budget existed already, with the same terms.")
    assert call(*init, "--json").json()["existed"] is True
    columns = (
        *("--unit=unit_id", "--episode=episode_id", "--step=step", "--state=state", "--action=action"),
        *("--reward=reward", "--next-state=next_state", "--horizon=4", "--num-states=3", "--num-actions=2"),
    )
    fit = ("fit", data, *columns, "--delta", "1e-7", "--budget", file, "--spend-anyway", "--epsilon", "1")
    assert call(*fit, "--recipe", "dp-tdfp", "--evaluate", ".5", "--out", tmp_path / "a").code == 0
    assert call(*fit[:-1], ".5", "--recipe", "dp-apvi", "--out", tmp_path / "b").code == 0
    more = ("--delta", "1e-7", "--epsilon", ".5", "--budget", file, "--spend-anyway", "--unit", "unit_id")
    assert call("evaluate", data, tmp_path / "b", *more, "--out", tmp_path / "c").code == 0
    shown = call("budget", "show", file, "--json").json()
    names = ["fit with dp-tdfp and evaluation", "fit with dp-apvi", "evaluation of a policy"]
    assert [study["name"] for study in shown["studies"]] == names
    printed = call("budget", "show", file).out
    assert "other epsilon" in printed.partition("budget")[2] and "epsilon: of Gaussian noise" in " ".join(
        printed.split()
    )
