"""Where a process listens: two addresses, which beyond this machine need TLS or a proxy, and the sockets there."""

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

_BACKLOG = 2_048  # connections that wait to be taken
_MOST_FILES = 65_536
_FILES = 256  # open files besides connections: stores, logs, and those of connections that are one too many


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

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

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
        """Refuses addresses that others can reach without TLS, and a certificate that cannot be used."""
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("TLS needs both `--tls-cert` and `--tls-key`.")
        for option, address in (("--listen", self.public), ("--operator", self.operator)):
            if not (address.is_loopback or self.certificate is not None or self.behind_proxy):
                raise ValueError(
                    f"`{option}` is {address.host!r}, which other machines can reach: records and keys would travel in "
                    "the open. Give `--tls-cert` and `--tls-key`, or `--behind-proxy` if a proxy in front does TLS and "
                    "nobody else reaches this port; or listen on 127.0.0.1."
                )
        if self.certificate is not None and self.private_key is not None:
            _check_certificate(self.certificate, self.private_key)

    def make_room(self) -> None:
        """Lets this process have as many files open as connections need, and stores and logs besides."""
        try:
            import resource
        except ImportError:  # there is no such limit on Windows
            return
        needed = 2 * self.connections + _FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = max(needed, _MOST_FILES)  # who begins TLS and does not go on is no connection yet, and has a file open
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < allowed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < needed:
            raise ValueError(
                f"`--connections` is {self.connections}, which needs {needed} open files, and this process may have "
                f"{hard}. Raise that (`ulimit -n`, or LimitNOFILE= of systemd), or lower `--connections`."
            )

    def bound(self) -> tuple[list[socket.socket], list[socket.socket]]:
        """The sockets of the two addresses, which listen from now on."""
        with contextlib.ExitStack() as stack:
            found = [
                _bound(option, address, stack)
                for option, address in (("--listen", self.public), ("--operator", self.operator))
            ]
            stack.pop_all()
        return found[0], found[1]


def _check_certificate(certificate: Path, key: Path) -> None:
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise ValueError(f"`{option}` is `{path}`, which cannot be read: {error.strerror}.") from error
    try:
        # A key with a password would stop here and wait for somebody to type it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        raise ValueError(
            f"`{certificate}` and `{key}` cannot be used for TLS ({error.reason or 'no PEM'}). Give a certificate "
            "chain and its own private key, both in PEM, the key without a password."
        ) from error


def _bound(option: str, address: Address, stack: contextlib.ExitStack) -> list[socket.socket]:
    """Sockets at all that a name stands for (`localhost` is often two addresses); closed with the stack."""
    try:
        known = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ValueError(f"`{option}` is {address}, and this machine knows no address of that name.") from error
    sockets, fault = [], OSError()
    for family, where in dict.fromkeys((family, where) for family, _, _, _, where in known):
        try:
            made = socket.create_server(where, family=family, backlog=_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OSError(
                    f"`{option}` is {address}, where another program listens already, perhaps this service itself. "
                    "End that one, or choose another port."
                ) from error
            fault = error
        else:
            sockets.append(stack.enter_context(made))
    if not sockets:
        raise OSError(f"`{option}` is {address}, where this process cannot listen: {os.strerror(fault.errno or 0)}.")
    return sockets
