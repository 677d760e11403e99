"""Connections over a real socket: heads that never end, bodies that are too large, and requests that never come."""

import asyncio
from typing import Any

import pytest
import uvicorn

from privrl.service import connections
from privrl.service.connections import LimitedConnection
from privrl.service.handlers import healthz
from privrl.service.registry import Studies
from privrl.service.web import Application, Endpoint, HttpAnswer

GET = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"


def app() -> Application:
    return Application(Studies([]), [Endpoint("healthz", "GET", "/healthz", healthz, "", limit=100), ECHO])


async def _echo(call: Any) -> Any:
    return HttpAnswer(200, await call.body())


ECHO = Endpoint("echo", "POST", "/echo", _echo, "", limit=300_000)


async def answered(*parts: bytes) -> bytes:
    """What comes back on a connection until it ends, or half a second has passed."""
    server = uvicorn.Server(uvicorn.Config(app(), port=0, http=LimitedConnection, lifespan="off", log_config=None))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
    found = b""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        async with asyncio.timeout(0.5):
            while more := await reader.read(65_536):
                found += more
            found += b" closed"
    except TimeoutError:
        pass
    except OSError:
        found += b" closed"
    finally:
        writer.close()
        server.should_exit = True
        await task
    return found


def test_heads_are_limited() -> None:
    assert b"200 OK" in asyncio.run(answered(GET + b"\r\n"))
    assert b"200 OK" in asyncio.run(answered(GET + b"a: " + b"x" * 20_000, b"\r\n\r\n"))
    for parts in ([b"a: " + b"x" * 20_000] * 3, [b"a: 1\r\n" * 3_000] * 3):
        assert asyncio.run(answered(GET, *parts, b"\r\n\r\n")) == b" closed"


def test_requests_follow_each_other_and_large_bodies_are_no_heads() -> None:
    large = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200_000
    found = asyncio.run(answered(large, large, GET + b"\r\n"))
    assert found.count(b"200 OK") == 3 and not found.endswith(b" closed")


def test_a_body_beyond_its_limit_is_refused_before_it_has_come() -> None:
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\n\r\n"
    assert b" 413 " in asyncio.run(answered(head, *[b"x" * 65_536] * 6))


def test_what_is_no_http_is_refused_like_everything_else() -> None:
    for part in (
        b"\x16\x03\x01 somebody begins TLS\r\n\r\n",
        GET + b"a: b\x00\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        found = asyncio.run(answered(part))
        assert b" 400 " in found and b"urn:privrl:problem:malformed" in found and found.endswith(b" closed")


def test_a_probe_without_a_body_and_a_method_that_is_none() -> None:
    """Load balancers ask with HEAD; whoever uses another method is told which there are."""
    head, body = asyncio.run(answered(GET.replace(b"GET", b"HEAD") + b"\r\n")).split(b"\r\n\r\n")
    assert b"200 OK" in head and b"content-length: 14" in head and body == b""
    found = asyncio.run(answered(GET.replace(b"GET", b"DELETE") + b"\r\n"))
    assert b" 405 " in found and b"allow: GET, HEAD\r\n" in found and b"urn:privrl:problem:not-allowed" in found


@pytest.mark.parametrize("parts", [[], [GET], [b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx"]])
def test_requests_that_never_end_are_ended(parts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SECONDS", 0.1)
    assert asyncio.run(answered(*parts)).endswith(b" closed")


def test_who_comes_when_there_are_too_many_is_sent_away_and_the_others_stay() -> None:
    async def two() -> tuple[bytes, bytes, bytes]:
        server = uvicorn.Server(
            uvicorn.Config(app(), port=0, http=LimitedConnection, lifespan="off", log_config=None, limit_concurrency=1)
        )
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        where = server.servers[0].sockets[0].getsockname()
        first, second = [await asyncio.open_connection(*where) for _ in range(2)]
        found = []
        for (reader, writer), end in ((first, b"}}"), (second, b"}"), (first, b"}}")):
            writer.write(GET + b"\r\n")
            found.append(await reader.readuntil(end))
        assert await second[0].read() == b""  # closed
        for _, writer in (first, second):
            writer.close()
        server.should_exit = True
        await task
        return found[0], found[1], found[2]

    before, refused, after = asyncio.run(two())
    assert b"200 OK" in before and b"200 OK" in after
    assert b" 503 " in refused and b"urn:privrl:problem:busy" in refused and b"retry-after: 1" in refused
