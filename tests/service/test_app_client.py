"""The client for apps, against a running service whose answers get lost or are refused for a while."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_imports import ARROW, HEAVY, NUMPY, imported

from privrl.service import AppClient, Arrival, AsyncAppClient, ServiceError

from .door import BUSY, Door
from .serving import CENTRAL, Reply, Service, serving, study_file

STEPS = [{"state": 0, "action": 1, "reward": 0.0, "next_state": 1}, {"state": 1, "action": 1, "reward": 0.0}]


@pytest.fixture(autouse=True)
def connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[AppClient] = []
    begin = AppClient.__init__

    def noted(self: AppClient, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(self)

    monkeypatch.setattr(AppClient, "__init__", noted)
    yield
    for one in made:
        one.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(study_file(tmp_path, CENTRAL, users=3)) as made:
        yield made


@pytest.fixture
def door(service: Service) -> Iterator[Door]:
    with contextlib.closing(Door(service)) as made:
        yield made


def test_it_imports_neither_jax_nor_the_service() -> None:
    found = imported("from privrl.service import AppClient, AsyncAppClient")
    assert not found & (HEAVY | ARROW | NUMPY | {"starlette", "msgspec"})


def test_people_arrive_act_and_finish_and_a_full_study_still_serves(service: Service, door: Door) -> None:
    with AppClient(door.url, service.key) as app:
        people = [app.arrive(f"person {i}") for i in range(3)]
        assert [one.number for one in people] == [0, 1, 2] and app.arrive("person 1") == people[1]
        extra = app.arrive("one too many")
        assert extra.ticket == "" and extra.number is None
        assert app.act(people[0], 0, 0) in (0, 1) and app.act(extra, 0, 0) in (0, 1)
        assert len(app.act_many([(one, 0, 0) for one in (*people, extra)])) == 4
        app.finish(people[0], STEPS)
        door.seen.clear()
        app.finish(extra, STEPS)
        assert door.seen == []
        app.finish_many([(one, STEPS) for one in (*people[1:], extra)])
        assert [what for what, _ in door.seen] == ["episodes:batch"]


def test_a_purged_study_serves_its_last_plan(service: Service, door: Door) -> None:
    with AppClient(door.url, service.key) as app:
        person = app.arrive("a")
        service.run(service.served.purge())
        assert app.arrive("b") == Arrival("") and app.act(app.arrive("b"), 0, 0) in (0, 1)
        app.finish(person, STEPS)  # too late to count
        assert door.seen[-1][0] == "episodes"


def test_a_lost_answer_is_asked_for_again_with_the_same_bytes(service: Service, door: Door) -> None:
    app = AppClient(door.url, service.key)
    door.fault = lambda number, reply: None if number in (1, 3) else reply
    person = app.arrive("a")
    app.finish(person, STEPS)
    (one, again), (two, twice) = door.seen[:2], door.seen[2:]
    assert one == again and two == twice and one[0] == "tickets" and two[0] == "episodes"
    door.fault = lambda number, reply: reply
    assert app.arrive("b").number == 1  # the repeated arrival took one place


def test_retry_after_is_respected_and_the_time_is_bounded(
    service: Service, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr("privrl.service.app_client.time", clock)
    door.fault = lambda number, reply: BUSY if number <= 2 else reply
    assert AppClient(door.url, service.key).arrive("a").number == 0
    assert pauses == [7.0, 7.0]
    door.fault = lambda number, reply: BUSY
    with pytest.raises(ServiceError, match="Too many") as caught:
        AppClient(door.url, service.key, retry_seconds=5).arrive("a")
    assert (caught.value.status, caught.value.reason, caught.value.retry_after) == (503, "busy", 7.0)
    assert len(pauses) == 2
    door.fault = lambda number, reply: Reply(502, {}, b"<html>")
    with pytest.raises(ServiceError) as caught:
        AppClient(door.url, service.key, retry_seconds=0).arrive("a")
    assert (caught.value.status, caught.value.reason, caught.value.retry_after) == (502, "", None)


def test_numbers_may_be_those_of_numpy(service: Service, door: Door) -> None:
    with AppClient(door.url, service.key) as app:
        person = app.arrive(np.int64(7))  # type: ignore[arg-type]
        assert person == app.arrive("7")
        action = app.act(person, np.int64(0), np.int32(0))  # type: ignore[arg-type]
        step = {"state": np.int64(0), "action": np.asarray(action), "reward": np.float32(0.5)}
        app.finish(person, [step])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="numbers and text"):
            app.finish(person, [{"state": object()}])  # type: ignore[dict-item]


def test_threads_that_come_and_go_leave_no_connections(service: Service, door: Door) -> None:
    """Some servers of apps have a thread for each request."""
    app = AppClient(door.url, service.key)
    for _ in range(5):
        one = threading.Thread(target=app.arrive, args=("a",))
        one.start()
        one.join()
    assert len(door.seen) == 5 and len(app._idle) == 1
    app.close()
    assert not app._idle and app.arrive("a").number == 0


def test_a_refusal_is_not_repeated(service: Service, door: Door) -> None:
    app = AppClient(door.url, service.key)
    person = app.arrive("a")
    door.seen.clear()
    for call, status, reason in (
        (lambda: AppClient(door.url, "prk_wrong").arrive("a"), 403, "wrong-key"),
        (lambda: app.act(person, 99, 0), 422, "out-of-range"),
        (lambda: app.finish(person, {"cured": 1.0}), 404, "not-offered"),
    ):
        with pytest.raises(ServiceError) as caught:
            call()
        assert (caught.value.status, caught.value.reason) == (status, reason)
    assert len(door.seen) == 3


def test_no_answer_has_status_0(service: Service, door: Door) -> None:
    door.fault = lambda number, reply: None
    with pytest.raises(ServiceError, match="did not answer") as caught:
        AppClient(door.url, service.key, retry_seconds=0).arrive("secret name")
    assert caught.value.status == 0 and "secret" not in str(caught.value)


def test_calls_can_be_awaited(service: Service, door: Door) -> None:
    app = AsyncAppClient(door.url, service.key)

    async def visit(user: str) -> int | None:
        person = await app.arrive(user)
        action = await app.act(person, 0, 0)
        assert await app.act_many([(person, 0, 0)]) in ([0], [1])
        await app.finish(person, STEPS)
        await app.finish_many([(person, STEPS)])
        return action

    async def everyone() -> list[int | None]:
        found = await asyncio.gather(*(visit(f"person {i}") for i in range(3)))
        await app.close()
        return found

    assert set(asyncio.run(everyone())) <= {0, 1}


def test_an_address_that_is_not_of_a_study_is_refused() -> None:
    with pytest.raises(ValueError, match="v1/studies/river"):
        AppClient("https://service.example", "prk_")
