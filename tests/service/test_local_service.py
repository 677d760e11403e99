"""A local study over HTTP: tickets without a write, reports that count once, plans that stay, and every refusal."""

import asyncio
import hashlib
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from service.serving import LOCAL, Reply, Service, serving, study_file
from test_cli import call

import privrl
from privrl.mdp.types import Trajectory
from privrl.studies.local.wire import Broadcast, Message, MessageError, SignedTicket

RNG = np.random.default_rng()


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(study_file(tmp_path_factory.mktemp("phone"), LOCAL, users=4_000), Clock()) as service:
        yield service


def ticket(service: Service) -> SignedTicket:
    """What a device makes of the answer."""
    found = service.ask("POST", "tickets").json
    identity = hashlib.sha256(service.ask("GET", "").body).digest()
    number, expires = int(found["number"]), int(found["expires"])
    return SignedTicket(identity, number, found["plan"], expires, bytes.fromhex(found["mac"]))


def report(service: Service, leave: SignedTicket, symbols: Any = None) -> bytes:
    (part,) = service.ask("GET", "").json["parts"]
    if symbols is None:
        symbols = np.sort(RNG.choice(part["symbols"], part["size"], replace=False))
    return Message(leave, (np.asarray(symbols, np.int64),)).to_bytes()


def counted(service: Service) -> int:
    """How many reports are in the sums of the study; a server counts them from its store."""
    return service.run(service.served.run_in_writer(lambda store: service.served._server.num_reports))


def test_the_document_is_sent_byte_by_byte(phone: Service) -> None:
    reply = phone.ask("GET", "")
    assert reply.body == phone.served._server.document
    assert hashlib.sha256(reply.body).digest() == phone.served._server.study
    assert reply.headers["access-control-allow-origin"] == "*"


def test_tickets_are_numbered_once_and_nothing_is_written_for_them(phone: Service) -> None:
    first = phone.ask("POST", "tickets").json
    assert (
        set(first) == {"number", "plan", "expires", "mac", "deadline"}
        and type(first["number"]) is type(first["expires"]) is str
    )
    kept = phone.content()
    numbers = [int(phone.ask("POST", "tickets").json["number"]) for _ in range(50)]
    assert len(set(numbers)) == 50
    assert phone.content() == kept


def test_numbers_are_reserved_before_they_run_out(phone: Service) -> None:
    async def many() -> list[Reply]:
        return await asyncio.gather(*(phone.asking("POST", "tickets") for _ in range(2_500)))

    found = [int(reply.json["number"]) for reply in phone.run(many())]
    assert len(set(found)) == 2_500
    assert phone.describe()["ranges"]["tickets"] <= max(found) + 2_000


def test_a_report_counts_once_however_often_it_is_sent(phone: Service) -> None:
    before, content = counted(phone), report(phone, ticket(phone))
    answers = [phone.ask("POST", "reports", content) for _ in range(3)]
    assert [reply.status for reply in answers] == [201, 200, 200] and {reply.body for reply in answers} == {b""}
    assert counted(phone) == before + 1


def test_a_device_reports_as_many_visits_as_the_study_says(tmp_path: Path) -> None:
    """The Python client of a study whose devices report twice; the certificate is for both reports together."""
    file = study_file(tmp_path, LOCAL, max_episodes_per_unit=2)
    with serving(file, Clock()) as diary:
        settings = {"store": tmp_path / "device.db", "cap": 1.0, "max_episodes_per_unit": 2}
        device = privrl.Client(file.learner(), file.privatizer(), study=diary.served._server.study, **settings)
        plan, record = diary.served._server._plans[0], Trajectory.empty(4)
        for visit in range(2):
            message = device.report(record, Broadcast(ticket(diary), plan), visit).to_bytes()
            assert [diary.ask("POST", "reports", message).status for _ in range(2)] == [201, 200]
        with pytest.raises(MessageError):
            device.report(record, Broadcast(ticket(diary), plan), 2)
        assert counted(diary) == 2
        certificate = diary.ask("GET", "certificate").json["certificate"]
        assert 0.999 < certificate["epsilon"] <= 1.0 and certificate["messages_per_user"] == 2


def test_reports_of_many_devices_at_once(phone: Service) -> None:
    before = counted(phone)
    contents = [report(phone, ticket(phone)) for _ in range(40)]

    async def all_at_once() -> list[Reply]:
        return await asyncio.gather(*(phone.asking("POST", "reports", content) for content in contents * 2))

    statuses = [reply.status for reply in phone.run(all_at_once())]
    assert sorted(statuses) == [200] * 40 + [201] * 40
    assert counted(phone) == before + 40


