"""The comparison with practice on a page: verdict on top, the picture of intervals, names instead of numbers."""

import dataclasses
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from contract import tiny_world
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from test_cli import call
from test_evaluate import BUDGET, KEY, PRACTICE, H, held  # noqa: F401
from test_report import page_with, stands_alone

import privrl
from privrl.contracts.learner import AbstractOfflineLearner
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Bound
from privrl.evaluation.estimates import PairGain
from privrl.evaluation.evaluated import Evaluated
from privrl.mdp.assisted import AssistedPolicy
from privrl.privacy.shared_budget import BudgetTerms, EarlierStudy, describe_reservation
from privrl.recipes.all_recipes import recipes
from privrl.recipes.offline import OFFLINE
from privrl.reports.certificate_facts import compute_guess_rate, compute_worst_rate, count_in_hundred, share_budget
from privrl.reports.certificate_text import EXACT, WORST_CASE, describe_releases
from privrl.reports.change_section import explain_collection, render_changes
from privrl.reports.display_names import Names, read_names, to_noun
from privrl.reports.evaluation_section import compute_shares, render_evaluation, render_ratios
from privrl.reports.result_page import render_result
from privrl.reports.situations_section import render_situations
from privrl.studies.offline.situations import Situations
from privrl.studies.results.result import Result
from privrl.studies.study import Study

NAMES = Names(("mild", "severe <3", "home"), ("wait", "treat"))


@pytest.fixture(scope="module")
def result(held: privrl.data.Episodes) -> Result:  # noqa: F811
    compared = {"evaluate": 0.5, "practice": PRACTICE}
    return privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, **compared, key=KEY, unit="patient_id")


def test_the_verdict_stands_on_top_and_names_are_used(result: Result) -> None:
    text = render_result(result, "policy", names=NAMES)
    page = stands_alone(text)
    assert result.evaluation is not None
    assert text.index(result.evaluation.line[:20]) < text.index("<h2>")
    assert "Every patient." in page.text and "Every patient_id" not in page.text
    assert "Cite this guarantee" in page.text and "treat" in page.text
    assert "severe <3" in stands_alone(render_result(released(result), "policy", names=NAMES)).text
    assert "depended only on the recorded state" in page.text and "Balance check: the mean weight is" in page.text
    assert "Current practice continues" in page.text and page.seen.count("svg") >= 2
    assert page.text.count("one patient_id replaced") == 1  # the certificate is shown as it is


def test_without_an_evaluation_the_page_says_so(held: privrl.data.Episodes) -> None:  # noqa: F811
    plain = privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, key=KEY)
    assert "The policy was not compared with current practice." in stands_alone(render_result(plain, "policy")).text
    evaluation = privrl.evaluate(held, plain, BUDGET, key=KEY)
    page = stands_alone(render_result(dataclasses.replace(plain, evaluation=evaluation), "policy")).text
    assert "a certificate of its own" in page and "practice estimated" in page
    without = dataclasses.replace(evaluation, assisted_gain=None, model_gain=None, bound=None)
    page = stands_alone(render_result(dataclasses.replace(plain, evaluation=without), "policy")).text
    assert "There is no estimate of a gain" in page


def released(result: Result) -> Result:
    """The same study, with checks that were passed and a bound above 0."""
    assert result.evaluation is not None
    none, gain = Interval(0.0, -0.01, 0.01, -0.008, 0.008), Interval(0.1, 0.05, 0.15, 0.06, 0.14)
    passed = {"trend": none, "continuity": none, "arrival": none, "gain": gain}
    evaluation = dataclasses.replace(result.evaluation, **passed, bound=Bound(0.06, 0.05, "certified"))
    return dataclasses.replace(result, policy=evaluation.policy, evaluation=evaluation)


def test_every_page_begins_with_what_was_decided_about_the_policy_that_was_saved(result: Result) -> None:
    """Before, a policy that was released at the user's request was said to be held back."""
    assert result.evaluation is not None
    good = released(result)
    anyway = dataclasses.replace(result, policy=result.evaluation.policy)
    for one, statement in (
        (result, "Withheld: decisions stay as they are."),
        (result.withheld("no"), "Withheld: decisions stay as they are."),
        (good, f"Released: changes {max(good.evaluation.changed.value, 0):.0%} of decisions."),
        (anyway, "Released without evidence, at your request."),
        (dataclasses.replace(result, evaluation=None, policy=result.advice), "Released without evidence"),
    ):
        text = stands_alone(render_result(one, "policy")).text
        first = min(text.index(words) for words in ("Withheld:", "Released") if words in text)
        assert text.index(statement) == first < text.index("learned this policy")


