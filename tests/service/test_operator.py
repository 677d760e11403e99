"""The operator's port: who may see it, what it shows, and that nothing on it depends on a record."""

import asyncio
import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clocks import Clock
from service.serving import CENTRAL, LOCAL, Reply, Service, serving, study_file

from privrl.service import application
from privrl.service.counters import Counters
from privrl.service.metrics import NAMES, PROCESS_NAMES
from privrl.service.operator_endpoints import ENDPOINTS
from privrl.service.probes import LOOP, WRITER, probe
from privrl.service.public_endpoints import ENDPOINTS as PUBLIC
from privrl.service.served_studies import AbstractServedStudy, ServedStudies
from privrl.service.study_file import StudyFile

PLACES = ("/operator/", "/operator/studies", "/operator/studies/river", "/metrics")


class Running:
    """ServedStudies with the applications of both listeners in one, and keys."""

    def __init__(self, service: Service, keys: dict[str, str]) -> None:
        self.service, self.studies, self.keys = service, service.studies, keys
        service.offer((*ENDPOINTS, *PUBLIC))

    def ask(self, method: str, path: str, content: Any = None, *, key: str = "", headers: Any = None) -> Reply:
        given = {"host": "127.0.0.1:8081", **(headers or {})}
        return self.service.ask(method, path, content, key=self.keys.get(key, key), headers=given)

    def look(self, path: str, key: str = "operator", headers: Any = None) -> Reply:
        return self.ask("GET", path, key=key, headers=headers)


def operators(file: StudyFile) -> str:
    return file.keys.add("operator", "first operator")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    river, phone = study_file(folder / "river", CENTRAL), study_file(folder / "phone", LOCAL)
    keys = {"operator": operators(river), "phone": operators(phone)}
    with serving(river) as service, serving(phone) as other:
        service.studies = ServedStudies([service.served, other.served])
        yield Running(service, keys | {"app": service.key})


# ------------------------------------------------------------------------------------------------------- who may see


@pytest.mark.parametrize("path", PLACES[1:])
def test_everything_needs_an_operators_key(running: Running, path: str) -> None:
    assert running.look(path, "").reason == "no-key"
    for wrong in ("app", "prk_nonsense"):
        assert running.look(path, wrong).reason == "wrong-key"
    assert running.look(path).status == 200


def test_the_page_asks_browsers_for_a_password(running: Running) -> None:
    asked = running.look("/operator/", "")
    assert asked.status == 401 and asked.headers["www-authenticate"].startswith("Basic ")
    for user in ("", "anna"):
        password = base64.b64encode(f"{user}:{running.keys['operator']}".encode()).decode()
        assert running.look("/operator/", "", headers={"authorization": f"Basic {password}"}).status == 200
    for bad in ("%%%", base64.b64encode(b"no colon").decode(), base64.b64encode(b"a:b").decode()):
        assert running.look("/operator/", "", headers={"authorization": f"Basic {bad}"}).status == 401


@pytest.mark.parametrize("change", ["pause", "resume", "purge"])
def test_a_browser_cannot_be_made_to_change_anything(running: Running, change: str) -> None:
    """Browsers add a password by themselves to a form on somebody else's page; never a bearer's key."""
    password = base64.b64encode(f"x:{running.keys['operator']}".encode()).decode()
    path = f"/operator/studies/river:{change}"
    refused = running.ask("POST", path, headers={"authorization": f"Basic {password}"})
    assert refused.reason == "no-key"
    assert running.look(path).reason == "unknown-study"  # a status of `river:pause`
    assert running.studies.find("river").state == "ready"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8081", "", "localhost@evil.example"])
def test_another_host_is_refused_before_the_key_is_looked_at(running: Running, host: str) -> None:
    for path in PLACES:
        refused = running.look(path, headers={"host": host})
        assert refused.status == 421 and refused.reason == "wrong-host"
    for fine in ("localhost:8081", "[::1]:8081", "127.0.0.1"):
        assert running.look("/metrics", headers={"host": fine}).status == 200


def test_two_hosts_are_none(running: Running) -> None:
    """A proxy may look at one of them, and the service at the other."""
    seen = running.service.run(_twice(running, "127.0.0.1:8081", "evil.example"))
    assert seen == running.service.run(_twice(running, "evil.example", "127.0.0.1:8081")) == 421


