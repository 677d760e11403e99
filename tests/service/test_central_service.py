"""A central study over HTTP: who gets what, answered alike, actions beside a busy writer, and every refusal."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from service.serving import CENTRAL, Reply, Service, serving, study_file

from privrl.privacy.store.errors import StoreError
from privrl.service import access
from privrl.service.central import CentralStudy
from privrl.service.served_studies import ServedStudies

STEP = {"state": 0, "action": 1, "reward": 0.5}


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def river(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Service]:
    with serving(study_file(tmp_path_factory.mktemp("river"), CENTRAL, users=4_000), clock) as service:
        yield service


def ticket(service: Service, user: str | int) -> str:
    return service.ask("POST", "tickets", {"user": user}).json["ticket"]


def episode(text: str, *steps: dict[str, Any]) -> dict[str, Any]:
    return {"ticket": text, "steps": list(steps)}


def until(condition: Any, seconds: float = 20.0) -> None:
    """Waits until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_same_id_has_the_same_ticket(river: Service) -> None:
    first = river.ask("POST", "tickets", {"user": 12})
    assert first.status == 200
    assert first == river.ask("POST", "tickets", {"user": "12"})
    other = river.ask("POST", "tickets", {"user": "012"}).json
    assert int(other["number"]) == int(first.json["number"]) + 1
    assert first.json["deadline"] == "1970-01-01T00:16:40Z" and first.json["plan"] == 0


def test_tickets_sent_at_once_are_numbered_once_each(river: Service) -> None:
    async def all_at_once() -> list[Reply]:
        return await asyncio.gather(*(river.asking("POST", "tickets", {"user": f"crowd {i % 50}"}) for i in range(100)))

    found = [reply.json for reply in river.run(all_at_once())]
    numbers = [int(one["number"]) for one in found]
    assert len(set(numbers)) == 50 and numbers[:50] == numbers[50:]
    assert max(numbers) - min(numbers) == 49


def test_actions_come_from_the_plan_of_the_ticket(river: Service) -> None:
    policy = np.array(river.ask("GET", "plan").json["probabilities"])
    text = ticket(river, "actor")
    for step, state in np.ndindex(policy.shape[:2]):
        seen = {
            river.ask("POST", "actions", {"ticket": text, "state": state, "step": step}).json["action"]
            for _ in range(12)
        }
        assert seen <= set(np.flatnonzero(policy[step, state]).tolist())
    queries = [{"ticket": text, "state": state, "step": 0} for state in (0, 2)]
    answers = river.ask("POST", "actions:batch", {"queries": queries}).json["answers"]
    assert [one["plan"] for one in answers] == [0, 0]