def test_a_release_with_estimated_practice_is_not_called_certified_and_does_not_contradict_itself(
    result: Result,
) -> None:
    evaluation = released(result).evaluation
    assert evaluation is not None
    estimated = dataclasses.replace(
        evaluation, gain=None, assisted_gain=evaluation.gain, public=False, bound=Bound(0.06, 0.05, "estimated")
    )
    assert estimated.decision.outcome == "released" and estimated.verdict == "not shown"
    assert estimated.line == "Not certified to be better than practice, because practice is estimated."
    without = dataclasses.replace(estimated, trend=Interval(0.0, -0.1, 0.1, -0.08, 0.08))
    assert without.decision.outcome == "withheld" and without.headline == "Not shown to be better than practice."
    assert without.line.endswith("clinicians may be using information that is not in the record.")


def test_withheld_advice_is_not_drawn_as_advice(result: Result) -> None:
    closed, good = render_result(result, "policy", names=NAMES), render_result(released(result), "policy", names=NAMES)
    shown = render_result(result, "policy", names=NAMES, show_withheld=True)
    stop = "Not released; do not use."
    assert "treat" in stands_alone(good).text and stop not in good and "advice taken" in good
    assert "What other factors would change" in good and "What other factors" not in closed
    page = stands_alone(closed).text
    assert "treat" not in page.replace("treated", "").replace("treatment", "") and "advice taken" not in closed
    assert stop not in closed and "the page does not show it" not in page and "this page does not show it" in page
    listed = "situations in which the policy changes most"
    assert listed in good and listed in shown and listed not in closed and "severe" not in closed
    assert shown.index(stop) < shown.index(listed)
    assert shown.count(stop) == 3 and shown.index(stop) < shown.index("advice taken") < shown.rindex(stop)
    nothing = render_result(result.withheld("no"), "policy", names=NAMES, show_withheld=True)
    assert "advice taken" not in nothing and "contains no policy" in stands_alone(nothing).text


def test_the_page_counts_the_people_who_were_learnt_from(result: Result) -> None:
    assert result.evaluation is not None
    users, held_out = result.report["users"], result.evaluation.people
    page = stands_alone(render_result(result, "policy")).text
    assert f"learned this policy from {users - held_out:,} patients; {held_out:,} others were set aside" in page


def test_the_page_says_what_changes_and_what_would_have_to_be_collected(result: Result) -> None:
    page = stands_alone(render_result(result, "policy", names=NAMES)).text
    for question in (
        "For which patients would the policy decide differently?",
        "How often?",
        "With how much support?",
        "What would have to be collected for a release?",
    ):
        assert question in page
    assert "held out at this budget pass them in 95% of studies" in page
    assert "Nothing more for this policy." in stands_alone(render_result(released(result), "policy")).text
    evaluation, certificate = result.evaluation, result.certificate
    assert evaluation is not None
    gain = Interval(0.02, -0.026, 0.065, -0.018, 0.058)
    changed = {"gain": gain, "bound": Bound(-0.018, 0.05, "certified"), "people": 10_000}
    wide = dataclasses.replace(evaluation, **changed, pairs=(PairGain(1.5, 4.0, gain),))
    collect = " ".join(explain_collection(wide, wide.decision, certificate))
    assert "with limits 1.5/4 is +0.020, but anything from -0.026 to +0.065 fits the data." in collect
    assert "would show a gain in half of all studies" in collect  # how many: tests/evaluation/test_needs.py
    loss = Interval(-0.02, -0.06, 0.02, -0.05, 0.01)
    worse = dataclasses.replace(wide, gain=loss, pairs=(PairGain(1.5, 4.0, loss),))
    assert "not above 0" in " ".join(explain_collection(worse, worse.decision, certificate))
    silent = dataclasses.replace(evaluation, gain=None, bound=None)
    for people, asks in ((20, True), (10**6, False)):  # more people are asked for only if there were too few
        one = dataclasses.replace(silent, people=people)
        found = " ".join(explain_collection(one, one.decision, certificate))
        assert ("An estimate of the gain: evaluate on more" in found) is asks
    estimated = dataclasses.replace(silent, people=20, public=False)
    assert "give `--practice`, or evaluate" in " ".join(explain_collection(estimated, estimated.decision, certificate))
    vectors = dataclasses.replace(certificate, bounds={**certificate.bounds, "columns": ["map:30..130"]})
    assert "`--practice`" not in " ".join(explain_collection(estimated, estimated.decision, vectors))