async def _twice(running: Running, *hosts: str) -> int:
    headers = [(b"host", host.encode()) for host in hosts]
    headers.append((b"authorization", f"Bearer {running.keys['operator']}".encode()))
    scope = {"type": "http", "method": "GET", "path": "/operator/studies", "root_path": "", "headers": headers}
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    await running.service.app(scope, receive, send)
    return statuses[0]


def test_a_key_shows_the_studies_that_it_is_for(running: Running) -> None:
    names = {
        key: [one["name"] for one in running.look("/operator/studies", key).json["studies"]]
        for key in ("operator", "phone")
    }
    assert names == {"operator": ["river"], "phone": ["phone"]}
    assert running.look("/operator/studies/phone").reason == "wrong-key"
    for path in ("/operator/", "/metrics"):
        assert b"phone" not in running.look(path).body


# ----------------------------------------------------------------------------------------------------- what it shows


def test_the_budget_of_a_local_study_is_that_of_all_reports_of_a_device(tmp_path: Path) -> None:
    file = study_file(tmp_path, LOCAL, max_episodes_per_unit=3)
    key = operators(file)
    with serving(file) as service:
        html = Running(service, {"operator": key}).look("/operator/").body.decode()
        assert "epsilon = 1, for all 3 reports of each person" in html and "epsilon = 1 at delta = 0" in html
        assert "40 reports<" in html


def test_the_page_runs_and_fetches_nothing(running: Running) -> None:
    answered = running.look("/operator/")
    html = answered.body.decode()
    policy = answered.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and answered.headers["cache-control"] == "no-store"
    assert not re.search(r"<script|<form|<img|<link|\son\w+=|\sstyle=|https?:|//", html)
    for words in ("river", "Budget", "releases of transitions", "epsilon = 1", "Certificate", "Refused requests"):
        assert words in html


def test_names_and_reasons_are_escaped(running: Running) -> None:
    """Names of keys are the operator's own words, and may be anything."""
    river = running.studies.find("river")
    river.file.keys.add("app", '<b onclick="x">&')
    with river.file.keys.open() as store:
        river.keys.read(store)
    html = running.look("/operator/").body.decode()
    assert "<b onclick" not in html and "&lt;b onclick" in html


def test_metrics_are_a_fixed_list_without_people(running: Running) -> None:
    running.ask("POST", "tickets", {"user": "anna-the-first"}, key="app")
    text = running.look("/metrics").body.decode()
    found = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    found = {re.sub("_(total|bucket|count|sum|created)$", "", name) for name in found}
    assert found <= {*NAMES, *PROCESS_NAMES} and "process_start_time_seconds" in found
    assert {"privrl_build_info", "privrl_failures", "privrl_seconds", "privrl_clock_behind_seconds"} <= found
    labels = set(re.findall(r'(\w+)="', text))
    assert labels <= {"study", "pool", "status", "reason", "what", "le", "version", "python"}
    assert "anna" not in text and 'privrl_people_declared{study="river"} 40.0' in text


def test_pausing_stops_people_and_resuming_lets_them_in(running: Running) -> None:
    change = "/operator/studies/river:{}".format
    try:
        paused = running.ask("POST", change("pause"), key="operator")
        assert paused.status == 200 and paused.json["state"] == "paused"
        refused = running.ask("POST", "tickets", {"user": "late"}, key="app")
        assert refused.reason == "paused" and "retry-after" in refused.headers
    finally:
        resumed = running.ask("POST", change("resume"), key="operator")
    assert resumed.json["state"] == "ready"
    assert running.ask("POST", "tickets", {"user": "late"}, key="app").status == 200


def test_purging_ends_a_study_and_keeps_its_certificate(tmp_path: Path) -> None:
    file = study_file(tmp_path, CENTRAL)
    key = operators(file)
    with serving(file) as service:
        running = Running(service, {"operator": key, "app": service.key})
        ticket = running.ask("POST", "tickets", {"user": "anna"}, key="app").json["ticket"]
        running.ask("POST", "episodes", {"ticket": ticket, "steps": []}, key="app")
        for body in (None, {"study": "lake"}):
            refused = running.ask("POST", "/operator/studies/river:purge", body, key="operator")
            assert refused.reason == "not-confirmed" and refused.status == 409
        assert running.ask("POST", "/operator/studies/river:purge", b"{", key="operator").reason == "malformed"
        for _ in range(2):
            purged = running.ask("POST", "/operator/studies/river:purge", {"study": "river"}, key="operator")
            assert purged.status == 200 and purged.json["state"] == "purged"
        assert running.ask("POST", "tickets", {"user": "ben"}, key="app").reason == "purged"
        assert running.ask("GET", "certificate").json["certificate"]["epsilon"] <= 1.0
        assert "raw sums are deleted" in running.look("/operator/").body.decode()
    assert '"kind":"purge"' in file.log_place.read_text().splitlines()[-1]


