"""Attacks on a service over HTTP find nothing on the one that is shipped, and every one that was broken on purpose."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service.answers import Caller, SeenAnswer, Send
from service.hostile_app import HostileApp
from service.hostile_device import HostileDevice
from service.serving import CENTRAL, LOCAL, OPEN, Service, serving, study_file

from privrl.audit.findings import Finding
from privrl.service import writer

Broken = Callable[[Send], Send]
PATH = "/v1/studies/{}/{}".format


def sender(service: Service) -> Send:
    """Requests to a service in this process."""

    def send(method: str, path: str, headers: dict[str, str], body: bytes) -> SeenAnswer:
        path, _, _ = path.partition("?")
        began = time.perf_counter()
        reply = service.ask(method, path, body, key="", headers=headers)
        return SeenAnswer(reply.status, tuple(reply.headers.items()), reply.body, time.perf_counter() - began)

    return send


@pytest.fixture(scope="module")
def river(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(study_file(tmp_path_factory.mktemp("river"), CENTRAL, users=5_000)) as service:
        yield service


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(study_file(tmp_path_factory.mktemp("phone"), LOCAL, users=5_000)) as service:
        yield service


@pytest.fixture(scope="module")
def diary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Devices report three times."""
    folder = tmp_path_factory.mktemp("diary")
    with serving(study_file(folder, LOCAL, name="diary", users=5_000, max_episodes_per_unit=3)) as service:
        yield service


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """People come back, and nobody knows how many will come."""
    text = OPEN.replace("400", "5_000")
    with serving(study_file(tmp_path_factory.mktemp("delta"), text, name="delta", max_episodes_per_unit=2)) as service:
        yield service


def attacks(service: Service, broken: Broken = lambda send: send) -> tuple[Finding, ...]:
    """Attack one study: a local one as a hostile device, a central one as a hostile app."""
    call, rng = Caller(broken(sender(service)), service.served.name, service.key), np.random.default_rng(1)
    return (HostileDevice if service.served.kind == "local" else HostileApp)(call, rng).attacks()


def caught(findings: tuple[Finding, ...]) -> set[str]:
    """The attacks that succeeded."""
    return {finding.attack for finding in findings if finding.broken}


@pytest.mark.parametrize("name", ["river", "phone", "delta", "diary"])
def test_nothing_is_found_on_the_service(name: str, request: pytest.FixtureRequest) -> None:
    service = request.getfixturevalue(name)
    found = attacks(service)
    assert [line for finding in found for line in finding.found] == []
    untried = ["late-records"] if service.served.kind == "central" else []
    assert [finding.attack for finding in found if not finding.tried] == untried


# --------------------------------------------------------------------------------------------- broken on purpose


def one_of_each(doubles: dict[str, tuple[Broken, str]]) -> list[Any]:
    """All of them; the first that each attack catches is quick, and the others are slow."""
    first = {attack: double for double, (_, attack) in reversed(doubles.items())}
    quick = set(first.values())
    return [double if double in quick else pytest.param(double, marks=pytest.mark.slow) for double in doubles]


def changed(change: Callable[[str, bytes, SeenAnswer], SeenAnswer]) -> Broken:
    """A service whose answers are changed on the way; told the last part of the path and what was sent."""

    def broken(send: Send) -> Send:
        def other(method: str, path: str, headers: dict[str, str], body: bytes) -> SeenAnswer:
            return change(path.rsplit("/", 1)[-1], body, send(method, path, headers, body))

        return other

    return broken


def _with(seen: SeenAnswer, **parts: Any) -> SeenAnswer:
    return SeenAnswer(**{**vars(seen), **parts})


def remembering(change: Callable[[SeenAnswer, bool], SeenAnswer]) -> Broken:
    """A service that treats a record otherwise when its ticket has ended before."""
    ended: set[str] = set()

    def told(what: str, body: bytes, seen: SeenAnswer) -> SeenAnswer:
        if what != "episodes" or seen.status != 204:
            return seen
        ticket = json.loads(body)["ticket"]
        known = ticket in ended
        ended.add(ticket)
        return change(seen, known)

    return changed(told)


def _slow(seen: SeenAnswer, known: bool) -> SeenAnswer:
    return _with(seen, seconds=seen.seconds + (0.0 if known else 0.05))


def _accepts_forged(send: Send) -> Send:
    """Looks at the content of a central ticket and not at its mac."""

    def other(method: str, path: str, headers: dict[str, str], body: bytes) -> SeenAnswer:
        seen = send(method, path, headers, body)
        if seen.reason == "unknown-ticket" and path.endswith("episodes"):
            try:
                json.loads(base64.urlsafe_b64decode(json.loads(body)["ticket"])[16:])
            except ValueError:
                return seen
            return _with(seen, status=204, body=b"")
        return seen

    return other


