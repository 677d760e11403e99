"""The log: JSON lines from a fixed list of events, about the service and not about people; and ids of requests."""

import json
import logging
from pathlib import Path
from typing import Any, get_args

import pytest
from clocks import Clock
from service.serving import CENTRAL, serving, study_file

from privrl.service import operator_endpoints
from privrl.service.application import Call, endpoint
from privrl.service.event_log import JsonLines, ServiceEvent

SECRET = "anna-the-first"


@endpoint("broken", "GET", "/broken")
async def broken(call: Call) -> Any:
    """Fail in a way that no handler foresees."""
    raise KeyError(SECRET)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(JsonLines().format(record)) for record in caplog.records if record.name == "privrl.service"]


def test_events_are_lines_of_json_without_people(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One block closes, the operator pauses, resumes and purges, a key comes and goes, and a request fails."""
    caplog.set_level(logging.INFO)
    file, clock = study_file(tmp_path, CENTRAL, users=2), Clock()
    operator = file.keys.add("operator", "on call")
    host = {"host": "localhost"}
    with serving(file, clock) as river:
        for user in (SECRET, SECRET + "2"):
            ticket = river.ask("POST", "tickets", {"user": user}).json["ticket"]
            river.ask("POST", "episodes", {"ticket": ticket, "steps": [{"state": 1, "action": 1, "reward": 0.25}]})
        clock.time = 1_000.0
        river.ask("POST", "actions", {"ticket": ticket, "state": 0, "step": 0})
        river.run(river.served.run_in_writer(lambda store: river.served._plan()))
        river.offer((*operator_endpoints.ENDPOINTS, broken))
        for change in ("pause", "resume", "purge"):
            body = {"study": "river"} if change == "purge" else None
            path = f"/operator/studies/river:{change}"
            assert river.ask("POST", path, body, key=operator, headers=host).status == 200
        assert river.ask("GET", "/broken").status == 500
        failed = river.request_id
    found = lines(caplog)
    assert [line["event"] for line in found] == [
        "start", "release", "plan", "pause", "resume", "purge", "failure"
    ]  # fmt: skip
    assert {line["event"] for line in found} <= set(get_args(ServiceEvent))
    assert all(line.keys() >= {"time", "level", "event", "study", "message"} for line in found)
    assert found[1]["study"] == "river" and found[1]["block"] == 0 and found[2]["plan"] == 1
    assert found[-1]["request"] == failed and found[-1]["level"] == "error"
    assert SECRET not in json.dumps(found) and "0.25" not in json.dumps(found)


def test_every_answer_has_a_random_id_which_is_never_that_of_the_client(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, CENTRAL), Clock()) as river:
        ids = []
        for path in ("", "", "plan", "nothing", "/readyz", "/nowhere"):
            river.ask("GET", path, headers={"x-request-id": SECRET})
            ids.append(river.request_id)
    assert len(set(ids)) == len(ids) and all(len(one) == 16 for one in ids)