def test_a_purge_that_the_store_refuses_is_explained(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: object) -> None:
        raise PermissionError("DELETE on anna's digests")

    monkeypatch.setattr(AbstractServedStudy, "purge", refused)
    answered = running.ask("POST", "/operator/studies/river:purge", {"study": "river"}, key="operator")
    assert answered.reason == "not-purged" and b"anna" not in answered.body and b"privrl store purge" in answered.body


def test_probes_measure_the_loop_and_the_writer(running: Running) -> None:
    async def work() -> None:
        task = asyncio.create_task(probe(running.studies, every=0.005))
        await asyncio.sleep(0.6)
        task.cancel()

    asyncio.run(work())
    assert running.studies.counters.seconds[LOOP].quantile(0.5) is not None
    river: Counters = running.studies.find("river").counters
    assert sum(river.seconds[WRITER].counts) and river.last_probe is not None


# ------------------------------------------------------------------------------- nothing on it depends on a record


RECORDS: dict[str, Any] = {
    "short": [{"state": 0, "action": 1, "reward": 0.0}],
    "long": [{"state": s, "action": 0, "reward": 0.5} for s in (0, 1, 2, 1)],
    "unreadable": [{"state": 99, "action": 0, "reward": 0.0}],
    "too large": [{"state": 0, "action": 0, "reward": 0.0}] * 3_000,
    "not JSON": b"{",
    "never": None,
}


def shown_with(folder: Path, what: str) -> list[tuple[int, bytes]]:
    """Page, status and metrics after three people, of whom one has a given record (or none) and so many steps."""
    file = study_file(folder, CENTRAL)
    key = operators(file)
    with serving(file, Clock()) as service:
        running = Running(service, {"operator": key, "app": service.key})
        tickets = [running.ask("POST", "tickets", {"user": user}, key="app").json["ticket"] for user in "abc"]
        records = [RECORDS["short"], RECORDS[what], RECORDS["long"]]
        for ticket, steps in zip(tickets, records, strict=True):
            if steps is None:
                continue
            for step in range(len(steps) % 7):
                running.ask("POST", "actions", {"ticket": ticket, "state": 9 * step, "step": 0}, key="app")
            body = steps if isinstance(steps, bytes) else {"ticket": ticket, "steps": steps}
            running.ask("POST", "episodes", body, key="app")
        return [(one.status, without_load(one.body)) for one in (running.look(path) for path in PLACES)]


def without_load(body: bytes) -> bytes:
    """Without processor time and memory of the process, which vary with the load and are rounded."""
    return re.sub(rb"^process_(cpu|resident|open|start).*\n", b"", body, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "other",
    [
        "never",
        pytest.param("long", marks=pytest.mark.slow),
        "unreadable",
        *(pytest.param(what, marks=pytest.mark.slow) for what in ("too large", "not JSON")),
    ],
)
def test_nothing_depends_on_a_record(tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is released, what an operator sees is the same to the byte whatever one person did."""
    monkeypatch.setattr(application.time, "perf_counter", lambda: 0.0)  # durations may differ
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    assert shown_with(tmp_path / "one", "short") == shown_with(tmp_path / "other", other)


def test_nothing_shows_who_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several visits count, how often one person comes is as secret as a record."""
    monkeypatch.setattr(application.time, "perf_counter", lambda: 0.0)  # durations may differ
    seen = []
    for visits in (0, 3):
        file = study_file(tmp_path / str(visits), CENTRAL, max_episodes_per_unit=3)
        key = operators(file)
        with serving(file, Clock()) as service:
            running = Running(service, {"operator": key, "app": service.key})
            for user in "abc":
                running.ask("POST", "tickets", {"user": user, "visit": "first"}, key="app")
            for number in range(visits):
                content = {"user": "b", "visit": f"again {number}"}
                ticket = running.ask("POST", "tickets", content, key="app").json["ticket"]
                running.ask("POST", "episodes", {"ticket": ticket, "steps": RECORDS["short"]}, key="app")
            answers = [running.look(path) for path in PLACES]
            seen.append([(one.status, without_load(one.body)) for one in answers])
    assert seen[0] == seen[1]
