"""The endpoints for apps, devices and the public; `operator_endpoints.py` has those for the operator.

A person's id travels in a body only, because addresses end up in logs, histories and caches.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import PurePath

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
    ListedStudy,
    OutcomeBodies,
    OutcomeBody,
    PilotAnswer,
    PolicyAnswer,
    SignedTicketAnswer,
    StepBodies,
    StepBody,
    StudyDocument,
    StudyList,
    StudySummary,
    TicketAnswer,
)
from privrl.service.central import CentralStudy
from privrl.service.client_package import MEDIA_TYPES, PACKAGE_FILES, read_package
from privrl.service.local import LocalStudy
from privrl.service.openapi import openapi_document
from privrl.service.pilot_study import PilotStudy
from privrl.service.refusals import RefusedError
from privrl.service.served_studies import AbstractServedStudy

_CHUNK = 32  # records of a batch that are checked before other requests get their turn
_EPISODE_BYTES = 65_536
_CACHE_FOREVER = {"cache-control": "public, max-age=31536000, immutable"}
_NEWEST = "newest"
_REVALIDATE = {"cache-control": "no-cache"}
_STUDY = "/v1/studies/{study}"
_NOT_OPEN = ("starting", "unavailable")
_NOT_READY = (*_NOT_OPEN, "paused", "busy", "purged")
_TICKET = ("not-offered", "malformed", "too-large", "unknown-ticket", "unknown-plan")
_ARRIVAL = msgspec.json.Decoder(ArrivalBody)
_STEP, _STEPS = msgspec.json.Decoder(StepBody), msgspec.json.Decoder(StepBodies)
_EPISODE, _EPISODES = msgspec.json.Decoder(EpisodeBody), msgspec.json.Decoder(EpisodeBodies)
_OUTCOME, _OUTCOMES = msgspec.json.Decoder(OutcomeBody), msgspec.json.Decoder(OutcomeBodies)


def _central(call: Call) -> CentralStudy:
    if not isinstance(call.study, CentralStudy):
        raise RefusedError(
            "not-offered",
            "This is a local study: devices report by themselves, see `reports`."
            if isinstance(call.study, LocalStudy)
            else "This is a pilot: an app posts `outcomes`.",
        )
    return call.study


def _pilot(call: Call) -> PilotStudy:
    if not isinstance(call.study, PilotStudy):
        raise RefusedError("not-offered", "This is not a pilot: records are `episodes` or `reports`.")
    return call.study


def _local(call: Call) -> LocalStudy:
    if not isinstance(call.study, LocalStudy):
        raise RefusedError("not-offered", "This is not a local study: an app posts `episodes` or `outcomes`.")
    return call.study


def _check_device(call: Call) -> None:
    if call.study.file.devices == "key":
        call.study.keys.find(call.header("authorization"), ("device",))


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
    """Issue a ticket. It takes an app key and a person's id; in a local study at most a device key."""
    if isinstance(call.study, LocalStudy):
        _check_device(call)
        if await call.read_bytes() not in (b"", b"{}"):
            raise RefusedError(
                "malformed", "This is a local study. Its devices request tickets without an id: send an empty body."
            )
        return await call.study.issue_ticket()
    key = call.study.keys.find(call.header("authorization"), ("app",))
    body = await call.read(_ARRIVAL)
    if isinstance(call.study, PilotStudy):
        return await call.study.arrive(body.user, body.visit, call.study.read_groups(body.groups), key.name)
    if body.groups:
        raise RefusedError("malformed", "`groups` belongs to pilots with declared subgroups. Leave it out.")
    return await _central(call).arrive(body.user, body.visit, "", key.name)


# ----------------------------------------------------------------------------------------------------- central studies


def _acting(call: Call) -> CentralStudy | PilotStudy:
    return call.study if isinstance(call.study, PilotStudy) else _central(call)


async def _act(study: CentralStudy | PilotStudy, query: StepBody) -> ActionAnswer:
    if isinstance(study, PilotStudy):
        if not query.ticket:
            return study.draw_served_action(query.state, query.step)
        return study.draw_action(study.verify_ticket(query.ticket), query.state, query.step)
    if not query.ticket:
        return study.draw_current_action(query.state, query.step)
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
    tag="central studies",
)
async def draw_action(call: Call) -> ActionAnswer:
    """Return the action of a ticket, by its plan or arm. Without one: by the plan in force, or what a pilot serves."""
    return await _act(_acting(call), await call.read(_STEP))


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
    tag="central studies",
)
async def draw_actions(call: Call) -> ActionAnswers:
    """Return the actions for several people, at most 1,000."""
    study = _acting(call)
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
    tag="central studies",
    also=((304, "`If-None-Match` has the ETag of the newest plan"),),
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
    tag="central studies",
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
    tag="central studies",
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


# -------------------------------------------------------------------------------------------------------------- pilots


