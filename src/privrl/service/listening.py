"""The process: two listeners on one event loop, the writers beside it, and an orderly end.

The first listener is for apps, devices and anyone, the second for the operator. There is no access log: who asked for
what, and when, is nobody's to keep. Beyond this machine, addresses are served with TLS only, or behind a proxy that
does it.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn

from privrl.service import operator
from privrl.service.addresses import Listeners
from privrl.service.central import CentralServed
from privrl.service.connections import LimitedConnection
from privrl.service.endpoints import ENDPOINTS
from privrl.service.local import LocalServed
from privrl.service.probes import probing
from privrl.service.registry import Studies
from privrl.service.study_file import StudyFile
from privrl.service.web import Application, Endpoint

_SWITCH = 0.001  # seconds after which a thread gives way: planning must not keep actions waiting
_YOUNG = 20_000  # objects that are made before garbage is looked for: those of requests that wait for a commit are none
_GRACE = 30  # seconds for requests under way when the service ends
_LOOK = 0.05


def studies_of(files: Sequence[StudyFile]) -> Studies:
    """Study files as studies to serve."""
    return Studies([(CentralServed if file.kind == "central" else LocalServed)(file) for file in files])


def serve(
    files: Sequence[StudyFile], how: Listeners, say: Callable[[str], None], more: tuple[Endpoint, ...] = ()
) -> None:
    """Serves until the process is told to end; then finishes what is under way, and closes the stores.

    `more` are public addresses besides those of every service.
    """
    how.check()
    how.make_room()
    studies = studies_of(files)
    studies.operator_hosts |= {how.operator.host, *how.operator_hosts}
    sockets = how.bound()
    set_interpreter()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it says what malformed requests were like
    servers = (
        _Listener(_config(Application(studies, (*ENDPOINTS, *more)), how)),
        _Listener(_config(Application(studies, operator.ENDPOINTS), how)),
    )
    with asyncio.Runner(loop_factory=_loop) as runner:
        try:
            runner.run(_serving(studies, servers, sockets, say))
        finally:
            studies.stop()


def set_interpreter() -> None:
    """Sets how threads take turns, and how often garbage is looked for."""
    sys.setswitchinterval(_SWITCH)
    gc.set_threshold(_YOUNG)


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serving(
    studies: Studies,
    servers: Sequence["_Listener"],
    sockets: Sequence[list[socket.socket]],
    say: Callable[[str], None],
) -> None:
    def end() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    studies.start()
    tasks = [asyncio.create_task(server.serve(some)) for server, some in zip(servers, sockets, strict=True)]
    probes = asyncio.create_task(probing(studies))
    try:
        await _until(lambda: all(server.started for server in servers) or any(task.done() for task in tasks))
        for server, what in zip(servers, ("apps and devices", "the operator"), strict=True):
            say(f"Listening for {what}: {server.url}")
        await _until(lambda: studies.ready or studies.failure is not None or servers[0].should_exit)
        if studies.failure is not None:
            raise studies.failure
        if studies.ready:
            gc.freeze()  # what is there now stays
            say("Ready.")
        await asyncio.gather(*tasks)
    finally:
        end()
        probes.cancel()
        await asyncio.gather(*tasks, probes, return_exceptions=True)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_LOOK)


class _Listener(uvicorn.Server):
    """One of two servers in a process: signals are taken by the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @property
    def url(self) -> str:
        """Where it listens; port 0 has become a free one."""
        host, port, *_ = self.servers[0].sockets[0].getsockname()
        scheme = "http" if self.config.ssl_certfile is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _config(app: Any, how: Listeners) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="none",
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=how.connections,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_GRACE,
        ssl_certfile=how.certificate,
        ssl_keyfile=how.private_key,
    )
