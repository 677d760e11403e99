"""The process: two listeners on one event loop, the writers beside it, and an orderly end.

The first listener is for apps, devices and anyone, the second for the operator. There is no access log: who asked for
what, and when, is nobody's to keep. Beyond this machine, addresses are served with TLS only, or behind a proxy that
does it.
"""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from privrl.service import operator
from privrl.service.central import CentralServed
from privrl.service.connections import LimitedConnection
from privrl.service.endpoints import ENDPOINTS
from privrl.service.local import LocalServed
from privrl.service.probes import probing
from privrl.service.registry import Studies
from privrl.service.study_file import StudyFile
from privrl.service.web import Application, Endpoint

_SWITCH = 0.001  # seconds after which a thread gives way: planning must not keep actions waiting
_GRACE = 30  # seconds for requests under way when the service ends
_LOOK = 0.05


@dataclass(frozen=True)
class Address:
    """Where a listener is."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "Address":
        """`127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65_535:
            raise ValueError(f"{text!r} is no address; write it as HOST:PORT, for example 127.0.0.1:8080.")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False


@dataclass(frozen=True)
class Listeners:
    """How a process listens.

    Arguments:
        public, operator: the two addresses.
        operator_hosts: further names of the operator's.
        certificate, private_key: files for TLS.
        behind_proxy: a proxy in front does TLS.
        connections: the most at once; further ones are answered 503.
    """

    public: Address
    operator: Address
    operator_hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    private_key: Path | None = None
    behind_proxy: bool = False
    connections: int = 1_024

    def check(self) -> None:
        """Refuses addresses that others can reach without TLS."""
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("TLS needs both `--tls-cert` and `--tls-key`.")
        for option, address in (("--listen", self.public), ("--operator", self.operator)):
            if not (address.is_loopback or self.certificate is not None or self.behind_proxy):
                raise ValueError(
                    f"`{option}` is {address.host!r}, which other machines can reach: records and keys would travel in "
                    "the open. Give `--tls-cert` and `--tls-key`, or `--behind-proxy` if a proxy in front does TLS and "
                    "nobody else reaches this port; or listen on 127.0.0.1."
                )


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
    studies = studies_of(files)
    studies.operator_hosts |= {how.operator.host, *how.operator_hosts}
    sys.setswitchinterval(_SWITCH)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it says what malformed requests were like
    with asyncio.Runner(loop_factory=_loop) as runner:
        try:
            runner.run(_serving(studies, how, say, more))
        finally:
            studies.stop()


def _loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _serving(studies: Studies, how: Listeners, say: Callable[[str], None], more: tuple[Endpoint, ...]) -> None:
    servers = [_Listener(_config(Application(studies, (*ENDPOINTS, *more)), how.public, how))]
    servers.append(_Listener(_config(Application(studies, operator.ENDPOINTS), how.operator, how)))

    def end() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    studies.start()
    tasks = [asyncio.create_task(server.serve()) for server in servers]
    probes = asyncio.create_task(probing(studies))
    try:
        await _until(lambda: all(server.started for server in servers) or any(task.done() for task in tasks))
        for server, what in zip(servers, ("apps and devices", "the operator"), strict=True):
            say(f"Listening for {what}: {server.url}")
        await _until(lambda: studies.ready or studies.failure is not None or servers[0].should_exit)
        if studies.failure is not None:
            raise studies.failure
        if studies.ready:
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


def _config(app: Any, address: Address, how: Listeners) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=address.host,
        port=address.port,
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
