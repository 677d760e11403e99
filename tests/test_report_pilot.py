"""The page of a pilot, and its record: everything that was released, and nothing else."""

import dataclasses
import json
import math

import pytest
from test_cli import call
from test_pilot import PATIENCE, PROTOCOL, conduct, run

from privrl.learners.trials.looks import ArmLook, Comparison, Look
from privrl.learners.trials.protocol import Partition
from privrl.plots.trial_plots import LookPoint, draw_gains
from privrl.privacy.store.release_store import ReleaseStore
from privrl.reports.pilot_page import render_pilot, render_pilot_result
from privrl.studies.results.certification import certify
from privrl.studies.results.pilot_record import PILOT, PilotRecord, read_looks


@pytest.fixture
def record(clock) -> PilotRecord:
    with ReleaseStore.in_memory() as store:
        pilot = conduct(store, clock)
        run([pilot], clock, range(30), skip=(3, 4))
        clock.time += PATIENCE
        return pilot.to_record()


@pytest.mark.first
def test_a_record_is_read_as_it_was_saved_and_its_certificate_holds(record, tmp_path):
    folder = record.save(tmp_path / "pilot")
    again = PilotRecord.load(folder)
    assert again.looks == record.looks and again.protocol == record.protocol and again.serving == "advice"
    assert certify(again.certificate, None, allow_non_private=True).ok
    text = (folder / PILOT).read_text()
    (folder / PILOT).write_text(text.replace('"better"', '"worse"', 1))
    with pytest.raises(ValueError, match="not the file that the certificate names"):
        PilotRecord.load(folder)


def test_the_page_has_the_verdict_charts_arms_protocol_and_certificate(record, tmp_path):
    folder = record.save(tmp_path / "pilot")
    shown = call("report", folder, "--out", tmp_path / "pilot.html")
    assert shown.code == 0, shown.err
    page = (tmp_path / "pilot.html").read_text()
    for part in ("is better than practice", "every new person gets", record.protocol.sha256, "missing", "epsilon = 60"):
        assert part in page
    assert page.count("<svg") >= 2 and "<script" not in page


def test_after_the_end_no_arm_is_open(record):
    *before, last = record.looks
    assert all(arm.is_open for one in before for arm in one.arms) and not any(arm.is_open for arm in last.arms)
    page = str(render_pilot_result(record.protocol, record.looks))
    assert all("% ± " in line for line in page.splitlines() if 'data-label="missing"' in line)
    assert ">served<" in page and ">closed<" in page and ">open<" not in page


@pytest.mark.parametrize("open_end", ["low", "high", ""])
def test_every_estimate_and_the_newest_interval_are_inside_the_chart(open_end):
    ends = {"low": -0.2, "high": -0.006} | (
        {open_end: math.inf if open_end == "high" else -math.inf} if open_end else {}
    )
    points = [LookPoint(10 * i, -2.0, math.inf, 2.0, -0.134, **ends) for i in (1, 2)]
    low, high = draw_gains(points, 100).axes[0].get_ylim()
    for value in (-0.134, *ends.values()):
        assert not math.isfinite(value) or low < value < high


def look(verdict: str, rests: bool = False, ended: bool = True) -> Look:
    one = Comparison("advice", -0.1, 0.03, -3.3, math.inf, 2.0, -math.inf, -0.04, verdict, -3.0, rests)  # type: ignore[arg-type]
    arms = tuple(ArmLook(name, 5, 4.6, 0.4, 0.7, 0.1, True) for name in ("practice", "advice"))
    group = dataclasses.replace(one, group="sex: female", verdict="worse")
    return Look(1, 10, arms, (one,), (group,), (), ended, "practice" if ended else "")


def test_harm_is_shown_in_every_state_of_a_pilot():
    part = Partition("sex", ("female", "male"), 0.2)
    protocol = dataclasses.replace(PROTOCOL, subgroups=(part,))
    worse = str(render_pilot_result(protocol, [look("worse", rests=True)]))
    assert 'class="bad"' in worse and "current practice" in worse and "rests on missing records" in worse
    assert "sex: female" in worse and "did worse than practice" in worse
    undecided = str(render_pilot_result(protocol, [look("", ended=False)]))
    assert "The trial goes on: 10 of at most 40 people" in undecided and "none yet to -0.04" in undecided
    assert "No look has been made yet" in str(render_pilot_result(protocol, []))


def verdicts(*given: tuple[str, float], closed: tuple[str, ...] = (), ended: bool = False) -> Look:
    """A look at policies a, b, ... with these verdicts and lower bounds; `closed` are policies of earlier looks."""
    found = tuple(
        Comparison(name, low + 0.1, 0.03, 3.0, 2.0, 2.0, low, low + 0.2, verdict, 3.0, False)  # type: ignore[arg-type]
        for name, (verdict, low) in zip("abcd", given, strict=False)
    )
    arms = ["practice", *(one.policy for one in found), *closed]
    is_open = {one.policy: one.verdict != "worse" for one in found} | dict.fromkeys(closed, False)
    return Look(
        *(2, 10),
        tuple(ArmLook(name, 5, 4.6, 0.4, 0.7, 0.1, is_open.get(name, True)) for name in arms),
        *(found, (), (), ended, "a" if ended else ""),
    )


