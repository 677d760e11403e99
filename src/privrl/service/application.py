"""The HTTP layer: endpoints as declarations, and the Starlette application that serves a list of them.

An `Endpoint` states who may call it, what it takes and what it returns. The application checks the key, limits the
body, measures the call and turns a refusal into its problem document. `openapi.py` describes the same list. Each
response has a random id (`x-request-id`), which the log has too if the service failed. An id that a client sends is
ignored, because it may be that of a person.
"""

import inspect
import logging
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from privrl.service.access import Role
from privrl.service.event_log import log_event
from privrl.service.refusals import RefusedError, describe_decoding
from privrl.service.served_studies import AbstractServedStudy, ServedStudies

JSON = "application/json"
_T = TypeVar("_T")
_SMALL = 4_096
_CORS = {"access-control-allow-origin": "*", "access-control-expose-headers": "etag, retry-after, x-request-id"}
_PREFLIGHT = _CORS | {
    "access-control-allow-methods": "GET, POST",
    "access-control-allow-headers": "authorization, content-type",
    "access-control-max-age": "600",
}


class Call(Request):
    """A request, the studies of this process, and the study that the address names.

    Arguments:
        limit: the largest body, in bytes.
    """

    def __init__(self, scope: Scope, receive: Receive, studies: ServedStudies, limit: int) -> None:
        super().__init__(scope, receive)
        self.studies, self._limit = studies, limit
        name = self.path_params.get("study")
        self.found: AbstractServedStudy | None = None if name is None else studies.find(name)

    @property
    def study(self) -> AbstractServedStudy:
        """The study that the address names."""
        assert self.found is not None
        return self.found

    def header(self, name: str) -> str | None:
        """A header of the request; `None` if it is missing or given twice."""
        values = self.headers.getlist(name)
        return values[0] if len(values) == 1 else None

    async def read_bytes(self) -> bytes:
        """Read the body; one that exceeds the limit is refused before it is complete."""
        parts, size = [], 0
        try:
            async for part in self.stream():
                size += len(part)
                if size > self._limit:
                    raise RefusedError("too-large", f"This address takes at most {self._limit} bytes.")
                parts.append(part)
        except ClientDisconnect:
            raise RefusedError("malformed", "The request ended before its body did. Nothing was kept.") from None
        return b"".join(parts)

    async def read(self, decoder: msgspec.json.Decoder[_T]) -> _T:
        """Decode the body; a refusal quotes nothing of it."""
        body = await self.read_bytes()
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RefusedError("malformed", describe_decoding(error)) from None


Handler = Callable[[Call], Awaitable[msgspec.Struct | Response]]


@dataclass(frozen=True)
class Endpoint:
    """One method of one address.

    Arguments:
        name: for the operator's figures and the OpenAPI document; in lower case with hyphens.
        path: `{study}` in it is the name of a study, which the application looks up.
        handler: returns the content of the response, or the response; or raises `RefusedError`.
        summary: one line.
        roles: the roles whose keys are accepted; empty if no key is needed.
        takes, gives: types of the body and of the response, for the OpenAPI document; `bytes` if it is not JSON.
        status: of a response that the handler returns as content.
        limit: the largest body, in bytes.
        refuses: reasons for a refusal, besides those that every endpoint has.
        shared: pages of any origin may call it (CORS), without credentials.
        private: in a central study or a pilot, the number of calls depends on people's records or on who returns. The
            service then neither counts nor times them.
        tag: the group in the OpenAPI document.
        unready: the response may also have the status 503, with the same content.
        also: further responses without content: their status and what it means.
    """

    name: str
    method: str
    path: str
    handler: Handler
    summary: str
    roles: tuple[Role, ...]
    takes: tuple[type, ...]
    gives: tuple[type, ...]
    status: int
    limit: int
    refuses: tuple[str, ...]
    shared: bool
    private: bool
    tag: str
    unready: bool
    also: tuple[tuple[int, str], ...]


