"""`privrl fit --evaluate` and `privrl evaluate`: verdicts, exit codes, what is saved, and what is never touched."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from test_cli import BUDGET, COLUMNS, RIVER, SIZES, call, table, world  # noqa: F401
from test_cli_certify import keys, rehash  # noqa: F401
from test_report import stands_alone

import privrl
from privrl.cli.evaluated_folder import EvaluatedFolder
from privrl.data.practice import read_practice
from privrl.evaluation.confidence import Interval
from privrl.evaluation.decision import Bound
from privrl.privacy.accounting.signature import read_private_key
from privrl.studies.results.result import Result

FIT = ("fit", "env:riverswim", *RIVER, "--episodes", "4000", "--seed", "5")
EVALUATE = ("--evaluate", ".5", "--practice", "env")


@pytest.fixture
def practice(tmp_path: Path) -> Path:
    """Practice of riverswim, which tosses a coin."""
    rows = {"state": [0, 0, 1, 1, 2, 2], "action": [0, 1] * 3, "probability": [0.5] * 6}
    pyarrow.csv.write_csv(pa.table(rows), tmp_path / "practice.csv")
    return tmp_path / "practice.csv"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_fit_evaluates_says_the_truth_beside_it_and_ends_with_the_verdict(tmp_path: Path) -> None:
    arguments = ("100000" if word == "4000" else word for word in FIT)
    arguments = (*arguments, "--recipe", "apvi", *EVALUATE, "--return-bound", "4")
    content = call(*arguments, "--json", "--out", tmp_path / "out").json()
    evaluation = content["evaluation"]
    assert evaluation["verdict"] == "better" and content["certificate"]["learner"] == "Evaluated"
    truth = evaluation["truth"]
    assert evaluation["gain"]["low"] < truth["gain"] < evaluation["gain"]["high"] and truth["gain_se"] < 0.01
    assert set(files(tmp_path / "out")) == {
        "advice.npz",
        "certificate.json",
        "evaluation.json",
        "policy.json",
        "policy.npz",
        "report.json",
    }
    printed = call(*arguments, "--require-better")
    assert printed.code == 0
    lines = printed.out.strip().splitlines()
    assert lines[-2].startswith("Better than practice, by at least") and lines[-3].startswith("The truth in this world")
    assert lines[-1].startswith("Next step: a pilot with ")
    assert call("certify", tmp_path / "out", "--allow-non-private").code == 0


def test_without_an_evaluation_it_says_that_nothing_was_compared() -> None:
    arguments = (*FIT, "--recipe", "dp-apvi", *BUDGET)
    assert call(*arguments).out.strip().splitlines()[-1].startswith("Not compared with practice")
    assert call(*arguments, "--json").json()["evaluation"] is None


def test_what_is_not_better_is_withheld_where_that_is_required(tmp_path: Path) -> None:
    out = tmp_path / "out"
    called = call(*FIT, "--recipe", "dp-apvi", *BUDGET, "--evaluate", ".5", "--require-better", "--out", out)
    assert called.code == 3, called.err
    assert called.out.strip().splitlines()[-2] == "Not shown to be better than practice."
    assert "fit without `--require-better`" in called.out.strip().splitlines()[-1]
    assert "The budget is spent, and there is no policy" in called.out
    assert set(files(out)) == {"certificate.json", "evaluation.json", "report.json"}
    assert set(json.loads((out / "certificate.json").read_text())["files"]) == {"evaluation.json", "report.json"}
    certified = call("certify", out, "--allow-non-private")
    assert certified.code == 0 and "The budget is spent, and there is no policy" in certified.out
    again = call(*FIT, "--recipe", "dp-apvi", *BUDGET, "--evaluate", ".5", "--require-better", "--json")
    assert again.code == 3 and json.loads(again.out)["policy"] is None
    assert call("report", out, "--out", tmp_path / "page.html").code == 0


@pytest.fixture
def fitted(table: Path, tmp_path: Path) -> Path:  # noqa: F811
    out = tmp_path / "policy"
    arguments = ("fit", table, "--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES, "--max-episodes-per-unit", "2")
    assert call(*arguments, "--out", out).code == 0
    return out


UNIT = ("--unit", "unit_id")


def test_evaluate_adds_two_files_with_its_own_certificate(table: Path, fitted: Path, practice: Path) -> None:  # noqa: F811
    before = files(fitted)
    arguments = ("evaluate", table, fitted, "--spend-anyway", *UNIT, *BUDGET, "--practice", practice, "--out", fitted)
    called = call(*arguments, "--unit-noun", "patient")
    assert called.code == 0, called.err
    after = files(fitted)
    assert after.pop("evaluation.json") and after.pop("evaluation-certificate.json") and after == before
    content = json.loads((fitted / "evaluation.json").read_text())
    own = json.loads((fitted / "evaluation-certificate.json").read_text())
    policy = json.loads((fitted / "certificate.json").read_text())
    assert own["result_sha256"] == policy["result_sha256"] and set(own["files"]) == {"evaluation.json"}
    assert own["unit"] == "patient" and "gain" in content  # none, where the noise hides it
    certified = call("certify", fitted)
    assert certified.code == 0 and "The evaluation has its own certificate" in certified.out
    # What this evaluation supports comes first, and then what the folder says with it.
    words = "Released without evidence, at your request. The saved policy is not the one that was compared"
    first = " ".join(called.out.split())
    assert first.startswith("This evaluation: The evidence ") and " ".join(certified.out.split()).startswith(words)
    assert f"The folder `{fitted}` says, from this evaluation, which it now holds: {words}" in first
    assert "no joint epsilon is known" in certified.out  # fit was told of no noun, so the units differ
    assert call("certify", fitted, "--json").json()["epsilon_with_evaluation"] is None
    bounded = call("certify", fitted, "--max-epsilon", "100")
    assert bounded.code == 1 and "do not compose: `unit` is " in bounded.err
    assert call("report", fitted, "--out", fitted.with_name("page.html")).code == 0
    assert "Cite this guarantee" not in fitted.with_name("page.html").read_text()
    refused = call(*arguments)
    assert refused.code == 2 and "add `--overwrite` to replace it" in refused.err
    assert call(*arguments, "--unit-noun", "patient", "--overwrite").code == 0  # as the error says
    own = json.loads((fitted / "evaluation-certificate.json").read_text())
    own["epsilon"] = 0.1
    (fitted / "evaluation-certificate.json").write_text(json.dumps(own))
    assert call("certify", fitted).code == 1


def test_a_policy_that_was_compared_before_keeps_its_statement(table: Path, tmp_path: Path) -> None:  # noqa: F811
    fit = ("fit", table, "--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES, "--evaluate", ".5", "--max-ratio", "inf")
    saved, other = tmp_path / "saved", tmp_path / "other"
    called = call(*fit, "--release-anyway", "--spend-anyway", "--max-episodes-per-unit", "2", "--out", saved)
    assert called.code == 0, called.err
    called = call("evaluate", table, saved, "--spend-anyway", *UNIT, *BUDGET, "--out", other)
    assert called.code == 0, called.err
    first, kept = (" ".join(out.split()) for out in (called.out, call("certify", saved).out))
    assert first.startswith("This evaluation: The evidence does not support a release")
    statement = kept[: kept.index("Privacy certificate")]
    assert f"The folder `{saved}` says, from its own, earlier evaluation: {statement}" in first
    for more in ((), ("--overwrite",)):  # before, the error named an option with which the command still refused
        named = call("evaluate", table, saved, "--spend-anyway", *UNIT, *BUDGET, *more, "--out", saved)
        assert named.code == 2 and "never replaced" in named.err and "--overwrite" not in named.err


def test_a_new_evaluation_comes_before_what_an_older_one_released(tmp_path: Path) -> None:
    """Before, the output began with "Released", which an older evaluation said, of a policy that was found worse."""
    practice = np.full((3, 2), 0.5)
    env = privrl.envs.make("riverswim", states=3, horizon=4)
    held = privrl.data.Episodes.from_trajectories(
        env.sample(env.behaviour_policy(), 2_000, jax.random.key(0)), num_states=3, num_actions=2
    )
    budget = privrl.NonPrivate()
    result = privrl.fit(held, privrl.APVI(3, 2, 4), budget, evaluate=0.5, practice=practice, key=1)
    assert result.evaluation is not None
    passed, gain = Interval(0.0, -0.01, 0.01, -0.008, 0.008), Interval(0.4, 0.3, 0.5, 0.32, 0.48)
    checked = {"trend": passed, "continuity": passed, "arrival": passed, "balance": Interval(1.0, 0.9, 1.1, 0.9, 1.1)}
    better = replace(result.evaluation, **checked, gain=gain, bound=Bound(0.32, 0.05, "certified"))
    saved = replace(result, evaluation=better, policy=better.policy)
    assert saved.decision is not None and saved.decision.outcome == "released"
    found = privrl.evaluate(held, saved, budget, practice=practice, key=2)
    loss = Interval(-0.126, -0.2, -0.05, -0.19, -0.06)
    worse = replace(found, **checked, gain=loss, bound=Bound(-0.19, 0.05, "certified"))
    unsure = replace(found, **checked, gain=gain.wider(0.5), bound=Bound(-0.18, 0.05, "certified"))
    for one, words in ((worse, "contradicts the release"), (unsure, "does not confirm the release")):
        compared = EvaluatedFolder(one, saved, Path("policy"), replaced=False)
        first, second, third = compared.lines()
        assert first.startswith(f"This evaluation {words} of the policy in `policy`")
        assert second.startswith("This evaluation: The evidence does not support a release")
        assert third.startswith("The folder `policy` says, from its own, earlier evaluation: Released:")
        content = compared.to_json()
        assert next(iter(content)) == "evidence" and content["evidence"]["supports_release"] is False
        assert content["contradiction"] == first and "earlier" in content["policy_decision"]["source"]
    assert "Worse than practice: -0.126" in next(iter(EvaluatedFolder(worse, saved, Path("p"), replaced=False).lines()))
    again = list(EvaluatedFolder(replace(found, **vars(better)), saved, Path("policy"), replaced=False).lines())
    assert again[0].startswith("This evaluation: The evidence supports the advice")
    alone = list(EvaluatedFolder(worse, worse.policy, Path("protocol.npz"), replaced=False).lines())
    assert len(alone) == 1  # nothing was released by an array of actions


# ---------------------------------------------------------------------------------- whom an evaluation protects


def test_the_unit_of_an_unsigned_folder_comes_from_the_command_line(table: Path, fitted: Path, tmp_path: Path) -> None:  # noqa: F811
    """Before, one edited word in `report.json` certified stays, and called them patients."""
    arguments = ("evaluate", table, fitted, "--spend-anyway", *BUDGET, "--out", tmp_path / "out")
    silent = call(*arguments)
    assert silent.code == 2 and "`--unit` is missing" in silent.err
    other = call(*arguments, "--unit", "episode_id")
    assert other.code == 2 and "`--unit` is 'episode_id'" in other.err and "says 'unit_id'" in other.err
    wider = call(*arguments, *UNIT, "--max-episodes-per-unit", "5")
    assert wider.code == 2 and "`--max-episodes-per-unit` is 5" in wider.err
    path = fitted / "report.json"
    path.write_text(path.read_text().replace('"unit": "unit_id"', '"unit": "episode_id"'))
    edited = call(*arguments, "--unit", "episode_id")
    assert edited.code == 2 and "`report.json` is not the file that the certificate names" in edited.err
    rehash(fitted)
    assert "says 'episode_id'" in call(*arguments, *UNIT).err
    assert not (tmp_path / "out").exists()  # nothing was spent


def test_the_unit_of_a_signed_folder_comes_from_its_report(
    table: Path,  # noqa: F811
    fitted: Path,
    keys: dict[str, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    Result.load(fitted).save(fitted, sign=read_private_key(keys["ours"]))
    arguments = ("evaluate", table, fitted, "--spend-anyway", *BUDGET)
    key = ("--public-key", keys["ours, public"])
    assert "`--unit` is missing" in call(*arguments, "--out", tmp_path / "out").err  # a signature that nobody checked
    theirs = call(*arguments, "--public-key", keys["theirs, public"], "--out", tmp_path / "out")
    assert theirs.code == 2 and "signature does not match" in theirs.err
    called = call(*arguments, *key, "--out", tmp_path / "out", "--json")
    assert called.json()["unit"] == "unit_id"
    assert "says 'unit_id'" in call(*arguments, *key, "--unit", "episode_id", "--out", tmp_path / "o").err
    unsigned = call(*arguments, *key, "--out", fitted)
    assert unsigned.code == 2 and "is signed. Sign the evaluation with `--sign`" in unsigned.err
    assert call(*arguments, *key, "--sign", keys["ours"], "--out", fitted).code == 0
    certified = call("certify", fitted, *key)
    assert certified.code == 0 and certified.out.count("consistent and authenticated") == 2, certified.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": "20"}, "must be a whole number or null, not text"),
        ({"feature": [1]}, "must be text, not a whole number"),
        ({"rewards_at_end": 1}, "must be true or false"),
        ({"patients": 20}, "`patients` is not an option of a table"),
    ],
)
def test_a_report_with_other_types_is_refused(
    table: Path,  # noqa: F811
    fitted: Path,
    tmp_path: Path,
    change: dict[str, Any],
    words: str,
) -> None:
    report = json.loads((fitted / "report.json").read_text())
    (fitted / "report.json").write_text(json.dumps(report | {"table": report["table"] | change}))
    rehash(fitted)
    called = call("evaluate", table, fitted, "--spend-anyway", *UNIT, *BUDGET, "--out", tmp_path / "out")
    assert called.code == 2 and words in called.err, called.err


def test_evaluate_takes_a_protocol_from_elsewhere(table: Path, tmp_path: Path) -> None:  # noqa: F811
    np.savez(tmp_path / "protocol.npz", np.array([1, 1, 1]))
    arguments = (
        "evaluate",
        table,
        tmp_path / "protocol.npz",
        "--spend-anyway",
        "--epsilon",
        "2",
        "--out",
        tmp_path / "out",
    )
    assert "--unit" in call(*arguments).err
    options = (*COLUMNS, *SIZES, "--max-episodes-per-unit", "2", "--unit-noun", "rider", "--json")
    content = call(*arguments, *options).json()
    assert content["evaluation"]["verdict"] == "not shown" and content["delta"] == 0
    assert set(files(tmp_path / "out")) == {"evaluation.json", "evaluation-certificate.json"}
    alone = call("certify", tmp_path / "out")
    assert alone.code == 0 and "not compared: give it with `--policy`" in alone.out and "Not shown" in alone.out
    assert "was compared." in call("certify", tmp_path / "out", "--policy", tmp_path / "protocol.npz").out
    assert call("certify", tmp_path / "out", "--json").json()["ok"] is True
    assert call("report", tmp_path / "out", "--out", tmp_path / "page.html").code == 0
    page = stands_alone((tmp_path / "page.html").read_text()).text
    assert "A policy was compared with current practice on" in page and "Every rider." in page
    assert (
        page.count("Cite this guarantee: epsilon = 2,") == 1 and "how often current practice takes the advised" in page
    )
    np.savez(tmp_path / "other.npz", np.array([0, 1, 1]))
    other = call("certify", tmp_path / "out", "--policy", tmp_path / "other.npz")
    assert other.code == 1 and "not the one" in other.err
    assert call("certify", tmp_path / "out", "--max-epsilon", "1").code == 1
    path = tmp_path / "out" / "evaluation.json"
    path.write_text(path.read_text().replace('"people": ', '"people": 1'))
    changed = call("certify", tmp_path / "out")
    assert changed.code == 1 and "`evaluation.json` is not the file" in changed.err
    assert call("report", tmp_path / "out", "--out", tmp_path / "other.html").code == 2


def test_evaluate_keeps_its_releases_in_a_store_like_fit(table: Path, fitted: Path, tmp_path: Path) -> None:  # noqa: F811
    store, log = tmp_path / "kept.store", tmp_path / "log"
    options = (*BUDGET, "--store", store, "--store-log", log, "--after-crash", "redraw")
    assert call("evaluate", table, fitted, "--spend-anyway", *UNIT, *options, "--out", tmp_path / "first").code == 0
    assert log.is_file()
    assert (
        call("evaluate", table, fitted, "--spend-anyway", *UNIT, *options, "--out", tmp_path / "again").code == 0
    )  # read, not drawn
    first, again = (json.loads((tmp_path / name / "evaluation.json").read_text()) for name in ("first", "again"))
    assert first["practice"] == again["practice"]
    alone = call(
        "evaluate", table, fitted, "--spend-anyway", *UNIT, *BUDGET, "--store-log", log, "--out", tmp_path / "third"
    )
    assert alone.code == 2 and "`--store` is missing" in alone.err


def test_what_is_stated_goes_into_the_certificate(table: Path, fitted: Path, tmp_path: Path) -> None:  # noqa: F811
    texts = ("--purpose", "dosing <review>", "--data-period", "2019 to 2021", "--controller", "clinic")
    called = call("evaluate", table, fitted, "--spend-anyway", *UNIT, *BUDGET, *texts, "--out", tmp_path / "out")
    assert called.code == 0 and "stated      data period: 2019 to 2021" in called.out, called.err
    last = called.out.strip().splitlines()[-1]
    assert last.startswith("Next step: a pilot with ") and f"`privrl pilot init {fitted} --people " in last
    assert (
        json.loads((tmp_path / "out" / "evaluation-certificate.json").read_text())["stated"]["controller"] == "clinic"
    )
    assert call("certify", tmp_path / "out", "--policy", fitted).code == 0
    long = call(
        "evaluate", table, fitted, "--spend-anyway", *UNIT, *BUDGET, "--purpose", "x" * 501, "--out", tmp_path / "long"
    )
    assert long.code == 2 and "501 characters" in long.err and not (tmp_path / "long").exists()


def test_a_budget_is_not_spent_where_public_numbers_make_withholding_certain(
    table: Path,  # noqa: F811
    fitted: Path,
    practice: Path,
    tmp_path: Path,
) -> None:
    """Before, the budget was spent on a policy that could not be released whatever the data showed."""
    out, store = tmp_path / "out", tmp_path / "store.db"
    kept = ("--out", out, "--store", store)
    for words, arguments in {
        "certain to be withheld": ("evaluate", table, fitted, *UNIT, *BUDGET, "--practice", practice),
        "never an estimate": ("fit", table, "--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES, "--evaluate", ".5"),
    }.items():
        unlimited = ("--max-weight", "inf") if words == "never an estimate" else ()
        refused = call(*arguments, *unlimited, *kept)
        assert refused.code == 2 and words in refused.err and "`--spend-anyway`" in refused.err
        assert "Nothing was spent" in refused.err and not out.exists()


def test_a_plan_for_measurements_has_its_own_widths(tmp_path: Path) -> None:
    schema = tmp_path / "stays.toml"
    schema.write_text('feature = ["map:30..130"]\nhorizon = 12\nrewards_at_end = true\n')
    plan = ("evaluate", "--plan", "--people", "50000", "--epsilon", "1", "--schema", schema)
    measured = call(*plan, "--json").json()
    assert set(measured) == {"delta", "return_range", "estimated"} and measured["estimated"]["model_gain"] is None
    assert 2 * 0.005 < measured["estimated"]["gain"] < 2 * 0.04  # with an allowance of .01 standard deviations
    states = call(*plan[:-2], "--json").json()["estimated"]
    assert measured["estimated"]["needed"] != states["needed"] and measured["estimated"]["practice"] < 0.02
    assert "no guarantee" in call(*plan).out
    schema.write_text('feature = ["map:30..130"]\nhorizon = 12\n')
    assert call(*plan, "--json").json()["estimated"]["gain"] == pytest.approx(12 * measured["estimated"]["gain"])


def test_a_plan_takes_what_the_study_states(tmp_path: Path) -> None:
    plan = ("evaluate", "--plan", "--people", "9000", "--epsilon", "1", "--json")
    plain = call(*plan).json()["estimated"]
    recorded = call(*plan, "--assume-recorded").json()["estimated"]
    assert recorded["needed"]["least"] == recorded["needed"]["enough"] < plain["needed"]["least"]
    assert plain["model_gain"] is None and recorded["model_gain"] is None
    markov = call(*plan, "--assume-recorded", "--assume-markov").json()["estimated"]
    assert markov["model_gain"] is not None and markov["gain"] > recorded["gain"]  # they share budget and error rate
    schema = tmp_path / "stays.toml"
    schema.write_text('propensity = "p"\n')
    logged = call(*plan, "--schema", schema).json()
    assert set(logged) == {"delta", "return_range", "logged"}
    needed = logged["logged"]["needed"]["least"]
    assert set(logged["logged"]["needed"].values()) == {needed} and 200 < needed < 400
    randomised = call(*plan, "--schema", schema, "--least-propensity", ".3").json()["logged"]
    assert randomised["gain"] < logged["logged"]["gain"]  # returns are centred, and no table of practice is released
    hidden = f"noise hides the largest gain that the limits allow with fewer than {needed} people; you have 9,000."
    schema.write_text('propensity = "p"\nhorizon = 4\n')
    printed = " ".join(call(*plan[:-1], "--schema", schema).out.split())
    assert hidden in printed and "in units of returns (in [0, 4])" in printed
    for wrong, words in (
        (("--assume-markov", "--max-ratio", "2"), "Leave out one or the other"),
        (("--assume-markov", "--feature", "map:30..130"), "no values of numbered states"),
        (("--least-propensity", ".3"), "Give `propensity` too"),
    ):
        refused = call(*plan, *wrong)
        assert refused.code == 2 and words.replace("`propensity`", "`--propensity`") in " ".join(refused.err.split())


def test_a_plan_reads_no_data() -> None:
    plan = ("evaluate", "--plan", "--people", "50000", "--epsilon", "1", "--json")
    content = call(*plan).json()
    assert content["delta"] == 1e-6 and content["public"]["gain"] < content["estimated"]["gain"]
    assert 0.004 < content["public"]["gain"] < content["public"]["gain_at_most"] < 0.1
    printed = call(*plan[:-1]).out
    fewest = content["public"]["needed"]["least"]
    assert "Widths" in printed and f"fewer than {fewest:,} people; you have 50,000" in " ".join(printed.split())
    guide = (Path(__file__).parents[1] / "docs" / "guides" / "evaluation.md").read_text()
    for needed in (content[which]["needed"][name] for which in ("public", "estimated") for name in ("least", "enough")):
        assert f"{needed:,}" in guide  # which quotes this plan
    without = call(*plan[:-1], "--max-ratio", "inf")
    assert without.code == 0, without.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*FIT, "--recipe", "dp-apvi", *BUDGET, "--require-better"), "`--evaluate` is missing"),
        (
            (*FIT, "--recipe", "dp-apvi", *BUDGET, "--evaluate", ".5", "--require-better", "--release-anyway"),
            "`--release-anyway` saves a policy without evidence and `--require-better` saves none without it.",
        ),
        ((*FIT, "--recipe", "dp-apvi", *BUDGET, "--evaluate", "1.5"), "share"),
        ((*FIT, "--recipe", "dp-apvi", *BUDGET, "--evaluate", ".5", "--max-ratio", ".5"), "`--max-ratio`"),
        ((*FIT, "--recipe", "dp-apvi", *BUDGET, "--evaluate", ".5", "--adjacency", "add-remove"), "replace-one"),
        ((*FIT, "--recipe", "dp-apvi", *BUDGET, "--evaluate", ".5", "--return-bound", "9"), "return-bound"),
        (("evaluate", "--plan", "--epsilon", "1"), "--people"),
        (("evaluate", "x.parquet", "y.npz"), "needs a budget"),
        (("evaluate", "--epsilon", "1"), "Give a table"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[str, ...], words: str) -> None:
    called = call(*arguments)
    assert called.code == 2 and words in called.err, called.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"probability": [0.5, 0.4, 0.5, 0.5, 0.5, 0.5]}, "first is state 0"),
        ({"action": [0, 0, 0, 1, 0, 1]}, "two rows"),
        ({"state": [0, 0, 1, 1, 3, 3]}, "whole numbers in"),
        ({"probability": None}, "no column"),
    ],
)
def test_a_table_of_practice_is_checked(practice: Path, change: dict[str, Any], words: str) -> None:
    assert read_practice(practice, 3, 2).tolist() == [[0.5, 0.5]] * 3
    assert read_practice(practice, 4, 2, terminal=(3,))[3].tolist() == [0.5, 0.5]
    rows = pyarrow.csv.read_csv(practice).to_pydict() | change
    pyarrow.csv.write_csv(pa.table({name: x for name, x in rows.items() if x is not None}), practice)
    with pytest.raises(ValueError, match=words):
        read_practice(practice, 3, 2)


# ---------------------------------------------------------------------------------- an evaluation in its own folder


def test_an_evaluation_alone_does_not_say_what_happens_to_decisions(table: Path, tmp_path: Path) -> None:  # noqa: F811
    """Before, its folder said "Withheld: decisions stay as they are" of a policy that changes decisions."""
    fit = ("fit", table, "--recipe", "dp-apvi", *BUDGET, *COLUMNS, *SIZES, "--max-episodes-per-unit", "2")
    saved, alone = tmp_path / "saved", tmp_path / "alone"
    assert call(*fit, "--spend-anyway", "--out", saved).code == 0
    called = call("evaluate", table, saved, "--spend-anyway", *UNIT, *BUDGET, "--out", alone)
    assert called.code == 0 and called.out.startswith("This evaluation: The evidence does not support"), called.err
    assert "says, from its policy alone, without an evaluation: Released without evidence" in " ".join(
        called.out.split()
    )
    for named in ((), ("--policy", saved)):
        certified = call("certify", alone, *named)
        said = " ".join(certified.out.split())
        assert certified.code == 0 and said.startswith("An evaluation alone: the policy is in another folder.")
        assert "The evidence does not support a release" in said and "`privrl certify POLICY`" in said
        assert "Withheld" not in said and "Released" not in said and "stay as they are" not in said
    content = call("certify", alone, "--json").json()
    assert "decision" not in content and content["evidence"]["supports_release"] is False
    assert content["evidence"]["statement"].startswith("An evaluation alone")
    for more in ((), ("--show-withheld",)):
        page = tmp_path / "page.html"
        assert call("report", alone, *more, "--out", page, "--overwrite").code == 0
        text = stands_alone(page.read_text()).text
        assert text.index("An evaluation alone:") < text.index("What the advice would change")
        assert ("Not supported by the evidence; do not use." in text) is bool(more)
        for claim in ("stay as they are", "practice continues", "Not released", "withheld policy", "was withheld"):
            assert claim not in text
    assert call("certify", saved).out.startswith("Released without evidence")
