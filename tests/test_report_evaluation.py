"""The comparison with practice on a page: verdict on top, the picture of intervals, names instead of numbers."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import pytest
from test_cli import call
from test_evaluate import BUDGET, KEY, PRACTICE, H, held  # noqa: F401
from test_report import stands_alone

import privrl
from privrl.learners.evaluation.estimates import Interval
from privrl.reports.names import Names, read_names
from privrl.reports.page_evaluation import evaluation_section
from privrl.reports.page_result import result_page
from privrl.studies.result import Result

NAMES = Names(("mild", "severe <3", "home"), ("wait", "treat"), "patient")


@pytest.fixture(scope="module")
def result(held: privrl.data.Episodes) -> Result:  # noqa: F811
    learner = privrl.Evaluated(privrl.APVI(3, 2, H), practice=jnp.asarray(PRACTICE), share=0.5)
    return privrl.fit(held, learner, BUDGET, key=KEY, unit="patient_id")


def test_the_verdict_stands_on_top_and_names_are_used(result: Result) -> None:
    text = result_page(result, "policy", names=NAMES)
    page = stands_alone(text)
    assert result.evaluation is not None
    assert text.index(result.evaluation.line[:20]) < text.index("<h2>")
    assert "Every single patient," in page.text and "Every single patient_id" not in page.text
    assert "cite this one" in page.text and "severe <3" in page.text and "treat" in page.text
    assert "depended on the recorded state alone" in page.text and "Balance: the mean weight is" in page.text
    assert "left to practice" in page.text and page.seen.count("svg") >= 2
    assert page.text.count("one patient_id replaced") == 1  # the certificate is shown as it is


def test_without_an_evaluation_the_page_says_so(held: privrl.data.Episodes) -> None:  # noqa: F811
    plain = privrl.fit(held, privrl.APVI(3, 2, H), BUDGET, key=KEY)
    assert "Not compared with practice" in stands_alone(result_page(plain, "policy")).text
    evaluation = privrl.evaluate(held, plain, BUDGET, key=KEY)
    page = stands_alone(result_page(dataclasses.replace(plain, evaluation=evaluation), "policy")).text
    assert "a certificate of its own" in page and "There is no estimate of a gain" in page


def test_a_withheld_policy_is_said(result: Result) -> None:
    page = stands_alone(result_page(result.withheld("no"), "policy")).text
    assert "there is no policy" in page and "Compared with practice" in page


def test_weights_out_of_balance_are_a_red_box(result: Result) -> None:
    assert result.evaluation is not None
    assert 'class="bad"' not in evaluation_section(result.evaluation, "patient")
    off = dataclasses.replace(result.evaluation, balance=Interval(1.3, 1.2, 1.4, 1.21, 1.39), gain=None)
    text = evaluation_section(off, "patient")
    assert 'class="bad"' in text and "Trust no gain" in text


def test_the_command_takes_files_of_names(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "policy")
    (tmp_path / "states.txt").write_text("mild\n\nhome\n")
    assert read_names(tmp_path / "states.txt") == ("mild", "1", "home")
    options = ("--state-names", tmp_path / "states.txt", "--unit-noun", "patient")
    assert call("report", tmp_path / "policy", "--out", tmp_path / "page.html", *options).code == 0
    assert "mild" in (tmp_path / "page.html").read_text()