def endpoint(
    name: str,
    method: str,
    path: str,
    *,
    roles: tuple[Role, ...] = (),
    takes: tuple[type, ...] = (),
    gives: tuple[type, ...] = (),
    status: int = 200,
    limit: int = _SMALL,
    refuses: tuple[str, ...] = (),
    shared: bool = False,
    private: bool = False,
    tag: str = "all studies",
    unready: bool = False,
    also: tuple[tuple[int, str], ...] = (),
) -> Callable[[Handler], Endpoint]:
    """Declare a handler as an `Endpoint`; the first line of its docstring is the summary."""

    def declare(handler: Handler) -> Endpoint:
        summary = (inspect.getdoc(handler) or "").partition("\n")[0].rstrip(".")
        facts = roles, takes, gives, status, limit, refuses, shared, private, tag, unready, also
        return Endpoint(name, method, path, handler, summary, *facts)

    return declare


def make_application(studies: ServedStudies, endpoints: Sequence[Endpoint]) -> Starlette:
    """Make the application of one listener."""

    async def refuse(request: Request, error: Exception) -> Response:
        """Turn Starlette's 404 and 405 into problem documents."""
        assert isinstance(error, HTTPException)
        allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
        if error.status_code == 405:
            refused = RefusedError("not-allowed", f"Use {' or '.join(allowed)} here.", {"allow": ", ".join(allowed)})
        else:
            refused = RefusedError("not-found", "See `/openapi.json`, or `/operator/` on the operator's port.")
        studies.counters.count_refusal(refused.reason)
        response = _problem(refused)
        response.headers["x-request-id"] = secrets.token_hex(8)
        return response

    methods = [[one.method, "OPTIONS"] if one.shared else [one.method] for one in endpoints]
    routes = [
        Route(one.path, _Answer(studies, one), methods=some) for one, some in zip(endpoints, methods, strict=True)
    ]
    made = Starlette(routes=routes, exception_handlers={404: refuse, 405: refuse})
    made.router.redirect_slashes = False
    return made


class _Answer:
    """The ASGI application of one endpoint."""

    def __init__(self, studies: ServedStudies, served: Endpoint) -> None:
        self._studies, self._endpoint = studies, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = Response(status_code=204, headers=_PREFLIGHT) if scope["method"] == "OPTIONS" else None
        if response is None:
            request = secrets.token_hex(8)
            response = await self._respond(scope, receive, request)
            response.headers["x-request-id"] = request
            if self._endpoint.shared:
                response.headers.update(_CORS)
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, request: str) -> Response:
        began = time.perf_counter()
        endpoint, study = self._endpoint, None
        try:
            call = Call(scope, receive, self._studies, endpoint.limit)
            study = call.found
            if endpoint.roles:
                call.study.keys.find(call.header("authorization"), endpoint.roles)
            content = await endpoint.handler(call)
            if not isinstance(content, Response):
                content = Response(msgspec.json.encode(content), endpoint.status, media_type=JSON)
            if study is not None and not self._is_private(study):
                study.counters.seconds[endpoint.name].add(time.perf_counter() - began)
            return content
        except Exception as error:
            private = self._is_private(study)
            refused = error if isinstance(error, RefusedError) else _failure(error, private, request)
            if not private:
                (self._studies if study is None else study).counters.count_refusal(refused.reason)
            return _problem(refused)

    def _is_private(self, study: AbstractServedStudy | None) -> bool:
        return self._endpoint.private and (study is None or study.kind != "local")


def _problem(refused: RefusedError) -> Response:
    headers = _CORS | refused.headers
    if refused.retry_after is not None:
        headers["retry-after"] = str(refused.retry_after)
    if refused.reason == "no-key":
        headers["www-authenticate"] = "Bearer"
    headers["cache-control"] = "no-store"
    content = msgspec.json.encode(refused.document)
    return Response(content, refused.status, headers, "application/problem+json")


def _failure(error: Exception, private: bool, request: str) -> RefusedError:
    """Refuse after an error of the service.

    The log gets the type and the line of the error and the random id of the request, never the message of the error,
    which may quote a record. It gets nothing if the error itself may depend on a record.
    """
    if not private:
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        file = frame.f_code.co_filename.rsplit("/", 1)[-1]
        message = f"A request failed: {type(error).__name__} in line {line} of {file}."
        log_event("failure", message, level=logging.ERROR, request=request)
    return RefusedError("failed", "The service has failed. Send the request again; nothing counts twice.")
