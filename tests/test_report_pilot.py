"""The page of a pilot, and its record: everything that was released, and nothing else."""

import dataclasses
import math

import pytest
from test_cli import call
from test_pilot import PATIENCE, PROTOCOL, conduct, run

from privrl.learners.trials.looks import ArmLook, Comparison, Look
from privrl.learners.trials.protocol import Partition
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


def test_what_is_not_a_record_is_refused():
    for content in ({}, {"format": "other"}, [], {"format": "privrl pilot, 1", "protocol": {}, "looks": [{}]}):
        with pytest.raises(ValueError):
            read_looks(content)


def test_problems_come_first(record):
    page = render_pilot(record, ["The cost is wrong."])
    assert page.index("does NOT hold") < page.index("is better than practice")
