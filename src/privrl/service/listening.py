"""The process of the service: one event loop that listens on two addresses, and an orderly end.

One address is for apps, devices and the public, the other for the operator. Access logging is disabled, because
request metadata is sensitive. Addresses that other machines can reach require TLS or a proxy that terminates it. Limits
on slow clients and on the number of connections are the proxy's task.
"""

import asyncio
import contextlib
import errno
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from privrl.service import operator_endpoints, public_endpoints
from privrl.service.application import Endpoint, make_application
from privrl.service.central import CentralStudy
from privrl.service.event_log import log_event
from privrl.service.local import LocalStudy
from privrl.service.pilot_study import PilotStudy
from privrl.service.probes import probe
from privrl.service.served_studies import AbstractServedStudy, ServedStudies
from privrl.service.study_file import StudyFile
from privrl.service.tls import LiveTls, TlsFiles

_SWITCH_SECONDS = 0.001  # a planning writer gives way to the event loop this often, so actions do not wait for it
_GC_THRESHOLD = 20_000  # the objects of requests that wait for a commit are not garbage: look for it less often
_SHUTDOWN_SECONDS = 30  # for open requests, once the process is told to end
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Address:
    """A host and a port to listen on."""

    host: str
    port: int

    @classmethod
    def from_text(cls, text: str) -> "Address":
        """Parse `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65_535:
            raise ValueError(f"{text!r} is not an address. Write it as HOST:PORT, for example 127.0.0.1:8080.")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    def listen(self, option: str) -> socket.socket:
        """Bind a socket to the address.

        Raises:
            ValueError: if the host is unknown. Messages name the command line's `option`.
            OSError: if this process cannot listen there.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            socket.getaddrinfo(self.host, self.port, family)
        except OSError as error:
            raise ValueError(f"`{option}` is {self}, and this machine knows no address of that name.") from error
        try:
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            problem = f"`{option}` is {self}, where this process cannot listen: {os.strerror(error.errno or 0)}."
            if error.errno == errno.EADDRINUSE:
                problem += " Stop the program that listens there, or choose another port."
            raise OSError(problem) from error


@dataclass(frozen=True)
class Listeners:
    """How a process listens.

    Arguments:
        public, operator: the two addresses; their ports differ.
        operator_hosts: further host names of the operator's address.
        certificate, private_key: PEM files for TLS; SIGHUP reloads them.
        behind_proxy: a proxy in front terminates TLS.
    """

    public: Address
    operator: Address
    operator_hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    private_key: Path | None = None
    behind_proxy: bool = False

    def check(self) -> None:
        """Refuse addresses that other machines can reach without TLS, and a certificate that cannot be used."""
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("TLS needs both `--tls-cert` and `--tls-key`.")
        for option, address in (("--listen", self.public), ("--operator", self.operator)):
            if not (address.is_loopback or self.certificate is not None or self.behind_proxy):
                raise ValueError(
                    f"`{option}` is {address.host!r}, which other machines can reach, so records and keys would travel "
                    "unencrypted. Give `--tls-cert` and `--tls-key`, or `--behind-proxy` if a proxy terminates TLS "
                    "and only that proxy reaches this port; or listen on 127.0.0.1."
                )
        if self.tls is not None:
            self.tls.check(time.time())

    @property
    def tls(self) -> TlsFiles | None:
        """The TLS files, if there are any."""
        if self.certificate is None or self.private_key is None:
            return None
        return TlsFiles(self.certificate, self.private_key)

    @property
    def warning(self) -> str:
        """A warning if the public address has no proxy in front of it; empty otherwise."""
        if self.behind_proxy or self.public.is_loopback:
            return ""
        return (
            f"`--listen` is {self.public.host!r}, which other machines can reach, and nothing limits slow clients or "
            "the number of connections. Put a proxy in front and give `--behind-proxy`."
        )


def make_studies(files: Sequence[StudyFile]) -> ServedStudies:
    """Make the studies of a process from their files."""
    return ServedStudies([make_study(file) for file in files])


def make_study(file: StudyFile, clock: Callable[[], float] = time.time) -> AbstractServedStudy:
    """Make one study from its file."""
    if file.kind == "pilot":
        return PilotStudy(file, clock)
    return CentralStudy(file, clock) if file.kind == "central" else LocalStudy(file, clock)


