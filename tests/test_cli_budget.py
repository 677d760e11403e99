"""`privrl budget` makes and shows a budget, and studies reserve in it."""

import json
import shutil
from pathlib import Path

import pytest
from test_cli import call
from test_docs import write_stays

FIT = ("fit", "stays.parquet", "--schema", "stays.toml", "--recipe", "dp-tdfp", "--delta", "1e-6", "--spend-anyway")
BUDGET = ("--budget", "patients.budget")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    write_stays(tmp_path)
    return tmp_path


def init(*more: str, unit: str = "patient_id") -> None:
    made = call("budget", "init", "patients.budget", "--epsilon", "3", "--delta", "1e-6", "--unit", unit, *more)
    assert made.code == 0, made.err


def test_a_budget_is_made_shown_and_reserved_in() -> None:
    init()
    assert "No study has reserved anything yet" in call("budget", "show", "patients.budget").out
    assert call(*FIT, "--epsilon", "1", "--out", "a", *BUDGET).code == 0
    refused = call(*FIT, "--epsilon", "3", "--out", "b", *BUDGET)
    assert refused.code == 2 and "Nothing was reserved" in refused.err and not Path("b").exists()
    shown = json.loads(call("budget", "show", "patients.budget", "--json").out)
    assert [study["name"] for study in shown["studies"]] == ["fit with dp-tdfp"]
    assert 2 < shown["left"]["epsilon"] < 3
    text = call("budget", "show", "patients.budget").out
    assert "fit with dp-tdfp" in text and shown["studies"][0]["date"] in text
    certificate = json.loads(Path("a/certificate.json").read_text())
    assert any(shown["studies"][0]["study"] in note for note in certificate["notes"])
    assert call("certify", "a").code == 0


def test_the_column_counts_and_not_its_noun() -> None:
    init()
    assert call(*FIT, "--epsilon", "1", "--out", "a", "--unit-noun", "patient", *BUDGET).code == 0
    init_other = call("budget", "init", "stays.budget", "--epsilon", "3", "--delta", "1e-6", "--unit", "patient")
    assert init_other.code == 0
    refused = call(*FIT, "--epsilon", "1", "--out", "b", "--unit-noun", "patient", "--budget", "stays.budget")
    assert refused.code == 2 and "protects `patient_id`" in refused.err


def test_mistakes_are_explained() -> None:
    assert "There is no budget" in call("budget", "show", "patients.budget").err
    nowhere = call("budget", "init", "no/b.budget", "--epsilon", "1", "--delta", "1e-6", "--unit", "patient_id")
    assert nowhere.code == 2 and "There is no folder" in nowhere.err and "Errno" not in nowhere.err
    assert "`--budget` is missing" in call(*FIT, "--epsilon", "1", "--out", "a", "--budget-log", "log").err
    init("--budget-log", "log")
    Path("log").rename("moved")
    missing = call(*FIT, "--epsilon", "1", "--out", "a", *BUDGET)
    assert (
        missing.code == 2
        and "is missing" in missing.err
        and "--budget-log" in missing.err
        and "Errno" not in missing.err
    )
    assert not Path("log").exists() and not Path("a").exists()
    assert call(*FIT, "--epsilon", "1", "--out", "a", *BUDGET, "--budget-log", "moved").code == 0
    assert call("store", "new-log", "patients.budget", "log").code == 0  # as the message says
    assert len(call("budget", "show", "patients.budget", "--json").json()["studies"]) == 1
    simulated = call("fit", "env:riverswim", "--recipe", "dp-apvi", "--epsilon", "1", "--delta", "1e-6", *BUDGET)
    assert simulated.code == 2 and "simulated" in simulated.err
    other = call("budget", "init", "patients.budget", "--epsilon", "5", "--delta", "1e-6", "--unit", "patient_id")
    assert other.code == 2 and "`epsilon`" in other.err.replace("--", "")


def test_a_restored_copy_is_noticed_without_an_option() -> None:
    """Before, the guide said so, and it held only with `--budget-log`, on every command."""
    made = call("budget", "init", "patients.budget", "--epsilon", "3", "--delta", "1e-6", "--unit", "patient_id")
    assert Path("patients.budget.log").is_file() and "patients.budget.log" in made.out
    shutil.copy("patients.budget", "backup")
    assert call(*FIT, "--epsilon", "1", "--out", "a", *BUDGET).code == 0
    for file in Path().glob("patients.budget*"):
        if file.suffix != ".log":
            file.unlink()
    shutil.copy("backup", "patients.budget")
    for command in ((*FIT, "--epsilon", "1", "--out", "b", *BUDGET), ("budget", "show", "patients.budget")):
        refused = call(*command)
        assert refused.code == 2 and "is behind its audit log" in refused.err
    assert not Path("b").exists() and "is behind" in call("report", "a", *BUDGET).err


def test_a_report_lists_the_budget_and_does_not_claim_to_reserve() -> None:
    """Before, its help had the sentence of the commands that reserve their cost first."""
    lists, reserves = (" ".join(call(verb, "--help").out.replace("│", " ").split()) for verb in ("report", "fit"))
    assert "the cost is reserved first" in reserves and "the cost is reserved first" not in lists
    assert "Nothing is reserved." in lists
