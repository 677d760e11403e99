"""`python -m bench.serve [--requests N] [--rounds N] [ADDRESS]`: CPU time of the HTTP service per request.

A server in its own process has three echoes besides the endpoints of the service, in the same uvicorn: a Starlette
application with one route, to which the limits refer; a bare ASGI function; and a bare function that responds in
batches as the writer does, which shows the cost of the pauses between batches. 64 connections send one request after
another. Rounds of the echoes and of every kind of request are interleaved. The table shows the median over rounds of
the server's CPU time per request (all threads, commits included), as multiples of the first two echoes, the latency
that clients measure on this machine, and the number of people per commit. The exit code is 1 if a ratio exceeds its
limit. With an address (`STUDY` in it is replaced), the stores are in that database.
"""

import argparse
import asyncio
import contextlib
import gc
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from privrl.service import listening
from privrl.service.application import make_application
from privrl.service.listening import Address, Listeners
from privrl.service.opening import begin_study
from privrl.service.public_endpoints import ENDPOINTS
from privrl.service.study_file import read_study_file
from privrl.service.writer import MIN_RESPONSE_SECONDS
from privrl.studies.local.wire import Message, SignedTicket

CONNECTIONS = 64
_WARM = 3_000
STUDY = """
kind = "{kind}"
name = "{kind}"
recipe = "{recipe}"
users = 1000000
epsilon = 1.0
{rest}
store = "{store}"
[world]
env = "riverswim"
arguments = {{ states = 5 }}
"""
ECHOES = {"echo": "/echo", "bare echo": "/bare", "paced echo": "/paced"}
LIMITS = {"actions": 2.0, "tickets": 4.0, "tickets (local)": 2.0, "episodes": 5.0, "reports": 5.0}  # x echo


# ------------------------------------------------------------------------------------------------- the server's process


async def echo(request: Request) -> Response:
    """Return the body."""
    return Response(await request.body(), media_type="application/json")


