"""A service in a process of its own: both listeners, an orderly end, and kills that lose nothing."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from service import kills
from service.kills import BROKEN, OPEN, Witness, begun, running, used_and_killed


def asked(port: int, method: str, path: str, key: str = "") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={"authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_killed_service_has_kept_all_that_it_has_answered(tmp_path: Path) -> None:
    files = begun(tmp_path)
    witness = Witness(tmp_path, 0, files[1])
    operator = files[0].keys.add("operator", "operator")
    with running(tmp_path) as (process, ports):
        public, private = ports["apps and devices"], ports["the operator"]
        states = {"central": "ready", "local": "ready"}
        assert asked(public, "GET", "/readyz") == (200, {"studies": states, "missing": {}})
        assert asked(private, "GET", "/operator/studies", operator)[0] == 200
        assert asked(public, "GET", "/operator/studies", operator)[0] == 404
        assert asked(private, "POST", "/v1/studies/local/tickets")[0] == 404
        used_and_killed(process, public, witness, 0, 0.8)
    found = witness.look(*files)
    assert witness.faults == []
    assert found["records"] > 0 and found["reports"] > 0


@pytest.mark.slow
def test_a_service_that_is_told_to_end_finishes_what_is_under_way(tmp_path: Path) -> None:
    files = begun(tmp_path)
    witness = Witness(tmp_path, 0, files[1])
    with running(tmp_path) as (process, ports):
        ending = threading.Timer(0.5, process.send_signal, [signal.SIGTERM])
        ending.start()
        witness.use(ports["apps and devices"], 0, 0)
        assert process.wait(60) == 0
    witness.look(*files)
    assert witness.faults == []
    assert len(set(witness.records) - witness.recorded) <= 1  # what the one client sent when nobody listened any more


def loop(folder: Path, rounds: int, *more: str) -> dict[str, Any]:
    command = [sys.executable, kills.__file__, str(folder), str(rounds), "7", *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


@pytest.mark.slow
def test_fifty_kills_lose_nothing_and_count_nothing_twice(tmp_path: Path) -> None:
    found = loop(tmp_path, 50)
    assert found["faults"] == [] and found["rounds"] == 50 and found["releases"] > 5


@pytest.mark.slow
def test_kills_lose_nothing_where_nobody_knows_how_many_will_come(tmp_path: Path) -> None:
    """Epochs of 1, 2, 4... releases; the fourth has begun after seven."""
    found = loop(tmp_path, 12, "", OPEN)
    assert found["faults"] == [] and found["rounds"] == 12 and found["releases"] > 7


@pytest.mark.slow
@pytest.mark.parametrize("broken", sorted(BROKEN))
def test_services_broken_on_purpose_are_caught(tmp_path: Path, broken: str) -> None:
    assert loop(tmp_path, 4, broken)["faults"]
