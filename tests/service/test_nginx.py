"""`examples/serve/nginx.conf` as it is shipped, in front of two machines that are played here."""

import contextlib
import http.client
import http.server
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service.test_cli_serve import pem_files

FILE = Path(__file__).parents[2] / "examples" / "serve" / "nginx.conf"
NGINX = shutil.which("nginx")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (Debian's package `nginx-light`)")
TICKETS, ACTIONS = "/v1/studies/river/tickets", "/v1/studies/river/actions"


class Machine(http.server.ThreadingHTTPServer):
    """A machine that answers every request with `status`, and counts what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status, self.sizes = 200, list[int]()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Machine

    def do_POST(self) -> None:
        self.server.sizes.append(len(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Proxy:
    """The port of the proxy and the machines behind it."""

    def __init__(self, port: int, machines: list[Machine]) -> None:
        self.port, self.machines = port, machines

    def post(self, path: str, times: int = 1, key: str = "", body: bytes = b"x") -> list[int]:
        """The answers to several requests on one connection."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"authorization": f"Bearer {key}"} if key else {}
        found = []
        with contextlib.closing(
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        ) as connection:
            for _ in range(times):
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                answer.read()
                found.append(answer.status)
        return found


@contextlib.contextmanager
def proxied(folder: Path, changes: dict[str, str]) -> Iterator[Proxy]:
    machines = [Machine(), Machine()]
    for machine in machines:
        threading.Thread(target=machine.serve_forever, daemon=True).start()
    certificate, key = pem_files(folder)
    port, text = free_port(), FILE.read_text()
    replaced = {
        "/etc/privrl/tls/cert.pem": str(certificate),
        "/etc/privrl/tls/key.pem": str(key),
        "/var/log/nginx": str(folder),
        "listen 443": f"listen 127.0.0.1:{port}",
        "server 127.0.0.1:8080": f"server 127.0.0.1:{machines[0].server_port}",
        "# server 127.0.0.1:8090": f"server 127.0.0.1:{machines[1].server_port}",
        **changes,
    }
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    scratch = " ".join(f"{kind}_temp_path {folder / 'scratch' / kind};" for kind in kinds)
    (folder / "scratch").mkdir()
    whole = folder / "nginx.conf"
    own = f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/main.log crit;"
    whole.write_text(f"{own} events {{}} http {{ {scratch} {text} }}")
    assert NGINX is not None
    process = subprocess.Popen([NGINX, "-c", whole, "-e", folder / "start.log"])
    try:
        end = time.monotonic() + 20.0
        while True:
            assert time.monotonic() < end and process.poll() is None, (folder / "start.log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
                break
            time.sleep(0.02)
        yield Proxy(port, machines)
    finally:
        process.terminate()
        process.wait()
        for machine in machines:
            machine.shutdown()
            machine.server_close()


@pytest.mark.parametrize("shipped", [True, False])
def test_a_short_outage_of_all_machines_ends_when_it_ends(tmp_path: Path, shipped: bool) -> None:
    """While a database restarts, every machine answers 503. Without `max_fails=0`, nginx takes them for dead."""
    with proxied(tmp_path, {} if shipped else {" max_fails=0;": ";"}) as proxy:
        assert proxy.post(ACTIONS, 4) == [200] * 4
        for machine in proxy.machines:
            machine.status = 503
        during = proxy.post(ACTIONS, 8)
        for machine in proxy.machines:
            machine.status = 200
        after = proxy.post(ACTIONS, 8)
    assert 503 in during
    assert (502 not in during + after and after == [200] * 8) == shipped


def test_a_request_that_one_machine_refuses_reaches_the_other(tmp_path: Path) -> None:
    with proxied(tmp_path, {}) as proxy:
        proxy.machines[0].status = 503
        assert proxy.post(ACTIONS, 10) == [200] * 10
        assert len(proxy.machines[1].sizes) == 10


def test_tickets_have_a_rate_and_other_requests_do_not(tmp_path: Path) -> None:
    with proxied(tmp_path, {}) as proxy:
        devices = proxy.post(TICKETS, 100)
        assert devices[:30] == [200] * 30 and set(devices) == {200, 429}
        assert proxy.post(TICKETS, 100, key="prk_x") == [200] * 100
        assert proxy.post(ACTIONS, 100) == [200] * 100


def test_a_record_is_not_written_to_a_file(tmp_path: Path) -> None:
    with proxied(tmp_path, {}) as proxy:
        large = b"x" * 4 * 2**20
        assert proxy.post(ACTIONS, 1, body=large) == [200] and proxy.post(ACTIONS, 1, body=large + b"x") == [413]
        assert max(size for machine in proxy.machines for size in machine.sizes) == len(large)
        # nginx numbers its temporary files; it has made none.
        assert not [path for path in (tmp_path / "scratch").rglob("*") if path.is_file() or path.name.isdigit()]
        assert not [path for path in tmp_path.glob("*.log") if path.stat().st_size]
