"""The endpoints for apps, devices and the public; `operator_endpoints.py` has those for the operator.

A person's id travels in a body only, because addresses end up in logs, histories and caches.
"""

import asyncio

import msgspec
from starlette.responses import Response

from privrl.service.application import JSON, Call, endpoint
from privrl.service.bodies import (
    BATCH,
    ActionAnswer,
    ActionAnswers,
    ActionsAnswer,
    ArrivalBody,
    CertificateAnswer,
    EpisodeBodies,
    EpisodeBody,
    HealthAnswer,
    PolicyAnswer,
    SignedTicketAnswer,
    StepBodies,
    StepBody,
    StudyDocument,
    StudySummary,
    TicketAnswer,
)
from privrl.service.central import CentralStudy
from privrl.service.local import LocalStudy
from privrl.service.openapi import openapi_document
from privrl.service.refusals import RefusedError

_CHUNK = 32  # records of a batch that are checked before other requests get their turn
_EPISODE_BYTES = 65_536
_CACHE_FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
_REVALIDATE = {"cache-control": "no-cache"}
_STUDY = "/v1/studies/{study}"
_NOT_OPEN = ("starting", "unavailable")
_NOT_READY = (*_NOT_OPEN, "paused", "busy", "purged")
_TICKET = ("not-offered", "malformed", "too-large", "unknown-ticket", "unknown-plan")
_ARRIVAL = msgspec.json.Decoder(ArrivalBody)
_STEP, _STEPS = msgspec.json.Decoder(StepBody), msgspec.json.Decoder(StepBodies)
_EPISODE, _EPISODES = msgspec.json.Decoder(EpisodeBody), msgspec.json.Decoder(EpisodeBodies)


def _central(call: Call) -> CentralStudy:
    if not isinstance(call.study, CentralStudy):
        raise RefusedError("not-offered", "This is a local study: devices report by themselves, see `reports`.")
    return call.study


def _local(call: Call) -> LocalStudy:
    if not isinstance(call.study, LocalStudy):
        raise RefusedError("not-offered", "This is a central study: an app posts `episodes`.")
    return call.study


def _check_device(call: Call) -> None:
    if call.study.file.devices == "key":
        call.study.find_key(call.header("authorization"), ("device",))


@endpoint(
    "tickets",
    "POST",
    f"{_STUDY}/tickets",
    takes=(ArrivalBody,),
    gives=(TicketAnswer, SignedTicketAnswer),
    refuses=("no-key", "wrong-key", "malformed", "too-large", "full", *_NOT_READY),
    shared=True,
    private=True,
)
async def issue_ticket(call: Call) -> msgspec.Struct:
    """Issue a ticket. Central studies require an app key and the person's id; local ones may require a device key."""
    if isinstance(call.study, LocalStudy):
        _check_device(call)
        return await call.study.issue_ticket()
    key = call.study.find_key(call.header("authorization"), ("app",))
    body = await call.read(_ARRIVAL)
    return await _central(call).arrive(body.user, body.visit, key.name)


# ----------------------------------------------------------------------------------------------------- central studies


async def _act(study: CentralStudy, query: StepBody) -> ActionAnswer:
    ticket = study.verify_ticket(query.ticket)
    await study.await_plan(ticket)
    return study.draw_action(ticket, query.state, query.step)


@endpoint(
    "actions",
    "POST",
    f"{_STUDY}/actions",
    roles=("app",),
    takes=(StepBody,),
    gives=(ActionAnswer,),
    refuses=(*_TICKET, "out-of-range", *_NOT_READY),
    private=True,
)
async def draw_action(call: Call) -> ActionAnswer:
    """Return the action for the person of a ticket, from the plan that was the newest when they arrived."""
    return await _act(_central(call), await call.read(_STEP))


@endpoint(
    "actions-batch",
    "POST",
    f"{_STUDY}/actions:batch",
    roles=("app",),
    takes=(StepBodies,),
    gives=(ActionAnswers,),
    limit=BATCH * 512,
    refuses=(*_TICKET, "out-of-range", *_NOT_READY),
    private=True,
)
async def draw_actions(call: Call) -> ActionAnswers:
    """Return the actions for several people, at most 1,000."""
    study = _central(call)
    body = await call.read(_STEPS)
    return ActionAnswers([await _act(study, query) for query in body.queries])


