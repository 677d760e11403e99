"""A door to a service in the test's process: a real socket, whose answers may be lost or replaced."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .serving import Reply, Service

Fault = Callable[[int, Reply], Reply | None]
BUSY = Reply(
    503,
    {"retry-after": "7", "content-type": "application/problem+json"},
    b'{"type": "urn:privrl:problem:busy", "detail": "Too many."}',
)
FULL = Reply(410, {"content-type": "application/problem+json"}, b'{"type": "urn:privrl:problem:full", "detail": "."}')


class Door:
    """Forwards to the service over a real socket, and may lose or replace answers; by the number of the request."""

    def __init__(self, service: Service) -> None:
        self.fault: Fault = lambda number, reply: reply
        self.seen: list[tuple[str, bytes]] = []
        lock, door = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                key = (self.headers["authorization"] or "").removeprefix("Bearer ")
                with lock:
                    reply = service.ask(self.command, self.path, body, key=key)
                    door.seen.append((self.path.rsplit("/", 1)[1], body))
                    found = door.fault(len(door.seen), reply)
                if found is None:
                    self.close_connection = True
                    return
                self.send_response(found.status)
                for name, value in found.headers.items():
                    if name != "content-length":
                        self.send_header(name, value)
                if found.status != 204:
                    self.send_header("content-length", str(len(found.body)))
                self.end_headers()
                self.wfile.write(found.body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/studies/{service.served.name}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
