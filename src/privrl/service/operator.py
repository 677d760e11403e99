"""The operator's listener: how studies stand, pausing, resuming and purging them, one page, and metrics.

It listens on an address of its own, by default on this machine alone. Every request needs a key with the role
`operator` and must name a host that the service knows (a page elsewhere whose name leads here does not). Browsers may
send the key as the password of HTTP's basic authentication, for reading only: they would send it along with a form on
somebody else's page, so what changes something takes `Authorization: Bearer` alone.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import re

from privrl.privacy.store.errors import StoreError
from privrl.service.access import Role
from privrl.service.bodies import HealthAnswer
from privrl.service.handlers import healthz, readyz
from privrl.service.metrics import CONTENT_TYPE, written
from privrl.service.operator_page import operator_page
from privrl.service.refusals import RefusedError
from privrl.service.registry import AbstractServed
from privrl.service.status import ServiceStatus, StudyStatus, status_of, status_of_all
from privrl.service.web import Call, Endpoint, HttpAnswer

_PORT = re.compile(r":\d+\Z")
_ROLES: tuple[Role, ...] = ("operator",)
_PATIENCE = 1.0  # seconds that a page waits for a busy store


async def _page(call: Call) -> HttpAnswer:
    try:
        seen = await _seen(call)
    except RefusedError as refused:
        if refused.reason not in ("no-key", "wrong-key"):
            raise
        asking = ((b"www-authenticate", b'Basic realm="privrl operator", charset="UTF-8"'),)
        words = b"Give any name, and a key with the role `operator` as the password."
        return HttpAnswer(401, words, b"text/plain; charset=utf-8", asking)
    html = operator_page(status_of_all(call.studies, seen))
    return HttpAnswer(200, html.encode(), b"text/html; charset=utf-8", (*_policy(html), (b"refresh", b"15")))


async def _all(call: Call) -> HttpAnswer:
    return HttpAnswer.of(status_of_all(call.studies, await _seen(call)))


async def _one(call: Call) -> HttpAnswer:
    await _refreshed([_study(call)])
    return HttpAnswer.of(status_of(call.study))


async def _metrics(call: Call) -> HttpAnswer:
    return HttpAnswer(200, written(status_of_all(call.studies, await _seen(call))), CONTENT_TYPE)


async def _pause(call: Call) -> HttpAnswer:
    _study(call, changes=True).pause()
    return HttpAnswer.of(status_of(call.study))


async def _resume(call: Call) -> HttpAnswer:
    _study(call, changes=True).resume()
    return HttpAnswer.of(status_of(call.study))


async def _purge(call: Call) -> HttpAnswer:
    study = _study(call, changes=True)
    try:
        await study.purge()
    except RefusedError:
        raise
    except Exception as error:
        why = str(error) if isinstance(error, StoreError) else "The service may not delete there."
        raise RefusedError(
            "not-purged", f"{why} Purge as the owner of the tables: `privrl store purge STORE --store-log LOG`."
        ) from error
    return HttpAnswer.of(status_of(study))


_STUDY = "/operator/studies/{study}"
_KEY = ("no-key", "wrong-key", "wrong-host")
_PURGE = (*_KEY, "starting", "unavailable", "busy", "not-purged")
ENDPOINTS = (
    Endpoint("operator-page", "GET", "/operator/", _page, "One page for a browser", refuses=_KEY),
    Endpoint(
        "pause", "POST", f"{_STUDY}:pause", _pause, "Takes nobody; clocks go on", gives=(StudyStatus,), refuses=_KEY
    ),
    Endpoint("resume", "POST", f"{_STUDY}:resume", _resume, "Takes people again", gives=(StudyStatus,), refuses=_KEY),
    Endpoint("purge", "POST", f"{_STUDY}:purge", _purge, "Removes what is raw", gives=(StudyStatus,), refuses=_PURGE),
    Endpoint("status", "GET", "/operator/studies", _all, "How all studies stand", gives=(ServiceStatus,), refuses=_KEY),
    Endpoint("study-status", "GET", _STUDY, _one, "How a study stands", gives=(StudyStatus,), refuses=_KEY),
    Endpoint("metrics", "GET", "/metrics", _metrics, "The same for Prometheus", refuses=_KEY),
    Endpoint("healthz", "GET", "/healthz", healthz, "Whether the process works", gives=(HealthAnswer,)),
    Endpoint("readyz", "GET", "/readyz", readyz, "Whether every study can be used", gives=(HealthAnswer,)),
)
"""What the second listener serves."""


async def _seen(call: Call) -> list[AbstractServed]:
    """The studies that a request may see, as they stand now."""
    _check_host(call)
    return await _refreshed(call.studies.authorised(_as_bearer(call.header(b"authorization")), _ROLES))


def _study(call: Call, *, changes: bool = False) -> AbstractServed:
    """The study of an address, if the request may see it."""
    _check_host(call)
    header = call.header(b"authorization")
    call.studies.key(header if changes else _as_bearer(header), _ROLES, call.study)
    return call.study


async def _refreshed(seen: list[AbstractServed]) -> list[AbstractServed]:
    """Looks into the stores; where a writer is busy for long, what was known before is shown."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await asyncio.gather(*(one.refresh() for one in seen), return_exceptions=True)
    return seen


def _check_host(call: Call) -> None:
    named = [value.decode("latin-1").lower() for name, value in call.scope["headers"] if name == b"host"]
    if len(named) != 1 or _PORT.sub("", named[0]) not in call.studies.operator_hosts:
        raise RefusedError(
            "wrong-host", "The operator's port has another name. Use that one, or start with `--operator-host NAME`."
        )


def _as_bearer(header: bytes | None) -> bytes | None:
    """A key that a browser sent as a password, as everybody else sends it."""
    if header is None or header[:6].lower() != b"basic ":
        return header
    try:
        _, _, password = base64.b64decode(header[6:], validate=True).partition(b":")
    except binascii.Error:
        return None
    return b"Bearer " + password


def _policy(html: str) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of a page that runs nothing, fetches nothing, is framed nowhere, and whose only style is its own."""
    style = html.split("<style>", 1)[1].split("</style>", 1)[0]
    sha256 = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{sha256}'; base-uri 'none'; form-action 'none'"
    return (
        (b"content-security-policy", f"{policy}; frame-ancestors 'none'".encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
    )
