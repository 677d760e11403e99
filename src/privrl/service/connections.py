"""Connections with limits: on the head of a request, and on the time that a whole request takes to come in.

Bodies have limits of their own (`Endpoint.limit`). Without these, anybody could fill the memory with headers, or hold
all connections with requests that never end.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = 32_768  # bytes of a request's line and headers
_SECONDS = 30.0  # for a request to come in, from its first byte; and for the first one to begin


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection with limits; what is beyond them is ended without an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._in_head, self._head = True, 0
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(_SECONDS, transport.close)

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

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
