"""The demo of pilots: both worlds end in a record and a page; at full size the verdicts are those of the worlds."""

from pathlib import Path

import pytest
from test_cli import call

from privrl.reports.pilot_demo import FILES, WORLDS
from privrl.studies.results.pilot_record import PilotRecord


def test_what_belongs_to_the_other_demos_is_refused(tmp_path: Path) -> None:
    shown = call("demo", "pilot", "--seeds", "2", "--out", tmp_path / "demo")
    assert shown.code == 2 and "`--seeds` repeats the demo of sepsis" in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_policy_that_helps_is_adopted_and_one_that_harms_is_stopped(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    content = call("demo", "pilot", "--seed", "1", "--out", out, "--json").json()
    assert {path.name for path in out.iterdir()} == FILES
    helps, harms = (content["pilots"][name] for name in WORLDS)
    assert helps["gain"] > 0.1 and helps["serving"] == "advice"
    assert harms["gain"] < -0.05 and harms["serving"] == "practice" and "worse than practice" in harms["verdict"]
    for name in WORLDS:
        assert PilotRecord.load(out / name / "pilot").sentence == content["pilots"][name]["verdict"]
        assert "A private randomised trial: pilot" in (out / name / "pilot.html").read_text()
