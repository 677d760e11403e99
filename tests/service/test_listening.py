"""Requests over real sockets: two addresses in one process, limits on bodies, HEAD and other methods."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp

from privrl.service.application import Call, endpoint, make_application
from privrl.service.listening import Address, Listeners, make_config, split_by_port
from privrl.service.operator_endpoints import ENDPOINTS as OPERATOR
from privrl.service.public_endpoints import show_health
from privrl.service.served_studies import ServedStudies

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
POST = b"POST /echo HTTP/1.1\r\nhost: x\r\n"
HERE = Address("127.0.0.1", 0)


@endpoint("echo", "POST", "/echo", limit=300_000)
async def echo(call: Call) -> Response:
    """Return the body."""
    return Response(await call.read_bytes())


@endpoint("broken", "GET", "/broken")
async def broken(call: Call) -> msgspec.Struct:
    """Fail in a way that no handler foresees."""
    raise KeyError("anna")


@contextlib.asynccontextmanager
async def listening(app: ASGIApp, sockets: list[socket.socket]) -> AsyncIterator[None]:
    server = uvicorn.Server(make_config(app, Listeners(HERE, HERE)))
    task = asyncio.create_task(server.serve(sockets))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await task


async def exchange(used: socket.socket, *parts: bytes) -> bytes:
    """What a server sends on one connection until half a second after the last part."""
    reader, writer = await asyncio.open_connection(*used.getsockname())
    found = b""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        async with asyncio.timeout(0.5):
            while more := await reader.read(65_536):
                found += more
    except (TimeoutError, OSError):
        pass
    finally:
        writer.close()
    return found


def answer(*parts: bytes) -> bytes:
    async def work() -> bytes:
        app = make_application(ServedStudies([]), [show_health, echo, broken])
        used = HERE.listen("--listen")
        async with listening(app, [used]):
            return await exchange(used, *parts)

    return asyncio.run(work())


def test_requests_follow_each_other_on_one_connection() -> None:
    large = POST + b"content-length: 200000\r\n\r\n" + b"x" * 200_000
    assert answer(large, large, GET + b"\r\n").count(b"200 OK") == 3


@pytest.mark.parametrize("length", [b"content-length: 100000000", b"transfer-encoding: chunked"])
def test_a_body_beyond_its_limit_is_refused_before_it_has_come(length: bytes) -> None:
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n" if b"chunked" in length else b"x" * 65_536
    found = answer(POST + length + b"\r\n\r\n", *[chunk] * 6)
    assert b" 413 " in found and b"urn:privrl:problem:too-large" in found


def test_a_request_that_is_not_http_is_refused() -> None:
    for part in (b"\x16\x03\x01 a client begins TLS\r\n\r\n", GET + b"a: b\x00\r\n\r\n"):
        assert b" 400 " in answer(part)


def test_a_probe_without_a_body_and_an_unknown_method() -> None:
    """Load balancers send HEAD. A client with another method learns which ones are allowed."""
    head, body = answer(GET.replace(b"GET", b"HEAD") + b"\r\n").split(b"\r\n\r\n")
    assert b"200 OK" in head and b"content-length: 27" in head and body == b""
    found = answer(GET.replace(b"GET", b"DELETE") + b"\r\n")
    assert b" 405 " in found and b"allow: GET, HEAD\r\n" in found and b"urn:privrl:problem:not-allowed" in found


def test_an_error_of_the_service_is_logged_without_its_message(caplog: pytest.LogCaptureFixture) -> None:
    found = answer(GET.replace(b"healthz", b"broken") + b"\r\n")
    assert b" 500 " in found and b"urn:privrl:problem:failed" in found
    (record,) = [one for one in caplog.records if one.name == "privrl.service"]
    assert "KeyError in line" in record.getMessage() and "test_listening.py" in record.getMessage()
    assert "anna" not in caplog.text and b"anna" not in found


def test_the_port_decides_who_is_served_and_no_header_does() -> None:
    """One server has both sockets: the operator's endpoints must not appear on the public one."""

    async def work() -> list[bytes]:
        studies = ServedStudies([])
        apps = make_application(studies, [show_health]), make_application(studies, OPERATOR)
        sockets = [HERE.listen("--listen"), HERE.listen("--operator")]
        public, operator = (one.getsockname()[1] for one in sockets)
        request = f"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:{operator}\r\nx-forwarded-port: {operator}\r\n\r\n"
        async with listening(split_by_port(*apps, public, operator), sockets):
            return [await exchange(one, request.encode()) for one in sockets]

    public, operator = asyncio.run(work())
    assert b"urn:privrl:problem:not-found" in public and b"urn:privrl:problem:no-key" in operator