def test_a_plan_is_not_sent_again_to_who_has_it(river: Service) -> None:
    found = river.ask("GET", "plan")
    assert found.headers["etag"] == f'"{found.json["plan"]}"'
    again = river.ask("GET", "plan", headers={"if-none-match": found.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_what_anyone_may_see(river: Service) -> None:
    assert (
        river.ask("GET", "/readyz", key="").json
        == river.ask("GET", "/healthz", key="").json
        == river.ask("GET", "/readyz/river", key="").json
        == {"studies": {"river": "ready"}, "missing": {}}
    )
    summary = river.ask("GET", "", key="").json
    assert (summary["epsilon"], summary["delta"], summary["uses_rewards"]) == (1.0, 1e-6, False)
    (listed,) = river.ask("GET", "/v1/studies", key="").json["studies"]
    assert listed["name"] == "river" and listed["state"] == "ready"
    assert listed.items() - {("name", "river"), ("state", "ready"), ("recipe", "dp-ucbvi")} <= summary.items()
    assert (summary["states"], summary["actions"], summary["horizon"], summary["users"]) == (3, 2, 4, 4_000)
    certificate = river.ask("GET", "certificate", key="").json["certificate"]
    assert certificate["epsilon"] <= 1.0 and certificate["notion"] == "joint"


def test_counted_again_and_late_records_are_answered_alike(tmp_path: Path) -> None:
    """The same bytes and headers; a late one leaves the store as it was, and a plan follows without any request."""
    clock = Clock()
    with serving(study_file(tmp_path, CENTRAL), clock) as river:
        size = river.served.view.ends[0]
        texts = [ticket(river, i) for i in range(size)]
        answers = [river.ask("POST", "episodes", episode(texts[0], STEP)) for _ in range(2)]
        assert river.served.view.plan == 0
        clock.time += 1_000.0
        until(lambda: river.served.view.plan == 1)  # by the clock alone
        kept = river.content()
        answers.append(river.ask("POST", "episodes", episode(texts[-1], STEP)))  # late
        answers.append(river.ask("POST", "episodes", episode(texts[0])))  # late, and counted before
        answers.append(river.ask("POST", "episodes:batch", {"episodes": [episode(one, STEP) for one in texts]}))
        assert answers == [Reply(204, {"cache-control": "no-store"}, b"")] * 5
        assert river.content() == kept
        newcomer = river.ask("POST", "tickets", {"user": "new"}).json
        assert (newcomer["plan"], newcomer["deadline"]) == (1, "1970-01-01T00:33:20Z")
        assert river.ask("GET", "plan").json["plan"] == 1


def test_nothing_that_is_shown_depends_on_records(tmp_path: Path) -> None:
    """Two studies with the same arrivals, in one of which nobody ever posts a record or comes back: the operator sees
    the same."""
    seen = []
    for number, posting in enumerate((True, False)):
        clock = Clock()
        with serving(study_file(tmp_path / str(number), CENTRAL, max_episodes_per_unit=3), clock) as river:
            texts = [ticket(river, i) for i in range(4)]
            for again in range(70 if posting else 0):
                assert river.ask("POST", "tickets", {"user": 0, "visit": f"{again % 5}"}).status == 200
                assert river.ask("POST", "tickets", {"user": 0, "visits": 1}).reason == "malformed"
            for text in texts if posting else ():
                river.ask("POST", "actions", {"ticket": text, "state": 0, "step": 0})
                river.ask("POST", "episodes", episode(text, STEP))
                river.ask("POST", "episodes", episode(text, {**STEP, "state": 7}))
            view = river.run(river.served.refresh())
            counters = river.served.counters
            timed = sorted(counters.seconds), sum(counters.reports.counts)
            seen.append((view.plan, view.ends, view.shown["queues"], counters.refusals, timed, counters.arrivals))
    assert seen[0] == seen[1]


def test_actions_are_answered_while_the_writer_is_blocked(river: Service) -> None:
    """A count of answers, not a time: a hundred actions come while no commit can."""
    text = ticket(river, "somebody")
    free = threading.Event()

    async def blocked() -> tuple[list[int], bool, int]:
        working = asyncio.create_task(river.served.run_in_writer(lambda store: free.wait(60.0)))
        await asyncio.sleep(0)
        record = asyncio.create_task(river.asking("POST", "episodes", episode(text, STEP)))
        query = {"ticket": text, "state": 0, "step": 0}
        statuses = [(await river.asking("POST", "actions", query)).status for _ in range(100)]
        waiting = not record.done()
        free.set()
        await working
        return statuses, waiting, (await record).status

    assert river.run(blocked()) == ([200] * 100, True, 204)


def test_a_full_queue_takes_nothing(river: Service) -> None:
    text, free = ticket(river, "busy"), threading.Event()

    async def crowded() -> list[Reply]:
        working = asyncio.create_task(river.served.run_in_writer(lambda store: free.wait(60.0)))
        await asyncio.sleep(0.2)
        many = {"episodes": [episode(text)] * 1_000}
        crowd = [asyncio.create_task(river.asking("POST", "episodes:batch", many)) for _ in range(4)]
        await asyncio.sleep(0)
        while river.served.writer._waiting < 4_000:
            await asyncio.sleep(0.01)
        refused = await river.asking("POST", "episodes:batch", many)
        free.set()
        await working
        return [refused, *await asyncio.gather(*crowd)]

    refused, *answers = river.run(crowded())
    assert (refused.status, refused.reason, refused.headers["retry-after"]) == (503, "busy", "1")
    assert [answer.status for answer in answers] == [204] * 4


# ------------------------------------------------------------------------------------------------------------ refusals


def bad_requests(river: Service) -> dict[str, tuple[Any, ...]]:
    """What is refused, by name: reason, method, address, content and key."""
    text = ticket(river, "refused")
    mac = ("B" if text[0] == "A" else "A") + text[1:]
    keys = river.served.file.keys
    operator = keys.add("operator", "somebody") if "somebody" not in keys.read() else ""
    river.run(asyncio.sleep(1.2))  # the service reads the keys again
    query = {"ticket": text, "state": 0, "step": 0}
    post, record = "POST", {"steps": [STEP]}
    return {
        "no such address": ("not-found", "GET", "/v1/nothing"),
        "method": ("not-allowed", "GET", "episodes"),
        "study": ("unknown-study", "GET", "/v1/studies/lake"),
        "kind": ("not-offered", post, "reports"),
        "plans of devices": ("not-offered", "GET", "plans/0"),
        "no key": ("no-key", post, "actions", query, ""),
        "no key for a ticket": ("no-key", post, "tickets", {"user": 1}, ""),
        "unknown key": ("wrong-key", post, "actions", query, "prk_" + "x" * 43),
        "role": ("wrong-key", post, "tickets", {"user": 1}, operator or "prk_x"),
        "size": ("too-large", post, "actions", {**query, "ticket": "x" * 5_000}),
        "size of a record": ("too-large", post, "episodes", {**record, "ticket": "x" * 70_000}),
        "no JSON": ("malformed", post, "tickets", b"user=anna"),
        "no id": ("malformed", post, "tickets", {}),
        "id of a wrong kind": ("malformed", post, "tickets", {"user": 1.5}),
        "empty id": ("malformed", post, "tickets", {"user": ""}),
        "unknown entry": ("malformed", post, "tickets", {"user": 1, "name": "anna"}),
        "unknown entry named for a person": ("malformed", post, "tickets", {"user": 1, "anna": 1}),
        "in a batch too": ("malformed", post, "episodes:batch", {"episodes": [episode(text, {**STEP, "anna": 0})]}),
        "no Unicode": ("malformed", post, "tickets", b'{"user": "\\ud800"}'),
        "no UTF-8": ("malformed", post, "tickets", b'{"user": "\xff"}'),
        "nested": ("malformed", post, "tickets", b'{"user": ' + b"[" * 2_000 + b"}"),
        "nested in a record": ("malformed", post, "episodes", b'{"ticket": "x", "steps": ' + b"[" * 60_000),
        "unknown entry of a step": ("malformed", post, "episodes", episode(text, {**STEP, "name": 0})),
        "no next state": ("malformed", post, "episodes", episode(text, {**STEP, "next_state": None})),
        "large visit": ("malformed", post, "tickets", {"user": 1, "visit": 2**70}),
        "long visit": ("malformed", post, "tickets", {"user": 1, "visit": "x" * 101}),
        "another mac": ("unknown-ticket", post, "actions", {**query, "ticket": mac}),
        "text": ("unknown-ticket", post, "actions", {**query, "ticket": "anna"}),
        "no ASCII": ("unknown-ticket", post, "actions", {**query, "ticket": "änna"}),
        "ticket of a record": ("unknown-ticket", post, "episodes", {**record, "ticket": mac}),
        "state": ("out-of-range", post, "actions", {**query, "state": 3}),
        "step": ("out-of-range", post, "actions", {**query, "step": -1}),
        "in a batch": ("out-of-range", post, "actions:batch", {"queries": [query, {**query, "step": 4}]}),
        "too many": ("malformed", post, "actions:batch", {"queries": [query] * 1_001}),
        "nobody": ("malformed", post, "actions:batch", {"queries": []}),
        "unknown state": ("bad-record", post, "episodes", episode(text, {**STEP, "state": 3})),
        "unknown action": ("bad-record", post, "episodes", episode(text, {**STEP, "action": 2})),
        "unknown next state": ("bad-record", post, "episodes", episode(text, {**STEP, "next_state": 3})),
        "next state": ("bad-record", post, "episodes", episode(text, {**STEP, "next_state": 1}, STEP)),
        "below zero": ("bad-record", post, "episodes", episode(text, {**STEP, "state": -1})),
        "too long": ("bad-record", post, "episodes", episode(text, *[STEP] * 5)),
        "too large a reward": ("bad-record", post, "episodes", episode(text, {**STEP, "reward": 1e300})),
        "no number": ("malformed", post, "episodes", b'{"ticket": "x", "steps": [{"state": 0, "reward": NaN}]}'),
        "one of several": (
            "bad-record", post, "episodes:batch", {"episodes": [episode(text, STEP), episode(text, *[STEP] * 5)]}
        ),
    }  # fmt: skip


def test_a_next_state_that_contradicts_the_next_state_is_refused(river: Service) -> None:
    """In a batch too, where nothing is counted then; without a value in the words."""
    text, after = ticket(river, "contradicting"), {**STEP, "state": 2}
    kept = river.content()
    wrong = episode(text, STEP, {**STEP, "next_state": 1}, after)
    for what, body in (("episodes", wrong), ("episodes:batch", {"episodes": [episode(text, STEP), wrong]})):
        reply = river.ask("POST", what, body)
        assert (reply.status, reply.reason) == (422, "bad-record")
        assert "`next_state` of step 1 contradicts `state` of step 2." in reply.json["detail"]
    assert river.content() == kept
    for given in ({}, {"next_state": 2}, {"next_state": -1}):  # left out, the same, and not recorded
        assert river.ask("POST", "episodes", episode(text, {**STEP, **given}, after)).status == 204


def test_every_refusal_has_its_type_and_leaves_the_store_as_it_was(river: Service) -> None:
    requests = bad_requests(river)
    kept, shown = river.content(), river.describe()
    for name, (reason, method, path, *rest) in requests.items():
        content, key = (*rest, None, None)[:2] if len(rest) < 2 else rest
        reply = river.ask(method, path, content, key=key)
        assert reply.reason == reason, name
        assert "prk_" not in reply.json["detail"] and "anna" not in reply.json["detail"]
        assert (reply.headers.get("www-authenticate") == "Bearer") is (reason == "no-key")
    assert river.describe() == shown
    assert river.content() == kept


def test_a_study_that_is_full_knows_its_people(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, CENTRAL, users=3), Clock()) as river:
        found = [river.ask("POST", "tickets", {"user": i}) for i in range(3)]

        async def crowd() -> list[Reply]:
            return await asyncio.gather(*(river.asking("POST", "tickets", {"user": i}) for i in (0, 7, 1, 8)))

        kept = river.content()
        known, refused, other, last = river.run(crowd())
        assert (known, other) == (found[0], found[1])
        assert (refused.status, refused.reason, last.reason) == (410, "full", "full")
        assert "without a ticket" in refused.json["detail"]
        served = river.ask("POST", "actions", {"state": 0, "step": 0})
        assert served.status == 200 and served.json["plan"] == 0
        both = {"queries": [{"state": 0, "step": 0}, {"ticket": found[0].json["ticket"], "state": 0, "step": 0}]}
        assert len(river.ask("POST", "actions:batch", both).json["answers"]) == 2
        assert river.ask("POST", "actions", {"state": 3, "step": 0}).reason == "out-of-range"
        assert river.ask("POST", "actions", {"ticket": "x", "state": 0, "step": 0}).reason == "unknown-ticket"
        assert river.ask("POST", "actions", {"state": 0, "step": 0}, key="").reason == "no-key"
        assert river.content() == kept


def test_a_paused_study_takes_nobody_and_a_purged_one_neither(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, CENTRAL), Clock()) as river:
        text = ticket(river, "anna")
        river.served.paused = True
        kept = river.content()
        for path, content in (("tickets", {"user": "ben"}), ("episodes", episode(text, STEP))):
            assert river.ask("POST", path, content).reason == "paused"
        assert river.ask("POST", "actions", {"ticket": text, "state": 0, "step": 0}).status == 200
        assert river.content() == kept
        river.served.paused = False
        assert river.ask("POST", "episodes", episode(text, STEP)).status == 204
        river.run(river.served.purge())
        for path, content in (("tickets", {"user": "ben"}), ("episodes", episode(text, STEP))):
            assert river.ask("POST", path, content).reason == "purged"
        assert river.ask("GET", "certificate").status == 200
        assert river.ask("GET", "/healthz").json == {"studies": {"river": "purged"}, "missing": {}}
        file = river.served.file
    with serving(file, Clock()) as river:
        assert river.ask("POST", "tickets", {"user": "ben"}).reason == "purged"