async def bare_echo(scope: Any, receive: Any, send: Any) -> None:
    """Echo without a framework, for bodies that arrive in one piece."""
    body = (await receive())["body"]
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class PacedEcho:
    """Echo in batches, as a writer responds."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(MIN_RESPONSE_SECONDS, self._release)
        self._waiting.append(loop.create_future())
        await self._waiting[-1]
        await bare_echo(scope, receive, send)

    def _release(self) -> None:
        some, self._waiting = self._waiting, []
        for one in some:
            if not one.done():
                one.set_result(None)


def child(folder: Path, address: str | None) -> None:
    """Serve a central and a local study, the echoes, and the resources that the process has used."""
    files = []
    for kind, recipe, rest in (
        ("central", "dp-ucbvi", "delta = 1e-6\npatience = 3600"),
        ("local", "ldp-ucbvi", "ticket_rate = 1e9"),
    ):
        path = folder / f"{kind}.toml"
        store = f"{kind}.db" if address is None else address.replace("STUDY", kind)
        path.write_text(STUDY.format(kind=kind, recipe=recipe, rest=rest, store=store))
        files.append(read_study_file(path))
        begin_study(files[-1])
    key = files[0].keys.add("app", "bench")
    studies = listening.make_studies(files)
    people: dict[str, list[int]] = {}
    for served in studies:
        _watch(served, people)

    async def used(request: Request) -> Response:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        found = {"cpu": time.process_time(), "loop": time.thread_time(), "resident": resident}
        return JSONResponse(found | {"people": {kind: statistics.mean(some) for kind, some in people.items()}})

    app = make_application(studies, ENDPOINTS)
    echoes = Starlette(routes=[Route("/echo", echo, methods=["POST"]), Route("/used", used)])

    by_path: dict[str, Any] = {"/echo": echoes, "/used": echoes, "/bare": bare_echo, "/paced": PacedEcho()}

    async def both(scope: Any, receive: Any, send: Any) -> None:
        await by_path.get(scope["path"], app)(scope, receive, send)

    here = Address("127.0.0.1", 0)
    server, used_socket = uvicorn.Server(listening.make_config(both, Listeners(here, here))), here.listen("--listen")

    async def serving() -> None:
        studies.start()
        task = asyncio.create_task(server.serve([used_socket]))
        while not (studies.ready and server.started):
            await asyncio.sleep(0.01)
        gc.freeze()
        print(json.dumps({"port": used_socket.getsockname()[1], "key": key}), flush=True)
        await task

    listening.tune_interpreter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving())


def _watch(served: Any, people: dict[str, list[int]]) -> None:
    """Record the number of people of each kind in a commit."""
    inner = served._commit_people

    def commit_people(kind: str, some: Any) -> Any:
        people.setdefault(kind, []).append(len(some))
        return inner(kind, some)

    served._commit_people = commit_people


# ------------------------------------------------------------------------------------------------------------- clients


class Client(asyncio.Protocol):
    """A connection that sends one request after another, and records responses and latencies."""

    def __init__(self, requests: Iterator[bytes], answers: list[tuple[int, bytes]], seconds: list[float]) -> None:
        self._requests, self._answers, self._seconds = requests, answers, seconds
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            self.done.set_result(None)
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        _, named, rest = head.lower().partition(b"content-length: ")
        length = int(rest.split(b"\r\n")[0]) if named else 0  # 204 has none
        if len(body) >= length:
            self._seconds.append(time.perf_counter() - self._began)
            self._answers.append((int(head[9:12]), body))
            self._buffer = b""
            self._next()


def request(method: str, path: str, body: bytes = b"", key: str = "") -> bytes:
    """Format one request."""
    head = [
        f"{method} {path} HTTP/1.1",
        "host: bench",
        f"content-length: {len(body)}",
        "content-type: application/json",
    ]
    if key:
        head.append(f"authorization: Bearer {key}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def sent(
    port: int, requests: list[bytes], connections: int = CONNECTIONS
) -> tuple[list[tuple[int, bytes]], list[float]]:
    """Send requests, and return all responses, in no particular order, and their latencies."""
    queue, answers, seconds = iter(requests), [], []
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Client(queue, answers, seconds), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.done for _, client in made))
    return answers, seconds


class Load:
    """Requests of every kind against one server."""

    def __init__(self, port: int, key: str) -> None:
        self.port, self._key, self._people = port, key, 0
        self._rng = np.random.default_rng(0)
        self.document = self.ask("GET", "/v1/studies/local")
        self.steps = [{"state": h % 5, "action": h % 2, "reward": 0.25} for h in range(20)]
        self.horizon = json.loads(self.document)["horizon"]

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        answers, _ = uvloop.run(sent(self.port, [request(method, path, body, self._key)], 1))
        return answers[0][1]

    def used(self) -> dict[str, Any]:
        return json.loads(self.ask("GET", "/used"))

    def arrivals(self, number: int) -> list[bytes]:
        self._people += number
        bodies = (json.dumps({"user": f"{i}"}).encode() for i in range(self._people - number, self._people))
        return [request("POST", "/v1/studies/central/tickets", body, self._key) for body in bodies]

    def local_arrivals(self, number: int) -> list[bytes]:
        return [request("POST", "/v1/studies/local/tickets")] * number

    def answers(self, requests: list[bytes]) -> list[Any]:
        return [json.loads(body) for _, body in uvloop.run(sent(self.port, requests))[0]]

    def reports(self, tickets: list[Any]) -> list[bytes]:
        (part,) = json.loads(self.document)["parts"]
        study = hashlib.sha256(self.document).digest()
        made = []
        for one in tickets:
            symbols = np.sort(self._rng.choice(part["symbols"], part["size"], replace=False)).astype(np.int64)
            ticket = SignedTicket(
                study, int(one["number"]), one["plan"], int(one["expires"]), bytes.fromhex(one["mac"])
            )
            made.append(request("POST", "/v1/studies/local/reports", Message(ticket, (symbols,)).to_bytes()))
        return made

    def of(self, kind: str, number: int) -> list[bytes]:
        """Make new requests of a kind."""
        if kind in ECHOES:
            body = json.dumps({"ticket": "x" * 100, "state": 1, "step": 2}).encode()
            return [request("POST", ECHOES[kind], body, self._key)] * number
        if kind == "tickets":
            return self.arrivals(number)
        if kind == "tickets (local)":
            return self.local_arrivals(number)
        if kind == "reports":
            return self.reports(self.answers(self.local_arrivals(number)))
        tickets = [one["ticket"] for one in self.answers(self.arrivals(number if kind == "episodes" else 64))]
        if kind == "episodes":
            bodies = [{"ticket": text, "steps": self.steps[: self.horizon]} for text in tickets]
        else:
            bodies = [{"ticket": tickets[i % 64], "state": i % 5, "step": i % self.horizon} for i in range(number)]
        return [request("POST", f"/v1/studies/central/{kind}", json.dumps(body).encode(), self._key) for body in bodies]


@contextlib.contextmanager
def served(address: str | None) -> Iterator[Load]:
    """Start a server in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.serve", "--child", folder, *([address] if address else [])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield Load(**json.loads(process.stdout.readline()))
        finally:
            process.terminate()
            process.wait()