@endpoint(
    "outcomes",
    "POST",
    f"{_STUDY}/outcomes",
    roles=("app",),
    takes=(OutcomeBody,),
    status=204,
    refuses=(*_TICKET, "bad-record", *_NOT_READY),
    private=True,
    tag="pilots",
)
async def count_outcomes(call: Call) -> Response:
    """Count the outcomes of a ticket once. The response is the same if they were counted before or come too late."""
    study = _pilot(call)
    body = await call.read(_OUTCOME)
    await study.count([study.check_record(body.ticket, body.outcomes)])
    return Response(None, 204)


@endpoint(
    "outcomes-batch",
    "POST",
    f"{_STUDY}/outcomes:batch",
    roles=("app",),
    takes=(OutcomeBodies,),
    status=204,
    limit=BATCH * 2_048,
    refuses=(*_TICKET, "bad-record", *_NOT_READY),
    private=True,
    tag="pilots",
)
async def count_outcomes_of_many(call: Call) -> Response:
    """Count the outcomes of several people, at most 1,000. All are checked before any is counted."""
    study = _pilot(call)
    body = await call.read(_OUTCOMES)
    records = []
    for position, one in enumerate(body.records):
        if position % _CHUNK == _CHUNK - 1:
            await asyncio.sleep(0)
        try:
            records.append(study.check_record(one.ticket, one.outcomes))
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
    tag="local studies",
)
async def show_plan(call: Call) -> Response:
    """Return a plan of a local study, which never changes; `newest` is the number of the newest one."""
    study, text = _local(call), call.path_params["number"]
    if text == _NEWEST and study.plans:
        return Response(study.plans[-1], headers=_REVALIDATE, media_type=JSON)
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
    tag="local studies",
    also=((200, "The same report was counted before"),),
)
async def count_report(call: Call) -> Response:
    """Count a randomised report once per ticket: 201, or 200 if the same one was counted before."""
    study = _local(call)
    _check_device(call)
    return Response(None, 201 if await study.count_report(await call.read_bytes()) else 200)


# ---------------------------------------------------------------------------------------------------------- the public


@endpoint("studies", "GET", "/v1/studies", gives=(StudyList,), shared=True)
async def list_studies(call: Call) -> StudyList:
    """List the studies of this service."""
    return StudyList(
        [
            ListedStudy(
                one.name, one.kind, one.state, one.file.recipe, one.file.epsilon, one.file.delta, one.uses_rewards
            )
            for one in call.studies
        ]
    )


@endpoint("study", "GET", _STUDY, gives=(StudyDocument, StudySummary, PilotAnswer), refuses=_NOT_OPEN, shared=True)
async def show_study(call: Call) -> msgspec.Struct | Response:
    """Return the document of a local study, the summary of a central one, or the protocol and the looks of a pilot."""
    if isinstance(call.study, PilotStudy):
        if call.study.shown is None:
            call.study.check_open()
        assert call.study.shown is not None
        return call.study.shown
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


def _health(studies: Iterable[AbstractServedStudy]) -> HealthAnswer:
    found = list(studies)
    return HealthAnswer({one.name: one.state for one in found}, {one.name: one.missing for one in found if one.missing})


def _readiness(health: HealthAnswer, ready: bool) -> Response:
    return Response(msgspec.json.encode(health), 200 if ready else 503, media_type=JSON)


@endpoint("healthz", "GET", "/healthz", gives=(HealthAnswer,), tag="service")
async def show_health(call: Call) -> HealthAnswer:
    """Return 200 while the process answers, whatever its stores do: restarting it would not mend a database."""
    return _health(call.studies)


@endpoint("readyz", "GET", "/readyz", gives=(HealthAnswer,), tag="service", unready=True)
async def show_readiness(call: Call) -> Response:
    """Return 200 once all studies were opened, unless none of them can be served. `missing` says what is wrong."""
    health = _health(call.studies)
    served = len(health.missing) < len(health.studies) or not health.studies
    return _readiness(health, served and not call.studies.starting)


@endpoint("readyz-study", "GET", "/readyz/{study}", gives=(HealthAnswer,), tag="service", unready=True)
async def show_study_readiness(call: Call) -> Response:
    """Return 200 if this study can be served."""
    health = _health([call.study])
    return _readiness(health, not health.missing)


@endpoint(
    "client",
    "GET",
    "/client/{file}",
    refuses=("not-found",),
    tag="service",
    also=((304, "`If-None-Match` has the ETag of the file"),),
)
async def show_client(call: Call) -> Response:
    """Return a file of the npm package of the clients, for pages of this origin. Others ship their own copy."""
    name = call.path_params["file"]
    content = read_package().get(name)
    if content is None:
        raise RefusedError("not-found", f"The package has {', '.join(PACKAGE_FILES)}.")
    tag = f'"{hashlib.sha256(content).hexdigest()}"'
    headers = {"etag": tag, "x-content-type-options": "nosniff", **_REVALIDATE}
    if call.header("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(content, headers=headers, media_type=MEDIA_TYPES[PurePath(name).suffix])


@endpoint("openapi", "GET", "/openapi.json", tag="service")
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
    count_outcomes,
    count_outcomes_of_many,
    list_studies,
    show_study,
    show_plan,
    count_report,
    show_certificate,
    show_health,
    show_readiness,
    show_study_readiness,
    show_client,
    show_openapi,
)
"""The endpoints of the public listener."""
