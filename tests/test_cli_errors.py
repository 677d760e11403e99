"""Errors of commands: a sentence on standard error, with `--json` one object on standard output, and no raw text of the
system."""

import json
from pathlib import Path

import pytest
from test_cli import call

from privrl.cli import commands


@pytest.mark.parametrize(
    "arguments",
    [
        ("certify", "nowhere", "--json"),  # refused by privrl
        ("fit", "nowhere.parquet", "--json"),  # an option is missing
        ("pilot", "plan", "--practice", "2", "--gain", "0.1", "--epsilon", "1", "--json"),  # of a group
        ("pilot", "plan", "--practice", "high", "--gain", "0.1", "--epsilon", "1", "--json"),  # not a number
        ("pilot", "plan", "--json", "--json"),
        ("list", "recipes", "--nonsense", "--json"),
    ],
)
def test_a_failed_command_prints_its_reason_as_one_json_object(arguments: tuple[str, ...]) -> None:
    """Before, a program that reads the output of `--json` found nothing at all."""
    found = call(*arguments)
    error = json.loads(found.out)
    assert found.code == 2 and set(error) == {"error"} and found.err
    words = " ".join(found.err.replace("│", " ").split())
    assert error["error"].split(".")[0][:40] in words


def test_without_json_a_failed_command_prints_nothing_on_standard_output() -> None:
    for arguments in (("certify", "nowhere"), ("fit", "nowhere.parquet")):
        found = call(*arguments)
        assert found.code == 2 and found.out == "" and found.err


def test_a_mistake_in_privrl_is_an_object_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(commands.Deferred, "load", fail)
    found = call("certify", "nowhere", "--json")
    assert found.code == 1 and "KeyError" in json.loads(found.out)["error"]
    assert "secret" not in found.out + found.err


def test_an_error_of_the_system_names_the_file_and_a_remedy(tmp_path: Path) -> None:
    """Before, it was printed as "[Errno 2] No such file or directory: ..."."""
    found = call("pilot", "simulate", tmp_path / "nix.toml", "--means", "0,1")
    assert found.code == 2 and "Errno" not in found.err
    assert f"Error: `{tmp_path / 'nix.toml'}`: No such file or directory. Check the path" in found.err


def test_a_file_that_is_no_budget_is_not_said_to_hold_sums(tmp_path: Path) -> None:
    """Before, the first remedy was to restrict who may read a schema file, because of people's raw sums."""
    (tmp_path / "stays.toml").write_text('unit = "patient_id"\n')
    for mode in (0o644, 0o600):
        (tmp_path / "stays.toml").chmod(mode)
        found = call("budget", "show", tmp_path / "stays.toml")
        assert found.code == 2 and "store of releases" in found.err and "chmod" not in found.err


@pytest.mark.parametrize("epsilon", ["-2", "0", "nan"])
def test_a_budget_of_nothing_has_a_remedy_of_its_own(tmp_path: Path, epsilon: str) -> None:
    """Before, it advised against a huge budget."""
    words = ("--epsilon", epsilon, "--delta", "1e-6", "--unit", "patient_id")
    found = call("budget", "init", tmp_path / "patients.budget", *words)
    assert found.code == 2 and "must be a finite number above 0. A smaller budget protects people more" in found.err
    assert "huge" not in found.err
    assert "huge budget" in call("budget", "init", tmp_path / "b", "--epsilon", "inf", *words[2:]).err


def test_the_help_of_prepare_names_what_its_options_are() -> None:
    """Before, "a number of numbers", and "where nothing was measured"."""
    told = " ".join(call("prepare", "--help").out.replace("│", " ").split())
    assert "a number of numbers" not in told and "where nothing was measured" not in told
    assert "If times are numbers, a number." in told
