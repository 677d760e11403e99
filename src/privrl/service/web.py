"""Endpoints, and the application that is made of a list of them.

An `Endpoint` says who may call it, what it takes and what it answers; the application checks the key, limits the size,
times the call and turns a refusal into its problem document. The same list gives the OpenAPI document (`openapi.py`).
"""

import functools
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from privrl.service.access import Role
from privrl.service.refusals import ProblemDocument, RefusedError
from privrl.service.registry import AbstractServed, Studies

AsgiScope = Mapping[str, Any]
AsgiReceive = Callable[[], Awaitable[Mapping[str, Any]]]
AsgiSend = Callable[[Mapping[str, Any]], Awaitable[None]]
"""What ASGI says about a request, how its body comes, and how an answer leaves."""

HttpHeaders = tuple[tuple[bytes, bytes], ...]

_LOG = logging.getLogger("privrl.service")
_JSON, _PROBLEM = b"application/json", b"application/problem+json"
_ENCODER = msgspec.json.Encoder()
_SMALL = 4_096
_OVERVIEWS = ("/openapi.json", "/operator/")  # where a listener says what it has
_NO_STORE = ((b"cache-control", b"no-store"),)
_CORS = ((b"access-control-allow-origin", b"*"),)
_PREFLIGHT = (
    *_CORS,
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"600"),
)


class HttpAnswer(NamedTuple):
    """Status, body and further headers; nothing in them depends on anybody's record but through published plans."""

    status: int = 200
    body: bytes = b""
    kind: bytes = _JSON
    headers: HttpHeaders = ()

    @classmethod
    def of(cls, content: Any, status: int = 200) -> "HttpAnswer":
        """JSON of a `Struct` or of what `msgspec` can encode."""
        return cls(status, _ENCODER.encode(content))


@dataclass(frozen=True)
class Endpoint:
    """One method of one address.

    Arguments:
        name: for the operator's figures and the OpenAPI document; in lower case with hyphens.
        path: `{study}` in it is the name of a study, which the application looks up.
        handler: answers a `Call`, or raises `RefusedError`.
        summary: one line.
        roles: whose keys are accepted; none: no key is needed.
        takes: the type of the body, or several, for the OpenAPI document; `bytes` for a body that is not JSON.
        gives: what is answered, likewise.
        limit: the largest body in bytes.
        refuses: the reasons that this endpoint has besides those that all have.
        shared: pages of any origin may call it (CORS), without credentials.
        private: that it is called in a central study, and how, depends on people's records, or on whether they come
            back: neither timed nor counted there.
    """

    name: str
    method: str
    path: str
    handler: "Callable[[Call], Awaitable[HttpAnswer]]"
    summary: str
    roles: tuple[Role, ...] = ()
    takes: tuple[type, ...] = ()
    gives: tuple[type, ...] = ()
    status: int = 200
    limit: int = _SMALL
    refuses: tuple[str, ...] = ()
    shared: bool = False
    private: bool = False

    @functools.cached_property
    def of_study(self) -> bool:
        """Whether its path names a study."""
        return "{study}" in self.path


