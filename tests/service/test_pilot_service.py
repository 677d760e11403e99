"""A pilot over HTTP: arms, actions, outcomes, what is shown, and what is not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from service.serving import Service, serving
from test_cli import call

import privrl
from privrl.privacy.store.errors import StudyMismatchError
from privrl.service import opening
from privrl.service.opening import begin_study
from privrl.service.operator_endpoints import ENDPOINTS as OPERATOR
from privrl.service.study_file import StudyFile, read_study_file
from privrl.studies.live.live_pilot import Pilot
from privrl.studies.results.binding import policy_sha256
from privrl.studies.results.pilot_record import PilotRecord

PATIENCE = 100
PEOPLE = 40


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved policy, learnt from a small world."""
    result = privrl.fit("env:riverswim", "dp-apvi", epsilon=1, delta=1e-6, episodes=200, key=0)
    return result.save(tmp_path_factory.mktemp("learnt") / "policy")


def pilot_file(folder: Path, policy: Path, name: str = "trial", **changed: Any) -> StudyFile:
    """A protocol, begun."""
    (folder / "policy").symlink_to(policy)
    settings: dict[str, Any] = {"epsilon": 60.0, "delta": 1e-6, "looks": 4, "patience": PATIENCE, **changed}
    sha256 = policy_sha256(privrl.Result.load(policy).policy)
    arms = (privrl.Arm("practice"), privrl.Arm("advice", policy="policy", sha256=sha256))
    protocol = privrl.Protocol(name, PEOPLE, arms, privrl.Outcome("survival"), **settings)
    path = folder / "pilot.toml"
    path.write_text(protocol.to_toml() + '\n[serve]\nstore = "trial.db"\n')
    file = read_study_file(path)
    begin_study(file)
    return file


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms and noise of one seed."""
    monkeypatch.setattr(opening, "Pilot", lambda protocol, **how: Pilot(protocol, key=5, **how))


def arrive(service: Service, name: Any, **more: Any) -> Any:
    reply = service.ask("POST", "tickets", {"user": str(name), **more})
    assert reply.status == 200, reply.body
    return reply.json


def enrol(service: Service, clock: Clock, numbers: Any, better: float = 1.0) -> list[Any]:
    """People arrive, one a second, and leave an outcome."""
    found = []
    for i in numbers:
        clock.time += 1
        found.append(arrive(service, i))
        value = better if found[-1]["arm"] == "advice" else float(i % 10 == 0)
        sent = {"ticket": found[-1]["ticket"], "outcomes": {"survival": value}}
        assert service.ask("POST", "outcomes", sent).status == 204
    return found


@pytest.mark.first
def test_people_get_their_arm_and_what_is_better_is_served_at_once(tmp_path: Path, policy: Path, seeded: None) -> None:
    clock = Clock(1000)
    with serving(pilot_file(tmp_path, policy), clock) as service:
        first = enrol(service, clock, range(20))
        assert {one["arm"] for one in first} == {"practice", "advice"}
        assert [arrive(service, i) for i in range(20)] == first
        query = {"state": 0, "step": 0}
        actions = [service.ask("POST", "actions", {"ticket": one["ticket"], **query}).json["action"] for one in first]
        assert [action is None for action in actions] == [one["arm"] == "practice" for one in first]
        assert service.ask("GET", "").json["looks"] == []
        refused = service.ask("POST", "actions", query)
        assert refused.reason == "unknown-ticket" and "The trial goes on" in refused.json["detail"]
        clock.time += PATIENCE
        new = [arrive(service, f"new {i}") for i in range(30)]
        shown = service.ask("GET", "").json
        assert shown["serving"] == "advice" and "is better than practice" in shown["verdict"]
        assert {one["arm"] for one in new} == {"advice"} and {one["deadline"] for one in new} == {None}
        assert arrive(service, 0) == first[0]
        served = service.ask("POST", "actions", query).json  # without a ticket
        assert isinstance(served["action"], int) and served["plan"] == len(shown["looks"])
        assert service.ask("POST", "actions", {"state": 10**6, "step": 0}).reason == "out-of-range"
        assert service.served.view.last_release == 1000 + 10 * len(shown["looks"]) + PATIENCE
        late = {"ticket": first[0]["ticket"], "outcomes": {"survival": 0.0}}
        assert service.ask("POST", "outcomes", late).status == 204
        certificate = service.ask("GET", "certificate").json["certificate"]
        assert certificate["bounds"]["protocol sha256"] == shown["sha256"]
    record = PilotRecord.load(tmp_path / "pilot")
    assert record.sentence == shown["verdict"] and record.protocol.sha256 == shown["sha256"]


def conducted(folder: Path, policy: Path, often: int) -> tuple[Any, ...]:
    """A trial whose service is opened again after every `often` people: arms, sums, releases."""
    folder.mkdir()
    clock, file, arms = Clock(1000), pilot_file(folder, policy), []
    for first in range(0, PEOPLE, often):
        with serving(file, clock) as service:
            arms += [one["arm"] for one in enrol(service, clock, range(first, first + often), better=0.0)]
    clock.time += PATIENCE
    found = call("serve", "check", file.path)
    assert found.code == 0 and f"full: {PEOPLE}" in found.out and "without a ticket" not in found.out  # they get one
    with serving(file, clock) as service:
        shown = service.ask("GET", "").json
        assert service.ask("POST", "actions", {"state": 0, "step": 0}).json["action"] is None  # practice is served

        def kept(store: Any) -> Any:
            names = sorted(name for (name,) in store._engine.execute("SELECT name FROM sums").fetchall())
            sums = {name: np.asarray(store.total(name)).tolist() for name in names}
            return sums, {row["name"]: store.value(row["name"]).tolist() for row in store.describe()["releases"]}

        return arms, shown, service.run(service.served.run_in_writer(kept))


def test_a_trial_that_is_interrupted_is_the_trial_that_is_not(tmp_path: Path, policy: Path, seeded: None) -> None:
    whole, parts = (conducted(tmp_path / str(often), policy, often) for often in (PEOPLE, 10))
    assert whole == parts and len(whole[1]["looks"]) == 4


def test_outcomes_and_groups_are_checked_before_they_are_counted(tmp_path: Path, policy: Path) -> None:
    with serving(pilot_file(tmp_path, policy), Clock(1000)) as service:
        ticket = arrive(service, "a")["ticket"]
        for outcomes in ({"alive": 1.0}, {"survival": 1.0, "more": 0.5}):
            reply = service.ask("POST", "outcomes", {"ticket": ticket, "outcomes": outcomes})
            assert reply.reason == "bad-record" and "alive" not in reply.json["detail"]
        assert service.ask("POST", "outcomes", {"ticket": ticket, "outcomes": {"survival": "1"}}).reason == "malformed"
        assert service.ask("POST", "tickets", {"user": "b", "groups": {"sex": "female"}}).reason == "malformed"
        assert service.ask("POST", "episodes", {"ticket": ticket, "steps": []}).reason == "not-offered"
        assert service.ask("GET", "plan").reason == "not-offered"
        both = [{"ticket": ticket, "outcomes": {}}, {"ticket": "x", "outcomes": {}}]
        assert service.ask("POST", "outcomes:batch", {"records": both}).reason == "unknown-ticket"
        assert service.ask("POST", "outcomes:batch", {"records": both[:1]}).status == 204
        broken = ticket[:-8] + ("A" if ticket[-8] != "A" else "B") + ticket[-7:]
        assert service.ask("POST", "actions", {"ticket": broken, "state": 0, "step": 0}).reason == "unknown-ticket"


def test_a_changed_protocol_or_policy_is_refused(tmp_path: Path, policy: Path) -> None:
    file = pilot_file(tmp_path, policy)
    text = file.path.read_text()
    file.path.write_text(text.replace("epsilon = 60.0", "epsilon = 60.5"))
    with pytest.raises(StudyMismatchError, match=r"differs in the protocol\."):
        begin_study(read_study_file(file.path))
    file.path.write_text(text.replace('sha256 = "', 'sha256 = "0'))
    with pytest.raises(ValueError, match="not the one that the protocol names"), serving(read_study_file(file.path)):
        pass
    other = file.path.with_name("other.toml")
    other.write_text(file.path.read_text().replace('"trial.db"', '"other.db"'))
    with pytest.raises(ValueError, match="not the one that the protocol names"):  # before it is declared for good
        begin_study(read_study_file(other))
    assert not list(tmp_path.glob("other.db*"))
    file.path.write_text(text + "queue = 5000\n")  # a setting of the service
    begin_study(read_study_file(file.path))
    (tmp_path / "policy").unlink()
    found = call("serve", "check", file.path)
    assert found.code == 2 and "The policy of the arm `advice` cannot be read" in found.err


def test_a_pilot_is_paid_for_by_a_shared_budget(tmp_path: Path, policy: Path) -> None:
    path = pilot_file(tmp_path, policy).path
    other = path.with_name("other.toml")
    other.write_text(path.read_text().replace('store = "trial.db"', 'store = "other.db"'))
    file = read_study_file(other)
    budget = privrl.SharedBudget.create(tmp_path / "users.budget", epsilon=70.0, delta=1e-5, unit=file.unit)
    begin_study(file, budget)
    assert len(budget.studies()) == 1


def test_a_pilot_of_a_shared_budget_states_its_unit_where_the_guide_says(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, `unit` was an unknown entry of a pilot file, and the refusal spoke of a table, which a pilot has not."""
    monkeypatch.chdir(tmp_path)
    terms = ("--epsilon", "70", "--delta", "1e-5")
    assert call("budget", "init", "patients.budget", *terms, "--unit", "patient_id").code == 0
    init = ("pilot", "init", policy, "--people", "40", "--epsilon", "60", "--delta", "1e-6", "--out", "pilot.toml")
    init += ("--looks", "2", "--low", "0", "--high", "1")
    assert call(*init).code == 0
    assert Path("pilot.toml").read_text().startswith('unit = "user"')  # of the fit
    begin = ("serve", "init", "pilot.toml", "--budget", "patients.budget")
    refused = call(*begin)
    assert refused.code == 2 and 'write `unit = "patient_id"` before the first table' in refused.err
    assert "table with this column" not in refused.err
    assert not list(tmp_path.glob("pilot.db*")) and not list(tmp_path.glob("*.audit.log"))
    protocol = privrl.Protocol.read("pilot.toml")
    assert call(*init, "--overwrite", "--unit", "patient_id").code == 0
    assert privrl.Protocol.read("pilot.toml").sha256 == protocol.sha256
    assert read_study_file(Path("pilot.toml")).unit == "patient_id"
    begun = call(*begin)
    assert begun.code == 0, begun.err
    assert call("serve", "check", "pilot.toml").code == 0
    text = Path("pilot.toml").read_text()
    for added in ('[serve]\nunit = "user"\n', "[serve]\nunits = 'a'\n"):
        Path("pilot.toml").write_text(f"{text}\n{added}")
        with pytest.raises(ValueError, match="given twice|`serve.units` is unknown"):
            read_study_file(Path("pilot.toml"))
    for wrong in ("3", '""'):
        Path("pilot.toml").write_text(text.replace('"patient_id"', wrong, 1))
        with pytest.raises(ValueError, match="`unit`: Expected `str`"):
            read_study_file(Path("pilot.toml"))


