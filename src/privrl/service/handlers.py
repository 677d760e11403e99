"""What the endpoints for apps, devices and anyone do; `endpoints.py` lists them.

Ids of people are in bodies only: addresses end up in logs, histories and caches.
"""

import asyncio
import re
from typing import Any, TypeVar

import msgspec

from privrl.service.bodies import (
    ActionAnswer,
    ActionAnswers,
    ArrivalBody,
    CertificateAnswer,
    EpisodeBodies,
    EpisodeBody,
    HealthAnswer,
    StepBodies,
    StepBody,
)
from privrl.service.central import CentralServed
from privrl.service.local import LocalServed
from privrl.service.refusals import RefusedError
from privrl.service.web import Call, HttpAnswer

_T = TypeVar("_T")
_CHUNK = 32  # records that are read before others get their turn
_QUOTES_NOTHING = re.compile(  # errors of msgspec that consist of its own words and of names in `bodies.py`
    r"(Expected `[^`]+`(, got `\w+`| of length [<>]= \d+)?|Object missing required field `\w+`|Number out of range"
    r"|Expected `int` [<>]= -?\d+|Input data was truncated|JSON is malformed: [a-z ]+ \(byte \d+\))"
    r"( - at `\$[\w.\[\]]*`)?"
)
_FOR_EVER = ((b"cache-control", b"public, max-age=31536000, immutable"),)
_ALWAYS_ASK = (b"cache-control", b"no-cache")
_DECODERS: dict[Any, msgspec.json.Decoder] = {
    form: msgspec.json.Decoder(form) for form in (ArrivalBody, StepBody, StepBodies, EpisodeBody, EpisodeBodies)
}


async def _read(call: Call, form: type[_T]) -> _T:
    """Decode the body of a request; an error names an expected field and its type, and quotes nothing of the body."""
    body = await call.body()
    try:
        return _DECODERS[form].decode(body)
    except msgspec.DecodeError as error:  # also a `ValidationError`
        words = str(error)
    except (UnicodeDecodeError, RecursionError):
        words = ""
    if not _QUOTES_NOTHING.fullmatch(words):  # an unknown field, whose name may be a person's
        words = "it is not UTF-8, is nested too deeply, or has a field that is not in `/openapi.json`"
    raise RefusedError("malformed", f"The body is not the JSON of this address: {words}.")


def _central(call: Call) -> CentralServed:
    if not isinstance(call.study, CentralServed):
        raise RefusedError("not-offered", "This is a local study: devices report by themselves, see `reports`.")
    return call.study


def _local(call: Call) -> LocalServed:
    """A local study; devices need a key where its file says so."""
    if not isinstance(call.study, LocalServed):
        raise RefusedError("not-offered", "This is a central study: an app posts `episodes`.")
    return call.study


def _check_device(call: Call) -> None:
    if call.study.file.devices == "key":
        call.studies.key(call.header(b"authorization"), ("device",), call.study)


# ----------------------------------------------------------------------------------------------------- central studies


async def tickets(call: Call) -> HttpAnswer:
    """Both kinds of study hand out tickets, to whom is theirs to say."""
    if isinstance(call.study, LocalServed):
        _check_device(call)
        return HttpAnswer.of(await call.study.ticket())
    key = call.studies.key(call.header(b"authorization"), ("app",), call.study)
    body = await _read(call, ArrivalBody)
    return HttpAnswer.of(await _central(call).arrive(body.user, body.visit, key.name))


async def _act(served: CentralServed, query: StepBody) -> ActionAnswer:
    ticket = served.known(query.ticket)
    await served.meet(ticket)
    return served.act(ticket, query.state, query.step)


async def actions(call: Call) -> HttpAnswer:
    served = _central(call)
    return HttpAnswer.of(await _act(served, await _read(call, StepBody)))


async def actions_batch(call: Call) -> HttpAnswer:
    served = _central(call)
    body = await _read(call, StepBodies)
    return HttpAnswer.of(ActionAnswers([await _act(served, query) for query in body.queries]))


async def plan(call: Call) -> HttpAnswer:
    """The newest plan; who has it already is told so by its number."""
    served = _central(call)
    if not served.policy:
        served.check_open()
    tag = f'"{served.view.plan}"'.encode()
    headers = ((b"etag", tag), _ALWAYS_ASK)
    if call.header(b"if-none-match") == tag:
        return HttpAnswer(304, headers=headers)
    return HttpAnswer(200, served.policy, headers=headers)


async def episodes(call: Call) -> HttpAnswer:
    served = _central(call)
    body = await _read(call, EpisodeBody)
    await served.end([served.record(body.ticket, body.steps)])
    return HttpAnswer(204)


async def episodes_batch(call: Call) -> HttpAnswer:
    served = _central(call)
    body = await _read(call, EpisodeBodies)
    records = []
    for position, one in enumerate(body.episodes):
        if position % _CHUNK == _CHUNK - 1:
            await asyncio.sleep(0)
        try:
            records.append(served.record(one.ticket, one.steps))
        except RefusedError as error:
            raise RefusedError(error.reason, f"Record {position}, and nothing was counted: {error}") from None
    await served.end(records)
    return HttpAnswer(204)


# ------------------------------------------------------------------------------------------------------- local studies


async def study(call: Call) -> HttpAnswer:
    """The public document, byte by byte; of a central study, its sizes."""
    if isinstance(call.study, CentralServed):
        return HttpAnswer.of(call.study.summary)
    return HttpAnswer(200, _local(call).document, headers=(_ALWAYS_ASK,))


async def numbered_plan(call: Call) -> HttpAnswer:
    served = _local(call)
    text = call.parameters["number"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    found = served.plan(number)
    if found is None and number == len(served.plans):
        await served.meet()
        found = served.plan(number)
    if found is None:
        raise RefusedError("unknown-plan", f"The newest plan is {len(served.plans) - 1}.")
    return HttpAnswer(200, found, headers=_FOR_EVER)


async def reports(call: Call) -> HttpAnswer:
    served = _local(call)
    _check_device(call)
    return HttpAnswer(201 if await served.report(await call.body()) else 200)


# ------------------------------------------------------------------------------------------------------------- anyone


async def certificate(call: Call) -> HttpAnswer:
    found = call.study.view.certificate
    if not found:
        call.study.check_open()
    return HttpAnswer.of(CertificateAnswer(dict(found)))


async def healthz(call: Call) -> HttpAnswer:
    """Whether the process is alive and no writer has failed."""
    return _health(call, all(one.state != "failed" for one in call.studies))


async def readyz(call: Call) -> HttpAnswer:
    """Whether every study can be used."""
    return _health(call, call.studies.ready)


def _health(call: Call, fine: bool) -> HttpAnswer:
    return HttpAnswer.of(HealthAnswer({one.name: one.state for one in call.studies}), 200 if fine else 503)