def test_conflicts_do_not_slow_down_the_others(phone: Service) -> None:
    """Two reports under one ticket at once, and one after another, in a crowd: one commit more, not one for each."""
    known = report(phone, ticket(phone))
    assert phone.ask("POST", "reports", known).status == 201
    leave = ticket(phone)
    bad = [changed(known, len(known) - 12), *(report(phone, leave, [symbol]) for symbol in range(2))]
    contents = bad + [report(phone, ticket(phone)) for _ in range(30)]

    async def all_at_once() -> list[Reply]:
        return await asyncio.gather(*(phone.asking("POST", "reports", content) for content in contents))

    commits = []
    phone.served._store._reached = lambda point: commits.append(point)
    statuses = [reply.status for reply in phone.run(all_at_once())]
    assert statuses[0] == 409 and sorted(statuses[1:3]) == [201, 409] and statuses[3:] == [201] * 30
    assert commits.count("contribute:committed") <= 8


def test_plans_never_change_and_can_be_kept(phone: Service) -> None:
    reply = phone.ask("GET", "plans/0")
    assert reply == phone.ask("GET", "plans/0")
    assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
    actions = np.array(reply.json["actions"])
    assert actions.shape == (4, 3) and set(np.unique(actions)) <= {0, 1}


def test_pages_of_other_origins_may_call_what_is_for_devices(phone: Service) -> None:
    asked = {"origin": "http://shop.test", "access-control-request-method": "POST"}
    reply = phone.ask("OPTIONS", "reports", headers=asked)
    assert reply.status == 204 and "content-type" in reply.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in reply.headers
    assert phone.ask("OPTIONS", "episodes").reason == "not-allowed"


def changed(content: bytes, at: int) -> bytes:
    """One bit of a message is another, and its checksum right."""
    body = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 : -4]
    return body + zlib.crc32(body).to_bytes(4, "little")


def test_every_refusal_has_its_type_and_leaves_the_store_as_it_was(phone: Service) -> None:
    leave = ticket(phone)
    content, used = report(phone, leave), report(phone, ticket(phone))
    assert phone.ask("POST", "reports", used).status == 201
    (part,) = phone.ask("GET", "").json["parts"]
    another = changed(used, len(used) - 12)  # another symbol under the same ticket
    app = phone.served.file.keys.add("app", "an app")
    phone.run(asyncio.sleep(1.2))  # the writer reads the file again
    newest = phone.served.view.plan
    requests = {
        "kind": ("not-offered", "POST", "episodes", None),
        "actions": ("not-offered", "POST", "actions", None),
        "no plan yet": ("unknown-plan", "GET", f"plans/{newest + 1}", None),
        "no number": ("unknown-plan", "GET", "plans/-1", None),
        "text": ("unknown-plan", "GET", "plans/x", None),
        "short": ("wrong-length", "POST", "reports", content[:-1]),
        "long": ("wrong-length", "POST", "reports", content + b"x"),
        "much too long": ("too-large", "POST", "reports", bytes(70_000)),
        "nothing": ("wrong-length", "POST", "reports", b""),
        "damaged": ("damaged", "POST", "reports", content[:80] + bytes([content[80] ^ 1]) + content[81:]),
        "another form": ("malformed", "POST", "reports", changed(content, 0)),
        "another study": ("other-study", "POST", "reports", changed(content, 6)),
        "another number": ("forged", "POST", "reports", changed(content, 38)),
        "another plan": ("forged", "POST", "reports", changed(content, 46)),
        "another expiry": ("forged", "POST", "reports", changed(content, 50)),
        "another mac": ("forged", "POST", "reports", changed(content, 60)),
        "no such symbol": ("out-of-range", "POST", "reports", report(phone, leave, [part["symbols"]] * part["size"])),
        "another answer": ("conflict", "POST", "reports", another),
    }
    kept, shown = phone.content(), phone.describe()
    for name, (reason, method, path, body) in requests.items():
        reply = phone.ask(method, path, body, key=app)
        assert reply.reason == reason, name
        assert reply.headers["access-control-allow-origin"] == "*"
    assert (phone.content(), phone.describe()) == (kept, shown)