@endpoint(
    "plan",
    "GET",
    f"{_STUDY}/plan",
    roles=("app",),
    gives=(PolicyAnswer,),
    refuses=("not-offered", *_NOT_OPEN),
    private=True,
)
async def show_newest_plan(call: Call) -> Response:
    """Return the newest plan; its ETag is its number."""
    study = _central(call)
    if not study.policy:
        study.check_open()
    tag = f'"{study.view.plan}"'
    headers = {"etag": tag, **_REVALIDATE}
    if call.header("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(study.policy, headers=headers, media_type=JSON)


@endpoint(
    "episodes",
    "POST",
    f"{_STUDY}/episodes",
    roles=("app",),
    takes=(EpisodeBody,),
    status=204,
    limit=_EPISODE_BYTES,
    refuses=(*_TICKET, "bad-record", *_NOT_READY),
    private=True,
)
async def count_episode(call: Call) -> Response:
    """Count the record of a ticket once. The response is the same if it was counted before or comes too late."""
    study = _central(call)
    body = await call.read(_EPISODE)
    await study.count([study.check_record(body.ticket, body.steps)])
    return Response(None, 204)


@endpoint(
    "episodes-batch",
    "POST",
    f"{_STUDY}/episodes:batch",
    roles=("app",),
    takes=(EpisodeBodies,),
    status=204,
    limit=64 * _EPISODE_BYTES,
    refuses=(*_TICKET, "bad-record", *_NOT_READY),
    private=True,
)
async def count_episodes(call: Call) -> Response:
    """Count the records of several people, at most 1,000. All are checked before any is counted."""
    study = _central(call)
    body = await call.read(_EPISODES)
    records = []
    for position, one in enumerate(body.episodes):
        if position % _CHUNK == _CHUNK - 1:
            await asyncio.sleep(0)
        try:
            records.append(study.check_record(one.ticket, one.steps))
        except RefusedError as error:
            raise RefusedError(error.reason, f"Record {position}, and nothing was counted: {error}") from None
    await study.count(records)
    return Response(None, 204)


# ------------------------------------------------------------------------------------------------------- local studies


@endpoint(
    "plans",
    "GET",
    _STUDY + "/plans/{number}",
    gives=(ActionsAnswer,),
    refuses=("not-offered", "unknown-plan", *_NOT_OPEN),
    shared=True,
)
async def show_plan(call: Call) -> Response:
    """Return a plan of a local study. It never changes."""
    study, text = _local(call), call.path_params["number"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    found = study.find_plan(number)
    if found is None and number == len(study.plans):  # another machine may have made it
        await study.catch_up_plans()
        found = study.find_plan(number)
    if found is None:
        raise RefusedError("unknown-plan", f"The newest plan is {len(study.plans) - 1}.")
    return Response(found, headers=_CACHE_FOREVER, media_type=JSON)


@endpoint(
    "reports",
    "POST",
    f"{_STUDY}/reports",
    takes=(bytes,),
    status=201,
    limit=_EPISODE_BYTES,
    refuses=(
        *("not-offered", "no-key", "wrong-key", "too-large", "wrong-length", "damaged", "malformed", "other-study"),
        *("forged", "expired", "unknown-plan", "out-of-range", "conflict", "full"),
        *_NOT_READY,
    ),
    shared=True,
)
async def count_report(call: Call) -> Response:
    """Count a randomised report once per ticket: 201, or 200 if the same one was counted before."""
    study = _local(call)
    _check_device(call)
    return Response(None, 201 if await study.count_report(await call.read_bytes()) else 200)


# ---------------------------------------------------------------------------------------------------------- the public


@endpoint("study", "GET", _STUDY, gives=(StudyDocument, StudySummary), refuses=_NOT_OPEN, shared=True)
async def show_study(call: Call) -> msgspec.Struct | Response:
    """Return the document of a local study, whose SHA-256 identifies it, or the summary of a central one."""
    if isinstance(call.study, CentralStudy):
        return call.study.summary
    return Response(_local(call).document, headers=_REVALIDATE, media_type=JSON)


@endpoint("certificate", "GET", f"{_STUDY}/certificate", gives=(CertificateAnswer,), refuses=_NOT_OPEN, shared=True)
async def show_certificate(call: Call) -> CertificateAnswer:
    """Return the certificate: a bound on what all releases together can reveal about one person."""
    found = call.study.view.certificate
    if not found:
        call.study.check_open()
    return CertificateAnswer(dict(found))


def _health(call: Call, healthy: bool) -> Response:
    content = HealthAnswer({one.name: one.state for one in call.studies})
    return Response(msgspec.json.encode(content), 200 if healthy else 503, media_type=JSON)


@endpoint("healthz", "GET", "/healthz", gives=(HealthAnswer,))
async def show_health(call: Call) -> Response:
    """Return 200 if the process works and no store has failed."""
    return _health(call, all(one.state != "failed" for one in call.studies))


@endpoint("readyz", "GET", "/readyz", gives=(HealthAnswer,))
async def show_readiness(call: Call) -> Response:
    """Return 200 if every study is open."""
    return _health(call, call.studies.ready)


@endpoint("openapi", "GET", "/openapi.json")
async def show_openapi(call: Call) -> Response:
    """Return this document."""
    return Response(openapi_document(ENDPOINTS), headers=_REVALIDATE, media_type=JSON)


ENDPOINTS = (
    issue_ticket,
    draw_action,
    draw_actions,
    show_newest_plan,
    count_episode,
    count_episodes,
    show_study,
    show_plan,
    count_report,
    show_certificate,
    show_health,
    show_readiness,
    show_openapi,
)
"""The endpoints of the public listener."""
