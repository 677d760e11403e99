"""Attacks on a service over HTTP find nothing on the one that is shipped, and every one that was broken on purpose."""

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service.serving import CENTRAL, LOCAL, OPEN, Service, serving, study_file

from privrl.audit.service import ServiceReport, service_attacks
from privrl.audit.service_answers import Caller, SeenAnswer, Send
from privrl.audit.service_app import HostileApp
from privrl.cli import audit_service, main
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


def attacked(service: Service, broken: Broken = lambda send: send) -> ServiceReport:
    return service_attacks(broken(sender(service)), service.served.name, key=service.key, seed=1)


@pytest.mark.parametrize("name", ["river", "phone", "delta", "diary"])
def test_nothing_is_found_on_the_service(name: str, request: pytest.FixtureRequest) -> None:
    report = attacked(request.getfixturevalue(name))
    assert [line for finding in report.attacks for line in finding.found] == []
    assert not report.broken
    assert [finding.attack for finding in report.attacks if not finding.tried] == ["late-records"] * (
        report.kind == "central"
    )
    assert json.dumps(report.to_json())
    assert report.kind == ("local" if name in ("phone", "diary") else "central")


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
        remembering(lambda seen, known: _with(seen, headers=seen.headers[::-1]) if known else seen),
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
    monkeypatch.setattr(writer, "BEAT", 0.0)  # quicker, and nothing here is about how long answers take
    broken, attack = CENTRAL_DOUBLES[double]
    report = attacked(river, broken)
    assert report.broken and attack in [finding.attack for finding in report.attacks if finding.broken]


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
    report = attacked(phone, broken)
    assert report.broken and attack in [finding.attack for finding in report.attacks if finding.broken]


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


def test_a_study_that_is_not_there_is_explained(river: Service) -> None:
    with pytest.raises(ValueError, match=r"no study `lake`.*unknown-study"):
        service_attacks(sender(river), "lake", key="", seed=1)
    with pytest.raises(ValueError, match="Give an app's key"):
        service_attacks(sender(river), "river", key="", seed=1)


# -------------------------------------------------------------------------------------------------------- the command


def test_the_command_prints_a_table_or_json_and_fails_when_something_is_found(
    phone: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["audit", "--service", "http://127.0.0.1:1", "--study", "phone", "--seed", "1"]
    monkeypatch.setattr(audit_service, "over_http", lambda url: contextlib.nullcontext(sender(phone)))
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "forged-tickets" in shown and "Nothing was found. That is not a proof." in shown
    broken = _status("forged", 201)(sender(phone))
    monkeypatch.setattr(audit_service, "over_http", lambda url: contextlib.nullcontext(broken))
    assert main([*arguments, "--json", "--out", str(tmp_path)]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["broken"] is True and content["kind"] == "local" and content["study"] == "phone"
    assert {"attack", "tried", "found", "broken"} == set(content["attacks"][0])
    assert json.loads((tmp_path / "audit.json").read_text()) == content
    assert main(["report", str(tmp_path)]) == 0
    html = tmp_path.with_suffix(".html").read_text()
    assert "BROKEN: forged-tickets" in html and "a ticket with an empty mac" in html
    capsys.readouterr()
    assert main(arguments) == 1
    assert "BROKEN." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--service", "http://127.0.0.1:1"], "go together"),
        (["--study", "phone"], "or `--service`"),
        (["dp-apvi", "--service", "http://127.0.0.1:1", "--study", "phone"], "or `--service`"),
        (["--service", "127.0.0.1:8080", "--study", "phone"], "give the address"),
        (["--service", "http://127.0.0.1:1", "--study", "phone"], "does not answer"),
    ],
)
def test_the_command_says_what_is_missing(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *arguments]) == 2
    assert words in capsys.readouterr().err
