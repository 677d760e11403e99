"""Connections with limits: on how many there are, on the head of a request, and on the time that one takes to come in.

Bodies have limits of their own (`Endpoint.limit`). Without these, anybody could fill the memory with headers, or hold
all connections with requests that never end. Who comes when there are too many connections is told so and sent away;
those that are there already are served as before.
"""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from privrl.service.refusals import ProblemDocument, RefusedError

_HEAD = 32_768  # bytes of a request's line and headers
_SECONDS = 30.0  # for a request to come in, from its first byte; and for the first one to begin
_SURPLUS_SECONDS = 2.0  # the same, of a connection that is one too many


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits; a head or a request beyond them is ended without an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        most, self.limit_concurrency = self.limit_concurrency, None  # uvicorn would end those that are there already
        surplus = most is not None and len(self.connections) > most
        if surplus:
            self.app = _crowded
        self._in_head, self._head = True, 0
        seconds = _SURPLUS_SECONDS if surplus else _SECONDS
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(seconds, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(_SECONDS, self.transport.close)
        self._complete = False
        super().data_received(data)
        if self._complete:  # what follows is counted from the next bytes on
            return
        if self._in_head:
            self._head += len(data)
            if self._head > _HEAD:
                self.transport.close()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head, self._complete = True, 0, True
        self._end_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, in place of uvicorn."""
        headers, body = _last_answer(RefusedError("malformed", "This is not a request of HTTP/1.1 or HTTP/1.0."))
        lines = [b"HTTP/1.1 400 Bad Request", *(name + b": " + value for name, value in headers), b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _crowded(scope: Any, receive: Any, send: Any) -> None:
    """What is answered on a connection that is one too many."""
    del scope, receive
    refused = RefusedError("busy", "There are too many connections. Nothing was kept; connect again soon.")
    headers, body = _last_answer(refused)
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _last_answer(refused: RefusedError) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """The headers and the body of a refusal after which the connection is closed."""
    body = msgspec.json.encode(ProblemDocument.of(refused))
    headers = [
        (b"content-length", b"%d" % len(body)),
        (b"content-type", b"application/problem+json"),
        (b"connection", b"close"),
        (b"cache-control", b"no-store"),
    ]
    if refused.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refused.retry_after))
    return headers, body