def test_the_page_states_what_the_comparison_assumes(result: Result) -> None:
    evaluation = released(result).evaluation
    assert evaluation is not None
    logged = dataclasses.replace(evaluation, assumption="logged", trend=None, continuity=None, arrival=None)
    page = str(render_evaluation(logged, "patient"))
    assert "logged probabilities are right" in page and "depended only on the recorded state" not in page
    assert "no verdict" not in page
    estimated = dataclasses.replace(
        evaluation, gain=None, assisted_gain=evaluation.gain, public=False, sensitivity=None
    )
    page = str(render_evaluation(estimated, "patient"))
    assert "depended only on the recorded state" in page and "because practice is estimated" in page
    assert "hold together at 95%" not in page and "hold together at 95%" in str(
        render_evaluation(evaluation, "patient")
    )
    assert "no verdict" not in page


def test_the_officers_page_has_files_retention_earlier_studies_and_a_place_to_sign(
    result: Result, tmp_path: Path
) -> None:
    page = stands_alone(render_result(result, "policy")).text
    for words in ("For the data protection officer", "Files to pass on", "Retention", "Approval", "Signature:"):
        assert words in page
    assert "advice.npz" in page and "Not listed." in page
    # the saved policy holds the advice too, and so do its strength and values in report.json
    withheld = set(result.contents()) - {"certificate.json"}
    assert page.count("only to reviewers: holds withheld advice") == len(withheld)
    assert all(name in page for name in result.contents())
    assert "only to reviewers" not in stands_alone(render_result(released(result), "policy")).text
    listed = [EarlierStudy("1" * 32, "fit <b>", "2026-01-02", 0.2, 0.0, 0.0)]
    page = stands_alone(render_result(result, "policy", earlier=listed)).text
    assert "2026-01-02 fit <b>" in page and "Not listed." not in page
    assert "(this result)" not in page and "names no budget" not in page  # a simulation costs nothing
    real = dataclasses.replace(result, certificate=dataclasses.replace(result.certificate, noise_source="system"))
    page = stands_alone(render_result(real, "policy", earlier=listed)).text
    assert "names no budget, so its cost comes on top" in page
    terms = BudgetTerms(3.0, 1e-6, "patient_id", "replace-one", 0.0, 1e-7, log="")
    note = describe_reservation("1" * 32, terms)
    paid = dataclasses.replace(real, certificate=dataclasses.replace(real.certificate, notes=(note,)))
    page = stands_alone(render_result(paid, "policy", earlier=listed)).text
    assert "fit <b> (this result)" in page and "names no budget" not in page and "older copy" not in page
    page = stands_alone(render_result(paid, "policy", earlier=[])).text
    assert "The file is an older copy, or another budget" in page
    result.save(tmp_path / "policy")
    budget = tmp_path / "patients.budget"
    assert call("budget", "init", budget, "--epsilon", "3", "--delta", "1e-6", "--unit", "patient_id").code == 0
    assert call("report", tmp_path / "policy", "--budget", budget).code == 0
    assert "The budget file lists no study." in (tmp_path / "policy.html").read_text()


def test_weights_out_of_balance_are_a_red_box(result: Result) -> None:
    assert result.evaluation is not None
    assert 'class="bad"' not in render_evaluation(result.evaluation, "patient")
    off = dataclasses.replace(result.evaluation, balance=Interval(1.3, 1.2, 1.4, 1.21, 1.39), gain=None)
    text = render_evaluation(off, "patient")
    assert 'class="bad"' in text and "Do not rely on any gain" in text


def test_the_command_takes_files_of_names(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "policy")
    (tmp_path / "states.txt").write_text("mild\n\nhome\n")
    assert read_names(tmp_path / "states.txt") == ("mild", "1", "home")
    options = ("--state-names", tmp_path / "states.txt", "--show-withheld")
    assert call("report", tmp_path / "policy", "--out", tmp_path / "page.html", *options).code == 0
    assert "mild" in (tmp_path / "page.html").read_text()