def test_an_expired_ticket_is_refused_unless_its_report_is_there(tmp_path: Path) -> None:
    clock = Clock()
    with serving(study_file(tmp_path, LOCAL), clock) as phone:
        sent, unsent = (report(phone, ticket(phone)) for _ in range(2))
        assert phone.ask("POST", "reports", sent).status == 201
        clock.time += 1_000.0
        kept = phone.content()
        reply = phone.ask("POST", "reports", unsent)
        assert (reply.status, reply.reason) == (410, "expired")
        assert phone.ask("POST", "reports", sent).status == 200
        assert phone.content() == kept


def test_a_new_plan_follows_a_full_block_and_a_full_study_ends(tmp_path: Path) -> None:
    with serving(study_file(tmp_path, LOCAL, users=6), Clock()) as phone:
        first, spare = phone.ask("GET", "plans/0"), ticket(phone)
        for _ in range(6):
            assert phone.ask("POST", "reports", report(phone, ticket(phone))).status == 201
        assert counted(phone) == 6
        assert phone.served.view.plan == len(phone.served.view.ends)
        assert phone.ask("GET", "plans/0").body == first.body
        assert phone.ask("GET", f"plans/{phone.served.view.plan}").status == 200
        assert phone.ask("POST", "tickets").reason == "full"
        newest = phone.ask("GET", "plans/newest")
        assert newest.body == phone.ask("GET", f"plans/{phone.served.view.plan}").body
        assert newest.headers["cache-control"] == "no-cache"
        assert phone.ask("POST", "reports", report(phone, spare)).reason == "full"
        assert phone.ask("GET", "certificate").json["certificate"]["epsilon"] <= 1.0
        file = phone.served.file
    found = call("serve", "check", str(file.path))
    assert found.code == 0 and "(full: 6 of 6)" in found.out and "without a ticket" in found.out
    with serving(file) as again:
        assert again.ask("GET", "plans/0").body == first.body


def test_a_ticket_is_refused_to_who_sends_an_id(phone: Service) -> None:
    """An app that takes the study for a central one hears of it before it has sent more ids, or an episode."""
    found = phone.ask("POST", "tickets", {"user": "anna"})
    assert (found.status, found.reason) == (400, "malformed") and "local study" in found.json["detail"]
    assert phone.ask("POST", "tickets", {}).status == 200


def test_tickets_have_a_public_rate(tmp_path: Path) -> None:
    """Of ten seconds at once, then one by one; reports have none."""
    with serving(study_file(tmp_path, LOCAL, ticket_rate=2.0), Clock()) as phone:
        answers = [phone.ask("POST", "tickets") for _ in range(25)]
        assert [one.status for one in answers[:20]] == [200] * 20
        assert answers[-1].reason == "busy" and answers[-1].headers["retry-after"] == "1"
        time.sleep(0.6)
        assert phone.ask("POST", "tickets").status == 200


def test_devices_need_a_key_where_the_study_says_so(tmp_path: Path) -> None:
    file = study_file(tmp_path, LOCAL, devices="key")
    key = file.keys.add("device", "app in the shop")
    with serving(file, Clock()) as phone:
        assert phone.ask("POST", "tickets").reason == "no-key"
        assert phone.ask("POST", "tickets", key="prk_x").reason == "wrong-key"
        assert phone.ask("POST", "reports", b"").reason == "no-key"
        assert phone.ask("POST", "tickets", key=key).status == 200
        file.keys.revoke("app in the shop")
        phone.run(asyncio.sleep(1.2))
        assert phone.ask("POST", "tickets", key=key).reason == "wrong-key"


def test_two_services_on_one_store(tmp_path: Path, place: Path | str) -> None:
    """No ticket twice, reports of either count at either, once, and both have the same plans."""
    file = study_file(tmp_path, LOCAL, place, users=8)
    with serving(file, Clock()) as one, serving(file, Clock()) as two:
        tickets = [ticket(service) for _ in range(20) for service in (one, two)]
        assert len({leave.number for leave in tickets}) == 40
        contents = [report(one, leave) for leave in tickets[:8]]
        assert {one.ask("POST", "reports", content).status for content in contents[:4]} == {201}
        assert {two.ask("POST", "reports", content).status for content in contents[4:]} == {201}
        assert {two.ask("POST", "reports", content).status for content in contents[:4]} == {200}
        assert counted(one) == counted(two) == 8
        for number in range(two.served.view.plan + 1):
            assert one.ask("GET", f"plans/{number}").body == two.ask("GET", f"plans/{number}").body