# ----------------------------------------------------------------------------------------- failures and other servers


def test_a_revoked_key_is_refused_within_seconds_also_while_the_writer_is_busy(tmp_path: Path) -> None:
    """The command may run on another machine: all share the store, and no file of this one changes."""
    with serving(study_file(tmp_path, CENTRAL), Clock()) as river:
        text, free, keys = ticket(river, "anna"), threading.Event(), river.served.file.keys
        river.run(_in_writer(river, lambda store: free.wait(60.0)))
        query = {"ticket": text, "state": 0, "step": 0}
        other = keys.add("app", "other")
        until(lambda: river.ask("POST", "actions", query, key=other).status == 200)
        keys.revoke("other")
        until(lambda: river.ask("POST", "actions", query, key=other).status == 403)
        assert river.ask("POST", "actions", query).status == 200
        free.set()


def test_a_revoked_key_is_refused_by_every_machine(tmp_path: Path, place: Path | str) -> None:
    """Two services on one store, as on two machines; neither has a file of keys."""
    file = study_file(tmp_path, CENTRAL, place)
    with serving(file) as one, serving(file) as two:
        key = file.keys.add("app", "web shop")
        query = {"state": 0, "step": 0}
        for service in (one, two):
            until(lambda: service.ask("POST", "actions", query, key=key).status == 200)  # noqa: B023
        file.keys.revoke("web shop")
        for service in (one, two):
            until(lambda: service.ask("POST", "actions", query, key=key).status == 403)  # noqa: B023