def measured(load: Load, kind: str, requests: list[bytes]) -> tuple[float, float, list[float]]:
    """Return the server's CPU time per request and that of its event loop, in microseconds, and the latencies in
    seconds."""
    began = load.used()
    answers, seconds = uvloop.run(sent(load.port, requests))
    ended = load.used()
    spent, in_loop = (1e6 * (ended[part] - began[part]) / len(requests) for part in ("cpu", "loop"))
    wrong = {status for status, _ in answers} - {200, 201, 204}
    if wrong:
        raise RuntimeError(f"{kind} was answered with {wrong}.")
    return spent, in_loop, seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address", nargs="?")
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child")
    asked = parser.parse_args()
    if asked.child:
        jax.config.update("jax_compilation_cache_dir", str(Path(tempfile.gettempdir()) / "privrl-bench-compiled"))
        child(Path(asked.child), asked.address)
        return
    with served(asked.address) as load:
        for kind in LIMITS:  # past the first blocks, which are small: a plan follows each
            uvloop.run(sent(load.port, load.of(kind, _WARM)))
        cost: dict[str, list[float]] = {kind: [] for kind in (*ECHOES, *LIMITS)}
        loop: dict[str, list[float]] = {kind: [] for kind in cost}
        waited: dict[str, list[float]] = {kind: [] for kind in cost}
        for _ in range(asked.rounds):
            for kind in LIMITS:
                for one in (*ECHOES, kind):
                    found, in_loop, seconds = measured(load, one, load.of(one, asked.requests))
                    cost[one].append(found)
                    loop[one].append(in_loop)
                    waited[one] += seconds
        people = load.used()["people"]
    echo_cost, bare = (statistics.median(cost[kind]) for kind in ("echo", "bare echo"))
    columns = f"{'us CPU':>8} {'in loop':>8} {'x echo':>7} {'limit':>5} {'x bare':>7}"
    print(f"{'request':16} {columns} {'p50 ms':>8} {'p99 ms':>8}")
    for kind, found in cost.items():
        middle, (p50, p99) = statistics.median(found), 1e3 * np.quantile(waited[kind], (0.5, 0.99))
        times = f"{middle:8.1f} {statistics.median(loop[kind]):8.1f} {middle / echo_cost:7.2f}"
        print(f"{kind:16} {times} {LIMITS.get(kind, 1.0):5.1f} {middle / bare:7.2f} {p50:8.2f} {p99:8.2f}")
    for kind, number in people.items():
        print(f"people per commit, {kind}: {number:.1f}")
    above = [kind for kind, limit in LIMITS.items() if statistics.median(cost[kind]) > limit * echo_cost]
    if above:
        raise SystemExit(f"Above the limit: {', '.join(above)}.")


if __name__ == "__main__":
    main()