@pytest.mark.first
def test_what_is_shown_and_logged_does_not_depend_on_outcomes_before_a_look(tmp_path: Path, policy: Path) -> None:
    """Two worlds with the same arrivals: in one of them no outcome is sent, in the other all are."""
    seen = []
    for sent in (False, True):
        folder = tmp_path / str(sent)
        folder.mkdir()
        clock, file = Clock(1000), pilot_file(folder, policy)
        operator = file.keys.add("operator", "operator")
        with serving(file, clock) as service:
            for i in range(15):
                ticket = arrive(service, i)["ticket"]
                if sent:
                    content = {"ticket": ticket, "outcomes": {"survival": 0.123}}
                    assert service.ask("POST", "outcomes", content).status == 204
            shown = [service.ask("GET", ""), service.ask("GET", "certificate")]
            service.offer(OPERATOR)
            local = {"host": "127.0.0.1"}
            shown += [
                service.ask("GET", path, key=operator, headers=local)
                for path in ("/operator/studies/trial", "/operator/", "/metrics")
            ]
            assert all(one.status == 200 for one in shown)
            log = [json.loads(line) for line in file.log_place.read_text().splitlines()]
            assert "0.123" not in json.dumps(log) and "contribut" not in json.dumps(log)
            status = shown[2].json
            seen.append((shown[0].json, len(log), {key: status[key] for key in ("tickets", "plan", "pilot")}))
    assert seen[0][1:] == seen[1][1:]
    assert seen[0][0]["looks"] == seen[1][0]["looks"] == []