_PAIR = (("x-first", "1"), ("x-second", "2"))
CENTRAL_DOUBLES: dict[str, tuple[Broken, str]] = {
    "says that it knew": (remembering(lambda seen, known: _with(seen, status=200 if known else 204)), "membership"),
    "says so in the body": (
        remembering(lambda seen, known: _with(seen, body=b'{"counted":false}' if known else b'{"counted":true}')),
        "membership",
    ),
    "says so in a header": (
        remembering(lambda seen, known: _with(seen, headers=(*seen.headers, ("x-cache", "hit"))) if known else seen),
        "membership",
    ),
    "says so by the order of headers": (
        remembering(lambda seen, known: _with(seen, headers=(*seen.headers, *_PAIR[:: -1 if known else 1]))),
        "membership",
    ),
    "takes longer the first time": (remembering(_slow), "timing"),
    "shows how many were counted": (
        (lambda send: changed(_counting())(send)),
        "public-answers",
    ),
    "looks at no mac": (_accepts_forged, "forged-tickets"),
    "quotes what was sent": (
        changed(
            lambda what, body, seen: (
                _with(seen, body=seen.body[:-1] + b', "got": ' + body[-400:] + b"}")
                if seen.reason == "bad-record"
                else seen
            )
        ),
        "unreadable",
    ),
    "fails on bad input": (
        changed(lambda what, body, seen: _with(seen, status=500) if seen.reason == "malformed" else seen),
        "unreadable",
    ),
    "takes anything without a key": (
        changed(lambda what, body, seen: _with(seen, status=200, body=b"{}") if seen.reason == "no-key" else seen),
        "keys",
    ),
    "reads any size": (
        changed(lambda what, body, seen: _with(seen, status=204, body=b"") if seen.reason == "too-large" else seen),
        "sizes",
    ),
}


def _counting() -> Callable[[str, bytes, SeenAnswer], SeenAnswer]:
    counted: list[int] = []

    def told(what: str, body: bytes, seen: SeenAnswer) -> SeenAnswer:
        if what == "episodes" and seen.status == 204:
            counted.append(1)
        if what == "healthz":
            return _with(seen, body=json.dumps({"studies": {}, "counted": len(counted)}).encode())
        return seen

    return told


@pytest.mark.parametrize("double", one_of_each(CENTRAL_DOUBLES))
def test_a_broken_central_service_is_caught(river: Service, double: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MIN_RESPONSE_SECONDS", 0.0)  # quicker, and nothing here is about how long answers take
    broken, attack = CENTRAL_DOUBLES[double]
    assert attack in caught(attacks(river, broken))


def _status(of: str, status: int) -> Broken:
    return changed(lambda what, body, seen: _with(seen, status=status, body=b"") if seen.reason == of else seen)


def _counts_again(what: str, body: bytes, seen: SeenAnswer) -> SeenAnswer:
    return _with(seen, status=201) if what == "reports" and seen.status == 200 else seen


def _one_ticket() -> Broken:
    kept: list[SeenAnswer] = []

    def told(what: str, body: bytes, seen: SeenAnswer) -> SeenAnswer:
        if what != "tickets":
            return seen
        kept.append(seen)
        return kept[(len(kept) - 1) // 2 * 2]

    return changed(told)


def _asks_for_more(what: str, body: bytes, seen: SeenAnswer) -> SeenAnswer:
    if what != "certificate":
        return seen
    content = seen.json()
    content["certificate"]["epsilon"] /= 2
    return _with(seen, body=json.dumps(content).encode())


LOCAL_DOUBLES: dict[str, tuple[Broken, str]] = {
    "counts a report again": (changed(_counts_again), "replay"),
    "counts another report under a ticket": (_status("conflict", 201), "replay"),
    "looks at no mac": (_status("forged", 201), "forged-tickets"),
    "looks at no study": (_status("other-study", 201), "forged-tickets"),
    "looks at no checksum": (_status("damaged", 201), "damaged"),
    "counts what is out of range": (_status("out-of-range", 201), "out-of-range"),
    "reads any length": (_status("wrong-length", 201), "sizes"),
    "hands out a number twice": (_one_ticket(), "tickets"),
    "asks for more than it certifies": (changed(_asks_for_more), "public-facts"),
}


@pytest.mark.parametrize("double", one_of_each(LOCAL_DOUBLES))
def test_a_broken_local_service_is_caught(phone: Service, double: str) -> None:
    broken, attack = LOCAL_DOUBLES[double]
    assert attack in caught(attacks(phone, broken))


def test_late_records_are_compared_where_the_deadline_is_near(tmp_path: Path) -> None:
    def says_so(what: str, body: bytes, seen: SeenAnswer) -> SeenAnswer:
        """Broken: refuses what is late, and says so."""
        late = what == "episodes" and seen.status == 204 and json.loads(body)["ticket"] in first
        return _with(seen, status=410) if late else seen

    first: set[str] = set()
    with serving(study_file(tmp_path, CENTRAL, patience=0.2, users=5_000)) as service:
        send = sender(service)
        app = HostileApp(Caller(send, "river", service.key), np.random.default_rng(1))
        fine = app._late()
        assert fine.tried == 2 and not fine.broken

        def broken(method: str, path: str, headers: dict[str, str], body: bytes) -> SeenAnswer:
            seen = send(method, path, headers, body)
            if path.endswith("tickets") and not first:
                first.add(seen.json()["ticket"])
            return says_so(path.rsplit("/", 1)[-1], body, seen)

        assert HostileApp(Caller(broken, "river", service.key), np.random.default_rng(2))._late().broken