@dataclass(slots=True)
class Call:
    """One request, as a handler sees it."""

    studies: Studies
    endpoint: Endpoint
    scope: AsgiScope
    parameters: re.Match[str]
    """The parts of the address that its path names."""
    _receive: AsgiReceive = field(repr=False)
    served: AbstractServed | None = None

    @property
    def study(self) -> AbstractServed:
        """The study that the address names."""
        assert self.served is not None
        return self.served

    def header(self, name: bytes) -> bytes | None:
        """A header of the request, by its name in lower case; one that is there twice is none."""
        found = [value for key, value in self.scope["headers"] if key == name]
        return found[0] if len(found) == 1 else None

    async def body(self) -> bytes:
        """All bytes of the request, refused beyond the limit."""
        parts, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise RefusedError("malformed", "The request ended before its body did. Nothing was kept.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > self.endpoint.limit:
                raise RefusedError("too-large", f"This address takes at most {self.endpoint.limit} bytes.")
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Application:
    """The ASGI application of a list of endpoints; one for each listener."""

    def __init__(self, studies: Studies, endpoints: Sequence[Endpoint]) -> None:
        self._studies = studies
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        for by_method in by_path.values():
            if "GET" in by_method:
                by_method["HEAD"] = by_method["GET"]  # the server leaves out the body
        self._overview = next((path for path in _OVERVIEWS if path in by_path), "the guide")
        self._addresses = [(_pattern(path), by_method) for path, by_method in by_path.items()]

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        served: AbstractServed | None = None
        endpoint: Endpoint | None = None
        more: HttpHeaders = ()
        try:
            parameters, by_method = self._address(scope["path"])
            endpoint = by_method.get(scope["method"])
            if endpoint is None:
                answer = _other_method(scope["method"], by_method)
            else:
                call = Call(self._studies, endpoint, scope, parameters, receive)
                if endpoint.of_study:
                    served = call.served = self._studies.named(parameters["study"])
                if endpoint.roles:
                    self._authorise(call, endpoint)
                answer = await endpoint.handler(call)
                more = _CORS if endpoint.shared else ()
                if served is not None and not _is_private(endpoint, served):
                    served.counters.seconds[endpoint.name].add(time.perf_counter() - began)
        except Exception as error:
            private = _is_private(endpoint, served)
            refused = error if isinstance(error, RefusedError) else _failed(error, private)
            if not private:
                (self._studies if served is None else served).counters.refused(refused.reason)
            answer = _problem(refused)
        await _sent(answer, send, more)

    def _address(self, path: str) -> tuple[re.Match[str], Mapping[str, Endpoint]]:
        for pattern, by_method in self._addresses:
            found = pattern.fullmatch(path)
            if found is not None:
                return found, by_method
        raise RefusedError("not-found", f"See {self._overview} for what there is.")

    def _authorise(self, call: Call, endpoint: Endpoint) -> None:
        header = call.header(b"authorization")
        if call.served is None:
            self._studies.authorised(header, endpoint.roles)
        else:
            self._studies.key(header, endpoint.roles, call.served)


def _pattern(path: str) -> re.Pattern[str]:
    """What an address looks like; a part in braces is anything without a slash."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path)))


def _other_method(method: str, by_method: Mapping[str, Endpoint]) -> HttpAnswer:
    if method == "OPTIONS" and any(endpoint.shared for endpoint in by_method.values()):
        return HttpAnswer(204, headers=_PREFLIGHT)
    allowed = sorted(by_method)
    headers = ((b"allow", ", ".join(allowed).encode()),)
    raise RefusedError("not-allowed", f"Use {' or '.join(allowed)} here.", headers)


def _is_private(endpoint: Endpoint | None, served: AbstractServed | None) -> bool:
    return endpoint is not None and endpoint.private and (served is None or served.kind == "central")


def _problem(refused: RefusedError) -> HttpAnswer:
    headers: HttpHeaders = (*_CORS, *refused.headers)
    if refused.retry_after is not None:
        headers = (*headers, (b"retry-after", str(refused.retry_after).encode()))
    if refused.reason == "no-key":
        headers = (*headers, (b"www-authenticate", b"Bearer"))
    return HttpAnswer(refused.status, msgspec.json.encode(ProblemDocument.of(refused)), _PROBLEM, headers)


def _failed(error: Exception, private: bool) -> RefusedError:
    """What is said about a mistake of ours: its kind in the log, and never its words, which may quote a record; nothing
    where that there was a mistake may depend on one."""
    if not private:
        _LOG.error("A request failed: %s in line %s.", type(error).__name__, _where(error))
    return RefusedError("failed", "This is a mistake of the service. Send the request again; nothing counts twice.")


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_lineno} of {trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}"


async def _sent(answer: HttpAnswer, send: AsgiSend, more: HttpHeaders = ()) -> None:
    status, body, kind, headers = answer
    length = (b"content-length", b"%d" % len(body))
    first = (length, (b"content-type", kind)) if body else (length,)
    kept = () if headers and any(name == b"cache-control" for name, _ in headers) else _NO_STORE
    await send({"type": "http.response.start", "status": status, "headers": [*first, *headers, *more, *kept]})
    await send({"type": "http.response.body", "body": body})