def test_the_dial_chart_is_the_mean_over_situations_of_what_the_policy_does() -> None:
    policy = AssistedPolicy(jnp.array([1, 1, 0]), jnp.array([0.5, 0.2, 0.01]), 1.5, 4.0, horizon=100)
    seen = np.array([0.5, 0.25, 0.25])
    assert compute_shares(policy, 1.0, seen) == (0.0, 0.0)  # practice itself
    given, changed = compute_shares(policy, 1.5, seen)
    alpha = (0.5 * 0.5 / 0.5, 0.5 * 0.2 / 0.8)  # (c-1) b/(1-b); the third has no support
    assert given == pytest.approx(0.5 * alpha[0] + 0.25 * alpha[1])
    assert changed == pytest.approx(0.5 * alpha[0] * 0.5 + 0.25 * alpha[1] * 0.8)
    whole = 3 * 0.2 / 0.8  # the weight limit allows a ratio of 4, also if there is no largest ratio
    assert compute_shares(policy, np.inf, seen) == (
        pytest.approx(0.5 + 0.25 * whole),
        pytest.approx(0.5 * 0.5 + 0.25 * whole * 0.8),
    )


def test_the_dial_chart_marks_the_evaluated_dial(result: Result) -> None:
    assert result.evaluation is not None
    known = Situations.from_json(result.report["situations"])
    text = render_evaluation(result.evaluation, "patient", known)
    assert "What other factors would change" in text and "it is filled because the gain" in text
    assert "weighted by how often they were seen" in text
    assert "count equally" in render_evaluation(result.evaluation, "patient")
    model_only = dataclasses.replace(result.evaluation, gain=None)
    assert "filled because" not in render_ratios(model_only, known.seen)


def test_situations_show_today_the_advice_how_often_and_how_sure() -> None:
    visits = [[0.30, 0.10], [0.02, 0.18], [0.36, 0.04]]
    policy = AssistedPolicy(jnp.array([1, 1, 0]), jnp.array([0.25, 0.9, 0.9]), 1.5, 4.0, horizon=100)
    known = Situations(visits, 0.012, None)
    page = stands_alone(page_with(render_situations(np.array([1, 1, 0]), known, policy, NAMES, terminal=(2,)))).text
    assert "mild wait treat 25% → 38% 40% fair" in page  # seen most often of those in which something is decided
    assert "severe <3 treat treat (as today) 90% → 100% 20% strong" in page and "home" not in page
    public = dataclasses.replace(known, practice=[1, 0, 0])
    assert (
        "mild treat treat (as today)"
        in stands_alone(page_with(render_situations(np.array([1, 1, 0]), public, None, NAMES))).text
    )
    nothing = render_situations(np.array([1, 1, 0]), None, policy, NAMES)
    assert "unknown" in nothing and "evidence" not in nothing


def test_advice_without_an_advantage_is_not_shown_as_given(result: Result) -> None:
    evaluation, decision = result.evaluation, result.decision
    assert evaluation is not None and decision is not None

    def page(*strength: float) -> str:
        policy = AssistedPolicy(
            jnp.array([1, 1, 0]), jnp.array([0.2, 0.3, 0.6]), strength=jnp.array(strength), horizon=100
        )
        shown = dataclasses.replace(evaluation, policy=policy)
        text = render_changes(shown, decision, result.certificate, None, NAMES, show_withheld=True)
        assert (render_ratios(shown, None) == "") == policy.is_silent
        return stands_alone(page_with(text)).text

    assert "20% to 60%" in page(1.0, 1.0, 0.1) and "not estimated to be better" not in page(1.0, 1.0, 0.1)
    some, nothing = page(1.0, 1.0, 0.0), page(0.0, 0.0, 0.0)
    assert "20% to 30%" in some and "that is not estimated to be better than current practice" in some
    assert "in no situation is there advice that is estimated to be better than practice" in nothing
    assert "known well enough" not in nothing and "practice takes the advised action in" not in nothing


