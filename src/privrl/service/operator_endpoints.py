"""The endpoints for the operator: status of studies, pausing, resuming and purging them, one page, and metrics.

They have an address of their own, by default on this machine only. Every request needs a key with the role `operator`
and must name a host that the service knows; a foreign page whose DNS name resolves to this machine does not. A browser
may send the key as the password of HTTP basic authentication, for reading only: it would send the password along with a
form on a foreign page, so changes require `Authorization: Bearer`.
"""

import asyncio
import base64
import binascii
import contextlib
import re

import msgspec
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from privrl.privacy.store.errors import StoreError
from privrl.service.access import Role
from privrl.service.application import Call, endpoint
from privrl.service.bodies import PurgeBody
from privrl.service.event_log import log_event
from privrl.service.metrics import CONTENT_TYPE, write_metrics
from privrl.service.operator_page import operator_page, page_policy
from privrl.service.public_endpoints import show_health, show_readiness, show_study_readiness
from privrl.service.refusals import RefusedError, describe_decoding
from privrl.service.served_studies import AbstractServedStudy
from privrl.service.status import ServiceStatus, StudyStatus, service_status, study_status

_PORT = re.compile(r":\d+\Z")
_ROLES: tuple[Role, ...] = ("operator",)
_REFRESH_SECONDS = 1.0  # that a page waits for a busy store
_STUDY = "/operator/studies/{study}"
_KEY = ("no-key", "wrong-key", "wrong-host")
_PAGE_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "refresh": "15",
}


@endpoint("operator-page", "GET", "/operator/", refuses=_KEY, tag="operator")
async def show_page(call: Call) -> Response:
    """Return one page for a browser."""
    try:
        status = service_status(call.studies, await _visible_studies(call))
    except RefusedError as refused:
        if refused.reason not in ("no-key", "wrong-key"):
            raise
        ask = {"www-authenticate": 'Basic realm="privrl operator", charset="UTF-8"'}
        return PlainTextResponse("Give any name, and a key with the role `operator` as the password.", 401, ask)
    html = operator_page(status)
    return HTMLResponse(html, headers={"content-security-policy": page_policy(html), **_PAGE_HEADERS})


@endpoint("status", "GET", "/operator/studies", gives=(ServiceStatus,), refuses=_KEY, tag="operator")
async def show_studies(call: Call) -> ServiceStatus:
    """Return the status of all studies."""
    return service_status(call.studies, await _visible_studies(call))


@endpoint("study-status", "GET", _STUDY, gives=(StudyStatus,), refuses=_KEY, tag="operator")
async def show_study(call: Call) -> StudyStatus:
    """Return the status of one study."""
    study = _authorise(call)
    await _refresh([study])
    return study_status(study)


@endpoint("metrics", "GET", "/metrics", refuses=_KEY, tag="operator")
async def show_metrics(call: Call) -> Response:
    """Return the status of all studies for Prometheus."""
    status = service_status(call.studies, await _visible_studies(call))
    return Response(write_metrics(status), headers={"content-type": CONTENT_TYPE})


@endpoint("pause", "POST", f"{_STUDY}:pause", gives=(StudyStatus,), refuses=_KEY, tag="operator")
async def pause(call: Call) -> StudyStatus:
    """Accept neither people nor records. Deadlines stay as they are."""
    study = _authorise(call, changes=True)
    study.paused = True
    log_event("pause", "The operator has paused the study on this machine.", study=study.name)
    return study_status(study)


@endpoint("resume", "POST", f"{_STUDY}:resume", gives=(StudyStatus,), refuses=_KEY, tag="operator")
async def resume(call: Call) -> StudyStatus:
    """Accept people and records again."""
    study = _authorise(call, changes=True)
    study.paused = False
    log_event("resume", "The operator has resumed the study on this machine.", study=study.name)
    return study_status(study)


@endpoint(
    "purge",
    "POST",
    f"{_STUDY}:purge",
    takes=(PurgeBody,),
    gives=(StudyStatus,),
    refuses=(*_KEY, "malformed", "too-large", "not-confirmed", "starting", "unavailable", "busy", "not-purged"),
    tag="operator",
)
async def purge(call: Call) -> StudyStatus:
    """Delete the raw sums and end the study. The body names it, because this cannot be undone."""
    study = _authorise(call, changes=True)
    body = await call.read_bytes()
    if (_decode_purge(body) if body else None) != study.name:
        confirmed = f'{{"study": "{study.name}"}}'
        raise RefusedError("not-confirmed", f"A purge cannot be undone. Confirm it with the body {confirmed}.")
    try:
        await study.purge()
    except RefusedError:
        raise
    except Exception as error:
        problem = str(error) if isinstance(error, StoreError) else "The service is not allowed to delete there."
        remedy = "Purge as the owner of the tables: `privrl store purge STORE --store-log LOG`."
        raise RefusedError("not-purged", f"{problem} {remedy}") from error
    log_event("purge", "The operator has purged the study: its raw sums are deleted.", study=study.name)
    return study_status(study)


ENDPOINTS = (
    show_page,
    pause,
    resume,
    purge,
    show_studies,
    show_study,
    show_metrics,
    show_health,
    show_readiness,
    show_study_readiness,
)
"""The endpoints of the operator's listener."""


def _decode_purge(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=PurgeBody).study
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError("malformed", describe_decoding(error)) from None


async def _visible_studies(call: Call) -> list[AbstractServedStudy]:
    """Return the studies that the key of a request may see, with what their stores show now."""
    _check_host(call)
    return await _refresh(call.studies.find_authorised(_as_bearer(call.header("authorization")), _ROLES))


def _authorise(call: Call, *, changes: bool = False) -> AbstractServedStudy:
    """Return the study of the address, if the request may see or change it."""
    _check_host(call)
    header = call.header("authorization")
    call.study.keys.find(header if changes else _as_bearer(header), _ROLES, reading=not changes)
    return call.study


async def _refresh(studies: list[AbstractServedStudy]) -> list[AbstractServedStudy]:
    """Read the stores. If a writer is busy, its study is shown as it was last read."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REFRESH_SECONDS):
            await asyncio.gather(*(one.refresh() for one in studies), return_exceptions=True)
    return studies


def _check_host(call: Call) -> None:
    named = [value.lower() for value in call.headers.getlist("host")]
    if len(named) != 1 or _PORT.sub("", named[0]) not in call.studies.operator_hosts:
        raise RefusedError(
            "wrong-host", "The operator's port has another name. Use that name, or start with `--operator-host NAME`."
        )


def _as_bearer(header: str | None) -> str | None:
    """Rewrite basic authentication, where the key is the password, as `Bearer KEY`."""
    if header is None or header[:6].lower() != "basic ":
        return header
    try:
        _, _, password = base64.b64decode(header[6:], validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return "Bearer " + password.decode("latin-1")
