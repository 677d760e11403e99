"""A central study without a known end over HTTP: epochs, restarts, two services, deadlines, people who come back."""

import asyncio
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from clocks import Clock
from service.serving import OPEN, Reply, Service, serving, study_file
from service.test_operator import Running, operators

import privrl
from privrl.mdp.types import Trajectory
from privrl.service.study_file import StudyFile
from privrl.studies.open_ended import OpenEnded

STEP = {"state": 0, "action": 1, "reward": 0.5}


def arrived(service: Service, came: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tickets of people who come in this order, at once."""

    async def at_once() -> list[Reply]:
        return await asyncio.gather(*(service.asking("POST", "tickets", one) for one in came))

    return [reply.json for reply in service.run(at_once())]


def crowd(service: Service, people: range, *steps: dict[str, Any]) -> list[dict[str, Any]]:
    """People arrive, and their records are posted together: their tickets."""
    found = arrived(service, [{"user": person} for person in people])
    records = [{"ticket": one["ticket"], "steps": list(steps)} for one in found]
    assert service.ask("POST", "episodes:batch", {"episodes": records}).status == 204
    return found


def test_two_services_and_a_restart_over_epochs(tmp_path: Path, place: Path | str) -> None:
    """Blocks of 20 people, in epochs of 1, 2 and 4 releases: no number twice, and every process makes the same plans.

    A record that comes after its block has closed is answered alike and adds nothing."""
    clock, file = Clock(), study_file(tmp_path, OPEN, place)
    ends = file.ends()
    assert ends[:4].tolist() == [20, 40, 60, 81] and ends[-1] == 400
    plans, late = [], ""
    with serving(file, clock) as one, serving(file, clock) as two:
        for block, service in enumerate((one, two)):
            found = crowd(service, range(20 * block, 20 * (block + 1)), STEP)
            assert [int(ticket["number"]) for ticket in found] == list(range(20 * block, 20 * (block + 1)))
            late = found[0]["ticket"]
            clock.time += 1_000.0
            newest = [each.ask("POST", "tickets", {"user": 0}) and each.ask("GET", "plan") for each in (one, two)]
            assert newest[0].json["plan"] == block + 1 and newest[0].body == newest[1].body
            plans.append(newest[0].body)
    with serving(file, clock) as again:
        assert again.ask("GET", "plan").body == plans[-1]
        assert again.ask("POST", "tickets", {"user": 20}).json["ticket"] == late
        before = again.run(again.served.run_in_writer(lambda store: store.count("block 1, plan 1")))
        answer = again.ask("POST", "episodes", {"ticket": late, "steps": [STEP, STEP]})
        assert (answer.status, answer.body) == (204, b"")
        assert again.run(again.served.run_in_writer(lambda store: store.count("block 1, plan 1"))) == before == 20
        crowd(again, range(40, 60), STEP)
        clock.time += 1_000.0
        assert again.ask("POST", "tickets", {"user": "next"}).json["plan"] == 3  # the third epoch has begun
        certificate = again.ask("GET", "certificate").json["certificate"]
        assert certificate["epsilon"] <= 1.0 and any("open-ended" in note for note in certificate["notes"])


COMING: list[tuple[str, list[tuple[int, str]]]] = [  # who comes in each second, with the names of visits
    ("first", [(person, "a") for person in range(20)]),
    ("back", [(0, "b"), (1, "b"), (0, "c"), *((person, "a") for person in range(20, 41))]),
    ("again", [(0, "d"), (2, "b"), (0, "b"), *((person, "a") for person in range(41, 62))]),
]


def test_people_who_come_back_over_epochs_as_an_agent_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 3 visits of a person over all epochs, a block or more apart: the service with a test's key makes the
    plans of an `Agent` with this key to which the same people come one by one."""
    seed, settings = jax.random.key(5), {"max_episodes_per_unit": 3, "min_block_distance": 1}
    monkeypatch.setattr("privrl.service.opening.Agent", functools.partial(privrl.Agent, key=seed))  # tests only
    file, clock = study_file(tmp_path, OPEN, **settings), Clock(0.0)
    with serving(file, clock) as service:
        for _, came in COMING:
            tickets = arrived(service, [{"user": user, "visit": visit} for user, visit in came])
            records = [{"ticket": one["ticket"], "steps": [STEP]} for one in tickets]
            assert service.ask("POST", "episodes:batch", {"episodes": records}).status == 204
            clock.time += 1_000.0
        service.ask("POST", "tickets", {"user": 0, "visit": "a"})
        served = service.served._agent._plans
        over_http = [np.asarray(served[number].policy.probabilities) for number in range(served.closed + 1)]
        summary = service.ask("GET", "").json
    clock.time = 0.0
    with privrl.ReleaseStore(tmp_path / "agent.db") as store:
        agent = privrl.Agent(
            file.learner(),
            file.privatizer(),
            num_users=file.people,
            store=store,
            patience=1_000.0,
            clock=clock,
            key=seed,
            **settings,
        )
        record = Trajectory.from_steps([STEP], horizon=4)
        for _, came in COMING:
            agent.end_episodes([(agent.begin_episode(*who), record) for who in came])
            clock.time += 1_000.0
        plans = agent.plans
        assert plans.closed == 3 and "records per unit: 3" in str(agent.certificate)
        for number, found in enumerate(over_http):
            np.testing.assert_array_equal(found, plans[number].policy.probabilities)
    assert len(over_http) == 4
    assert (summary["users"], summary["places"]) == (None, 400)
    assert (summary["max_episodes_per_unit"], summary["min_block_distance"]) == (3, 1)


def test_the_operator_sees_epochs_and_no_number_of_people(tmp_path: Path) -> None:
    clock, file = Clock(), study_file(tmp_path, OPEN)
    key = operators(file)
    with serving(file, clock) as service:
        running = Running(service, {"operator": key, "app": service.key})
        crowd(service, range(21))
        clock.time += 1_000.0
        service.ask("POST", "tickets", {"user": 0})
        status = running.look("/operator/studies/river").json
        assert (status["users"], status["plan"], status["epoch"], status["tickets"]) == (None, 1, 2, 21)
        html = running.look("/operator/").body.decode()
        assert "1 blocks are closed, so plan 1 is the newest; the next release is in epoch 2." in html
        assert "there are 400 places" in html and "60 people and more" in html
        metrics = running.look("/metrics").body.decode()
        assert 'privrl_epoch{study="river"} 2.0' in metrics
        assert not any(f"{name}{{" in metrics for name in ("privrl_people_declared", "privrl_blocks"))


def test_when_all_places_are_taken_it_says_how_many(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, OPEN.replace("first = 1, ceiling = 400", "ceiling = 2")), Clock()) as service:
        crowd(service, range(2))
        full = service.ask("POST", "tickets", {"user": 2})
        assert full.reason == "full" and "All 2 places" in full.json["detail"]
        assert service.ask("POST", "tickets", {"user": 1}).status == 200


def test_by_default_there_are_more_places_than_anybody_needs(tmp_path: Path) -> None:
    file: StudyFile = study_file(tmp_path, OPEN.replace("{ first = 1, ceiling = 400 }", "true"))
    assert file.people == OpenEnded() and file.ends()[-1] == 2**24 and len(file.ends()) < 256