def test_the_unit_of_a_guarantee_is_that_of_the_certificate(result: Result, tmp_path: Path) -> None:
    """Before, `report.json`, or an option of `report`, put any other unit into its sentences."""
    text = stands_alone(render_result(result, "policy")).text
    assert "Every patient." in text and (to_noun("stay"), to_noun("id"), to_noun("_id")) == ("stay", "id", "_id")
    stays = dataclasses.replace(result, certificate=dataclasses.replace(result.certificate, unit="stay"))
    named = stays.reporting({**result.report, "names": {"states": ["calm"], "unit": "rider"}})
    again = stands_alone(render_result(released(named), "policy")).text
    assert "Every stay." in again and "with one stay replaced by any other" in again and "calm" in again
    assert "rider" not in again and "patient" not in again
    result.save(tmp_path / "policy")
    other = call("report", tmp_path / "policy", "--out", tmp_path / "page.html", "--unit-noun", "rider")
    assert other.code == 2 and not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "damaged",
    [
        {"situations": {"visits": "none", "noise": 0.1, "practice": None}},
        {"situations": {"visits": [[0.5, 0.5]], "noise": 0.1, "practice": None}},  # of another world
        {"situations": {"visits": None, "noise": 0.0, "practice": None}},
        {"situations": [1, 2]},
        {"names": "no names"},
    ],
)
def test_a_damaged_file_beside_the_certificate_breaks_no_page(result: Result, damaged: dict[str, object]) -> None:
    page = stands_alone(render_result(result.reporting({**result.report, **damaged}), "policy")).text
    assert "Cite this guarantee" in page and ("Evidence:" not in page or "names" in damaged)


def test_both_bounds_on_guesses_have_the_same_names_in_guide_and_report(result: Result) -> None:
    guide = " ".join((Path(__file__).parents[1] / "docs" / "guides" / "offline.md").read_text().split())
    text = stands_alone(render_result(result, "policy")).text
    for words in (WORST_CASE, EXACT):
        assert words in text and words in guide
    rate, worst = (count_in_hundred(f(result.certificate)) for f in (compute_guess_rate, compute_worst_rate))
    assert f"in at most {rate} of 100 cases ({EXACT}; {WORST_CASE}, is {worst})" in text
    assert compute_guess_rate(result.certificate) < compute_worst_rate(result.certificate)


def test_one_epsilon_is_to_be_cited_also_where_an_evaluation_has_a_certificate_of_its_own(
    held: privrl.data.Episodes,  # noqa: F811
) -> None:
    plain = privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, key=KEY, unit="patient")
    evaluation = privrl.evaluate(held, plain, BUDGET, key=KEY, unit="patient")
    both = dataclasses.replace(plain, evaluation=evaluation)
    together, _ = evaluation.together_with(plain.certificate)
    assert plain.certificate.epsilon < together <= plain.certificate.epsilon + evaluation.certificate.epsilon
    text = stands_alone(render_result(both, "policy")).text
    assert text.count("Cite this guarantee") == 1 and f"Cite this guarantee: epsilon = {together:.3g}" in text
    for other in ({"adjacency": "add-remove"}, {"unit": "stay"}):
        apart = dataclasses.replace(both, certificate=dataclasses.replace(plain.certificate, **other))
        text = stands_alone(render_result(apart, "policy")).text
        assert "Cite this guarantee" not in text and f"do not compose: {next(iter(other))} is " in text


def test_what_is_stated_is_shown_escaped_signed_and_read_again(result: Result, tmp_path: Path) -> None:
    texts = {"purpose": "audit <script>alert(1)</script>", "controller": "inf"}
    stated = dataclasses.replace(result, certificate=result.certificate.stating(texts))
    key = Ed25519PrivateKey.generate()
    stated.signed(key).save(tmp_path / "policy")
    again = Result.load(tmp_path / "policy")
    assert again.certificate.stated == texts
    again.certificate.verify(key.public_key())
    for change in ({"purpose": "other"}, {}):
        with pytest.raises(privrl.privacy.SignatureError):
            dataclasses.replace(again.certificate, stated=change).verify(key.public_key())
    text = render_result(again, "policy")
    assert "<script>" not in text and "audit <script>alert(1)</script>" in stands_alone(text).text
    with pytest.raises(ValueError, match="signed already"):
        again.certificate.stating({"purpose": "later"})
    for wrong in (" ", "a" * 501, "two\nlines"):
        with pytest.raises(ValueError, match="one line of printable text"):
            result.certificate.stating({"purpose": wrong})


@pytest.mark.parametrize("name", [r.name for r in OFFLINE if r.trust == "central" and r.published is None])
def test_every_release_of_an_evaluated_recipe_has_words(name: str) -> None:
    learner = recipes[name].build(tiny_world(), 10**6)
    assert isinstance(learner, AbstractOfflineLearner)
    for one in (learner, Evaluated(learner, share=0.5)):
        certificate = Study.offline(one, BUDGET, "patient").certificate("seed")
        said = {re.sub(r"-\d+$", "", release) for release in share_budget(certificate)}
        assert set(describe_releases(certificate)) == said