def test_a_key_expires(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, CENTRAL), clock := Clock()) as river:
        query = {"ticket": ticket(river, "anna"), "state": 0, "step": 0}
        other = river.served.file.keys.add("app", "other", 3_600.0)
        until(lambda: river.ask("POST", "actions", query, key=other).status == 200)
        clock.time = time.time() + 3_500.0
        assert river.ask("POST", "actions", query, key=other).status == 200
        clock.time = time.time() + 3_700.0
        assert river.ask("POST", "actions", query, key=other).reason == "wrong-key"
        assert river.ask("POST", "actions", query).status == 200


def test_keys_that_cannot_be_read_are_refused_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A key may have been revoked in a store that this machine does not reach."""
    with serving(study_file(tmp_path, CENTRAL), Clock()) as river:
        query = {"ticket": ticket(river, "anna"), "state": 0, "step": 0}
        keys = river.served.keys
        assert access.MAX_AGE_SECONDS == 60.0
        monkeypatch.setattr(access, "read_keys", lambda store: 1 / 0)
        until(lambda: any(one.levelno == logging.WARNING for one in caplog.records))
        (record,) = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert (
            record.getMessage()
            == "The keys cannot be read (ZeroDivisionError). Those read before are used for a minute."
        )
        assert river.ask("POST", "actions", query).status == 200
        keys._read_at -= access.MAX_AGE_SECONDS
        found = river.ask("POST", "actions", query)
        assert (found.status, found.reason) == (503, "unavailable") and found.headers["retry-after"]
        header = f"Bearer {river.key}"
        assert keys.find(header, ("app",), reading=True).role == "app"  # an operator may still look
        monkeypatch.undo()
        until(lambda: river.ask("POST", "actions", query).status == 200)


async def _in_writer(river: Service, work: Any) -> None:
    """Give the writer something to do, and do not wait for it."""
    asyncio.create_task(river.served.run_in_writer(work))  # noqa: RUF006
    await asyncio.sleep(0.05)


def test_while_a_store_is_opened_no_key_and_no_ticket_is_taken_for_a_wrong_one(tmp_path: Path) -> None:
    file = study_file(tmp_path, CENTRAL)
    with serving(file, Clock()) as river:
        text, key = ticket(river, "anna"), river.key
    river = Service(file, Clock())
    assert river.ask("POST", "tickets", {"user": "ben"}, key="prk_x").reason == "starting"  # no key is known yet
    with file.keys.open() as store:
        river.served.keys.read(store)
    for what, content in (
        ("tickets", {"user": "ben"}),
        ("episodes", episode(text, STEP)),
        ("actions", {"ticket": text, "state": 0, "step": 0}),
    ):
        found = river.ask("POST", what, content, key=key)
        assert (found.status, found.reason, found.headers["retry-after"]) == (503, "starting", "5")
    assert river.ask("POST", "tickets", {"user": "ben"}, key="prk_x").reason == "wrong-key"
    assert river.ask("GET", "/readyz").status == 503 and river.ask("GET", "/healthz").status == 200
    river.close()


def test_a_writer_that_fails_opens_its_store_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(study_file(tmp_path, CENTRAL), Clock()) as river:
        text = ticket(river, "anna")

        def failing(*records: Any) -> None:
            raise OSError(28, "No space left on device", "of anna")

        river.served._agent.count_records = failing
        failed = river.ask("POST", "episodes", episode(text, STEP))
        assert (failed.status, failed.reason) == (500, "failed") and b"anna" not in failed.body
        assert river.ask("GET", "/healthz").status == 200  # a restart would not mend the disk
        unready = river.ask("GET", "/readyz")
        assert unready.status == 503 and "store cannot be used" in unready.json["missing"]["river"]
        assert river.ask("POST", "tickets", {"user": "ben"}).reason == "unavailable"
        assert "No space left on device" in caplog.text and "anna" not in caplog.text
        until(lambda: river.studies.ready)
        assert river.ask("POST", "episodes", episode(text, STEP)).status == 204
        assert ticket(river, "anna") == text


def test_a_failed_study_does_not_take_a_healthy_one_out(tmp_path: Path) -> None:
    with serving(study_file(tmp_path / "1", CENTRAL), Clock()) as river:
        lake = CentralStudy(study_file(tmp_path / "2", CENTRAL.replace("river", "lake", 1)), Clock())
        river.studies._by_name["lake"] = lake
        assert river.ask("GET", "/readyz").status == 503  # not before every study was opened once
        assert river.ask("GET", "/readyz/river").status == 200
        with lake.file.keys.open() as store:
            lake.keys.read(store)
        lake.writer.state = "failed"
        found = river.ask("GET", "/readyz")
        assert found.status == 200 and list(found.json["missing"]) == ["lake"]
        assert found.json["studies"] == {"river": "ready", "lake": "failed"}
        assert river.ask("GET", "/readyz/lake").status == 503 and river.ask("GET", "/readyz/river").status == 200
        assert river.ask("GET", "/readyz/sea").reason == "unknown-study"


def test_a_database_that_is_away_at_the_start_takes_no_other_study_out(tmp_path: Path) -> None:
    """A process ends only if a store is refused, or if none can be reached."""
    river, lake = (
        CentralStudy(study_file(tmp_path / name, CENTRAL.replace("river", name, 1)), Clock())
        for name in ("river", "lake")
    )
    inner, away = lake.writer._backend.open, threading.Event()
    away.set()

    def opening() -> None:
        if away.is_set():
            raise ConnectionError("the database is away")
        inner()

    lake.writer._backend.open = opening  # type: ignore[method-assign]
    studies = ServedStudies([river, lake])
    studies.start()
    try:
        until(lambda: not studies.starting)
        assert studies.failure is None and (river.state, lake.state) == ("ready", "failed")
        assert isinstance(ServedStudies([lake]).failure, ConnectionError)
        away.clear()
        until(lambda: studies.ready)
        assert lake.writer.failure is None
    finally:
        studies.stop()
    lake.writer.failure = StoreError("an older copy")
    assert studies.failure is lake.writer.failure


def test_a_record_that_cannot_be_read_after_all_fails_nobody_else(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, CENTRAL), Clock()) as river:
        texts = [ticket(river, i) for i in range(2)]
        inner = river.served._agent._units

        def unreadable(records: Any, number: int, plan: int, assigned: Any) -> Any:
            found = inner(records, number, plan, assigned)
            return [None if records.states[i, 0] == 1 else units for i, units in enumerate(found)]

        river.served._agent._units = unreadable
        both = {"episodes": [episode(texts[0], {**STEP, "state": 1}), episode(texts[1], STEP)]}
        assert river.ask("POST", "episodes:batch", both).status == 204
        assert river.studies.ready
        count = river.run(river.served.run_in_writer(lambda store: store.count("block 0, plan 0")))
        assert count == 1


def test_two_services_on_one_store(tmp_path: Path, place: Path | str) -> None:
    """No number twice, the same ticket for the same person, and whoever is behind catches up."""
    clock, file = Clock(), study_file(tmp_path, CENTRAL, place)
    with serving(file, clock) as one, serving(file, clock) as two:
        people = [f"{i}" for i in range(one.served.view.ends[0])]
        found = [service.ask("POST", "tickets", {"user": i}).json for i in people for service in (one, two)]
        assert found[::2] == found[1::2]
        assert sorted({int(ticket["number"]) for ticket in found}) == list(range(len(people)))
        assert two.ask("POST", "episodes", episode(found[0]["ticket"], STEP)).status == 204
        clock.time += 1_000.0
        newcomer = one.ask("POST", "tickets", {"user": "new"}).json
        assert newcomer["plan"] == 1
        query = {"ticket": newcomer["ticket"], "state": 0, "step": 0}
        assert two.ask("POST", "actions", query).json["plan"] == 1
        assert one.ask("GET", "plan").body == two.ask("GET", "plan").body


def test_times_do_not_depend_on_how_long_the_writer_takes(tmp_path: Path) -> None:
    """What is queued before a block closes counts, and who came before acts on the old plan, though the writer was busy
    until after; the next one acts on the new plan."""
    clock, free = Clock(), threading.Event()
    with serving(study_file(tmp_path, CENTRAL), clock) as river:
        size = river.served.view.ends[0]
        texts = [ticket(river, i) for i in range(size)]

        async def busy() -> list[Reply]:
            clock.time = 999.5
            working = asyncio.create_task(river.served.run_in_writer(lambda store: free.wait(60.0)))
            await asyncio.sleep(0.2)
            early = [asyncio.create_task(river.asking("POST", "episodes", episode(texts[0], STEP)))]
            early.append(asyncio.create_task(river.asking("POST", "tickets", {"user": "before"})))
            await asyncio.sleep(0.05)
            clock.time = 1_000.25
            late = [asyncio.create_task(river.asking("POST", "episodes", episode(texts[1], STEP)))]
            late.append(asyncio.create_task(river.asking("POST", "tickets", {"user": "after"})))
            await asyncio.sleep(0.05)
            free.set()
            await working
            return await asyncio.gather(*early, *late)

        _, before, _, after = river.run(busy())
        assert (before.json["plan"], before.json["deadline"]) == (0, "1970-01-01T00:33:19Z")
        assert (after.json["plan"], after.json["deadline"]) == (1, "1970-01-01T00:33:20Z")
        found = river.run(river.served.run_in_writer(lambda store: store.count("block 0, plan 0")))
        assert found == 1