def test_the_sentence_names_every_policy_and_the_served_one_first():
    both = verdicts(("better", 0.1), ("better", 0.3), ended=True).sentence
    assert both.startswith("`b` is better than practice: +0.4") and "`a` is also better than practice: +0.2" in both
    worse = verdicts(("worse", -0.4), ("worse", -0.5), ("", -0.1)).sentence
    assert "`a` is worse than practice" in worse and "`b` is worse than practice" in worse
    assert "no verdict yet on `c` +0" in worse and worse.endswith("after 10 people.")
    earlier = verdicts(("", -0.1), closed=("old",)).sentence
    assert earlier.startswith("No further verdict yet after 10 people: `a`")
    assert earlier.endswith("; `old` was closed as worse at an earlier look.")
    last = verdicts(("worse", -0.4), closed=("old",), ended=True).sentence
    assert last.startswith("`a` is worse than practice") and "`old` was closed as worse" in last
    assert verdicts(("", -0.1), ended=True).sentence.startswith(
        "The trial ended without a verdict after 10 people: `a`"
    )


def test_harm_in_a_subgroup_is_shown_for_every_look_at_which_it_was_seen(record, tmp_path, capsys):
    part = Partition("sex", ("female", "male"), 0.2)
    protocol = dataclasses.replace(PROTOCOL, subgroups=(part,))
    harmed, later = look("", ended=False), look("", ended=False)
    (group,) = later.subgroups
    later = dataclasses.replace(
        later, number=2, people=20, subgroups=(dataclasses.replace(group, verdict="", estimate=0.1),)
    )
    page = str(render_pilot_result(protocol, [harmed, later]))
    assert "did worse than practice: look 1 (-0.1)." in page and "Subgroups at every look" in page
    with ReleaseStore.in_memory() as store:  # a certificate of this protocol
        of_it = conduct(store, lambda: 0.0, protocol).to_record()
    folder = dataclasses.replace(of_it, looks=(harmed, later)).save(tmp_path / "pilot")
    shown = call("pilot", "show", folder)
    assert shown.code == 0 and "Harm in subgroups, at every look" in shown.out
    assert "Declared: subgroups by `sex` (female, male)." in shown.out
    (row,) = [line for line in shown.out.split("Harm in")[1].splitlines() if "sex: female" in line and "-0.1 " in line]
    assert row.split("│")[1].strip() == "1"
    folder = dataclasses.replace(of_it, looks=(later,)).save(tmp_path / "pilot")
    assert "No look has shown harm in a declared subgroup." in call("pilot", "show", folder).out


def test_numbers_of_looks_are_shown_whole_in_80_columns(record, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = call("pilot", "show", record.save(tmp_path / "pilot"))
    assert shown.code == 0 and "…" not in shown.out and max(map(len, shown.out.split("against")[1].splitlines())) <= 80
    for one in (look.comparisons[0] for look in record.looks):
        for number in (f"{one.estimate:+.3g}", f"{one.z:+.2f}"):
            assert f" {number} " in shown.out
    wide = dataclasses.replace(record.looks[0].comparisons[0], estimate=-1.234e-300, low=-1.2e-300, high=1.234e300)
    wider = dataclasses.replace(record, looks=(dataclasses.replace(record.looks[0], comparisons=(wide,)),))
    assert "-1.2e-300 to +1.23e+300" in call("pilot", "show", wider.save(tmp_path / "pilot")).out


def test_the_certificate_is_explained_as_that_of_a_pilot(record):
    page = render_pilot(record)
    assert "any conclusion drawn from the pilot" in page and "counts once, in the arm that was drawn" in page
    for wrong in ("drawn at random", "drawn from the policy", "number counted is secret", "horizon"):
        assert wrong not in page
    assert "survival: 0, 1" in page
    assert "<title>A private randomised trial: pilot" in page
    assert "10 seconds after its last person arrived" in page
    assert "the number that came is known only as it was released, with noise" in page


def test_a_certificate_of_another_protocol_is_refused(record, tmp_path):
    """Also if `pilot.json` was swapped and its hash in the unsigned certificate replaced."""
    folder = record.save(tmp_path / "pilot")
    other = dataclasses.replace(record, protocol=dataclasses.replace(record.protocol, better=0.02))
    (folder / PILOT).write_bytes((other.save(tmp_path / "other") / PILOT).read_bytes())
    with pytest.raises(ValueError, match="not the file that the certificate names"):
        PilotRecord.load(folder)
    with pytest.raises(ValueError, match="that of another protocol"):
        PilotRecord.load(tmp_path / "other")  # the certificate names this very file
    content = record.to_json() | {"sha256": other.protocol.sha256}
    with pytest.raises(ValueError, match="damaged"):
        read_looks(content)


def test_the_certificate_of_a_pilot_is_certified_from_its_folder(record, tmp_path):
    folder = record.save(tmp_path / "pilot")
    shown = call("certify", folder, "--allow-non-private")
    assert shown.code == 0 and record.sentence in shown.out and record.protocol.sha256 in shown.out
    assert "consistent, not authenticated" in shown.out
    assert call("certify", folder).code == 1  # noise of a seed protects no one
    assert call("certify", folder, "--allow-non-private", "--max-epsilon", "1").code == 1
    text = (folder / PILOT).read_text()
    (folder / PILOT).write_text(text.replace('"better"', '"worse"', 1))
    refused = call("certify", folder, "--allow-non-private", "--json")
    assert refused.code == 1 and not json.loads(refused.out)["checks"][PILOT]["ok"]


def test_what_is_not_a_record_is_refused():
    for content in ({}, {"format": "other"}, [], {"format": "privrl pilot, 1", "protocol": {}, "looks": [{}]}):
        with pytest.raises(ValueError):
            read_looks(content)


def test_problems_come_first(record):
    page = render_pilot(record, ["The cost is wrong."])
    assert page.index("does NOT hold") < page.index("is better than practice")