def serve(
    files: Sequence[StudyFile], listeners: Listeners, say: Callable[[str], None], more: tuple[Endpoint, ...] = ()
) -> None:
    """Serve until the process is told to end; then finish the open requests and close the stores.

    Arguments:
        more: further endpoints of the public address.
    """
    listeners.check()
    studies = make_studies(files)
    studies.operator_hosts |= {listeners.operator.host, *listeners.operator_hosts}
    with (
        listeners.public.listen("--listen") as public,
        listeners.operator.listen("--operator") as operator,
        _signals_left_to_uvicorn(),
        asyncio.Runner(loop_factory=_make_loop) as runner,
    ):
        app = split_by_port(
            make_application(studies, (*public_endpoints.ENDPOINTS, *more)),
            make_application(studies, operator_endpoints.ENDPOINTS),
            public.getsockname()[1],
            operator.getsockname()[1],
        )
        config = make_config(app, listeners)
        scheme = "http" if listeners.certificate is None else "https"
        lines = [
            f"Listening for {who}: {scheme}://{Address(*used.getsockname()[:2])}"
            for who, used in (("apps and devices", public), ("the operator", operator))
        ]
        tune_interpreter()
        config.load()  # makes the TLS context
        if listeners.tls is not None and config.ssl is not None:
            studies.tls = LiveTls(listeners.tls, config.ssl)
        log_event("start", "The service starts.", version=version("privrl"), studies=len(files))
        try:
            runner.run(_serve(studies, uvicorn.Server(config), [public, operator], lines, say))
        finally:
            studies.stop()
            log_event("end", "The service has ended.")


def tune_interpreter() -> None:
    """Set how threads take turns, and how often Python looks for garbage."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_GC_THRESHOLD)


def make_config(app: ASGIApp, listeners: Listeners) -> uvicorn.Config:
    """Make uvicorn's settings, without access log and without its messages, which may quote a request."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ssl_certfile=listeners.certificate,
        ssl_keyfile=listeners.private_key,
    )


def split_by_port(public: ASGIApp, operator: ASGIApp, public_port: int, operator_port: int) -> ASGIApp:
    """Make one application of two: the local port of a connection decides, never a header."""
    if public_port == operator_port:
        raise ValueError(f"`--listen` and `--operator` both have port {public_port}. Give them different ports.")

    async def split(scope: Scope, receive: Receive, send: Send) -> None:
        _, port = scope["server"]
        await (operator if port == operator_port else public)(scope, receive, send)

    return split


async def _serve(
    studies: ServedStudies,
    server: uvicorn.Server,
    sockets: list[socket.socket],
    lines: Sequence[str],
    say: Callable[[str], None],
) -> None:
    studies.start()
    tasks = [asyncio.create_task(probe(studies)), asyncio.create_task(_announce(studies, server, lines, say))]
    if studies.tls is not None:
        tasks.append(asyncio.create_task(studies.tls.watch()))
    with contextlib.suppress(NotImplementedError, AttributeError):  # Windows has no SIGHUP
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, studies)
    try:
        await server.serve(sockets)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if studies.failure is not None:
        raise studies.failure


def _reload(studies: ServedStudies) -> None:
    """Reload the TLS files after SIGHUP. Study files are fixed, and keys are read all the time."""
    if studies.tls is None:
        log_event("tls", "SIGHUP reloads TLS files, and this service has none. Nothing was done.")
    else:
        studies.tls.reload()


async def _announce(
    studies: ServedStudies, server: uvicorn.Server, lines: Sequence[str], say: Callable[[str], None]
) -> None:
    """Report where the process listens, and when studies are ready; end it if a store is refused or none is open."""
    while not server.started:
        await asyncio.sleep(_POLL_SECONDS)
    for line in lines:
        say(line)
    while studies.starting and studies.failure is None:
        await asyncio.sleep(_POLL_SECONDS)
    if studies.failure is not None:
        server.should_exit = True
        return
    gc.freeze()  # the objects that exist now live as long as the process
    say("Ready.")


@contextlib.contextmanager
def _signals_left_to_uvicorn() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM: uvicorn ends in order when it gets one, and then raises it again."""
    before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _make_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not available on Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
