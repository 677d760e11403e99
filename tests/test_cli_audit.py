"""`privrl audit`: one recipe, all of them, known-bad cases, and the exit code when a claim is broken."""

import dataclasses
import json
from pathlib import Path

import pytest

from privrl.audit import known_bad
from privrl.audit.audit_report import AuditReport
from privrl.audit.findings import Finding
from privrl.cli import audit as _audit
from privrl.cli import main
from privrl.recipes.all_recipes import recipes


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["audit", *arguments])
    return code, capsys.readouterr().out


def test_one_recipe_in_json_and_in_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("dp-apvi", "--epsilon", "2", "--delta", "1e-4", "--trials", "400", "--seed", "3")
    code, printed = output(capsys, *arguments, "--json", "--out", str(tmp_path / "audit"))
    content = json.loads(printed)
    assert code == 0 and content["broken"] is False
    assert {"recipe", "epsilon_claimed", "epsilon_lower", "delta", "trials", "confidence"} <= content.keys()
    assert (content["recipe"], content["trials"], content["delta"], content["confidence"]) == (
        "dp-apvi",
        400,
        1e-4,
        0.95,
    )
    attacks = {attack["attack"]: attack for attack in content["attacks"]}
    assert set(attacks) == {"exact-relations", "order-of-releases", "crashes"}
    assert all(attack["tried"] > 0 and attack["found"] == [] for attack in attacks.values())
    assert content["epsilon_lower"] <= content["epsilon_exact"] == pytest.approx(2, rel=1e-3)
    assert json.loads((tmp_path / "audit" / "audit.json").read_text()) == content
    assert (tmp_path / "audit" / "audit.svg").read_text().lstrip().startswith("<?xml")
    assert (tmp_path / "audit" / "audit.png").stat().st_size > 1_000
    assert main(["report", str(tmp_path / "audit")]) == 0
    assert "dp-apvi" in (tmp_path / "audit.html").read_text()


@pytest.mark.slow
def test_workers_share_out_all_recipes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the numbers of this process."""
    monkeypatch.setattr(_audit, "recipes", {name: recipes[name] for name in ("apvi", "dp-apvi", "cautious-lq")})
    settings = ("--trials", "200", "--seed", "3", "--json")
    code, printed = output(capsys, "--all", "--workers", "2", *settings)
    shared = {one["recipe"]: one for one in json.loads(printed)["audits"]}
    assert code == 0 and list(shared) == ["apvi", "dp-apvi", "cautious-lq"]
    assert main(["audit", "dp-apvi", "--workers", "2"]) == 2
    assert "shares out the recipes of `--all`" in capsys.readouterr().err


def broken_report(name: str, **settings: object) -> AuditReport:
    trials, confidence = settings["trials"], settings["confidence"]
    assert isinstance(trials, int) and isinstance(confidence, float)
    return AuditReport(name, 1.0, 1.0, 1.5, 1e-5, trials, confidence, "Gaussian DP")


def test_a_broken_claim_is_a_failure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_audit, "lower_bound", broken_report)
    monkeypatch.setattr(_audit, "protocol_attacks", lambda *_, **__: ())
    code, printed = output(capsys, "dp-apvi", "--trials", "50")
    assert code == 1 and "BROKEN" in printed


def test_a_broken_protocol_is_a_failure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = Finding("crashes", 3, ("killed, then more was spent",))
    monkeypatch.setattr(_audit, "protocol_attacks", lambda *_, **__: (found,))
    monkeypatch.setattr(
        _audit, "lower_bound", lambda name, **_: AuditReport(name, 1.0, 1.0, 0.2, 1e-5, 50, 0.95, "Gaussian DP")
    )
    code, printed = output(capsys, "dp-apvi", "--trials", "50")
    assert code == 1 and "BROKEN" in printed and "more was spent" in printed


def test_known_bad_cases_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = next(case for case in known_bad.CASES if case.name == "reused-key")
    monkeypatch.setattr(known_bad, "CASES", (case,))
    code, printed = output(capsys, "--known-bad", "--json", "--seed", "1", "--out", str(tmp_path / "bad"))
    (shown,) = json.loads(printed)["cases"]
    assert code == 0 and shown["caught"] and shown["name"] == "reused-key"
    assert shown["audited"] > shown["claimed"] == 1
    assert main(["report", str(tmp_path / "bad")]) == 0
    right = dataclasses.replace(case, run=lambda key, trials, flawed: case.run(key, trials, flawed=not flawed))
    monkeypatch.setattr(known_bad, "CASES", (right,))
    code, printed = output(capsys, "--known-bad", "--seed", "1")
    assert code == 1 and "NO" in printed  # an attack that finds nothing is no proof that audits can fail


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "one recipe"),
        (("dp-apvi", "--known-bad"), "one recipe"),
        (("dp-apvi", "--trials", "1"), "--trials"),
        (("dp-apvi", "--confidence", "1.5"), "--confidence"),
        (("apvi", "--epsilon", "1", "--delta", "1e-5", "--trials", "0"), "--trials"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *arguments]) == 2
    assert complaint in capsys.readouterr().err
